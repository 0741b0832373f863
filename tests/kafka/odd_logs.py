"""Logs with batches that are well-formed but unusual, and some that are invalid, all with valid checksums.

`RandomLog` draws what brokers write and a little nonsense. This draws header fields and parts of old-format messages far outside of that,
records that are damaged under a valid checksum, and compressed sets with damage inside.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from fixtures.healthy import T0
from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress
from kseg.segment.crc import crc32
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.encoding.legacy import encode_message
from kseg.segment.model import NewBatch, Record
from kseg.segment.state.control import control_key
from tests.kafka.random_logs import DAY_MS, RandomLog, resealed

_ODD_LONGS = (-(2**63), -2, -1, 0, 1, 2**31, 2**63 - 1)
_ODD_INTS = (-(2**31), -2, -1, 0, 1, 2**31 - 2, 2**31 - 1)
_ODD_SHORTS = (-(2**15), -2, -1, 0, 1, 2**15 - 1)
_INFLATABLE = (L.GZIP, L.SNAPPY, L.LZ4)


class OddLog(RandomLog):
    """Writes an odd batch now and then. Its kinds are drawn once for a log, so that a load fails for one reason at a time."""

    def __init__(self, rng: random.Random, start_offset: int) -> None:
        super().__init__(rng, start_offset)
        every: tuple[Callable[[], bytes], ...] = (
            self._odd_header,
            self._odd_attributes,
            self._odd_times,
            self._odd_control,
            self._odd_records,
            self._odd_packed,
            self._odd_message,
            self._odd_set,
            self._odd_set,
            self._odd_sequence,
            self._wide_batch,
        )
        self._odd = rng.sample(every, rng.choice((1, 1, 2, 3)))
        self._oddness = rng.choice((0.0, 0.03, 0.1, 0.3))
        if rng.random() < 0.2:
            self.time_ms -= rng.choice((1, 2, 40)) * DAY_MS

    def batch(self) -> bytes:
        if self.rng.random() < self._oddness:
            return self.rng.choice(self._odd)()
        return super().batch()

    def _base(self) -> bytes:
        producer = self.rng.choice(self._producers)
        if self.rng.random() < 0.5:
            return self._of_producer(producer, producer.is_open)
        return self._plain()

    # --- batches of magic 2

    def _odd_header(self) -> bytes:
        """A header field with an extreme value. The checksum does not cover all of these fields."""
        rng = self.rng
        position, new = rng.choice(
            (
                (0, struct.pack(">q", rng.choice((-1, -5, -(2**63), 2**63 - 1, 2**63 - 3)))),
                (12, struct.pack(">i", rng.choice(_ODD_INTS))),
                (23, struct.pack(">i", rng.choice(_ODD_INTS))),
                (43, struct.pack(">q", rng.choice(_ODD_LONGS))),
                (51, struct.pack(">h", rng.choice(_ODD_SHORTS))),
                (53, struct.pack(">i", rng.choice(_ODD_INTS))),
                (57, struct.pack(">i", rng.choice((*_ODD_INTS, 2, 3, 5)))),
            )
        )
        return resealed(self._base(), {position: new})

    def _odd_attributes(self) -> bytes:
        """Reserved bits, and combinations of attributes that no client writes."""
        rng = self.rng
        batch = self._base()
        attributes = int.from_bytes(batch[21:23], "big")
        for _ in range(rng.choice((1, 1, 2, 3))):
            attributes ^= 1 << rng.randrange(16)
        return resealed(batch, {21: attributes.to_bytes(2, "big")})

    def _odd_times(self) -> bytes:
        rng = self.rng
        position = rng.choice((27, 35, 35))
        time = rng.choice((*_ODD_LONGS, T0 - DAY_MS, T0 + 20 * DAY_MS))
        return resealed(self._base(), {position: struct.pack(">q", time)})

    def _odd_control(self) -> bytes:
        """Control batches with several records, a codec, other versions, or without a transaction or a producer."""
        rng = self.rng
        producer = rng.choice(self._producers)
        keys = (control_key("COMMIT"), control_key("ABORT"), b"\0\1\0\1more", b"\0\0\0\3", b"\0\5\0\0", b"")
        values = (b"\0\0\0\0\0\3", b"\0\1\0\0\0\3more", b"\0\0\xff\xff\xff\xff", b"\0\0", b"", None)
        records = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            headers = ((b"h", None),) if rng.random() < 0.2 else ()
            weights = (6, 1, 1, 1, 1, 1)
            value = rng.choices(values, weights)[0]
            key = rng.choices(keys, (6, 6, 1, 1, 1, 1))[0]
            records.append(Record(self.next_offset, self.time_ms, key, value, headers))
            self.next_offset += 1
        codec = rng.choice((L.NONE, L.NONE, L.GZIP, L.ZSTD))
        data = encode_batch(
            NewBatch(
                records=tuple(records),
                codec=codec,
                leader_epoch=self.leader_epoch,
                transactional=True,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                base_sequence=0,
            )
        )
        bits = L.CONTROL_BIT | (L.TRANSACTIONAL_BIT if rng.random() < 0.8 else 0) | codec
        changes = {21: bits.to_bytes(2, "big")}
        if rng.random() < 0.8:
            changes[53] = b"\xff\xff\xff\xff"
        if rng.random() < 0.15:
            changes[43] = b"\xff" * 10
        return resealed(data, changes)

    def _odd_records(self) -> bytes:
        """Bytes of the records (or of the compressed block) are changed, with a valid checksum."""
        rng = self.rng
        data = bytearray(rng.choice((self._base, self._base, self._marker))())
        for _ in range(rng.choice((1, 1, 3))):
            if len(data) > L.BATCH_HEADER:
                data[rng.randrange(L.BATCH_HEADER, len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randint(L.BATCH_HEADER, len(data)) :]
            data[8:12] = (len(data) - 12).to_bytes(4, "big")
        return resealed(bytes(data), {})

    def _odd_packed(self) -> bytes:
        """A compressed batch whose records were damaged before compression."""
        rng = self.rng
        offset = self.next_offset
        data = bytearray(encode_batch(NewBatch(records=self._records(), leader_epoch=self.leader_epoch)))
        body = self._scratched(bytes(data[L.BATCH_HEADER :]))
        codec = rng.choice((*_INFLATABLE, L.ZSTD))
        packed = compress(codec, L.MAGIC_V2, body)
        data[L.BATCH_HEADER :] = packed
        data[8:12] = (len(data) - 12).to_bytes(4, "big")
        assert self.next_offset > offset
        return resealed(bytes(data), {21: codec.to_bytes(2, "big")})

    def _odd_sequence(self) -> bytes:
        """Sequence numbers and epochs that have gaps or wrap around."""
        rng = self.rng
        producer = rng.choice(self._producers)
        producer.sequence = rng.choice((0, 7, 2**31 - 1, 2**31 - 2, producer.sequence))
        producer.epoch = rng.choice((producer.epoch, 0, 2**15 - 100, producer.epoch + 1)) % 2**15
        return self._of_producer(producer, rng.random() < 0.5)

    def _wide_batch(self) -> bytes:
        """A batch that spans many offsets with few records."""
        rng = self.rng
        first = self.next_offset
        last = first + rng.choice((1000, 2**31 - 2, 2**31 - 1, 2**31 - 1 - 50))
        record = Record(first, self.time_ms, b"k", b"wide")
        self.next_offset = last + 1
        return encode_batch(
            NewBatch(records=(record,), base_offset=first, last_offset=last, leader_epoch=self.leader_epoch)
        )

    # --- magic 0 and 1

    def _scratched(self, data: bytes) -> bytes:
        rng = self.rng
        bad = bytearray(data)
        for _ in range(rng.choice((0, 1, 1, 2))):
            if bad:
                bad[rng.randrange(len(bad))] = rng.choice((0, 1, 255, rng.randrange(256)))
        if rng.random() < 0.3:
            del bad[rng.randint(0, len(bad)) :]
        if rng.random() < 0.2:
            bad += rng.choice((b"\0", bytes(12), bytes(26), rng.randbytes(20)))
        return bytes(bad)

    def _odd_message(self) -> bytes:
        """One message with wrong attributes, times or lengths and a valid checksum."""
        rng = self.rng
        magic = rng.choice((L.MAGIC_V0, L.MAGIC_V1))
        attributes = rng.choice((0, 0, 8, 16, 0x40, -128, 1, 4, 5, 7))
        time = rng.choice((self.time_ms, -1, -2, 2**63 - 1, 0))
        key = rng.choice((None, b"k", b""))
        value = rng.choice((None, b"v", b"", rng.randbytes(30)))
        offset = self.next_offset
        self.next_offset += 1
        data = encode_message(magic, min(offset, L.INT64_MAX), time, attributes, key, value)
        if rng.random() < 0.4:
            head = bytearray(data[16:])
            head[rng.randrange(2, len(head))] = rng.randrange(256)
            data = resummed(data[:12], bytes(head))
        return data

    def _odd_set(self) -> bytes:
        """A compressed set with foreign inner messages, offsets by other rules, or damage inside."""
        rng = self.rng
        magic = rng.choice((L.MAGIC_V0, L.MAGIC_V1))
        codec = rng.choice(_INFLATABLE)
        count = rng.choice((0, 1, 1, 2, 3, 4))
        first = self.next_offset
        self.next_offset += max(1, count)
        is_absolute = rng.random() < (0.15 if magic else 0.85)
        inner = b""
        for at in range(count):
            inner_magic = magic if rng.random() < 0.92 else rng.choice((0, 1, 2))
            inner_offset = (first % 2**62 + at if is_absolute else at) + rng.choice((0,) * 12 + (-1, 1, 5))
            inner_attributes = rng.choice((0,) * 12 + (8, codec, 3))
            time = rng.choice((self.time_ms, self.time_ms, -1, -3))
            if inner_magic == 2:
                record = Record(max(0, inner_offset), self.time_ms, b"k", b"v")
                inner += encode_batch(NewBatch(records=(record,)))
            else:
                inner += encode_message(
                    inner_magic, inner_offset, time, inner_attributes, b"k", rng.randbytes(9)
                )
        if rng.random() < 0.5:
            inner = self._scratched(inner)
        value: bytes | None = compress(codec, magic, inner)
        if rng.random() < 0.1:
            value = rng.choice((None, b"", b"garbage", self._scratched(value or b"")))
        attributes = codec | rng.choice((0, 0, 0, 8, 16, 0x40))
        offset = self.next_offset - 1 + rng.choice((0,) * 9 + (-1, 1, -count, 50, -first))
        time = rng.choice((self.time_ms, self.time_ms, -1, -2))
        key = rng.choice((None, None, None, b"k"))
        return encode_message(magic, min(max(0, offset), L.INT64_MAX), time, attributes, key, value)


def resummed(start: bytes, rest: bytes) -> bytes:
    """A message of magic 0 or 1 with `rest` after the checksum, which is computed anew."""
    return start + crc32(rest).to_bytes(4, "big") + rest
