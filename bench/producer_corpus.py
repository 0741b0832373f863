"""Logs of producers, which the corpora of `bench.corpus` do not have: `python -m bench.producer_corpus [DIRECTORY]`.

Producers are idempotent by default since Kafka 3.0, and transactions are common; verification, recovery and compaction follow each
producer from batch to batch. Written by kseg itself, since a broker's classes would take minutes; `tests/kafka` proves the writer.

| Name | Content |
|---|---|
| `transactions` | a log dir after a clean stop: 200 partitions of two lz4 segments each, 8 transactional producers, one transaction in five aborted, an election in each segment, 430 MiB in 213,000 batches |
| `idempotent` | one plain segment of 512 MiB from 8 idempotent producers, 100 records a batch |
| `thousand` | a log dir after a clean stop: 1,050 partitions of two segments of a few batches |
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from bench.corpus import DEFAULT_DIRECTORY
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.segment import layout as L
from kseg.segment.model import NewBatch, Record
from kseg.segment.sidecar.checkpoint import CheckpointEntry, encode_offset_checkpoint
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch

FIRST_MS = 1_700_000_000_000
TOPIC_ID = "AAAAAAAAAAUAAAAAAAAABg"
PRODUCERS = 8
BATCHES = 852  # of records in a partition of `transactions`; a fifth more are markers
TEMPLATES = 4  # partitions are copies of so many different ones
MIB = 1 << 20


class _Producer:
    """One of the producers of a log."""

    def __init__(self, number: int, *, transactional: bool) -> None:
        self.producer_id, self.sequence, self.left = 1000 + number, 0, 0
        self.transactional = transactional

    def batch(self, records: tuple[Record, ...], codec: int, leader_epoch: int) -> NewBatch:
        sequence, self.sequence = self.sequence, self.sequence + len(records)
        return NewBatch(
            records=records,
            codec=codec,
            leader_epoch=leader_epoch,
            transactional=self.transactional,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )


def make(directory: Path, partitions: int, thousand: int, plain_bytes: int) -> None:
    """Make what is missing."""
    for name, making in (
        ("transactions", lambda place: _log_dir(place, partitions, _transactions)),
        ("idempotent", lambda place: _idempotent(place, plain_bytes)),
        ("thousand", lambda place: _log_dir(place, thousand, _few_batches)),
    ):
        _once(directory / name, making)


def _once(done: Path, making: Callable[[Path], None]) -> None:
    if done.exists():
        return
    place = done.with_name(f".{done.name}")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    making(place)
    place.rename(done)


def _log_dir(place: Path, partitions: int, write: Callable[[Path, int], int]) -> None:
    """What a clean stop leaves; `write` writes the n-th partition and returns its log end."""
    ends = [write(place / f"orders-{number}", number) for number in range(TEMPLATES)]
    for number in range(TEMPLATES, partitions):
        shutil.copytree(place / f"orders-{number % TEMPLATES}", place / f"orders-{number}")
    reached = [CheckpointEntry("orders", number, ends[number % TEMPLATES]) for number in range(partitions)]
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (place / name).write_bytes(encode_offset_checkpoint(reached))
    for name in ("log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        (place / name).write_bytes(encode_offset_checkpoint([]))
    (place / "meta.properties").write_text(
        "version=1\ncluster.id=AAAAAAAAAAEAAAAAAAAAAg\ndirectory.id=AAAAAAAAAAMAAAAAAAAABA\nnode.id=1\n"
    )
    (place / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')


def _transactions(directory: Path, number: int) -> int:
    chance = random.Random(number)
    producers = [_Producer(each, transactional=True) for each in range(PRODUCERS)]
    with PartitionWriter(directory, topic_id=TOPIC_ID, rules=RollRules(index_interval_bytes=4096)) as writer:
        for written in range(BATCHES):
            if written == BATCHES // 2:
                writer.roll()
            leader_epoch = 3 + written * 4 // BATCHES  # so that each segment has an election in it
            producer = chance.choice(producers)
            offset = writer.next_offset
            writer.append(producer.batch(_records(offset, 53, chance), L.LZ4, leader_epoch))
            producer.left += 1
            if producer.left == 4:
                producer.left = 0
                marker = EndTransactionMarker(chance.random() < 0.2, 0, FIRST_MS + offset + 53)
                writer.append(
                    end_transaction_batch(marker, writer.next_offset, producer.producer_id, 0, leader_epoch)
                )
        for producer in producers:
            if producer.left:
                marker = EndTransactionMarker(False, 0, FIRST_MS + writer.next_offset)
                writer.append(
                    end_transaction_batch(marker, writer.next_offset, producer.producer_id, 0, leader_epoch)
                )
    return writer.next_offset


def _few_batches(directory: Path, number: int) -> int:
    chance = random.Random(number)
    with PartitionWriter(directory, topic_id=TOPIC_ID, rules=RollRules(index_interval_bytes=1024)) as writer:
        for batch in range(40):
            if batch == 20:
                writer.roll()
            offset = writer.next_offset
            writer.append(NewBatch(records=_records(offset, 10, chance), codec=L.LZ4, leader_epoch=0))
    return writer.next_offset


def _idempotent(place: Path, plain_bytes: int) -> None:
    chance = random.Random(0)
    producers = [_Producer(each, transactional=False) for each in range(PRODUCERS)]
    with PartitionWriter(place / "bench-0", topic_id=TOPIC_ID) as writer:
        while writer.bytes_appended < plain_bytes:
            producer = chance.choice(producers)
            writer.append(producer.batch(_records(writer.next_offset, 100, chance), L.NONE, leader_epoch=0))


def _records(offset: int, count: int, chance: random.Random) -> tuple[Record, ...]:
    return tuple(_record(each, chance) for each in range(offset, offset + count))


def _record(offset: int, chance: random.Random) -> Record:
    value = b'{"id":"%010d","user":"u%06d","event":"page-view","ms":"%05d","trace":"%020x"}' % (
        offset,
        offset * 7919 % 100_000,
        offset % 86_400,
        chance.getrandbits(64),
    )
    return Record(offset, FIRST_MS + offset, b"key-%09d" % (offset % 500_000), value)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.producer_corpus", description="Make the corpora of producers."
    )
    parser.add_argument("directory", nargs="?", type=Path, default=DEFAULT_DIRECTORY)
    parser.add_argument("--partitions", type=int, default=200, help="partitions of transactions")
    parser.add_argument("--thousand", type=int, default=1050, help="partitions of thousand")
    parser.add_argument("--plain-mib", type=int, default=512, help="size of the plain segment of idempotent")
    options = parser.parse_args()
    make(options.directory, options.partitions, options.thousand, options.plain_mib * MIB)


if __name__ == "__main__":
    main()
