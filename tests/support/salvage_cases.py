"""The basic cases of salvage: functions that damage a copy of a partition.

Each takes the directory of `healthy.partition` (segments 0, 102, 198, 297; log end 330).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

from fixtures import diseases, side_diseases
from fixtures.diseases import batch_spans, put
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record

Case = Callable[[Path], object]
MIDDLE, NEXT, LAST = "00000000000000000102", "00000000000000000198", "00000000000000000297"


def log(partition: Path, stem: str = MIDDLE) -> Path:
    return partition / f"{stem}.log"


def move(partition: Path, stem: str, base_offset: int, suffixes: tuple[str, ...] = (".log",)) -> None:
    for suffix in suffixes:
        file = partition / f"{stem}{suffix}"
        if file.exists():
            file.rename(partition / f"{base_offset:020d}{suffix}")


def duplicated_tail(partition: Path) -> None:
    """The last three batches of the log are written twice."""
    file = log(partition, LAST)
    spans = batch_spans(file)
    data = file.read_bytes()
    file.write_bytes(data + data[spans[-3][0] :])


def overlapping_copies(partition: Path) -> None:
    """A segment ends with the batches that the next one begins with."""
    former, following = log(partition), log(partition, NEXT)
    spans = batch_spans(following)
    put(former, former.stat().st_size, following.read_bytes()[: spans[4][0]])


def other_leader(epoch: int) -> bytes:
    """The last six offsets of the log are written again, in two batches of another leader."""
    made = b""
    for first in (324, 327):
        content = tuple(Record(first + at, 1_700_000_324_000, b"other", b"leader %d" % at) for at in range(3))
        made += encode_batch(NewBatch(records=content, leader_epoch=epoch))
    return made


def other_leader_wrote(epoch: int, stem: str = LAST) -> Case:
    """Batches of another leader follow those of the log, and nothing else tells the epochs."""

    def overlapping_leader(partition: Path) -> None:
        file = log(partition, stem)
        put(file, file.stat().st_size, other_leader(epoch))
        (partition / "leader-epoch-checkpoint").unlink()

    return overlapping_leader


def moved_batch(partition: Path) -> None:
    """A batch of one segment was moved to the end of the next."""
    file, following = log(partition), log(partition, NEXT)
    position, size = batch_spans(file)[3]
    data = file.read_bytes()
    put(following, following.stat().st_size, data[position : position + size])
    file.write_bytes(data[:position] + data[position + size :])


def swapped_segments(partition: Path) -> None:
    """Two segments have each other's names."""
    one, other = log(partition), log(partition, NEXT)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def batches_swapped_across(partition: Path) -> None:
    """The first batches of two segments are exchanged."""
    one, other = log(partition), log(partition, NEXT)
    first, second = one.read_bytes(), other.read_bytes()
    a, b = batch_spans(one)[0][1], batch_spans(other)[0][1]
    one.write_bytes(second[:b] + first[a:])
    other.write_bytes(first[:a] + second[b:])


def doubled_segment(partition: Path) -> None:
    """A segment exists twice, the second time under a name beyond the log end."""
    (partition / f"{5000:020d}.log").write_bytes(log(partition).read_bytes())


def all_noise(partition: Path) -> None:
    file = log(partition)
    file.write_bytes(random.Random(7).randbytes(file.stat().st_size))


def last_all_zeros(partition: Path) -> None:
    file = log(partition, LAST)
    file.write_bytes(bytes(file.stat().st_size))


def cut_at(stem: str, batches: int) -> Case:
    """The blocks of the last batches were never written."""

    def never_written(partition: Path) -> None:
        file = log(partition, stem)
        with file.open("r+b") as stream:
            stream.truncate(batch_spans(file)[-batches][0])

    return never_written


def negative_offset(partition: Path) -> None:
    """The sign of a base offset is flipped."""
    position, _ = batch_spans(log(partition))[4]
    put(log(partition), position, b"\x80")


def overwritten_offset(partition: Path) -> None:
    """A base offset is overwritten with noise, so only the gap between the adjacent batches tells it."""
    put(log(partition), batch_spans(log(partition))[4][0], b"\x00\x00\x13\x37\x42\x42\x42\x42")


def magic_3(partition: Path) -> None:
    diseases.bad_magic(log(partition), 4, magic=3)


def damage_everywhere(partition: Path) -> None:
    for stem in (MIDDLE, NEXT, LAST):
        file = log(partition, stem)
        spans = batch_spans(file)
        diseases.torn_tail(file)
        put(file, spans[5][0], bytes(spans[5][1]))
        put(file, spans[2][0] + 60, b"\xee")
        content = file.read_bytes()
        file.write_bytes(content[: spans[4][0]] + b"noise" * 9 + content[spans[4][0] :])


def lost_marker(partition: Path) -> None:
    """In one segment, the batches with transaction markers are damaged."""
    file = log(partition)
    data = bytearray(file.read_bytes())
    for position, size in batch_spans(file):
        (attributes,) = struct.unpack_from(">h", data, position + 21)
        if attributes & 0x20:
            data[position + size - 1] ^= 0xFF
    file.write_bytes(data)


def everything_missing(partition: Path) -> None:
    """Only the logs remain."""
    for file in partition.iterdir():
        if file.suffix not in (".log", ".metadata"):
            file.unlink()


def on_log(disease: Callable[[Path], object], stem: str = MIDDLE) -> Case:
    return lambda partition: disease(log(partition, stem))


def on(disease: Callable[[Path], object], name: str) -> Case:
    return lambda partition: disease(partition / name)


def renamed(stem: str, base_offset: int, *suffixes: str) -> Case:
    return lambda partition: move(partition, stem, base_offset, suffixes or (".log",))


_SIDE = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")

CASES: dict[str, Case] = {
    **{disease.__name__: on_log(disease) for disease in diseases.LOG_DISEASES},
    **{
        f"{disease.__name__}_at_the_end": on_log(disease, LAST)
        for disease in (
            diseases.torn_tail,
            diseases.short_tail,
            diseases.zero_tail,
            diseases.bad_crc,
            diseases.foreign_bytes,
            diseases.duplicated_batch,
        )
    },
    "duplicated_tail": duplicated_tail,
    "overlapping_copies": overlapping_copies,
    "overlapping_older_leader": other_leader_wrote(2),
    "overlapping_newer_leader": other_leader_wrote(7),
    "overlapping_same_leader": other_leader_wrote(5, NEXT),
    "moved_batch": moved_batch,
    "swapped_segments": swapped_segments,
    "batches_swapped_across": batches_swapped_across,
    "doubled_segment": doubled_segment,
    "all_noise": all_noise,
    "last_all_zeros": last_all_zeros,
    "last_never_written": cut_at(LAST, 3),
    "middle_never_written": cut_at(MIDDLE, 3),
    "negative_offset": negative_offset,
    "overwritten_offset": overwritten_offset,
    "magic_3": magic_3,
    "damage_everywhere": damage_everywhere,
    "lost_marker": lost_marker,
    "everything_missing": everything_missing,
    "named_too_high": renamed(MIDDLE, 150),
    "named_too_high_with_all_files": renamed(MIDDLE, 150, *_SIDE),
    "named_behind_the_log": renamed(MIDDLE, 5000, *_SIDE),
    "named_inside_the_former": renamed(MIDDLE, 90, *_SIDE),
    "segment_gone": lambda partition: side_diseases.segment_gap(log(partition)),
    "first_segment_gone": lambda partition: side_diseases.segment_gap(log(partition, "0" * 20)),
    "index_missing": on_log(side_diseases.index_missing),
    "time_index_missing": on_log(side_diseases.time_index_missing),
    "log_missing": on_log(side_diseases.orphan_index),
    "index_wrong_entry": on(side_diseases.index_wrong_entry, f"{MIDDLE}.index"),
    "index_entry_beyond_log": on(side_diseases.index_entry_beyond_log, f"{MIDDLE}.index"),
    "index_zero_tail": on(side_diseases.index_zero_tail, f"{MIDDLE}.index"),
    "time_index_zero_tail": on(side_diseases.index_zero_tail, f"{LAST}.timeindex"),
    "index_unsorted": on(side_diseases.index_unsorted, f"{MIDDLE}.index"),
    "time_index_unsorted": on(side_diseases.index_unsorted, f"{MIDDLE}.timeindex"),
    "index_bad_size": on(side_diseases.index_bad_size, f"{MIDDLE}.index"),
    "time_index_bad_size": on(side_diseases.index_bad_size, f"{MIDDLE}.timeindex"),
    "txn_index_bad_size": on(side_diseases.index_bad_size, f"{MIDDLE}.txnindex"),
    "time_index_wrong_entry": on(side_diseases.time_index_wrong_entry, f"{MIDDLE}.timeindex"),
    "txn_index_missing_entry": on(side_diseases.txn_index_missing_entry, f"{MIDDLE}.txnindex"),
    "txn_index_wrong_entry": on(side_diseases.txn_index_wrong_entry, f"{MIDDLE}.txnindex"),
    "txn_index_bad_version": on(side_diseases.txn_index_bad_version, f"{MIDDLE}.txnindex"),
    "snapshot_corrupt": on(side_diseases.snapshot_corrupt, f"{NEXT}.snapshot"),
    "snapshot_stray": side_diseases.snapshot_stray,
    "epoch_file_wrong": side_diseases.epoch_file_wrong,
    "epoch_file_corrupt": side_diseases.epoch_file_corrupt,
    "epoch_file_missing": on(side_diseases.missing, "leader-epoch-checkpoint"),
    "leftover_swap": on_log(side_diseases.leftover_swap),
    "leftover_cleaned": on_log(side_diseases.leftover_cleaned),
    "leftover_deleted": on_log(side_diseases.leftover_deleted),
    "leftover_tmp": on_log(side_diseases.leftover_tmp),
}
