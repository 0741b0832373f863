"""Options of `export`, checked, as values that can be sent to another process.

Forms and the values they can hold:

    form      local   keys and values            compression (the first is the default)
    parquet   yes     as they are                snappy gzip zstd lz4 none
    arrow     yes     as they are                none lz4 zstd        Spark cannot write it
    json      yes     text (base64, as Spark's)  none gzip bzip2
    csv       yes     text (auto)                none gzip bzip2
    delta     no      as they are                snappy gzip zstd lz4 none
    iceberg   no      as they are                zstd gzip snappy lz4 none

Nothing here imports pyarrow or Spark.
"""

import importlib.util
from dataclasses import field
from enum import StrEnum
from typing import Final

from kseg.inspection.export.output_folder import Mode
from kseg.inspection.record_filter import Selection
from kseg.segment.errors import UsageError
from kseg.segment.payload_table import PayloadTable
from kseg.segment.redaction import Redactor
from kseg.segment.values import dataclass


class Form(StrEnum):
    """The format of the files."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


COMPRESSIONS: Final[dict[Form, tuple[str, ...]]] = {
    Form.PARQUET: ("snappy", "gzip", "zstd", "lz4", "none"),
    Form.DELTA: ("snappy", "gzip", "zstd", "lz4", "none"),
    Form.ICEBERG: ("zstd", "gzip", "snappy", "lz4", "none"),
    Form.JSON: ("none", "gzip", "bzip2"),
    Form.CSV: ("none", "gzip", "bzip2"),
    Form.ARROW: ("none", "lz4", "zstd"),
}
TEXT_FORMS: Final = (Form.JSON, Form.CSV)
TABLE_FORMS: Final = (Form.DELTA, Form.ICEBERG)
_DEFAULT_BYTES: Final = {Form.JSON: "base64", Form.CSV: "auto"}

# what the output can be partitioned by: columns, and parts of the timestamp (UTC)
OF_COLUMNS: Final = ("topic", "partition", "timestampType")
DERIVED: Final = ("date", "hour")
PARTITION_COLUMNS: Final = (*OF_COLUMNS, *DERIVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """One run of `export`.

    form, output, mode: what to write, where to, and what to do if it exists. partition_by: of PARTITION_COLUMNS, one level of directories
    each; the files do not contain these columns. first_path: of the first target, if all targets go to one stream. bytes_mode: how keys,
    values and header values are converted to text, "" if they stay bytes. compression: one of the form's. with_*: which columns;
    with_control: also control records. fail_on_damage: the first damage ends the export, and nothing is published. payloads: decodes keys
    and values, None leaves them as they are. jobs: how many processes may share one large log. redactor: redacts secrets in values, None
    exports them. folder, run_id: where this run creates its files, and what makes their names unique.
    """

    form: Form
    output: str
    mode: Mode = Mode.ERROR_IF_EXISTS
    partition_by: tuple[str, ...] = ()
    selection: Selection = field(default_factory=Selection)
    compression: str = ""
    first_path: str = ""
    bytes_mode: str = ""
    with_key: bool = True
    with_value: bool = True
    with_headers: bool = True
    with_meta: bool = True
    with_control: bool = False
    fail_on_damage: bool = False
    drop_cache: bool = False
    jobs: int = 1
    payloads: PayloadTable | None = None
    redactor: Redactor | None = None
    folder: str = ""
    run_id: str = ""

    @property
    def has_encoding_column(self) -> bool:
        """Whether there are columns with the encoding of each key and value."""
        return self.bytes_mode == "auto"

    def has(self, column: str) -> bool:
        """Whether an optional column is requested."""
        switches = {
            "key": self.with_key,
            "value": self.with_value,
            "headers": self.with_headers,
            "_meta": self.with_meta,
        }
        return switches.get(column, True)


def checked_form(form: str, on_cluster: bool) -> Form:
    """Raises UsageError for a form that cannot be written locally, or with Spark."""
    wanted = Form(form)
    if wanted in TABLE_FORMS and not on_cluster:
        raise UsageError(f"--to {wanted} is written by Spark only; add --spark")
    if wanted is Form.ARROW and on_cluster:
        raise UsageError("--to arrow does not work with --spark: Spark has no Arrow writer")
    return wanted


def checked_compression(form: Form, compression: str | None) -> str:
    """The requested compression, or the form's default. Raises UsageError."""
    known = COMPRESSIONS[form]
    if compression is None:
        return known[0]
    if compression not in known:
        raise UsageError(f"--compression for {form} must be {' or '.join(known)}, not {compression}")
    return compression


def checked_bytes_mode(form: Form, mode: str | None) -> str:
    """How bytes become text, "" for a form with binary values. Raises UsageError."""
    if form not in TEXT_FORMS:
        if mode is not None:
            raise UsageError(f"--bytes applies to json and csv only; {form} stores keys and values as bytes")
        return ""
    return mode or _DEFAULT_BYTES[form]


def checked_partition_columns(names: tuple[str, ...]) -> tuple[str, ...]:
    """Raises UsageError for a column that cannot be partitioned by."""
    for name in names:
        if name not in PARTITION_COLUMNS:
            raise UsageError(f"--partition-by takes {', '.join(PARTITION_COLUMNS)}, not {name}")
    if len(set(names)) != len(names):
        raise UsageError("--partition-by names a column twice")
    return names


def require_pyarrow() -> None:
    """Raises UsageError where pyarrow is not installed."""
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError(
            "export needs pyarrow, which is not installed: pip install 'kseg[export]', or take the tarball with -arrow in its name"
        )
