"""`kseg lookup`: find one message by offset, time, key or leader epoch, through the indexes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kseg.cli.decoders import ConnectTopics, ShowSecrets, row_decoder
from kseg.cli.filters import FromOffset, FromTime, ToOffset, ToTime, refuse_reversed_ranges
from kseg.cli.option_schema import FILTER, RUN, Option
from kseg.cli.options import (
    BytesMode,
    CommonOptions,
    Isolation,
    Json,
    KeyEncoding,
    NoNow,
    OnCluster,
    Paths,
    Verbose,
    count_option,
    epoch_option,
    key_bytes,
    offset_option,
    time_option,
)
from kseg.cli.payload_formats import PayloadFormats, decoding
from kseg.segment.errors import UsageError
from kseg.segment.layout import INT64_MAX
from kseg.segment.partition.bounds import INT64_MIN, Bounds

if TYPE_CHECKING:
    from kseg.jobs.events import Event
    from kseg.segment.partition.targets import Target


EXAMPLES = (
    ("The batch that holds an offset", "kseg lookup --offset 1234567 orders-0"),
    ("The first message at or after a time", "kseg lookup --timestamp 2024-05-01T12:00:00Z orders-0"),
    ("The newest message of a key, and all of them", "kseg lookup --key order-17 orders-0"),
    ("", "kseg lookup --key order-17 --all orders-0"),
    ("The same in all partitions, of the last hour only", "kseg lookup --key order-17 --all --from-time 2024-05-01T11:00:00Z --topic orders /var/lib/kafka"),
    ("Where each partition of a topic ends", "kseg lookup --latest --json --topic orders /var/lib/kafka"),
)  # fmt: skip


MURMUR2 = "murmur2"


class KeySearch(NamedTuple):
    """Options that apply to --key only, so that it need not read all data."""

    from_offset: FromOffset = None
    to_offset: ToOffset = None
    from_time: FromTime = None
    to_time: ToTime = None
    partitioner: Annotated[
        str | None,
        Option(
            choices=(MURMUR2,),
            help="Search only the partition that the Java client's default partitioner selects for the key. Assumes that every "
            "producer of the topic used it, and that the topic never had fewer partitions.",
            panel=FILTER,
        ),
    ] = None
    partition_count: Annotated[
        int | None,
        count_option(
            "How many partitions the topic has, for --partitioner. Default: what the metadata log says.",
            FILTER,
        ),
    ] = None

    def refuse_without_key(self) -> None:
        """Raises UsageError if one of them is given without --key."""
        for name, value in self._asdict().items():
            if value is not None:
                raise UsageError(f"--{name.replace('_', '-')} requires --key")

    @property
    def bounds(self) -> Bounds:
        """Raises UsageError."""
        refuse_reversed_ranges(self.from_offset, self.to_offset, self.from_time, self.to_time)
        return Bounds(
            0 if self.from_offset is None else self.from_offset,
            INT64_MAX if self.to_offset is None else self.to_offset,
            INT64_MIN if self.from_time is None else self.from_time,
            INT64_MAX if self.to_time is None else self.to_time,
        )

    def look(self, targets: "Sequence[Target]", options: Any) -> "tuple[object, Sequence[Event]]":
        """The options of a lookup; with --partitioner including the partition count of each topic among the targets.

        Raises UsageError if the partition count of a topic is unknown.
        """
        if self.partitioner is None:
            if self.partition_count is not None:
                raise UsageError("--partition-count requires --partitioner")
            return options, ()
        return replace(options, partition_counts=self._counts(targets)), ()

    def _counts(self, targets: "Sequence[Target]") -> dict[str, int]:
        from kseg.cli.topic_evidence import finder_for
        from kseg.segment.partition.directory import own_partition_name
        from kseg.segment.partition.targets import PartitionTarget, directory_of, log_dir_of

        finder = finder_for(targets, None)
        counts: dict[str, int] = {}
        for target in targets:
            directory = directory_of(target)
            name = own_partition_name(directory)
            if name is None or name.topic in counts:
                continue
            if self.partition_count is not None:
                counts[name.topic] = self.partition_count
                continue
            image = finder.image_for(log_dir_of(PartitionTarget(directory)))
            topics = {} if image is None or not image.is_certain else image.topics
            known = [topic for topic in topics.values() if topic.name == name.topic]
            if not known:
                raise UsageError(
                    f"no metadata log says how many partitions {name.topic} has: --partitioner requires --partition-count"
                )
            counts[name.topic] = len(known[0].partitions)
        return counts


QUESTION = "What to look up (exactly one)"


def command(
    *,
    paths: Paths,
    offset: Annotated[
        int | None, offset_option("The batch that contains this offset, else the next one.", QUESTION)
    ] = None,
    timestamp: Annotated[
        int | None,
        time_option("The first message at or after this time: epoch milliseconds or ISO 8601.", QUESTION),
    ] = None,
    max_timestamp: Annotated[
        bool, Option(help="The message with the largest timestamp.", panel=QUESTION)
    ] = False,
    earliest: Annotated[bool, Option(help="The log start offset.", panel=QUESTION)] = False,
    earliest_local: Annotated[
        bool, Option(help="With tiered storage: the start of the local log.", panel=QUESTION)
    ] = False,
    latest_tiered: Annotated[
        bool, Option(help="With tiered storage: the last offset there.", panel=QUESTION)
    ] = False,
    earliest_pending_upload: Annotated[
        bool, Option(help="With tiered storage: the first offset that is not there yet.", panel=QUESTION)
    ] = False,
    latest: Annotated[
        bool, Option(help="The log end offset (with read_committed the last stable one).", panel=QUESTION)
    ] = False,
    key: Annotated[
        str | None, Option(metavar="KEY", help="The newest message with this key.", panel=QUESTION)
    ] = None,
    leader_epoch: Annotated[
        int | None, epoch_option("The end offset of the largest epoch up to this one.", QUESTION)
    ] = None,
    transactional_id: Annotated[
        str | None,
        Option(
            metavar="ID",
            help="The transactions of a transactional id: producer ids, partitions and offsets.",
            panel=QUESTION,
        ),
    ] = None,
    all: Annotated[
        bool, Option(help="With --key: every message of the key, oldest first.", panel=FILTER)
    ] = False,
    key_encoding: KeyEncoding = "utf8",
    search: KeySearch,
    isolation: Isolation = "read_uncommitted",
    log_start_offset: Annotated[
        int | None,
        Option(
            metavar="N",
            help="The log start offset; records below it are not visible. Default: the log dir's checkpoint, else the first segment.",
            panel=FILTER,
        ),
    ] = None,
    explain: Annotated[
        bool, Option(help="Show which files and index entries led to each answer.", panel=RUN)
    ] = False,
    no_index: Annotated[bool, Option(help="Scan instead of trusting the indexes.", panel=RUN)] = False,
    json: Json = False,
    bytes_mode: BytesMode = "auto",
    show_secrets: ShowSecrets = False,
    payloads: PayloadFormats,
    connect_topics: ConnectTopics = (),
    common: CommonOptions,
    verbose: Verbose = False,
    now: NoNow = None,
    on: OnCluster,
) -> int:
    """Find a message by offset, time, key or leader epoch, and show where it is.

    Answers like a broker: --offset like a fetch, --timestamp, --max-timestamp, --earliest and --latest like
    ListOffsets, --leader-epoch like OffsetForLeaderEpoch. A search for a key reads everything within --from-offset,
    --to-offset, --from-time, --to-time and --partitioner. Of several partitions those that contain it are shown. --explain
    says which files and index entries led there. The exit status is 1 when nothing is found.
    """  # fmt: skip
    asked = {
        "offset": offset is not None,
        "timestamp": timestamp is not None,
        "max-timestamp": max_timestamp,
        "earliest": earliest,
        "earliest-local": earliest_local,
        "latest-tiered": latest_tiered,
        "earliest-pending-upload": earliest_pending_upload,
        "latest": latest,
        "key": key is not None,
        "leader-epoch": leader_epoch is not None,
        "transactional-id": transactional_id is not None,
    }
    kinds = [kind for kind, is_asked in asked.items() if is_asked]
    if len(kinds) != 1:
        raise UsageError(f"kseg lookup takes exactly one of {', '.join(f'--{kind}' for kind in asked)}")
    payloads.refuse_with(bytes_mode)
    if all and key is None:
        raise UsageError("--all requires --key")
    if key is None:
        search.refuse_without_key()
    if transactional_id is not None:
        from kseg.cli.transactional_lookup import lookup_transactional_id

        return lookup_transactional_id(
            transactional_id,
            request=common.request(paths, on.cluster(light=True)),
            jobs=common.jobs,
            json=json,
            shown=common.shown(),
        )
    from kseg.cli.render import Style
    from kseg.cli.run import is_one_log, over_targets
    from kseg.cli.shared_targets import Sharing
    from kseg.cli.text.lookup import LookupReport
    from kseg.inspection.lookup.checked_lookup import checked_lookup
    from kseg.inspection.query import TIERED_KINDS, LookupQuery
    from kseg.recovery.verify.altered_headers import header_findings
    from kseg.segment.partition.targets import Expansion

    query = LookupQuery(
        kind=kinds[0],
        offset=offset,
        timestamp_ms=timestamp,
        key=None if key is None else key_bytes(key, key_encoding),
        leader_epoch=leader_epoch,
        every_version=all,
        bounds=search.bounds,
        use_index=not no_index,
        log_start_offset=log_start_offset,
        read_committed=isolation == "read_committed",
        bytes_mode=bytes_mode,
        row_decoder=row_decoder(
            bytes_mode=bytes_mode, show_secrets=show_secrets, connect_topics=connect_topics
        ),
    )
    report = LookupReport(explain, only_hits=not is_one_log(paths), shows_all=verbose or all)
    style = Style(
        command="lookup",
        json=json,
        **common.shown(),
        words=report.words,
        report=report,
        verbose=verbose,
        missed=lambda row: row.get("type") == "lookup" and row.get("found") is False,
    )

    def look(targets: "Sequence[Target]", options: object) -> "tuple[object, Sequence[Event]]":
        options, findings = search.look(targets, options)
        if timestamp is not None or earliest or leader_epoch is not None:
            from kseg.cli.remote_evidence import remote_spans

            options = replace(query, remote=remote_spans(targets))
        if query.kind in TIERED_KINDS:
            options = replace(query, remote_ends=_remote_ends(targets))
        decode = decoding(payloads, paths, "lookup", common.quiet)
        return (options, findings) if decode is None else decode(targets, options)

    return over_targets(
        partial(checked_lookup, header_check=header_findings),
        query,
        style,
        expand=Expansion.PARTITIONS,
        request=common.request(paths, on.cluster(light=True)),
        jobs=common.jobs,
        confirms=True,
        sharing=Sharing.LARGE,
        look=look,
    )


def _remote_ends(targets: "Sequence[Target]") -> "dict[str, int | None]":
    """By the directory of a partition with tiered storage, the offset after the last one there; None if unknown."""
    from kseg.cli.remote_evidence import with_remote_ends
    from kseg.cli.topic_evidence import Asked, topic_settings

    settings = with_remote_ends(targets, topic_settings(targets, Asked())[0])
    return {path: topic.remote_end_offset for path, topic in settings.items() if topic.is_tiered}
