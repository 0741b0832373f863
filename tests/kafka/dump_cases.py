"""The cases of `test_dump.py`: flags of the dump tool with kseg's options, and randomly damaged files."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Text
from kseg.segment.crc import crc32, crc32c
from kseg.segment.partition.targets import FileTarget
from tests.kafka.oracle import Oracle
from tests.support.one_target import dump

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")

LOG_FLAGS: tuple[tuple[tuple[str, ...], DumpOptions], ...] = (
    ((), DumpOptions()),
    (("--deep-iteration",), DumpOptions(deep_iteration=True)),
    (("--print-data-log",), DumpOptions(print_data_log=True)),
    (
        ("--print-data-log", "--skip-record-metadata"),
        DumpOptions(print_data_log=True, skip_record_metadata=True),
    ),
    (
        ("--deep-iteration", "--skip-record-metadata"),
        DumpOptions(deep_iteration=True, skip_record_metadata=True),
    ),
    (("--deep-iteration", "--max-bytes", "700"), DumpOptions(deep_iteration=True, max_bytes=700)),
    (("--max-bytes", "3000"), DumpOptions(max_bytes=3000)),
)
INDEX_FLAGS: tuple[tuple[tuple[str, ...], DumpOptions], ...] = (
    ((), DumpOptions()),
    (("--verify-index-only",), DumpOptions(verify_index_only=True)),
    (("--index-sanity-check",), DumpOptions(index_sanity_check=True)),
    (("--max-message-size", "100000"), DumpOptions(max_message_size=100000)),
)


def flags_for(path: Path) -> Sequence[tuple[tuple[str, ...], DumpOptions]]:
    """The combinations of flags that apply to a file of this kind."""
    if path.suffix in (".log", ".checkpoint"):
        return LOG_FLAGS
    return INDEX_FLAGS if path.suffix in (".index", ".timeindex") else INDEX_FLAGS[:1]


def our_text(path: Path, options: DumpOptions) -> bytes:
    """What `kseg dump` writes to stdout for a file."""
    return b"".join(event.data for event in dump(FileTarget(str(path)), options) if isinstance(event, Text))


def dumpable(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.suffix in SUFFIXES)


def compare(oracle: Oracle, path: Path) -> int:
    """Compare the output for a file with every combination of flags; returns the number of comparisons."""
    compared = 0
    for flags, options in flags_for(path):
        answer = oracle.dump([*flags, "--files", path])
        ours = our_text(path, options)
        if answer.exception is None:
            assert ours == answer.stdout, (path, flags)
        else:
            assert ours.startswith(answer.stdout), (path, flags, answer.exception)
        compared += 1
    return compared


def batch_starts(data: bytes) -> list[int]:
    """Positions of the entries of a valid log, by its length fields."""
    starts, position = [], 0
    while position + 17 < len(data):
        starts.append(position)
        position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    return starts


def damage(data: bytes, chance: random.Random) -> bytes:
    """A damaged copy: changed fields and records, torn tails, holes and foreign bytes, some with a corrected checksum."""
    bad = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        starts = [start for start in batch_starts(data) if start + 12 <= len(bad)]
        start = chance.choice(starts)
        match chance.randrange(9):
            # a bit anywhere
            case 0:
                bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
            # a bit of a header
            case 1:
                at = min(len(bad) - 1, start + chance.randrange(61))
                bad[at] ^= 1 << chance.randrange(8)
            # a byte of the body, with a corrected checksum: records that cannot be decoded
            case 2:
                _edit_and_sum(bad, start, chance)
            case 3:
                del bad[chance.randrange(len(bad)) :]
            case 4:
                bad += bytes(chance.choice((1, 5, 17, 18, 61, 500)))
            case 5:
                bad += chance.randbytes(chance.choice((3, 16, 20, 200)))
            case 6:
                at = chance.choice(starts)
                bad[at:at] = chance.randbytes(chance.randint(1, 100))
            case 7:
                stop = min(len(bad), start + chance.randint(1, 600))
                bad[start:stop] = bytes(stop - start)
            case 8:
                struct.pack_into(
                    ">i", bad, start + 8, chance.choice((-1, 0, 13, 14, 48, 49, 60, 1 << 20, 1 << 30))
                )
        if len(bad) < 40:
            return bytes(bad)
    return bytes(bad)


def _edit_and_sum(bad: bytearray, start: int, chance: random.Random) -> None:
    if start + 70 > len(bad):
        return
    size = struct.unpack_from(">i", bad, start + 8)[0]
    end = start + 12 + size
    if not start + 70 <= end <= len(bad):
        return
    legacy = bad[start + 16] < 2
    low = 17 if legacy else 21
    bad[start + chance.randrange(low, end - start)] = chance.randrange(256)
    if legacy:
        struct.pack_into(">I", bad, start + 12, crc32(bytes(bad[start + 16 : end])))
    else:
        struct.pack_into(">I", bad, start + 17, crc32c(bytes(bad[start + 21 : end])))


def damaged_copies(files: Sequence[Path], place: Path, seed: int, count: int) -> Iterator[tuple[int, Path]]:
    """`count` damaged copies of `files`, each with the name of a segment in a directory of its own, with its case number."""
    for case in range(count):
        chance = random.Random(seed * 1_000_003 + case)
        source = chance.choice(files)
        target = place / f"{case}" / source.name
        target.parent.mkdir()
        target.write_bytes(damage(source.read_bytes(), chance))
        yield case, target
