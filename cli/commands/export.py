"""`kseg export`: write the records of logs as files that other tools read."""

import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

from kseg.cli.decoders import ConnectTopics, ShowSecrets, redactor_for
from kseg.cli.filters import Filters, limited
from kseg.cli.option_schema import RESULT, Option
from kseg.cli.options import (
    CommonOptions,
    Json,
    NoNow,
    OnCluster,
    Paths,
    Verbose,
    directory_option,
    read_names,
)
from kseg.cli.payload_formats import PayloadFormats, decoder_and_notice
from kseg.segment.errors import UnreadableInput, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kseg.inspection.export.options import ExportOptions
    from kseg.inspection.export.run import ExportRun
    from kseg.internal_topics.registry.payload_columns import PayloadColumns
    from kseg.internal_topics.registry.payload_decoder import PayloadDecoder
    from kseg.jobs.events import Event
    from kseg.segment.partition.targets import Target
    from kseg.spark.options import ClusterOptions

EXAMPLES = (
    ("A data directory as Parquet files, for any tool that reads them", "kseg export --to parquet --output out /var/lib/kafka"),
    ("A topic, in directories by day and hour", "kseg export --to parquet --partition-by topic,date,hour --topic orders --output out /var/lib/kafka"),
    ("What a consumer of committed data would have read, as JSON lines", "kseg export --to json --isolation read_committed --output out orders-0"),
    ("A Delta table, by a Spark cluster", "kseg export --to delta --mode append --partition-by topic,date --spark --master spark://host:7077 --packages io.delta:delta-spark_4.2_2.13:4.4.0 --output /shared/orders /shared/kafka"),
    ("Avro or protobuf payloads as typed columns, with the schemas of the _schemas topic", "kseg export --to parquet --value-format auto --topic orders --output out /var/lib/kafka"),
    ("A table for a spreadsheet, without the positions of records", "kseg export --to csv --no-meta --output out orders-0"),
)  # fmt: skip


def _without(what: str) -> Option:
    return Option(help=f"Leave out {what}.", panel=RESULT)


def command(
    *,
    paths: Paths,
    to: Annotated[
        str,
        Option(choices=("parquet", "delta", "iceberg", "json", "csv", "arrow"), help="The output format."),
    ],
    output: Annotated[
        str, directory_option("The directory to write to; - writes json or csv to stdout.", read=str)
    ],
    mode: Annotated[
        str,
        Option(
            choices=("errorifexists", "append", "overwrite", "ignore"),
            help="What to do when the output exists: Spark's save modes.",
            panel=RESULT,
        ),
    ] = "errorifexists",
    partition_by: Annotated[
        tuple[tuple[str, ...], ...],
        Option(
            metavar="COLUMN[,...]",
            read=read_names,
            help=(
                "Write one directory per value of these columns: topic, partition, timestampType, date or hour "
                "(the last two of the timestamp, in UTC)."
            ),
            panel=RESULT,
        ),
    ] = (),
    compression: Annotated[
        str | None,
        Option(
            metavar="CODEC",
            help="Compression of the files: snappy, gzip, zstd, lz4, bzip2 or none, as far as the format supports it.",
            panel=RESULT,
        ),
    ] = None,
    bytes_mode: Annotated[
        str | None,
        Option(
            "--bytes",
            choices=("auto", "utf8", "hex", "base64"),
            help="How json and csv show keys, values and header values. Default: base64 for json, auto for csv.",
            panel=RESULT,
        ),
    ] = None,
    payloads: PayloadFormats,
    no_key: Annotated[bool, _without("the column of keys")] = False,
    no_value: Annotated[bool, _without("the column of values")] = False,
    no_headers: Annotated[bool, _without("the column of headers")] = False,
    no_meta: Annotated[bool, _without("the column with the position of a record and its batch")] = False,
    include_control: Annotated[
        bool, Option(help="Also write the control records of transactions.", panel=RESULT)
    ] = False,
    show_secrets: ShowSecrets = False,
    connect_topics: ConnectTopics = (),
    fail_on_damage: Annotated[
        bool, Option(help="Stop at the first damage, and write nothing.", panel=RESULT)
    ] = False,
    json: Json = False,
    filters: Filters,
    limit: Annotated[int | None, limited("Stop each partition after this many records.")] = None,
    common: CommonOptions,
    verbose: Verbose = False,
    now: NoNow = None,
    on: OnCluster,
) -> int:
    """Write the records of logs as files that other tools read.

    The columns are those of Spark's Kafka source (key, value, topic, partition, offset, timestamp, timestampType,
    headers), and _meta: the position of a record, and the fields of its batch. Each partition becomes a file, or with
    --partition-by one in each directory. A file appears under its final name only when it is complete.

    Damage is reported on stderr with its byte range, and the export continues after it (exit 1).
    """  # fmt: skip
    from kseg.inspection.export import options as O
    from kseg.inspection.export.output_folder import Mode, is_taken
    from kseg.segment.storage.attached import is_url

    cluster = on.cluster()
    form = O.checked_form(to, on_cluster=cluster is not None)
    options = O.ExportOptions(
        form=form,
        output=output,
        mode=Mode(mode),
        partition_by=O.checked_partition_columns(tuple(name for names in partition_by for name in names)),
        selection=filters.selection(limit),
        compression=O.checked_compression(form, compression),
        bytes_mode=O.checked_bytes_mode(form, bytes_mode),
        with_key=not no_key,
        with_value=not no_value,
        with_headers=not no_headers,
        with_meta=not no_meta,
        with_control=include_control,
        fail_on_damage=fail_on_damage,
        redactor=redactor_for((), show_secrets=show_secrets, connect_topics=connect_topics),
    )
    if cluster is None and is_url(output):
        raise UsageError(f"only --spark writes to a URL like {output}; --output takes a directory on disk")
    if output == "-":
        O.require_pyarrow()
        from kseg.inspection.export.to_stdout import check_stream

        check_stream(options)
        if json or cluster is not None:
            raise UsageError(f"--output - cannot be combined with {'--json' if json else '--spark'}")
    if options.mode is Mode.IGNORE and is_taken(output):
        from kseg.cli.streams import complain

        if not common.quiet:
            complain(f"kseg export: {output} already exists: nothing was exported (--mode ignore)")
        return 0
    from kseg.cli.render import Style
    from kseg.cli.run import over_targets
    from kseg.cli.shared_targets import Sharing
    from kseg.cli.text.common import damage_words
    from kseg.cli.text.export import export_total, export_words
    from kseg.cli.text.folded_rows import FoldedRows
    from kseg.segment.partition.targets import Expansion

    report = FoldedRows(
        export_words,
        "partition",
        export_total,
        lambda values: bool(values.get("partition")),
        shows_all=verbose,
    )
    style = Style(
        command="export",
        json=json,
        **common.shown(),
        words=report.words,
        report=None if output == "-" else report,
        verbose=verbose,
        raw=output == "-",
        summary=partial(damage_words, noun="target"),
    )
    # workers are forked after Arrow is imported, and its allocator would start a background thread
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    O.require_pyarrow()
    from kseg.inspection.export.export import export
    from kseg.inspection.export.run import ExportRun

    run = ExportRun(options)
    return over_targets(
        export,
        options,
        style,
        expand=Expansion.PARTITIONS,
        request=common.request(paths, cluster),
        jobs=common.jobs,
        at_once=partial(_by_spark, run),
        sharing=Sharing.LARGE,
        through=run.through if cluster is None else None,
        hold=run.held if cluster is None else None,
        look=partial(_with_payloads, run, payloads, paths, common.quiet, cluster is not None)
        if payloads.is_asked
        else None,
    )


def _with_payloads(
    run: "ExportRun",
    formats: PayloadFormats,
    paths: "Sequence[str]",
    quiet: bool,
    is_one_table: bool,
    targets: "Sequence[Target]",
    options: "ExportOptions",
) -> "tuple[ExportOptions, Sequence[Event]]":
    """The options with the columns of decoded payloads, which are determined by reading all payloads once. is_one_table: all
    topics must have the same columns, because Spark writes a single table. Raises UsageError and UnreadableInput."""
    from kseg.inspection.export.options import TEXT_FORMS
    from kseg.internal_topics.registry.payload_columns import PayloadColumns

    decoder = decoder_and_notice(formats, targets, paths, "export", quiet)
    if options.form in TEXT_FORMS:
        return run.decode(PayloadColumns(decoder)), ()
    columns = _surveyed(decoder, targets, options)
    if columns.differ and (is_one_table or options.partition_by[:1] != ("topic",)):
        way_out = "" if is_one_table else ", or add --partition-by topic"
        raise UsageError(
            f"the payloads of topics {columns.differ} have different columns: choose one with --topic{way_out}"
        )
    return run.decode(columns), ()


def _surveyed(
    decoder: "PayloadDecoder", targets: "Sequence[Target]", options: "ExportOptions"
) -> "PayloadColumns":
    from kseg.inspection.export.payload_scan import payloads_of
    from kseg.internal_topics.registry.payload_columns import PayloadSurvey
    from kseg.segment.partition.targets import FileTarget, PartitionTarget

    survey = PayloadSurvey(decoder)
    is_needed = decoder.has_schemas(is_key=True) or decoder.has_schemas(is_key=False)
    for target in targets if is_needed else ():
        if isinstance(target, (FileTarget, PartitionTarget)):
            with suppress(UnreadableInput):  # the export reports it
                for each in payloads_of(target, options.selection):
                    survey.note(each.topic, True, each.of_keys, each.headers)
                    survey.note(each.topic, False, each.of_values, each.headers)
    return survey.columns()


def _by_spark(
    run: "ExportRun", targets: "Sequence[Target]", cluster: "ClusterOptions", say: "Callable[[str], None]"
) -> "Iterator[Event]":
    from kseg.spark.export.run import export

    return export(targets, run.options, cluster, say)
