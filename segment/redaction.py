"""The interface for redacting secrets in records: packages that read logs do not know Kafka's internal topics."""

from typing import Final, Protocol

REDACTED: Final = "(redacted)"


class Redactor(Protocol):
    """Knows which values of a log hold secrets. Picklable; never raises for what a record contains."""

    def concerns(self, path: str) -> bool:
        """Whether values of the log at `path` may hold secrets; those of others are not asked for."""

    def redacted(self, path: str, key: bytes | None, value: bytes | None) -> bytes | None:
        """What is shown in the place of a value of a data record; None where it holds no secret."""
