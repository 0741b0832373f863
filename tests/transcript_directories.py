"""The directories of the incidents in `transcript_incidents`, and what happened to each of them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from fixtures.diseases import flipped_bit, torn_tail, zero_block
from kseg.change.apply import room
from kseg.change.apply.disk import Disk
from kseg.segment import unreadable
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, encode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochHistory
from tests.internal_topics.coordinator_logs import batch, data_batch, key, value, write_segment
from tests.internal_topics.metadata_logs import topic_id
from tests.internal_topics.remote_logs import DELETING, FINISHED, update, upload, write_remote_log
from tests.support.broker_dirs import broker_dir
from tests.support.sector_faults import BadSectors, bad_sectors

FIRST, ACTIVE = f"{0:020d}.log", f"{297:020d}.log"
END = b"\x00end"
EVENTS = "".join(f'{{"type":"record","key":"key-{n}","value":"late {n}"}}\n' for n in range(3))
NOW_MS = 1_795_250_600_000


def sound(folder: Path) -> Path:
    (folder / "events.jsonl").write_text(EVENTS)
    return broker_dir(folder / "data", 2, 4, running=False)


def running(folder: Path) -> Path:
    (folder / "events.jsonl").write_text(EVENTS)
    return broker_dir(folder / "data", 2, 4)


def flipped(folder: Path) -> None:
    flipped_bit(running(folder) / "orders.01-2" / FIRST)


def crashed(folder: Path) -> None:
    """Two logs torn by a power failure, one with a block of zeros, one without its indexes."""
    data = running(folder)
    torn_tail(data / "orders.00-1" / ACTIVE)
    torn_tail(data / "orders.01-3" / ACTIVE)
    zero_block(data / "orders.00-2" / FIRST)
    for index in (data / "orders.01-0").glob("*index"):
        index.unlink()


def replicas(folder: Path) -> None:
    """A missing replica, one of a topic that the cluster does not have, one that is being deleted, and one that exists twice."""
    data = sound(folder)
    shutil.rmtree(data / "orders.00-3")
    shutil.copytree(data / "orders.00-0", data / "orders.09-0")
    (data / "orders.09-0" / "partition.metadata").write_text("version: 0\ntopic_id: q7n1YyJrRkW0u0c3dZ4v2g")
    (data / "orders.01-1").rename(data / f"orders.01-1.{'0a' * 16}-delete")


def hanging(folder: Path) -> None:
    """A late batch of a producer whose transaction the coordinator has ended, one of a transaction in progress, and offsets in a
    transaction of an unknown producer. The broker is running, because one that was stopped cleanly and has no producer snapshot forgets its
    transactions."""
    data = sound(folder)
    (data / ".kafka_cleanshutdown").unlink()
    for partition in (
        "orders.00-0",
        "orders.00-1",
        "orders.00-2",
        "orders.00-3",
        "orders.01-0",
        "orders.01-3",
    ):
        shutil.rmtree(data / partition)
    now_ms = NOW_MS - 3_600_000
    for number, producer_id in ((1, 41), (2, 42)):
        late = data_batch(297, producer_id, 3, count=12, at_ms=now_ms)
        log = data / f"orders.01-{number}"
        for path in log.iterdir():
            if path.suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex"):
                path.unlink()
        write_segment(log, late, base_offset=297)
    commit = value("__consumer_offsets", 1, 3, offset=7, leaderEpoch=-1, metadata="", commitTimestamp=now_ms)
    topic_partition = key("__consumer_offsets", 1, group="stuck", topic="orders.01", partition=1)
    options = {"transactional": True, "producer_id": 77, "producer_epoch": 0, "base_sequence": 0}
    write_segment(data / "__consumer_offsets-0", batch(0, (topic_partition, commit), at_ms=now_ms, **options))
    records = []
    for name, producer_id, status, listed in (("till-7", 41, 4, []), ("till-8", 42, 1, [2])):
        state = {
            "producerId": producer_id,
            "producerEpoch": 4 if status == 4 else 3,
            "transactionTimeoutMs": 7_200_000,
            "transactionStatus": status,
            "transactionPartitions": [{"topic": "orders.01", "partitionIds": listed}] if listed else [],
            "transactionLastUpdateTimestampMs": now_ms,
            "transactionStartTimestampMs": now_ms,
        }
        transactional_id = key("__transaction_state", 0, transactionalId=name)
        records.append((transactional_id, value("__transaction_state", 0, 1, **state)))
    write_segment(data / "__transaction_state-0", batch(0, *records, at_ms=now_ms))


def tiered(folder: Path) -> None:
    """Offsets below 297 of a partition were uploaded, the deletion of two segments among them was interrupted, and one upload is in
    progress."""
    data = sound(folder)
    place = "orders.00", (data / "orders.00-2" / "partition.metadata").read_text()[-22:], 2
    first, second, third = (topic_id(number) for number in (1, 2, 3))
    for segment in sorted((data / "orders.00-2").glob("0*"))[:-6]:
        segment.unlink()
    write_remote_log(
        data / "__remote_log_metadata-0",
        [
            *(upload(place, first, 0, 98, {0: 0}), update(place, first, FINISHED)),
            *(upload(place, second, 99, 197, {0: 99}), update(place, second, FINISHED)),
            *(update(place, second, DELETING), upload(place, third, 198, 296, {0: 198})),
        ],
    )


def torn(folder: Path) -> None:
    """The directory for `bad_disk`, valid apart from the bad sectors."""
    with_marked(sound(folder))


def bad_disk(patch: pytest.MonkeyPatch) -> None:
    """Two sectors of a closed log and one of an index cannot be read."""
    disk = bad_sectors(patch, BadSectors())
    disk.spoil(Path("data/orders.00-1") / FIRST, (2, 3))
    disk.spoil(Path("data/orders.01-2") / f"{297:020d}.timeindex", (0,))


def crashed_with_marked(folder: Path) -> None:
    crashed(folder)
    with_marked(folder / "data")


def with_marked(data: Path) -> None:
    """Two segments that retention marked long ago, and records to append."""
    for partition in ("orders.00-3", "orders.01-1"):
        marked = data / partition / f"{0:020d}.log"
        marked.with_name(f"{990:020d}.log.deleted").write_bytes(marked.read_bytes())


def backed_up(folder: Path) -> None:
    """A data directory and its backup: different records of two leaders after common ones, a log that continued, a flipped bit, a new
    topic."""
    data = sound(folder)
    shutil.copytree(data, folder / "backup")
    for root, word, count in (("data", b"after the election", 5), ("backup", b"before it", 3)):
        go_on(folder / root / "orders.00-1", 7 if root == "data" else 6, word, count)
    go_on(data / "orders.00-2", 5, b"since the backup", 40)
    flipped_bit(folder / "backup" / "orders.01-2" / FIRST)
    shutil.rmtree(folder / "backup" / "orders.01-3")


def go_on(partition: Path, leader_epoch: int, word: bytes, count: int) -> None:
    with PartitionLog(PartitionTarget(str(partition))) as log:
        end = log.end_offset
    records = tuple(Record(end + at, NOW_MS + at, b"key-%d" % at, word) for at in range(count))
    with max(partition.glob("*.log")).open("ab") as active:
        active.write(encode_batch(NewBatch(records=records, leader_epoch=leader_epoch)))
    cache = partition / "leader-epoch-checkpoint"
    epochs = EpochHistory(decode_leader_epochs(cache.read_bytes()))
    epochs.assign(leader_epoch, end)
    cache.write_bytes(encode_leader_epochs(epochs.entries))


def many(folder: Path) -> Path:
    """1,050 partitions as under a running broker."""
    (folder / "events.jsonl").write_text(EVENTS)
    return broker_dir(folder / "data", 21, 50, linked=True)


def a_bit_flips() -> None:
    """one bit of orders.07-31 flips"""
    log = Path("data/orders.07-31") / FIRST
    content = log.read_bytes()
    log.unlink()
    log.write_bytes(content)
    flipped_bit(log)
    os.utime(log, ns=(NOW_MS * 1_000_000, NOW_MS * 1_000_000))


def full_disk(patch: pytest.MonkeyPatch) -> None:
    """No byte is free, and none can be freed."""

    def none_free(path: str) -> room.FileSystem:
        return room.FileSystem(os.stat(path if os.path.exists(path) else os.curdir).st_dev, 4096, 0)

    def refused(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(room, "file_system_of", none_free)
    patch.setattr(os, "posix_fallocate", refused)
    patch.setattr(Disk, "write", refused)
    patch.setattr(unreadable, "write", refused)


def filling_disk(patch: pytest.MonkeyPatch) -> None:
    """There seems to be space until it is used up, as with a quota, or if another process writes as well."""

    def refused(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def some_free(path: str) -> room.FileSystem:
        return room.FileSystem(os.stat(path if os.path.exists(path) else os.curdir).st_dev, 4096, 1 << 30)

    patch.setattr(room, "file_system_of", some_free)
    patch.setattr(Disk, "write", refused)
    patch.setattr(unreadable, "write", refused)
