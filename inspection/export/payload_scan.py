"""Read the payloads of a target before an export, to collect the schemas they refer to."""

from collections.abc import Iterator

import pyarrow as pa

from kseg.inspection.arrow.arrow_schema import RECORD_SCHEMA
from kseg.inspection.arrow.log_ranges import Reading
from kseg.inspection.arrow.record_batches import read_piece
from kseg.inspection.export.export_ranges import identity, pieces_of
from kseg.inspection.export.payload_types import headers_of
from kseg.inspection.record_filter import Selection
from kseg.segment.findings import Finding
from kseg.segment.model import Headers
from kseg.segment.partition.targets import LogTarget, directory_of
from kseg.segment.values import dataclass

_RECORDS_PER_BATCH = 32 * 1024


@dataclass(frozen=True, slots=True)
class Payloads:
    """Payloads of some records of a topic. headers: None if no record has any."""

    topic: str
    of_keys: list[bytes | None]
    of_values: list[bytes | None]
    headers: list[Headers] | None


def payloads_of(target: LogTarget, selection: Selection) -> Iterator[Payloads]:
    """Keys, values and headers of the records in the bounds of a selection. Raises UnreadableInput."""
    topic, _ = identity(directory_of(target))
    schema = pa.schema([RECORD_SCHEMA.field(name) for name in ("key", "value", "headers")])
    reading = Reading(include_control=False, records_per_batch=_RECORDS_PER_BATCH)
    for piece in pieces_of(target, selection):
        for item in read_piece(piece, reading, schema):
            if not isinstance(item, Finding):
                keys, values = (item.column(name).to_pylist() for name in ("key", "value"))
                yield Payloads(topic, keys, values, headers_of(item))
