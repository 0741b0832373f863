"""The interface for redacting secrets in records: packages that read logs do not know Kafka's internal topics."""

from typing import Final, Protocol

REDACTED: Final = "(redacted)"


class Redactor(Protocol):
    """Recognises values of a log that contain secrets. Picklable; never raises because of the content of a record."""

    def concerns(self, path: str) -> bool:
        """Whether values of the log at `path` may contain secrets; other logs need no redaction."""

    def redacted(self, path: str, key: bytes | None, value: bytes | None) -> bytes | None:
        """The text to print instead of a value of a data record; None if it contains no secret."""
