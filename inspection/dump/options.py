"""Options of `dump` (the flags of DumpLogSegments 4.3 and our own)."""

from dataclasses import field
from typing import TYPE_CHECKING

from kseg.inspection.record_filter import Selection
from kseg.segment.layout import INT32_MAX
from kseg.segment.record_decoder import RecordDecoder
from kseg.segment.redaction import Redactor
from kseg.segment.terminal import visible
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.segment.json_rows import RowDecoder

FORMATS = ("kafka", "json", "table")
BYTES_MODES = ("auto", "utf8", "hex", "base64", "size", "redacted")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """format: one of FORMATS. decoder: decodes keys and values, None shows them as bytes. bytes_mode: one of BYTES_MODES, how
    keys, values and header values are shown. row_decoder: decodes keys and values in rows, None shows them as they are.
    redactor: recognizes the secrets in text and warns of them; None warns of nothing. escape_control: escape control
    characters (stdout is a terminal). jobs: how many processes may share a large file whose records are shown."""

    format: str = "kafka"
    deep_iteration: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    max_bytes: int = INT32_MAX
    max_message_size: int = 5 * 1024 * 1024
    verify_index_only: bool = False
    index_sanity_check: bool = False
    decoder: RecordDecoder | None = None
    selection: Selection = field(default_factory=Selection)
    bytes_mode: str = "auto"
    row_decoder: "RowDecoder | None" = None
    redactor: Redactor | None = None
    escape_control: bool = False
    drop_cache: bool = False
    jobs: int = 1

    def shown(self, path: str) -> str:
        """A path as shown in a line of text."""
        return visible(path) if self.escape_control else path

    def end_of(self, size_bytes: int) -> int:
        """How many bytes of a log of `size_bytes` are read. Kafka's default limit means all of it, above 2 GiB too."""
        return size_bytes if self.max_bytes == INT32_MAX else min(size_bytes, self.max_bytes)
