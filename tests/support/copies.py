"""Two copies of a log that differ in a known way, and what `diff` reports about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kseg.inspection.copies.compare_copies import compare_copies
from kseg.inspection.copies.copy_pairs import CopyPair
from kseg.jobs.events import Row
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.findings import Finding
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import PartitionTarget

T0 = 1_795_250_600_000


def records(first: int, count: int, word: str = "value") -> tuple[Record, ...]:
    return tuple(
        Record(offset, T0 + offset, b"key-%d" % (offset % 7), f"{word} {offset}".encode() * 5)
        for offset in range(first, first + count)
    )


def batches(first: int, stop: int, size: int = 10, **fields: Any) -> list[NewBatch]:
    word = fields.pop("word", "value")
    return [
        NewBatch(records=records(at, min(size, stop - at), word), **{"leader_epoch": 0, **fields})
        for at in range(first, stop, size)
    ]


def write(folder: Path, *segments: Sequence[NewBatch], base: int | None = None) -> Path:
    """Write one segment for each list, named after its first record."""
    folder.mkdir(parents=True)
    for segment in segments:
        name = segment[0].records[0].offset if base is None else base
        (folder / f"{name:020d}.log").write_bytes(b"".join(map(encode_batch, segment)))
    return folder


def compared(a: Path, b: Path, *, log_dirs: bool = False) -> tuple[dict[str, Any], list[str]]:
    """The row of `diff`, and the ids of the findings."""
    targets = [PartitionTarget(str(path), str(path.parent) if log_dirs else None) for path in (a, b)]
    events = list(compare_copies(CopyPair(a.name, targets[0], targets[1]), None))
    (row,) = [event for event in events if isinstance(event, Row)]
    return dict(row.values), [event.id for event in events if isinstance(event, Finding)]


def both(tmp_path: Path, a: Sequence[NewBatch], b: Sequence[NewBatch]) -> dict[str, Any]:
    row, findings = compared(write(tmp_path / "a" / "t-0", a), write(tmp_path / "b" / "t-0", b))
    assert findings == []
    return row


def keyed(offset: int, key: bytes | None, value: bytes | None = b"v") -> Record:
    return Record(offset, T0 + offset, key, value, ())


def packed(records: Sequence[Record], size: int = 4, **fields: Any) -> list[NewBatch]:
    """Batches of `size` offsets each that keep their original offset ranges, as after a cleaning."""
    by_batch: dict[int, list[Record]] = {}
    for record in records:
        by_batch.setdefault(record.offset // size, []).append(record)
    return [
        NewBatch(
            records=tuple(kept),
            base_offset=number * size,
            last_offset=number * size + size - 1,
            leader_epoch=0,
            **fields,
        )
        for number, kept in by_batch.items()
    ]
