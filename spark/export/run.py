"""One export on a cluster, from targets to events.

1. Create a session configured for the table format, if one is requested, and check that its jars are available.
2. Write the records (`records_frame`), in columns that the format supports (`spark_columns`), with Spark's own save modes and
   commit. An output without a scheme is a directory that every node must see, like the inputs; existing contents are checked
   as without a cluster.
3. Read the damage from the data source as well and report it as findings: before writing, with --fail-on-damage, so that
   nothing is written; otherwise afterwards.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kseg.inspection.export.options import TABLE_FORMS, ExportOptions, Form
from kseg.inspection.export.output_folder import SUCCESS, Mode, check, is_taken, visible_files
from kseg.inspection.export.run import DamageFound, refuse_own_input
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.errors import KsegError, Refused, UnreadableInput
from kseg.segment.findings import ERROR
from kseg.segment.partition.targets import Target
from kseg.spark import session as sessions
from kseg.spark.cluster_fanout import ready
from kseg.spark.export import table_formats
from kseg.spark.options import ClusterOptions
from kseg.spark.session import NoCluster
from kseg.spark.task_errors import reason, visibility_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# codecs that have another name in Spark
_CODECS = {"lz4": "lz4_raw"}
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_CSV = {
    "header": "true",
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
UNREADABLE = "unreadable-file"


def export(
    targets: Sequence[Target], options: ExportOptions, cluster: ClusterOptions, notify: Callable[[str], None]
) -> Iterator[Event]:
    """Run the export; yields findings, one `result` and one `summary`.

    Raises UsageError if Spark or jars are missing or incompatible, Refused for an existing output, and UnreadableInput if Spark fails.
    """
    path = local_path(options.output)
    if path is not None:
        refuse_own_input(options.output, targets)
        if options.form not in TABLE_FORMS:
            check(options.output, options.mode)
        elif is_taken(path) and not os.path.isdir(os.path.join(path, table_formats.NEEDS[options.form].log)):
            raise Refused(
                f"{options.output} already exists and is not a {table_formats.NEEDS[options.form].name} table"
            )
    prepared = table_formats.prepared(cluster, options.form)
    ready(prepared, notify)
    spark = sessions.get(prepared)
    table_formats.check_jars(spark, options.form)
    of_tables = table_formats.settings(options.form, url_of(options.output))
    with _set(spark, {**_SETTINGS, **of_tables}):
        yield from _Run(spark, targets, options).events()


def local_path(output: str) -> str | None:
    """The directory of an output; None if it is a URL of another file system."""
    return None if re.match("[A-Za-z][A-Za-z0-9+.-]*:", output) else os.path.abspath(output)


def url_of(output: str) -> str:
    """The output as a URL for Spark."""
    path = local_path(output)
    return output if path is None else f"file://{path}"


class _Run:
    def __init__(self, spark: "SparkSession", targets: Sequence[Target], options: ExportOptions) -> None:
        from kseg.spark.source import register

        register(spark)
        self._spark = spark
        self._targets = targets
        self._options = options
        self._damaged_bytes = 0
        self._is_damaged = False

    def events(self) -> Iterator[Event]:
        if self._options.fail_on_damage:
            yield from self._damage()
        path = local_path(self._options.output)
        before = set(visible_files(path)) if path is not None else set()
        records = self._written()
        if not self._options.fail_on_damage:
            yield from self._damage()
        self._mark()
        files = sorted(set(visible_files(path)) - before) if path is not None else None
        yield from self._result(path, files, records)

    def _result(self, path: str | None, files: list[str] | None, records: int) -> Iterator[Event]:
        size_bytes = None
        if path is not None and files is not None:
            size_bytes = sum(os.stat(os.path.join(path, name)).st_size for name in files)
        numbers = {"records": records, "bytes": size_bytes, "damaged_bytes": self._damaged_bytes}
        yield Row(
            {
                "type": "result",
                "command": "export",
                "path": None,
                "partition": None,
                "to": str(self._options.form),
                "output": self._options.output,
                "files": files,
                **numbers,
            }
        )
        sums = {"files": None if files is None else len(files), **numbers}
        yield Row(
            {"type": "summary", **{name: number for name, number in sums.items() if number is not None}}
        )

    def _damage(self) -> Iterator[Event]:
        from kseg.spark.export.records_frame import findings

        damaged_to: dict[str, int] = {}
        with self._told():
            for finding, target in findings(self._spark, self._targets, self._options):
                if finding.id == UNREADABLE:
                    self._is_damaged = True
                    yield Failure(target, finding.message, UnreadableInput.exit_status)
                    continue
                yield finding
                if finding.severity != ERROR:
                    continue
                self._is_damaged = True
                if self._options.fail_on_damage:
                    raise DamageFound(f"{finding.path} is damaged: nothing was exported (--fail-on-damage)")
                position, length = finding.position or 0, finding.length or 0
                begin = max(position, damaged_to.get(finding.path, 0))
                self._damaged_bytes += max(0, position + length - begin)
                damaged_to[finding.path] = max(begin, position + length)

    def _written(self) -> int:
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        from kseg.spark.export.records_frame import records
        from kseg.spark.export.spark_columns import shaped

        options = self._options
        with self._told():
            frame = shaped(records(self._spark, self._targets, options), options)
            seen = Observation("export")
            self._save(frame.observe(seen, count(lit(1)).alias("records")))
            return int(seen.get["records"])

    def _mark(self) -> None:
        """Write `_SUCCESS` if nothing is missing, otherwise remove that of an earlier export. Spark would write it before damage is
        known."""
        options = self._options
        if options.form in TABLE_FORMS or options.mode is Mode.IGNORE:
            return
        jvm, jsc = self._spark._jvm, self._spark.sparkContext._jsc
        assert jvm is not None
        with self._told():
            marker = jvm.org.apache.hadoop.fs.Path(f"{url_of(options.output)}/{SUCCESS}")
            files = marker.getFileSystem(jsc.hadoopConfiguration())
            if not self._is_damaged:
                files.create(marker, True).close()
                return
            files.delete(marker, False)

    def _save(self, frame: "DataFrame") -> None:
        options = self._options
        path = local_path(options.output)
        mode = options.mode
        if path is not None and not is_taken(path):
            # an empty directory does not count as existing output
            mode = Mode.APPEND if options.form not in TABLE_FORMS else mode
        if options.form is Form.ICEBERG:
            codec = "uncompressed" if options.compression == "none" else options.compression
            table_formats.save_iceberg(frame, url_of(options.output), mode, options.partition_by, codec)
            return
        writer = frame.write.format(str(options.form)).mode(str(mode)).options(**_writing(options))
        if options.partition_by:
            writer = writer.partitionBy(*options.partition_by)
        writer.save(url_of(options.output))

    @contextmanager
    def _told(self) -> Iterator[None]:
        """A context that converts an exception of Spark into one of kseg."""
        options = self._options
        try:
            yield
        except KsegError:
            raise
        except Exception as error:  # the exceptions of Spark and Py4J share no base
            not_visible = visibility_error(error)
            if not_visible is not None:
                raise NoCluster(not_visible) from error
            unfit = table_formats.misfit(error, options.form, self._spark.version)
            if unfit is not None:
                raise unfit from error
            if re.search("PATH_EXISTS|PATH_ALREADY_EXISTS|TABLE_OR_VIEW_ALREADY_EXISTS", str(error)):
                raise Refused(f"{options.output} already exists (--mode append or overwrite)") from error
            raise UnreadableInput(f"Spark cannot export to {options.output}: {reason(error)}") from error


def _writing(options: ExportOptions) -> Mapping[str, str]:
    codec = _CODECS.get(options.compression, options.compression)
    marks = (
        {} if options.mode is Mode.IGNORE else {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
    )
    return {"compression": codec, **marks, **(_CSV if options.form is Form.CSV else {})}


@contextmanager
def _set(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the session and restore them afterwards: the session may belong to the caller."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)
