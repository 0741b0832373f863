"""The interface between exports and payload decoders: packages that write tables do not know schema registries."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Protocol

from kseg.segment.column_types import ColumnType
from kseg.segment.model import Headers
from kseg.segment.values import dataclass


@dataclass(slots=True)
class DecodedColumn:
    """Keys or values of some records, one entry for each. decoded: null where they are null or did not decode. raw, errors: the
    bytes of what did not, and why; without a reason where they are in no wire format and none was demanded."""

    decoded: list[Any] = field(default_factory=list)
    raw: list[bytes | None] = field(default_factory=list)
    errors: list[str | None] = field(default_factory=list)
    schema_ids: list[int | None] = field(default_factory=list)


class PayloadTable(Protocol):
    """Decodes keys and values for tables. Picklable; never raises for what a record contains."""

    def is_decoded(self, is_key: bool) -> bool:
        """Whether keys, or values, are decoded at all."""

    def has_schemas(self, is_key: bool) -> bool:
        """Whether they name schemas."""

    def type_of(self, topic: str, is_key: bool) -> ColumnType:
        """What the values of `decoded` fit into."""

    def decoded(
        self,
        topic: str,
        is_key: bool,
        payloads: Sequence[bytes | None],
        headers: Sequence[Headers] | None,
    ) -> DecodedColumn:
        """The payloads of some records. headers: None where no record has any."""
