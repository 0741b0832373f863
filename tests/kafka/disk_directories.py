"""Partition directories after the damage that file systems and operators do: aligned blocks of another file or of zeros, logs that end at a
block boundary and are filled up with zeros, segments from another place in the log or from another partition, and files that were
exchanged, copied twice or restored from an older copy."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from kseg.segment import layout as L
from kseg.segment.crc import crc32c
from tests.kafka.random_directories import Case, broker_state, write_files
from tests.kafka.random_ground import EPOCHS, SIDE_SUFFIXES, Ground

_BLOCKS = (64, 128, 512, 1024, 4096)


def disk_case(seed: int, parent: Path) -> Case:
    """Make the case with this seed below `parent`."""
    rng = random.Random(f"disk {seed}")
    directory, other = parent / "metro-0", parent / "metro-1"
    for path in (directory, other):
        path.mkdir()
    ground = Ground(rng, directory)
    write_files(ground)
    elsewhere = Ground(rng, other)
    write_files(elsewhere)
    before = parent / "before"
    shutil.copytree(directory, before)
    for _ in range(rng.choice((1, 1, 2, 3))):
        damage = rng.choice(_DAMAGES)
        ground.done.append(damage.__name__.strip("_"))
        damage(ground, elsewhere, before)
    shutil.rmtree(before)
    shutil.rmtree(other)
    return Case(directory, broker_state(ground), ground.settings, ground.done)


Damage = Callable[[Ground, Ground, Path], None]


def _files(ground: Ground) -> list[Path]:
    return [path for path in ground.files(L.LOG_SUFFIX, *SIDE_SUFFIXES) if path.stat().st_size]


def _blocks_of_another_file(ground: Ground, elsewhere: Ground, __: Path) -> None:
    rng, files, sources = ground.rng, _files(ground), [*_files(ground), *_files(elsewhere)]
    if not files or not sources:
        return
    path, source, size = rng.choice(files), rng.choice(sources).read_bytes(), rng.choice(_BLOCKS)
    data = bytearray(path.read_bytes())
    for _block in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(data) // size + 1) * size
        begin = rng.randrange(len(source) // size + 1) * size
        block = source[begin : begin + size][: len(data) - at]
        data[at : at + len(block)] = block
    path.write_bytes(data)


def _blocks_of_zeros(ground: Ground, _: Ground, __: Path) -> None:
    rng, files = ground.rng, _files(ground)
    if not files:
        return
    path, size = rng.choice(files), rng.choice(_BLOCKS)
    data = bytearray(path.read_bytes())
    begin = rng.randrange(len(data) // size + 1) * size
    end = min(len(data), begin + rng.choice((1, 1, 2, 5)) * size)
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)


def _filled_with_zeros(ground: Ground, _: Ground, __: Path) -> None:
    """The file size was written before the last blocks, or the file was preallocated."""
    rng, log = ground.rng, ground.a_log()
    if log is None:
        return
    data, size = log.read_bytes(), rng.choice(_BLOCKS)
    kept = rng.randrange(len(data) // size + 1) * size
    length = rng.choice((len(data), -(-len(data) // 4096) * 4096))
    log.write_bytes(data[:kept].ljust(length, b"\0"))


def _older_copy(ground: Ground, _: Ground, before: Path) -> None:
    """Some files are replaced by older versions of themselves, truncated."""
    rng = ground.rng
    for path in ground.files(L.LOG_SUFFIX, *SIDE_SUFFIXES, EPOCHS):
        if rng.random() < 0.3 and (before / path.name).exists():
            data = (before / path.name).read_bytes()
            path.write_bytes(data[: rng.randint(0, len(data))])


def _exchange(ground: Ground, _: Ground, __: Path) -> None:
    rng, suffix = ground.rng, ground.rng.choice((L.LOG_SUFFIX, *SIDE_SUFFIXES))
    files = ground.files(suffix)
    if len(files) >= 2:
        one, other = rng.sample(files, 2)
        data = one.read_bytes(), other.read_bytes()
        one.write_bytes(data[1])
        other.write_bytes(data[0])


def _of_another_partition(ground: Ground, elsewhere: Ground, _: Path) -> None:
    """All or some of the files of a segment of another partition, under their own base offset or in place of a segment here."""
    rng, logs = ground.rng, elsewhere.logs()
    if not logs:
        return
    stem = rng.choice(logs).stem
    own = [path.stem for path in ground.logs()]
    name = rng.choice(own) if own and rng.random() < 0.5 else stem
    for path in elsewhere.files(L.LOG_SUFFIX, *SIDE_SUFFIXES):
        if path.stem == stem and rng.random() < 0.7:
            shutil.copyfile(path, ground.directory / (name + path.suffix))


def _overlapping(ground: Ground, _: Ground, __: Path) -> None:
    """A second segment that begins within another one and contains some of its batches."""
    rng, log = ground.rng, ground.a_log()
    if log is None:
        return
    data, position = log.read_bytes(), rng.choice(ground.bounds(log))
    base = int.from_bytes(data[position : position + 8].ljust(8, b"\0"), "big")
    if base < 2**62:
        part = data[position : rng.choice([bound for bound in ground.bounds(log) if bound >= position])]
        (ground.directory / f"{base + rng.choice((0, 0, 1)):020}.log").write_bytes(part)


def _longer_indexes(ground: Ground, _: Ground, __: Path) -> None:
    """An index is longer than it should be: zeros or its own entries are appended."""
    rng = ground.rng
    path = ground.a_side_file(L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX)
    if path is not None:
        data, entry = path.read_bytes(), 8 if path.suffix == L.OFFSET_INDEX_SUFFIX else 12
        more = rng.choice((data[-entry:] * 3, bytes(entry), bytes(entry * 700), data, data[: entry // 2]))
        path.write_bytes(data + more)


def _emptied(ground: Ground, _: Ground, __: Path) -> None:
    """Files of 0 bytes, as a crash leaves them before their blocks are written."""
    for path in ground.files(L.LOG_SUFFIX, *SIDE_SUFFIXES, EPOCHS):
        if ground.rng.random() < 0.2:
            path.write_bytes(b"")


def _rests(ground: Ground, elsewhere: Ground, _: Path) -> None:
    """Files with the suffixes of unfinished changes and arbitrary content."""
    rng, files = ground.rng, [*_files(ground), *_files(elsewhere)]
    for path in rng.sample(files, min(len(files), rng.choice((1, 2, 4)))):
        suffix = rng.choice((".deleted", ".swap", ".swap", ".cleaned", ".tmp"))
        data = path.read_bytes()
        (ground.directory / (path.name + suffix)).write_bytes(
            data[: rng.choice((len(data), rng.randint(0, len(data))))]
        )


def _clock(ground: Ground, _: Ground, __: Path) -> None:
    """The timestamps of all batches in a log are shifted by years, with valid checksums. The time index keeps the old ones."""
    rng, log = ground.rng, ground.a_log()
    if log is None:
        return
    data, shift = bytearray(log.read_bytes()), rng.choice((-1, 1)) * 10 ** rng.choice((4, 8, 11, 13))
    bounds = ground.bounds(log)
    for begin, end in itertools.pairwise(bounds):
        if end - begin >= L.BATCH_HEADER and data[begin + 16] == L.MAGIC_V2:
            for at in (begin + 27, begin + 35):
                time = L.as_int64(int.from_bytes(data[at : at + 8], "big", signed=True) + shift)
                data[at : at + 8] = time.to_bytes(8, "big", signed=True)
            data[begin + 17 : begin + 21] = crc32c(data[begin + 21 : end]).to_bytes(4, "big")
    log.write_bytes(data)


_DAMAGES: tuple[Damage, ...] = (
    _blocks_of_another_file,
    _blocks_of_another_file,
    _blocks_of_zeros,
    _blocks_of_zeros,
    _filled_with_zeros,
    _older_copy,
    _exchange,
    _of_another_partition,
    _overlapping,
    _longer_indexes,
    _emptied,
    _rests,
    _clock,
)
