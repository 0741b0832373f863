"""`kseg dump`: the contents of files, in the format of Kafka's own dump tool, as JSON or as tables."""

import os
from dataclasses import replace
from typing import Annotated

from kseg.cli.decoders import (
    STRING_DECODER,
    ConnectTopics,
    ShowSecrets,
    chosen_decoder,
    redactor_for,
    refuse_classes,
    row_decoder,
)
from kseg.cli.filters import Filters, limited
from kseg.cli.option_schema import KAFKA, Option
from kseg.cli.options import (
    BytesMode,
    CommonOptions,
    DropCache,
    Json,
    NoNow,
    OnCluster,
    Paths,
    int_size_option,
)
from kseg.cli.payload_formats import PayloadFormats, decoding
from kseg.segment.errors import UsageError
from kseg.segment.layout import INT32_MAX

EXAMPLES = (
    ("What is in a segment, batch by batch", "kseg dump 00000000000000000000.log"),
    ("Every record of a partition, as Kafka's own tool prints it", "kseg dump --print-data-log orders-0"),
    ("The records of one key as JSON", "kseg dump --json --print-data-log --key order-17 orders-0"),
    ("An hour of a topic, in a table", "kseg dump --format table --topic orders --from-time 2024-05-01T12:00Z --to-time 2024-05-01T13:00Z /var/lib/kafka"),
    ("Avro, protobuf or JSON Schema payloads, decoded without a registry", "kseg dump --json --print-data-log --value-format auto /var/lib/kafka/orders-0"),
    ("An index beside its log", "kseg dump --verify-index-only 00000000000000000000.index"),
)  # fmt: skip


def _flag_of_kafka(help: str) -> Option:
    return Option(help=help, panel=KAFKA)


def command(
    *,
    paths: Paths = (),
    files: Annotated[
        str | None, Option(metavar="A,B", help="More files, separated by commas.", panel=KAFKA)
    ] = None,
    deep_iteration: Annotated[bool, _flag_of_kafka("Show the records, not only the batches.")] = False,
    print_data_log: Annotated[
        bool, _flag_of_kafka("Show keys and values too (implies --deep-iteration).")
    ] = False,
    skip_record_metadata: Annotated[
        bool, _flag_of_kafka("Show only key, value and headers of each record.")
    ] = False,
    max_bytes: Annotated[
        int, int_size_option("Read at most this many bytes of each .log file.", KAFKA)
    ] = INT32_MAX,
    max_message_size: Annotated[
        int, int_size_option("The largest message to read when checking an index.", KAFKA)
    ] = 5 * 1024 * 1024,
    verify_index_only: Annotated[
        bool, _flag_of_kafka("Check an index against its log, without printing its entries.")
    ] = False,
    index_sanity_check: Annotated[
        bool, _flag_of_kafka("Check an index the way a broker does when it starts.")
    ] = False,
    offsets_decoder: Annotated[bool, _flag_of_kafka("Decode keys and values of __consumer_offsets.")] = False,
    transaction_log_decoder: Annotated[
        bool, _flag_of_kafka("Decode keys and values of __transaction_state.")
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool, _flag_of_kafka("Decode values of __cluster_metadata; shows secrets in it.")
    ] = False,
    remote_log_metadata_decoder: Annotated[
        bool, _flag_of_kafka("Decode values of __remote_log_metadata.")
    ] = False,
    share_group_state_decoder: Annotated[
        bool, _flag_of_kafka("Decode keys and values of __share_group_state.")
    ] = False,
    key_decoder_class: Annotated[
        str | None,
        Option(
            metavar="CLASS",
            bare=STRING_DECODER,
            help="Decode keys with a decoder class of Kafka. Available are StringDecoder (also if no class is given), "
            "IntegerDecoder and LongDecoder of org.apache.kafka.tools.api.",
            panel=KAFKA,
        ),
    ] = None,
    value_decoder_class: Annotated[
        str | None,
        Option(
            metavar="CLASS", bare=STRING_DECODER, help="Decode values, with the same classes.", panel=KAFKA
        ),
    ] = None,
    format: Annotated[
        str,
        Option(
            choices=("kafka", "json", "table"),
            help="kafka is the text of kafka-dump-log.sh 4.3; table has a line for each record.",
        ),
    ] = "kafka",
    json: Json = False,
    bytes_mode: BytesMode = "auto",
    raw: Annotated[
        bool,
        Option(
            help="Leave records of Kafka's own topics undecoded. Without it --json and --format table decode them."
        ),
    ] = False,
    show_secrets: ShowSecrets = False,
    payloads: PayloadFormats,
    connect_topics: ConnectTopics = (),
    filters: Filters,
    limit: Annotated[
        int | None, limited("Stop each file after this many records (or batches, when no records are shown).")
    ] = None,
    common: CommonOptions,
    now: NoNow = None,
    drop_cache: DropCache = False,
    on: OnCluster,
) -> int:
    """Show the contents of files.

    Default text is byte for byte what kafka-dump-log.sh 4.3 prints for the same files and flags. Unlike that tool
    kseg continues after damage, reports the damaged bytes on stderr, and writes nothing beside the log.

    A directory stands for its .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint and .kafka files; with a filter
    or --format table only for those that hold records.
    """  # fmt: skip
    from kseg.cli.render import Style
    from kseg.cli.run import is_one_log, over_targets
    from kseg.cli.shared_targets import Sharing
    from kseg.cli.text.common import damage_words
    from kseg.cli.text.dump import RecordTable
    from kseg.inspection.dump.checked_dump import CheckedDump
    from kseg.inspection.dump.options import DumpOptions
    from kseg.recovery.verify.altered_headers import header_findings
    from kseg.segment.partition.targets import Expansion

    paths = (*filter(None, (files or "").split(",")), *paths)
    asked = {
        "offsets": offsets_decoder,
        "transaction-log": transaction_log_decoder,
        "cluster-metadata": cluster_metadata_decoder,
        "remote-log-metadata": remote_log_metadata_decoder,
        "share-group-state": share_group_state_decoder,
    }
    classes = (key_decoder_class, value_decoder_class)
    decoders = [name for name, is_asked in asked.items() if is_asked]
    if decoders or classes != (None, None):
        print_data_log = True
    shown = "json" if json else format
    if shown != "kafka" and not decoders:
        refuse_classes(*classes)
    if shown == "table":
        print_data_log = True
    payloads.refuse_with(bytes_mode)
    if payloads.is_asked and shown == "kafka":
        raise UsageError(
            "--key-format and --value-format need --json or --format table: the text is that of kafka-dump-log.sh"
        )
    selection = filters.selection(limit)
    only_records = not replace(selection, limit=None).selects_everything or shown == "table"
    options = DumpOptions(
        format=shown,
        deep_iteration=deep_iteration,
        print_data_log=print_data_log,
        skip_record_metadata=skip_record_metadata,
        max_bytes=max_bytes,
        max_message_size=max_message_size,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        decoder=chosen_decoder(decoders, *classes) if shown == "kafka" else None,
        selection=selection,
        bytes_mode=bytes_mode,
        row_decoder=row_decoder(
            decoders,
            is_plain=raw,
            bytes_mode=bytes_mode,
            show_secrets=show_secrets,
            connect_topics=connect_topics,
        )
        if shown != "kafka"
        else None,
        redactor=redactor_for(decoders, show_secrets=show_secrets, connect_topics=connect_topics)
        if shown == "kafka" and print_data_log
        else None,
        escape_control=os.isatty(1),
        drop_cache=drop_cache,
    )
    style = Style(
        command="dump",
        json=shown == "json",
        table=shown == "table",
        tabulated=RecordTable(not is_one_log(paths)) if shown == "table" else None,
        **common.shown(),
        summary=damage_words,
    )
    return over_targets(
        CheckedDump(header_findings),
        options,
        style,
        expand=Expansion.FILES,
        request=common.request(paths, on.cluster(light=True)),
        jobs=common.jobs,
        confirms=True,
        sharing=Sharing.ALL if deep_iteration or print_data_log else Sharing.NONE,
        look=decoding(payloads, paths, "dump", common.quiet),
        wanted=(lambda target: target.path in paths or _has_records(target.path)) if only_records else None,
    )


def _has_records(path: str) -> bool:
    """Whether a file is neither an index nor a producer snapshot nor a transaction index."""
    from kseg.segment.partition.names import Role, parse_file_name

    roles = (Role.LOG, Role.KAFKA07_LOG, Role.METADATA_SNAPSHOT, Role.BOOTSTRAP_SNAPSHOT)
    return parse_file_name(os.path.basename(path)).role in roles
