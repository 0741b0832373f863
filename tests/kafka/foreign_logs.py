"""Logs written by clients that use other libraries: headers, batches with many records, keys and values of arbitrary bytes, compressed
blocks in every form that a library can produce, and header fields that a broker accepts unchecked."""

from __future__ import annotations

import random

from kseg.segment import layout as L
from kseg.segment.codecs.codec import decompress
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.encoding.legacy import encode_message
from kseg.segment.errors import CodecError
from kseg.segment.model import NewBatch, Record
from tests.kafka.foreign_streams import CODECS, foreign_stream
from tests.kafka.odd_logs import OddLog
from tests.kafka.random_logs import resealed

_NAMES = (b"", b"trace", b"\xff\xfe", b"content-type", "\u00e4\u20ac".encode())


class ForeignLog(OddLog):
    """Half of the batches are from such clients, the others as `OddLog` draws them."""

    def batch(self) -> bytes:
        if self.rng.random() < 0.5:
            return super().batch()
        return self._foreign_batch() if self.rng.random() < 0.75 else self._foreign_set()

    def _rich_records(self) -> tuple[Record, ...]:
        rng = self.rng
        if rng.random() < 0.6:
            return self._records()
        records = []
        for _ in range(rng.choice((1, 3, 20, 70))):
            value = rng.choice((None, b"", rng.randbytes(7), b"text " * rng.randrange(60)))
            key = rng.choice((None, b"", rng.randbytes(3), b"key-%d" % rng.randrange(9)))
            headers = tuple(
                (rng.choice(_NAMES), rng.choice((None, b"", b"v"))) for _ in range(rng.choice((0, 0, 1, 4)))
            )
            records.append(Record(self.next_offset, self.time_ms + rng.randint(-99, 99), key, value, headers))
            self.next_offset += 1
        return tuple(records)

    def _foreign_batch(self) -> bytes:
        """A batch compressed again as such a producer would do it. Leaves out what a broker would reject at once."""
        rng = self.rng
        producer = rng.choice(self._producers)
        has_producer = rng.random() < 0.4
        records = self._rich_records()
        if has_producer:
            sequence = producer.sequence
            producer.sequence = L.increment_sequence(sequence, records[-1].offset - records[0].offset + 1)
        data = encode_batch(
            NewBatch(
                records=records,
                leader_epoch=self.leader_epoch,
                log_append_time=(is_append_time := rng.random() < 0.1),
                max_timestamp_ms=self.time_ms if is_append_time else None,
                transactional=has_producer and producer.is_open,
                producer_id=producer.id if has_producer else L.NO_PRODUCER_ID,
                producer_epoch=producer.epoch if has_producer else L.NO_PRODUCER_EPOCH,
                base_sequence=sequence if has_producer else L.NO_SEQUENCE,
            )
        )
        codec = rng.choice(CODECS)
        body = _readable_stream(rng, codec, L.MAGIC_V2, data[L.BATCH_HEADER :])
        length = (L.BATCH_HEADER + len(body) - L.ENTRY_OVERHEAD).to_bytes(4, "big")
        attributes = int.from_bytes(data[21:23], "big") | codec
        return resealed(
            data[:8] + length + data[12 : L.BATCH_HEADER] + body, {21: attributes.to_bytes(2, "big")}
        )

    def _foreign_set(self) -> bytes:
        rng = self.rng
        magic = rng.choice((L.MAGIC_V0, L.MAGIC_V1))
        codec = rng.choice((L.GZIP, L.SNAPPY, L.LZ4))
        first = self.next_offset
        inner = b"".join(
            encode_message(
                magic,
                record.offset - (first if magic else 0),
                record.timestamp_ms,
                0,
                record.key,
                record.value,
            )
            for record in self._rich_records()
        )
        packed = _readable_stream(rng, codec, magic, inner)
        return encode_message(magic, self.next_offset - 1, self.time_ms, codec, None, packed)


def _readable_stream(rng: random.Random, codec: int, magic: int, content: bytes) -> bytes:
    """A block that a broker can read, and occasionally one that it cannot."""
    while True:
        stream = foreign_stream(rng, codec, content)
        try:
            is_whole = decompress(codec, magic, stream, 1 << 24) == content
        except CodecError:
            is_whole = False
        if is_whole or rng.random() < 0.02:
            return stream
