"""Write compacted logs for the tests of `compact` batch by batch, and read the results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.compaction.cleaner.options import CleanSettings, CompactOptions
from kseg.jobs.events import Failure, Row
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.model import Batch, NewBatch, Record
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.txn_index import AbortedTxn, TxnIndex
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.support.one_target import compact

DAY_MS = 86_400_000
T0 = 1_700_000_000_000
SETTINGS = CleanSettings(now_ms=T0 + 10 * DAY_MS)


class Topic:
    """Writes a partition directory: `send` batches, `roll` segments, then `close`."""

    def __init__(self, root: Path, start: int = 0, name: str = "accounts-0", **rules: Any) -> None:
        self.directory = root / name
        root.mkdir(parents=True, exist_ok=True)
        self.offset = start
        self.time_ms = T0
        self._sequences: dict[int, int] = {}
        self._writer = PartitionWriter(
            self.directory, start_offset=start, rules=RollRules(**{"index_interval_bytes": 4096, **rules})
        )

    def send(
        self, *pairs: tuple[Any, Any], producer: int = -1, transactional: bool = False, **fields: Any
    ) -> None:
        """One batch of (key, value); None is null."""
        records = []
        for key, value in pairs:
            records.append(Record(self.offset, self.time_ms, _bytes(key), _bytes(value)))
            self.offset += 1
        if producer >= 0:
            sequence = fields.pop("base_sequence", self._sequences.get(producer, 0))
            self._sequences[producer] = sequence + len(records)
            fields |= {"producer_id": producer, "producer_epoch": fields.get("producer_epoch", 0)}
            fields |= {"base_sequence": sequence, "transactional": transactional}
        if fields.get("log_append_time"):
            fields.setdefault("max_timestamp_ms", self.time_ms)
        self._writer.append(NewBatch(records=tuple(records), **fields))

    def put(self, new: NewBatch) -> None:
        """Write an encoded batch as it is."""
        self._writer.append(new)
        last = new.last_offset if new.last_offset is not None else new.records[-1].offset
        self.offset = last + 1

    def end(self, producer: int, *, abort: bool = False) -> None:
        """The marker of a transaction."""
        marker = EndTransactionMarker(abort, 0, self.time_ms)
        self.put(end_transaction_batch(marker, self.offset, producer, 0, -1))

    def roll(self, skip: int = 0) -> None:
        self.offset += skip
        self._writer.roll(self.offset)

    def close(self) -> Path:
        self._writer.close()
        return self.directory

    def roll_and_close(self) -> Path:
        """All records are in segments that a cleaner cleans."""
        self.roll()
        return self.close()


def tombstones(root: Path) -> Topic:
    """A log in which a key is deleted. Its last segment is the active one."""
    topic = Topic(root)
    topic.send(("a", 1), ("b", 2))
    topic.send(("a", None), ("c", 3))
    topic.roll()
    topic.send(("z", 9))
    topic.roll()
    return topic


@dataclass
class Outcome:
    """The events of `compact` and the files that it left."""

    directory: Path
    result: dict[str, Any]
    findings: list[Finding]
    failures: list[Failure]
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def kinds(self) -> set[str]:
        return {finding.id for finding in self.findings}

    @property
    def bases(self) -> list[int]:
        return bases(self.directory)


def clean(directory: Path, settings: CleanSettings = SETTINGS, **options: Any) -> Outcome:
    """Run `compact --apply`; other settings by name."""
    names = set(CleanSettings.__dataclass_fields__)
    settings = replace(settings, **{name: options.pop(name) for name in list(options) if name in names})
    target = PartitionTarget(str(directory), options.pop("log_dir", None))
    number = len(list((directory / ".kseg").glob("*"))) if (directory / ".kseg").is_dir() else 0
    chosen = {"settings": settings, "apply": True, "run_id": f"run-{number}", **options}
    events = list(compact(target, CompactOptions(**chosen)))
    rows = [dict(event.values) for event in events if isinstance(event, Row)]
    results = [row for row in rows if row["type"] == "result"]
    return Outcome(
        directory,
        results[0] if results else {},
        [event for event in events if isinstance(event, Finding)],
        [event for event in events if isinstance(event, Failure)],
        rows,
    )


def bases(directory: Path) -> list[int]:
    return sorted(int(path.name[:20]) for path in directory.glob("*.log"))


def log(directory: Path, base: int) -> Path:
    return directory / f"{base:020}.log"


def batches(directory: Path) -> list[Batch]:
    """All batches of the live logs."""
    return [batch for base in bases(directory) for batch in batches_of(log(directory, base).read_bytes())]


def batches_of(data: bytes) -> list[Batch]:
    found = []
    for block in Scanner(data).blocks():
        assert isinstance(block, Columns), block
        found += [batch_at(block, row) for row in range(block.count)]
    return found


def records(directory: Path) -> list[Record]:
    """All records of the live logs except those of control batches."""
    found = []
    for base in bases(directory):
        data = log(directory, base).read_bytes()
        for block in Scanner(data).blocks():
            assert isinstance(block, Columns), block
            for chunk in Decoder(data).chunks(block):
                assert chunk.problem is None
                if not chunk.control:
                    found += [record_at(chunk, at) for at in range(chunk.records.count)]
    return found


def kept(directory: Path) -> list[tuple[int, str | None, str | None]]:
    """(offset, key, value) of all records."""
    return [(r.offset, _text(r.key), _text(r.value)) for r in records(directory)]


def ends(directory: Path) -> list[int]:
    """The last offsets of all batches."""
    return [batch.last_offset for batch in batches(directory)]


def aborted(directory: Path) -> list[AbortedTxn]:
    paths = sorted(directory.glob(f"*{L.TXN_INDEX_SUFFIX}"))
    return [entry for path in paths for entry in TxnIndex(path.read_bytes(), int(path.name[:20]))]


def touch(directory: Path, base: int, time_ms: int) -> None:
    """Set the modification time of a log."""
    os.utime(log(directory, base), ns=(time_ms * 1_000_000,) * 2)


def _bytes(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def keyed(keys: Sequence[Any]) -> list[tuple[Any, Any]]:
    return [(key, f"v{number}") for number, key in enumerate(keys)]
