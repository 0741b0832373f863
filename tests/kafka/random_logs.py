"""Random logs: what producers of all versions may have written to a partition, batch by batch, and occasional nonsense.

Everything is drawn from one `random.Random`, so a seed repeats a log byte for byte.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from fixtures.healthy import T0
from kseg.segment import layout as L
from kseg.segment.crc import crc32c
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.state import kraft_messages as kraft
from kseg.segment.state.control import EndTransactionMarker, control_key, end_transaction_batch
from tests.support.encoders import control_batch

DAY_MS = 86_400_000


class _Producer:
    def __init__(self, producer_id: int) -> None:
        self.id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.is_open = False


class RandomLog:
    """Writes one batch after the other. rng: the source of randomness."""

    def __init__(self, rng: random.Random, start_offset: int) -> None:
        self.rng = rng
        self.next_offset = start_offset
        self.leader_epoch = rng.choice((0, 0, 1, 7))
        self.time_ms = T0
        ids = rng.sample((1, 2, 17, 33, 1000, 4000, 4001, 2**40 + 5), rng.randint(1, 5))
        # enough for the hash map to grow
        if rng.random() < 0.1:
            ids += rng.sample(range(50, 200), rng.randint(8, 25))
        self._producers = [_Producer(producer_id) for producer_id in ids]
        kinds: list[tuple[Callable[[], bytes], int]] = [
            (self._plain, 10),
            (self._idempotent, rng.choice((0, 6, 12))),
            (self._transactional, rng.choice((0, 8, 14))),
            (self._marker, rng.choice((1, 6, 10))),
            (self._legacy, rng.choice((0, 0, 0, 3, 30))),
            (self._emptied, rng.choice((0, 2, 4))),
            (self._emptied_control, rng.choice((0, 1))),
            (self._leader_change, rng.choice((0, 1))),
            (self.nonsense, rng.choice((0, 0, 0, 0, 0, 2))),
        ]
        self._kinds = [kind for kind, _ in kinds]
        self._weights = [weight for _, weight in kinds]

    def batch(self) -> bytes:
        """The bytes of the next batch."""
        rng = self.rng
        if rng.random() < 0.08:
            self.next_offset += rng.choice((1, 2, 50))
        if rng.random() < 0.06:
            self.leader_epoch += rng.choice((1, 1, 3))
        self.time_ms += rng.choice((0, 1000, 1000, 60_000, -5000))
        return rng.choices(self._kinds, self._weights)[0]()

    def leap(self) -> None:
        """Continue at an offset so far away that one index cannot contain both."""
        self.next_offset += self.rng.choice((2**31 - 20, 2**31, 2**31 + 7, 2**32))

    def _records(self) -> tuple[Record, ...]:
        rng = self.rng
        records: list[Record] = []
        for _ in range(rng.choice((1, 1, 2, 3, 5))):
            if records and rng.random() < 0.15:
                self.next_offset += rng.randint(1, 3)
            value = None if rng.random() < 0.1 else rng.randbytes(rng.choice((0, 5, 40, 200)))
            key = None if rng.random() < 0.2 else b"key-%d" % rng.randint(0, 9)
            time = -1 if rng.random() < 0.05 else self.time_ms + rng.randint(-2000, 2000)
            records.append(Record(self.next_offset, time, key, value))
            self.next_offset += 1
        return tuple(records)

    def _codec(self) -> int:
        return self.rng.choice((L.NONE, L.NONE, L.GZIP, L.SNAPPY, L.LZ4, L.ZSTD))

    def _plain(self) -> bytes:
        rng = self.rng
        is_append_time = rng.random() < 0.1
        return encode_batch(
            NewBatch(
                records=self._records(),
                codec=self._codec(),
                leader_epoch=-1 if rng.random() < 0.03 else self.leader_epoch,
                log_append_time=is_append_time,
                max_timestamp_ms=self.time_ms if is_append_time else None,
                delete_horizon_ms=self.time_ms + DAY_MS if rng.random() < 0.05 else None,
            )
        )

    def _legacy(self) -> bytes:
        rng = self.rng
        magic = rng.choice((L.MAGIC_V0, L.MAGIC_V1))
        codec = rng.choice((L.NONE, L.NONE, L.GZIP, L.SNAPPY, L.LZ4))
        is_append_time = magic == L.MAGIC_V1 and rng.random() < 0.2
        return encode_batch(
            NewBatch(
                records=self._records(),
                magic=magic,
                codec=codec,
                log_append_time=is_append_time,
                max_timestamp_ms=self.time_ms if is_append_time else None,
            )
        )

    def _of_producer(self, producer: _Producer, transactional: bool) -> bytes:
        records = self._records()
        first, last = records[0].offset, records[-1].offset
        sequence = producer.sequence
        producer.sequence = L.increment_sequence(sequence, last - first + 1)
        return encode_batch(
            NewBatch(
                records=records,
                codec=self._codec(),
                leader_epoch=self.leader_epoch,
                transactional=transactional,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=sequence,
            )
        )

    def _bump(self, producer: _Producer) -> None:
        if self.rng.random() < 0.1:
            producer.epoch = max(0, producer.epoch + self.rng.choice((1, 1, -1)))
            producer.sequence = self.rng.choice((0, 0, 5, L.INT32_MAX - 2))

    def _idempotent(self) -> bytes:
        producer = self.rng.choice(self._producers)
        self._bump(producer)
        return self._of_producer(producer, producer.is_open)

    def _transactional(self) -> bytes:
        producer = self.rng.choice(self._producers)
        if not producer.is_open:
            self._bump(producer)
        producer.is_open = True
        return self._of_producer(producer, True)

    def _marker(self) -> bytes:
        rng = self.rng
        producer = rng.choice(self._producers)
        if rng.random() < 0.1:
            producer.epoch += 1
            producer.sequence = 0
        producer.is_open = False
        coordinator_epoch = rng.choice((0, 3, 3, 2))
        marker = EndTransactionMarker(rng.random() < 0.5, coordinator_epoch, self.time_ms)
        new = end_transaction_batch(marker, self.next_offset, producer.id, producer.epoch, self.leader_epoch)
        self.next_offset += 1
        return encode_batch(new)

    def _emptied(self) -> bytes:
        rng = self.rng
        producer = rng.choice(self._producers)
        has_producer = rng.random() < 0.7
        count = rng.randint(1, 4)
        new = NewBatch(
            base_offset=self.next_offset,
            last_offset=self.next_offset + count - 1,
            leader_epoch=self.leader_epoch,
            max_timestamp_ms=self.time_ms,
            transactional=has_producer and producer.is_open,
            producer_id=producer.id if has_producer else L.NO_PRODUCER_ID,
            producer_epoch=producer.epoch if has_producer else L.NO_PRODUCER_EPOCH,
            base_sequence=producer.sequence if has_producer else L.NO_SEQUENCE,
        )
        if has_producer:
            producer.sequence = L.increment_sequence(producer.sequence, count)
        self.next_offset += count
        return encode_batch(new)

    def _emptied_control(self) -> bytes:
        producer = self.rng.choice([*self._producers, _Producer(77)])
        new = NewBatch(
            base_offset=self.next_offset,
            last_offset=self.next_offset,
            leader_epoch=self.leader_epoch,
            max_timestamp_ms=self.time_ms,
            transactional=True,
            control=True,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
        )
        self.next_offset += 1
        return encode_batch(new)

    def _leader_change(self) -> bytes:
        voters: list[dict[str, object]] = [{"voterId": 1}]
        fields = {"version": 0, "leaderId": 1, "voters": voters, "grantingVoters": voters}
        new = control_batch(
            [(kraft.LEADER_CHANGE, fields)],
            offset=self.next_offset,
            timestamp_ms=self.time_ms,
            leader_epoch=self.leader_epoch,
        )
        self.next_offset += 1
        return encode_batch(new)

    def nonsense(self) -> bytes:
        """A batch that no broker writes, with a valid checksum. Some make a load fail, others make it truncate the log."""
        rng = self.rng
        producer = rng.choice(self._producers)
        match rng.randrange(7):
            # a marker without an open transaction, or of a transaction that never began
            case 0:
                return self._of_producer(producer, not producer.is_open)
            # a marker with an invalid version, key or value
            case 1:
                key, value = rng.choice(
                    (
                        (b"\xff\xff\0\0", b"\0\0\0\0\0\1"),
                        (b"\0\0", b"\0\0\0\0\0\1"),
                        (control_key("ABORT"), b"\xff\xff\0\0\0\1"),
                        (control_key("COMMIT"), b"\0\0\0"),
                        (control_key("COMMIT"), None),
                        (b"\0\0\0\x09", b""),
                        (None, b""),
                    )
                )
                return self._crafted_marker(producer, key, value)
            case 2:  # an unknown codec
                return resealed(self._of_producer(producer, producer.is_open), {21: b"\0\7"})
            # an impossible record count
            case 3:
                return resealed(self._marker(), {57: rng.choice((b"\xff\xff\xff\xff", b"\0\0\0\5"))})
            case 4:  # an unknown magic
                return resealed(self._plain(), {16: bytes([rng.choice((3, 99))])})
            # a last offset below the base offset
            case 5:
                return resealed(self._plain(), {23: struct.pack(">i", rng.choice((-1, -3, -500)))})
            # the base offset of an earlier batch
            case _:
                batch = self._of_producer(producer, producer.is_open)
                return resealed(batch, {0: struct.pack(">q", max(0, self.next_offset - rng.randint(2, 9)))})

    def _crafted_marker(self, producer: _Producer, key: bytes | None, value: bytes | None) -> bytes:
        data = encode_batch(
            NewBatch(
                records=(Record(self.next_offset, self.time_ms, key, value),),
                leader_epoch=self.leader_epoch,
                transactional=True,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=0,
            )
        )
        self.next_offset += 1
        return resealed(data, {21: b"\0\x30", 53: b"\xff\xff\xff\xff"})


def resealed(batch: bytes, changes: dict[int, bytes]) -> bytes:
    """A magic 2 batch with other bytes at some positions and the corresponding checksum."""
    data = bytearray(batch)
    for position, replacement in changes.items():
        data[position : position + len(replacement)] = replacement
    data[L.CRC_POSITION : L.CRC_POSITION + 4] = crc32c(bytes(data[L.ATTRIBUTES_POSITION :])).to_bytes(
        4, "big"
    )
    return bytes(data)
