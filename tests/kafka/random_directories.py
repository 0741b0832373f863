"""Random partition directories in every state in which a broker may find one, and what it knows of them.

A directory is a random log in several segments, with side files as a clean stop leaves them or with none, hurt in up
to five ways. A case is repeated by its seed; `done` says what was done to it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from fixtures.healthy import T0, TOPIC_ID
from kseg.recovery.repair.options import Circumstances, LoadSettings
from kseg.segment import layout as L
from kseg.segment.errors import KsegError
from kseg.segment.partition.names import segment_file_name
from kseg.segment.sidecar.index import OffsetIndexEntry
from kseg.segment.sidecar.index_writer import encode_offset_index
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, encode_snapshot
from kseg.segment.sidecar.txn_index import AbortedTxn, encode_txn_index
from kseg.segment.writing.segment_writer import PartitionWriter, RollRules
from tests.kafka.random_logs import DAY_MS, RandomLog

SIDE_SUFFIXES = (L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX, L.TXN_INDEX_SUFFIX, L.SNAPSHOT_SUFFIX)
EPOCHS = "leader-epoch-checkpoint"


@dataclass
class Case:
    """A directory, what a broker knows of it, and how it came about."""

    directory: Path
    circumstances: Circumstances
    settings: LoadSettings
    done: list[str] = field(default_factory=list)


def random_case(seed: int, parent: Path) -> Case:
    """Make the case of a number below `parent`."""
    rng = random.Random(seed)
    name = rng.choice(("metro-0",) * 20 + (f"metro-0.{'0a' * 16}-delete", f"metro-0.{'0b' * 16}-future"))
    directory = parent / name
    directory.mkdir()
    maker = _Maker(rng, directory)
    maker.lay_down()
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 5))):
        hurt = rng.choices(*zip(*maker.hurts, strict=True))[0]
        maker.done.append(hurt.__name__.strip("_"))
        hurt()
    return Case(directory, maker.circumstances(), maker.settings, maker.done)


class _Maker:
    def __init__(self, rng: random.Random, directory: Path) -> None:
        self.rng = rng
        self.directory = directory
        self.done: list[str] = []
        self.log_end = 0
        self.settings = LoadSettings(
            now_ms=T0 + rng.choice((0, DAY_MS // 2, DAY_MS + 60_000, 10 * DAY_MS)),
            index_interval_bytes=rng.choice((0, 100, 400, 4096)),
            segment_index_bytes=rng.choice((60, 120, 1000, 1000, 1000, 4003)),
            producer_id_expiration_ms=rng.choice((DAY_MS, DAY_MS, 1000)),
        )
        self.hurts: list[tuple[Callable[[], None], int]] = [
            (self.flip_a_bit, 10),
            (self.put_zeros, 4),
            (self.cut_a_log, 6),
            (self.append_garbage, 4),
            (self.append_zeros, 4),
            (self.repeat_bytes, 3),
            (self.move_bytes, 2),
            (self.alter_a_header, 6),
            (self.lower_an_offset, 4),
            (self.append_nonsense, 3),
            (self.remove_a_segment, 2),
            (self.empty_a_log, 2),
            (self.join_segments, 3),
            (self.rename_a_segment, 2),
            (self.remove_side_files, 10),
            (self.remove_all_of_a_kind, 5),
            (self.hurt_a_side_file, 8),
            (self.pad_side_files, 4),
            (self.mislead_an_index, 3),
            (self.stray_snapshots, 4),
            (self.false_snapshot, 3),
            (self.false_txn_index, 3),
            (self.orphan_indexes, 3),
            (self.leave_deleted, 3),
            (self.leave_cleaned, 4),
            (self.leave_swap, 8),
            (self.odd_epochs, 4),
            (self.other_files, 2),
            (self.odd_names, 1),
        ]

    # --- the log

    def lay_down(self) -> None:
        rng = self.rng
        rules = RollRules(
            segment_bytes=rng.choice((600, 1500, 4000, 10_000_000)),
            segment_index_bytes=max(self.settings.segment_index_bytes, 36),
            index_interval_bytes=self.settings.index_interval_bytes,
        )
        start = rng.choice((0, 0, 0, 5, 100))
        log = RandomLog(rng, start)
        leaps = rng.random() < 0.12
        refused = b""
        with PartitionWriter(self.directory, start_offset=start, rules=rules) as writer:
            for _ in range(rng.choice((0, 1, 3, 12, 25, 40))):
                if leaps and rng.random() < 0.12:
                    log.leap()
                batch = log.batch()
                try:
                    writer.append(batch)
                except KsegError:
                    refused = batch  # nonsense, which lands in the last log nevertheless
                    break
                if rng.random() < 0.06:
                    log.next_offset += rng.choice((0, 0, 3))
                    writer.roll(log.next_offset)
            self.log_end = writer.next_offset
        if leaps and rng.random() < 0.7:
            self.join_segments()
        tail = refused + b"".join(log.batch() for _ in range(rng.choice((0, 0, 0, 0, 1, 4))))
        if tail and self.logs():
            with self.logs()[-1].open("ab") as file:
                file.write(tail)
            self.log_end = log.next_offset
        if rng.random() < 0.25:
            self.done.append("no side files")
            for path in self.files(*SIDE_SUFFIXES, EPOCHS):
                if not path.name.endswith(L.OFFSET_INDEX_SUFFIX) or rng.random() < 0.5:
                    path.unlink()

    def circumstances(self) -> Circumstances:
        rng = self.rng
        bases = [int(path.name.split(".")[0]) for path in self.logs()]
        ends = [
            self.log_end,
            self.log_end,
            max(0, self.log_end - 1),
            rng.randint(0, min(self.log_end, 10**6) + 5),
        ]
        return Circumstances(
            is_clean=rng.random() < 0.35,
            recovery_point=rng.choice([0, 0, 0, *bases, *ends]),
            log_start_offset=rng.choice(
                [0] * 12
                + bases[:3]
                + [rng.randint(0, min(self.log_end, 10**6))] * 3
                + ends
                + [self.log_end + 500]
            ),
        )

    # --- what is there

    def files(self, *endings: str) -> list[Path]:
        """Those with a number (and the leader epochs), by name."""
        found = [path for path in self.directory.iterdir() if path.name.endswith(endings)]
        return sorted(path for path in found if path.name == EPOCHS or path.name.split(".")[0].isdigit())

    def logs(self) -> list[Path]:
        return self.files(L.LOG_SUFFIX)

    def a_log(self) -> Path | None:
        logs = [path for path in self.logs() if path.stat().st_size]
        return self.rng.choice(logs) if logs else None

    def bounds(self, path: Path) -> list[int]:
        """Positions at which batches begin, by length fields; the end too."""
        data, position, found = path.read_bytes(), 0, [0]
        while position + 17 < len(data):
            position += 12 + max(0, int.from_bytes(data[position + 8 : position + 12], "big", signed=True))
            found.append(min(position, len(data)))
        return sorted({*found, len(data)})

    # --- hurting logs

    def flip_a_bit(self) -> None:
        if path := self.a_log():
            data = bytearray(path.read_bytes())
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            path.write_bytes(data)

    def put_zeros(self) -> None:
        if path := self.a_log():
            data = bytearray(path.read_bytes())
            begin = self.rng.randrange(len(data))
            end = min(len(data), begin + self.rng.choice((1, 20, 100, 10**6)))
            data[begin:end] = bytes(end - begin)
            path.write_bytes(data)

    def cut_a_log(self) -> None:
        if path := self.a_log():
            size = path.stat().st_size
            at = self.rng.choice((size - 1, size - 18, self.rng.randrange(size), *self.bounds(path)[-3:]))
            with path.open("rb+") as file:
                file.truncate(max(0, at))

    def append_garbage(self) -> None:
        if path := self.a_log():
            count = self.rng.choice((1, 5, 17, 18, 30, 62, 200))
            path.write_bytes(path.read_bytes() + self.rng.randbytes(count))

    def append_zeros(self) -> None:
        if path := self.a_log():
            path.write_bytes(path.read_bytes() + bytes(self.rng.choice((1, 17, 18, 19, 500))))

    def repeat_bytes(self) -> None:
        if path := self.a_log():
            data, bounds = path.read_bytes(), self.bounds(path)
            begin = self.rng.choice(bounds)
            end = self.rng.choice([bound for bound in bounds if bound >= begin])
            at = self.rng.choice((len(data), end, self.rng.choice(bounds)))
            path.write_bytes(data[:at] + data[begin:end] + data[at:])

    def move_bytes(self) -> None:
        if path := self.a_log():
            data, bounds = path.read_bytes(), self.bounds(path)
            begin, middle, end = sorted(self.rng.choices(bounds, k=3))
            path.write_bytes(data[:begin] + data[middle:end] + data[begin:middle] + data[end:])

    def alter_a_header(self) -> None:
        """A field outside the checksum: first offset, length, leader epoch, magic."""
        path = self.a_log()
        if path is None:
            return
        data = bytearray(path.read_bytes())
        at = self.rng.choice(self.bounds(path)[:-1])
        if at + 61 > len(data):
            return
        offset = int.from_bytes(data[at : at + 8], "big")
        length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
        position, new = self.rng.choice(
            (
                (0, struct.pack(">q", max(0, (offset + self.rng.randint(-9, 9)) % 2**63))),
                (0, struct.pack(">q", (offset ^ (1 << self.rng.randrange(40))) % 2**63)),
                (8, struct.pack(">i", length + self.rng.choice((-40, -1, 1, 13)))),
                (8, struct.pack(">i", self.rng.choice((-1, 0, 13, 14, 20, 48, 2**30)))),
                (12, struct.pack(">i", self.rng.choice((-1, 0, 3, 99)))),
                (16, bytes([self.rng.choice((0, 1, 3, 128, 255))])),
            )
        )
        data[at + position : at + position + len(new)] = new
        path.write_bytes(data)

    def lower_an_offset(self) -> None:
        """A batch has the first offset of one before it."""
        if path := self.a_log():
            data, bounds = bytearray(path.read_bytes()), self.bounds(path)[:-1]
            earlier, later = sorted(self.rng.choices(bounds, k=2))
            data[later : later + 8] = data[earlier : earlier + 8]
            path.write_bytes(data)

    def append_nonsense(self) -> None:
        if path := self.a_log():
            log = RandomLog(self.rng, self.log_end)
            with path.open("ab") as file:
                file.write(log.nonsense() + b"".join(log.batch() for _ in range(self.rng.choice((0, 0, 2)))))

    def remove_a_segment(self) -> None:
        if path := self.a_log():
            path.unlink()

    def empty_a_log(self) -> None:
        if path := self.a_log():
            path.write_bytes(b"")

    def join_segments(self) -> None:
        """The log of one segment lies at the end of the one before: overlap, or an overflow."""
        logs = self.logs()
        if len(logs) < 2:
            return
        at = self.rng.randrange(len(logs) - 1)
        logs[at].write_bytes(logs[at].read_bytes() + logs[at + 1].read_bytes())
        if self.rng.random() < 0.8:
            logs[at + 1].unlink()
        if self.rng.random() < 0.5:
            for suffix in SIDE_SUFFIXES:
                logs[at].with_suffix(suffix).unlink(missing_ok=True)

    def rename_a_segment(self) -> None:
        """A segment in the wrong place."""
        if path := self.a_log():
            base = int(path.name.split(".")[0])
            new = max(0, base + self.rng.choice((-(2**31), -5, -1, 1, 3, 1000)))
            for suffix in (L.LOG_SUFFIX, *SIDE_SUFFIXES):
                if path.with_suffix(suffix).exists() and (suffix == L.LOG_SUFFIX or self.rng.random() < 0.8):
                    path.with_suffix(suffix).rename(self.directory / segment_file_name(new, suffix))

    # --- hurting side files

    def a_side_file(self, *suffixes: str) -> Path | None:
        found = self.files(*(suffixes or (*SIDE_SUFFIXES, EPOCHS)))
        return self.rng.choice(found) if found else None

    def remove_side_files(self) -> None:
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            if path := self.a_side_file():
                path.unlink()

    def remove_all_of_a_kind(self) -> None:
        for path in self.files(*self.rng.sample(SIDE_SUFFIXES, self.rng.choice((1, 1, 2, 4)))):
            path.unlink()

    def hurt_a_side_file(self) -> None:
        if path := self.a_side_file():
            data = bytearray(path.read_bytes())
            match self.rng.randrange(5):
                case 0 if data:
                    data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
                case 1 if data:
                    del data[self.rng.randrange(len(data)) :]
                case 2:
                    data += self.rng.randbytes(self.rng.choice((1, 7, 34, 48)))
                case 3:
                    data = bytearray(self.rng.randbytes(self.rng.choice((0, 3, 8, 12, 96))))
                case _:
                    data = bytearray(b"no such file\n")
            path.write_bytes(data)

    def pad_side_files(self) -> None:
        """Indexes as a crash leaves them: at full size, or not quite."""
        full = self.settings.segment_index_bytes
        for suffix, slot in ((L.OFFSET_INDEX_SUFFIX, 8), (L.TIME_INDEX_SUFFIX, 12)):
            for path in self.files(suffix)[-self.rng.choice((1, 1, 2)) :]:
                size = self.rng.choice((full // slot * slot, full // slot * slot, 3 * slot, 96))
                if path.stat().st_size < size and self.rng.random() < 0.9:
                    path.write_bytes(path.read_bytes().ljust(size, b"\0"))

    def mislead_an_index(self) -> None:
        """Entries that increase and point anywhere."""
        path, log = self.a_side_file(L.OFFSET_INDEX_SUFFIX), self.a_log()
        if path is None or log is None:
            return
        base = int(path.name.split(".")[0])
        if self.rng.random() < 0.5:
            log = path.with_suffix(L.LOG_SUFFIX)
        size = log.stat().st_size if log.exists() else 100
        places = [self.rng.randrange(size + 50), *(self.bounds(log) if log.exists() else [])]
        offsets = sorted(self.rng.sample(range(1, 200), self.rng.randint(1, 3)))
        positions = sorted(self.rng.choices(places, k=len(offsets)))
        entries = [OffsetIndexEntry(base + offset, at) for offset, at in zip(offsets, positions, strict=True)]
        path.write_bytes(encode_offset_index(entries, base))

    def stray_snapshots(self) -> None:
        names = self.files(L.SNAPSHOT_SUFFIX)
        data = self.rng.choice(names).read_bytes() if names else encode_snapshot(())
        for _ in range(self.rng.choice((1, 2, 4))):
            offset = self.rng.randint(0, min(self.log_end, 10**6) + 20)
            (self.directory / segment_file_name(offset, L.SNAPSHOT_SUFFIX)).write_bytes(data)

    def false_snapshot(self) -> None:
        """A snapshot in good form that tells something else than the log."""
        rng = self.rng
        entries = []
        for producer_id in rng.sample((1, 2, 17, 33, 49, 4000, 9), rng.randint(1, 4)):
            has_batch, is_open = rng.random() < 0.7, rng.random() < 0.4
            offset = rng.randint(0, min(self.log_end, 10**6) + 1)
            entries.append(
                ProducerSnapshotEntry(
                    producer_id,
                    rng.choice((0, 1, 5)),
                    7 if has_batch else -1,
                    offset if has_batch else -1,
                    2 if has_batch else 0,
                    T0 - rng.choice((0, 500, DAY_MS)),
                    rng.choice((-1, 0, 4)),
                    offset if is_open else None,
                )
            )
        bases = [int(path.name.split(".")[0]) for path in self.logs()]
        offset = rng.choice([*bases, self.log_end, rng.randint(0, min(self.log_end, 10**6) + 1)])
        path = self.directory / segment_file_name(offset, L.SNAPSHOT_SUFFIX)
        path.write_bytes(encode_snapshot(entries))

    def false_txn_index(self) -> None:
        if path := self.a_log():
            base = int(path.name.split(".")[0])
            last = base + self.rng.choice((-1, 0, 5, 9))
            version = self.rng.choice((0, 0, 0, 0, 1, 256))
            entries = [AbortedTxn(version, 1, max(0, last - 2), max(0, last), max(1, last + 1))]
            path.with_suffix(L.TXN_INDEX_SUFFIX).write_bytes(encode_txn_index(entries))

    def orphan_indexes(self) -> None:
        offset = self.rng.randint(0, min(self.log_end, 10**6) + 20)
        for suffix in self.rng.sample(SIDE_SUFFIXES[:3], self.rng.randint(1, 3)):
            path = self.directory / segment_file_name(offset, suffix)
            if not path.exists():
                path.write_bytes(bytes(self.rng.choice((0, 8, 12, 24))))

    # --- leftovers

    def _copy(self, suffix: str, *, some: bool = True) -> None:
        log = self.a_log()
        if log is None:
            return
        for ending in (L.LOG_SUFFIX, *SIDE_SUFFIXES):
            path = log.with_suffix(ending)
            if path.exists() and (not some or self.rng.random() < 0.8):
                (self.directory / (path.name + suffix)).write_bytes(path.read_bytes())

    def leave_deleted(self) -> None:
        self._copy(L.DELETED_SUFFIX)
        if self.rng.random() < 0.2:
            (self.directory / f"{0:020d}-{0:010d}.checkpoint.deleted").write_bytes(b"")

    def leave_cleaned(self) -> None:
        self._copy(L.CLEANED_SUFFIX)

    def leave_swap(self) -> None:
        """A cleaning of neighbours or a split, interrupted somewhere."""
        rng = self.rng
        logs = self.logs()
        if not logs:
            return
        first = rng.randrange(len(logs))
        originals = logs[first : first + rng.choice((1, 1, 2, 3))]
        parts = [path.read_bytes() for path in originals]
        merged = b"".join(
            part[begin:end]
            for part, path in zip(parts, originals, strict=True)
            for begin, end in zip(self.bounds(path), self.bounds(path)[1:], strict=False)
            if rng.random() < 0.7
        )
        base = int(originals[0].name.split(".")[0]) + rng.choice((0, 0, 0, 0, 1))
        (self.directory / segment_file_name(base, L.LOG_SUFFIX + L.SWAP_SUFFIX)).write_bytes(merged)
        for suffix, content in ((L.OFFSET_INDEX_SUFFIX, b""), (L.TIME_INDEX_SUFFIX, b"")):
            if rng.random() < 0.8:
                (self.directory / segment_file_name(base, suffix + L.SWAP_SUFFIX)).write_bytes(content)
        if rng.random() < 0.2:
            data = originals[0].with_suffix(L.TXN_INDEX_SUFFIX)
            content = data.read_bytes() if data.exists() else b""
            name = segment_file_name(base, L.TXN_INDEX_SUFFIX + L.SWAP_SUFFIX)
            (self.directory / name).write_bytes(content)
        for path in originals:
            fate = rng.random()
            for ending in (L.LOG_SUFFIX, *SIDE_SUFFIXES):
                old = path.with_suffix(ending)
                if old.exists() and fate < 0.3:
                    old.rename(self.directory / (old.name + L.DELETED_SUFFIX))
                elif old.exists() and fate < 0.45:
                    old.unlink()

    # --- the rest

    def odd_names(self) -> None:
        """Numbers that are not written as Kafka writes them, and names without a number."""
        rng = self.rng
        path = self.a_side_file(*SIDE_SUFFIXES, L.LOG_SUFFIX)
        if path is not None:
            base, suffix = int(path.name.split(".")[0]), path.suffix
            names = (
                f"{base}{suffix}",
                f"{base:020d}.old{suffix}",
                f"x{suffix}",
                f"{base}{suffix}.swap",
                "x.cleaned",
            )
            path.rename(self.directory / rng.choice(names))

    def odd_epochs(self) -> None:
        rng = self.rng
        lines = [(rng.randint(0, 9), rng.randint(0, 60)) for _ in range(rng.randint(0, 4))]
        if rng.random() < 0.7:
            lines.sort()
        text = f"0\n{len(lines)}\n" + "".join(f"{epoch} {offset}\n" for epoch, offset in lines)
        text = rng.choice(
            (text, text, text, text, "", "0\n", "1\n0\n", "0\n2\n0 0\n", "0\n1\na 0\n", "0\n1\n-1 0\n")
        )
        (self.directory / EPOCHS).write_text(text)
        if rng.random() < 0.3:
            (self.directory / f"{EPOCHS}.tmp").write_text("0\n")

    def other_files(self) -> None:
        rng = self.rng
        name, content = rng.choice(
            (
                ("partition.metadata", f"version: 0\ntopic_id: {TOPIC_ID}"),
                ("partition.metadata", f"version: 0\ntopic_id: {TOPIC_ID}"),
                ("partition.metadata", "version: 0\n"),
                ("partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"),
                ("notes.txt", "kept"),
                (f"{3:020d}.notes", "kept unless a swap covers 3"),
            )
        )
        (self.directory / name).write_text(content)
