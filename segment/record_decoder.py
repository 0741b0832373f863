"""The interface between dumps and decoders of keys and values: packages that read logs do not know Kafka's internal topics."""

from typing import Protocol

from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class RecordText:
    """The text that DumpLogSegments prints after ` key: ` and ` payload: `; None if it omits that part. crash: the exception, with its
    message, that ends the tool at this record; both parts are None then."""

    key: bytes | None
    payload: bytes | None
    crash: str | None = None


class RecordDecoder(Protocol):
    """Decodes the keys and values of a log. Picklable, for worker processes."""

    def program(self) -> tuple[memoryview, bytes] | None:
        """The program with which `kernel.decoded_lines` prints ordinary records; None to call `text` for each record."""

    def text(self, offset: int, key: bytes | None, value: bytes | None) -> RecordText:
        """The text of one record."""
