"""Logs of producers and with records of all shapes, which the corpora of `bench.corpus` do not have: `python -m bench.producer_corpus
[DIRECTORY]`. `bench.verify_rows` creates those that it needs.

Producers are idempotent by default since Kafka 3.0, and transactions are common; verification, recovery and compaction follow each producer
from batch to batch. kseg itself writes the logs, because a broker's classes would take minutes; `tests/kafka` checks the writer.

    transactions            a log dir after a clean stop: 200 partitions of two lz4 segments each, 8 transactional
                            producers, one transaction in five aborted, an election in each segment, 430 MiB in 213,000
                            batches
    idempotent              one plain segment of 512 MiB from 8 idempotent producers, 100 records a batch
    idempotent-lz4 … -gzip  the same records, compressed
    transactional           one plain segment of 512 MiB from 8 transactional producers, 100 records a batch, a marker
                            after every fourth
    thousand                a log dir after a clean stop: 1,050 partitions of two segments of a few batches
    ten-thousand            the same with 10,000 partitions
    large                   256 MiB of records of 1 MiB, one a batch
    tiny                    64 MiB of 10-byte values
    single                  256 MiB of one record a batch
    wide                    256 MiB of 10,000 records a batch
    headers                 256 MiB of three headers on each record
    keys                    256 MiB of records without values
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
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
# records in a partition of `transactions`; the markers are a fifth more
BATCHES = 852
# partitions are copies of this number of different ones
TEMPLATES = 4
MIB = 1 << 20
PLAIN_BYTES = 512 * MIB  # size of the segments of one log, before compression
PLAIN_RECORD_BYTES = 122


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


def make(directory: Path, names: Iterable[str] = ()) -> None:
    """Create what is missing of these corpora, or of all if there are no names."""
    for name in names or MAKERS:
        _once(directory / name, MAKERS[name])


def _once(done: Path, making: Callable[[Path], None]) -> None:
    if done.exists():
        return
    place = done.with_name(f".{done.name}")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    making(place)
    place.rename(done)


def _log_dir(place: Path, partitions: int, write: Callable[[Path, int], int]) -> None:
    """A log dir after a clean shutdown. `write` writes the n-th partition and returns its log end."""
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
            # so that there is an election in each segment
            leader_epoch = 3 + written * 4 // BATCHES
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


def _one_log(place: Path, codec: int, *, transactional: bool = False) -> None:
    chance = random.Random(0)
    producers = [_Producer(each, transactional=transactional) for each in range(PRODUCERS)]
    written = 0
    with PartitionWriter(place / "bench-0", topic_id=TOPIC_ID) as writer:
        while written < PLAIN_BYTES:
            producer = chance.choice(producers)
            written += 100 * PLAIN_RECORD_BYTES
            writer.append(producer.batch(_records(writer.next_offset, 100, chance), codec, leader_epoch=0))
            producer.left += 1
            if transactional and producer.left == 4:
                producer.left = 0
                marker = EndTransactionMarker(chance.random() < 0.2, 0, FIRST_MS + writer.next_offset)
                writer.append(end_transaction_batch(marker, writer.next_offset, producer.producer_id, 0, 0))
        # a closed segment, which the cleaner may compact
        writer.roll()


def _shape(place: Path, total_bytes: int, batch: int, record: Callable[[int, random.Random], Record]) -> None:
    chance = random.Random(0)
    with PartitionWriter(place / "bench-0", topic_id=TOPIC_ID) as writer:
        while writer.bytes_appended < total_bytes:
            offset = writer.next_offset
            records = tuple(record(each, chance) for each in range(offset, offset + batch))
            writer.append(NewBatch(records=records, leader_epoch=0))
        # a closed segment, which the cleaner may compact
        writer.roll()


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


def _large_record(offset: int, chance: random.Random) -> Record:
    return Record(offset, FIRST_MS + offset, b"key", chance.randbytes(MIB))


def _tiny_record(offset: int, chance: random.Random) -> Record:
    return Record(offset, FIRST_MS + offset, None, b"%010d" % offset)


def _with_headers(offset: int, chance: random.Random) -> Record:
    headers = ((b"trace", b"%016x" % offset), (b"source", b"bench"), (b"empty", None))
    return replace(_record(offset, chance), headers=headers)


def _key_only(offset: int, chance: random.Random) -> Record:
    return replace(_record(offset, chance), value=None)


CODECS = {"": L.NONE, "-lz4": L.LZ4, "-zstd": L.ZSTD, "-snappy": L.SNAPPY, "-gzip": L.GZIP}
MAKERS: dict[str, Callable[[Path], None]] = {
    "transactions": lambda place: _log_dir(place, 200, _transactions),
    "thousand": lambda place: _log_dir(place, 1050, _few_batches),
    "ten-thousand": lambda place: _log_dir(place, 10_000, _few_batches),
    "transactional": lambda place: _one_log(place, L.NONE, transactional=True),
    **{f"idempotent{name}": partial(_one_log, codec=codec) for name, codec in CODECS.items()},
    "large": lambda place: _shape(place, 256 * MIB, 1, _large_record),
    "tiny": lambda place: _shape(place, 64 * MIB, 1000, _tiny_record),
    "single": lambda place: _shape(place, 256 * MIB, 1, _record),
    "wide": lambda place: _shape(place, 256 * MIB, 10_000, _record),
    "headers": lambda place: _shape(place, 256 * MIB, 100, _with_headers),
    "keys": lambda place: _shape(place, 64 * MIB, 100, _key_only),
}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.producer_corpus", description="Make the corpora of producers and shapes."
    )
    parser.add_argument("directory", nargs="?", type=Path, default=DEFAULT_DIRECTORY)
    parser.add_argument(
        "--only", action="append", default=[], choices=list(MAKERS), help="this corpus; repeatable"
    )
    options = parser.parse_args()
    make(options.directory, options.only)


if __name__ == "__main__":
    main()
