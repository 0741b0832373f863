"""The tasks of a read by `kafka-log`, and the parts of logs that they read."""

from __future__ import annotations

from pathlib import Path

from kseg.inspection.arrow.log_ranges import LogPiece
from kseg.spark.source.options import read_options
from kseg.spark.source.splits import tasks_of

# one record in each batch
SEGMENTS, BATCHES = 10, 100


def tasks(path: Path | str, **given: str) -> list[tuple[LogPiece, ...]]:
    return tasks_of(read_options({"path": str(path)} | given))


def pieces(path: Path, **given: str) -> list[LogPiece]:
    return [piece for task in tasks(path, **given) for piece in task]


def bases(found: list[LogPiece]) -> list[int]:
    return [piece.base_offset // BATCHES for piece in found]
