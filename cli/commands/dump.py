"""`kseg dump`: what is in the files, in the words of Kafka's own dump tool, as JSON or as tables."""

import os
from dataclasses import replace
from typing import Annotated

from kseg.cli.filters import Filters, limited
from kseg.cli.option_schema import KAFKA, Option
from kseg.cli.options import (
    BytesMode,
    DropCache,
    Jobs,
    Json,
    NoNow,
    NoProgress,
    OnCluster,
    Partition,
    Paths,
    Quiet,
    Topics,
    read_size_of_int,
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
    filters: Filters,
    limit: Annotated[
        int | None, limited("Stop each file after so many records (or batches, when no records are shown).")
    ] = None,
    topics: Topics = (),
    partition: Partition = None,
    now: NoNow = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    drop_cache: DropCache = False,
    on: OnCluster,
) -> int:
    """Show what is in the files.

    Default text is byte for byte what kafka-dump-log.sh 4.3 prints for the same files and flags. Unlike that tool
    kseg goes on behind damage, says on stderr which bytes are damaged, and writes nothing beside the log.

    A directory stands for its .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint and .kafka files.
    """  # fmt: skip
    from kseg.cli.render import Style
    from kseg.cli.run import over_targets
    from kseg.cli.text.common import damage_words
    from kseg.inspection.dump.judged_dump import JudgedDump
    from kseg.inspection.dump.options import DumpOptions
    from kseg.recovery.verify.altered_headers import header_findings
    from kseg.segment.partition.targets import Expansion

    _refuse_decoders(
        offsets_decoder,
        transaction_log_decoder,
        cluster_metadata_decoder,
        share_group_state_decoder,
        remote_log_metadata_decoder,
    )
    shown = "json" if json else format
    options = DumpOptions(
        format=shown,
        deep_iteration=deep_iteration,
        print_data_log=print_data_log,
        skip_record_metadata=skip_record_metadata,
        max_bytes=max_bytes,
        max_message_size=max_message_size,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        selection=filters.selection(limit),
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
        JudgedDump(header_findings),
        options,
        style,
        expand=Expansion.FILES,
        paths=(*(files.split(",") if files else ()), *paths),
        topics=topics,
        partition=partition,
        jobs=jobs,
        cluster=on.cluster(light=True),
        alone=(lambda jobs: replace(options, jobs=jobs)) if deep_iteration or print_data_log else None,
    )


def _refuse_decoders(*asked: bool) -> None:
    for name, is_asked in zip(_DECODERS, asked, strict=True):
        if is_asked:
            raise UsageError(f"--{name}-decoder comes in a later version of kseg")
