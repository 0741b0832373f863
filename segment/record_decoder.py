"""The interface between dumps and decoders of keys and values: packages that read logs do not know Kafka's internal topics."""

from typing import Protocol

from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class RecordText:
    """What DumpLogSegments prints after ` key: ` and ` payload: `; None where it leaves the part out. crash: the exception, with its message,
    that ends the tool at this record; both parts are None then."""

    key: bytes | None
    payload: bytes | None
    crash: str | None = None


class RecordDecoder(Protocol):
    """Knows the keys and values of a log. Travels to worker processes, so it can be pickled."""

    def program(self) -> tuple[memoryview, bytes] | None:
        """What `kernel.decoded_lines` prints ordinary records by; None when each is to be asked for."""

    def text(self, offset: int, key: bytes | None, value: bytes | None) -> RecordText:
        """The text of one record."""
