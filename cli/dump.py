"""`kseg dump`: what is in the files, in the words of Kafka's own dump tool, as JSON or as tables."""

import os
from dataclasses import replace
from typing import Annotated

from kseg.cli.declare import FILTER, KAFKA, Option
from kseg.cli.options import (
    Archives,
    BytesMode,
    DropCache,
    Isolation,
    Jars,
    Jobs,
    Json,
    KeyEncoding,
    Master,
    NoProgress,
    Packages,
    Partition,
    Paths,
    PyFiles,
    Quiet,
    Spark,
    SparkConf,
    Topics,
    cluster_of,
    key_bytes,
    read_count,
    read_partition,
    read_size_of_int,
    read_time,
)
from kseg.segment.errors import UsageError
from kseg.segment.layout import INT32_MAX

EXAMPLES = (
    ("What is in a segment, batch by batch", "kseg dump 00000000000000000000.log"),
    ("Every record of a partition, as Kafka's own tool prints it", "kseg dump --print-data-log orders-0"),
    ("The records of one key as JSON", "kseg dump --json --print-data-log --key order-17 orders-0"),
    ("An hour of a topic, in a table", "kseg dump --format table --topic orders --from-time 2024-05-01T12:00Z --to-time 2024-05-01T13:00Z /var/lib/kafka"),
    ("An index beside its log", "kseg dump --verify-index-only 00000000000000000000.index"),
)  # fmt: skip

_DECODERS = ("offsets", "transaction-log", "cluster-metadata", "share-group-state", "remote-log-metadata")


def _flag_of_kafka(name: str, help: str) -> Option:
    return Option(name, help=help, panel=KAFKA)


def command(
    *,
    paths: Paths = (),
    files: Annotated[
        str | None, Option("--files", metavar="A,B", help="More files, separated by commas.", panel=KAFKA)
    ] = None,
    deep_iteration: Annotated[
        bool, _flag_of_kafka("--deep-iteration", "Show the records, not only the batches.")
    ] = False,
    print_data_log: Annotated[
        bool, _flag_of_kafka("--print-data-log", "Show keys and values too (implies --deep-iteration).")
    ] = False,
    skip_record_metadata: Annotated[
        bool, _flag_of_kafka("--skip-record-metadata", "Of records show only key, value and headers.")
    ] = False,
    max_bytes: Annotated[
        int,
        Option(
            "--max-bytes",
            metavar="SIZE",
            read=read_size_of_int,
            help="Read at most so much of a .log file.",
            panel=KAFKA,
        ),
    ] = INT32_MAX,
    max_message_size: Annotated[
        int,
        Option(
            "--max-message-size",
            metavar="SIZE",
            read=read_size_of_int,
            help="The largest message that a check of an index reads.",
            panel=KAFKA,
        ),
    ] = 5 * 1024 * 1024,
    verify_index_only: Annotated[
        bool,
        _flag_of_kafka(
            "--verify-index-only", "Check an index against its log, without printing its entries."
        ),
    ] = False,
    index_sanity_check: Annotated[
        bool, _flag_of_kafka("--index-sanity-check", "Check an index the way a broker does when it starts.")
    ] = False,
    offsets_decoder: Annotated[
        bool, _flag_of_kafka("--offsets-decoder", "Decode __consumer_offsets (comes in a later version).")
    ] = False,
    transaction_log_decoder: Annotated[
        bool,
        _flag_of_kafka("--transaction-log-decoder", "Decode __transaction_state (comes in a later version)."),
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool,
        _flag_of_kafka("--cluster-metadata-decoder", "Decode __cluster_metadata (comes in a later version)."),
    ] = False,
    share_group_state_decoder: Annotated[
        bool,
        _flag_of_kafka(
            "--share-group-state-decoder", "Decode __share_group_state (comes in a later version)."
        ),
    ] = False,
    remote_log_metadata_decoder: Annotated[
        bool,
        _flag_of_kafka(
            "--remote-log-metadata-decoder", "Decode __remote_log_metadata (comes in a later version)."
        ),
    ] = False,
    format: Annotated[
        str,
        Option(
            "--format", choices=("kafka", "json", "table"), help="kafka is the text of kafka-dump-log.sh 4.3."
        ),
    ] = "kafka",
    json: Json = False,
    bytes_mode: BytesMode = "auto",
    from_offset: Annotated[
        int | None, Option("--from-offset", metavar="N", help="Only from this offset on.", panel=FILTER)
    ] = None,
    to_offset: Annotated[
        int | None, Option("--to-offset", metavar="N", help="Only below this offset.", panel=FILTER)
    ] = None,
    from_time: Annotated[
        int | None,
        Option(
            "--from-time",
            metavar="TIME",
            read=read_time,
            help="Only from this time on: epoch milliseconds or ISO 8601.",
            panel=FILTER,
        ),
    ] = None,
    to_time: Annotated[
        int | None,
        Option("--to-time", metavar="TIME", read=read_time, help="Only before this time.", panel=FILTER),
    ] = None,
    key: Annotated[
        tuple[str, ...],
        Option("--key", metavar="KEY", help="Only records with this key; may be repeated.", panel=FILTER),
    ] = (),
    key_encoding: KeyEncoding = "utf8",
    key_regex: Annotated[
        str | None,
        Option(
            "--key-regex",
            metavar="REGEX",
            help="Only records whose key matches somewhere (bytes as in Python: \\xff).",
            panel=FILTER,
        ),
    ] = None,
    producer_id: Annotated[
        int | None, Option("--producer-id", metavar="N", help="Only batches of this producer.", panel=FILTER)
    ] = None,
    leader_epoch: Annotated[
        int | None,
        Option(
            "--leader-epoch",
            metavar="N",
            read=read_partition,
            help="Only batches of this leader epoch.",
            panel=FILTER,
        ),
    ] = None,
    control: Annotated[
        bool | None, Option("--control/--no-control", help="Only control records, or none.", panel=FILTER)
    ] = None,
    isolation: Isolation = "read_uncommitted",
    limit: Annotated[
        int | None,
        Option(
            "--limit",
            metavar="N",
            read=read_count,
            help="Stop each file after so many records (or batches, when no records are shown).",
            panel=FILTER,
        ),
    ] = None,
    topics: Topics = (),
    partition: Partition = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    drop_cache: DropCache = False,
    spark: Spark = False,
    master: Master = None,
    spark_conf: SparkConf = (),
    py_files: PyFiles = (),
    archives: Archives = (),
    jars: Jars = (),
    packages: Packages = (),
) -> int:
    """Show what is in the files.

    Default text is byte for byte what kafka-dump-log.sh 4.3 prints for the same files and flags. Unlike that tool
    kseg goes on behind damage, says on stderr which bytes are damaged, and writes nothing beside the log.

    A directory stands for its .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint and .kafka files.
    """  # fmt: skip
    from kseg.cli.render import Style
    from kseg.cli.run import over_targets
    from kseg.cli.words import damage_words
    from kseg.segment.dump.options import DumpOptions
    from kseg.segment.dump.work import Dump
    from kseg.segment.selection import Selection
    from kseg.segment.targets import Expansion

    _refuse_decoders(
        offsets_decoder,
        transaction_log_decoder,
        cluster_metadata_decoder,
        share_group_state_decoder,
        remote_log_metadata_decoder,
    )
    shown = "json" if json else format
    selection = Selection(
        from_offset=from_offset,
        to_offset=to_offset,
        from_time_ms=from_time,
        to_time_ms=to_time,
        keys=tuple(key_bytes(each, key_encoding) for each in key),
        key_regex=_regex(key_regex),
        producer_id=producer_id,
        leader_epoch=leader_epoch,
        control=control,
        read_committed=isolation == "read_committed",
        limit=limit,
    )
    options = DumpOptions(
        format=shown,
        deep_iteration=deep_iteration,
        print_data_log=print_data_log,
        skip_record_metadata=skip_record_metadata,
        max_bytes=max_bytes,
        max_message_size=max_message_size,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        selection=selection,
        bytes_mode=bytes_mode,
        escape_control=os.isatty(1),
        drop_cache=drop_cache,
    )
    style = Style(
        command="dump",
        json=shown == "json",
        table=shown == "table",
        quiet=quiet,
        progress=not no_progress,
        summary=damage_words,
    )
    return over_targets(
        Dump(),
        options,
        style,
        expand=Expansion.FILES,
        paths=(*(files.split(",") if files else ()), *paths),
        topics=topics,
        partition=partition,
        jobs=jobs,
        cluster=cluster_of(spark, master, spark_conf, py_files, archives, jars, packages),
        alone=(lambda jobs: replace(options, jobs=jobs)) if deep_iteration or print_data_log else None,
    )


def _refuse_decoders(*asked: bool) -> None:
    for name, is_asked in zip(_DECODERS, asked, strict=True):
        if is_asked:
            raise UsageError(f"--{name}-decoder comes in a later version of kseg")


def _regex(pattern: str | None) -> bytes | None:
    if pattern is None:
        return None
    import re

    raw = os.fsencode(pattern)
    try:
        re.compile(raw)
    except re.error as error:
        raise UsageError(f"--key-regex {pattern!r} is no regular expression: {error}") from None
    return raw
