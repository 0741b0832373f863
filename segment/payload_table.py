"""The interface between exports and payload decoders: packages that write tables do not know schema registries."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Protocol

from kseg.segment.column_types import ColumnType
from kseg.segment.model import Headers
from kseg.segment.values import dataclass


@dataclass(slots=True)
class DecodedColumn:
    """Keys or values of some records, one entry for each. decoded: null if the payload is null or was not decoded. raw, errors: the
    bytes of payloads that were not decoded, and the reason; no reason if they have no wire format and none was required."""

    decoded: list[Any] = field(default_factory=list)
    raw: list[bytes | None] = field(default_factory=list)
    errors: list[str | None] = field(default_factory=list)
    schema_ids: list[int | None] = field(default_factory=list)


class PayloadTable(Protocol):
    """Decodes keys and values for tables. Picklable; never raises because of the content of a record."""

    def is_decoded(self, is_key: bool) -> bool:
        """Whether keys, or values, are decoded at all."""

    def has_schemas(self, is_key: bool) -> bool:
        """Whether they refer to schemas."""

    def type_of(self, topic: str, is_key: bool) -> ColumnType:
        """The column type for the values of `decoded`."""

    def decoded(
        self,
        topic: str,
        is_key: bool,
        payloads: Sequence[bytes | None],
        headers: Sequence[Headers] | None,
    ) -> DecodedColumn:
        """The payloads of some records. headers: None if no record has any."""
