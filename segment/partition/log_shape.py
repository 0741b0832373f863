"""The shape of a log, for pictures: where its segments are in offsets and in time, its leader epochs, and how its batches are filled.

Code that walks the headers of a log passes each table of them to a `ShapeTaker`, so a picture reads only a few additional batches:
some of each codec in a segment are decompressed to measure what compression saves. These are every s-th batch, where s doubles
whenever there are too many, so they are spread evenly over a segment of any length.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import field

from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import decompress
from kseg.segment.errors import CodecError
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import verify_records
from kseg.segment.values import dataclass

SAMPLED = 4  # sampled batches per codec and segment; up to twice as many before thinning
MAX_EPOCHS = 1000  # leader epochs per log; a healthy partition has a few dozen
_MAX_CONTENT_BYTES = 32 * 1024 * 1024  # limit on the decompressed size of a sampled batch


def hides_first_time(magic: int, attributes: int) -> bool:
    """Whether the base timestamp of a batch differs from the timestamp of its first record: with LogAppendTime it is the
    producer's, after a cleaning the delete horizon."""
    return magic >= L.MAGIC_V2 and bool(attributes & (L.TIMESTAMP_TYPE_BIT | L.DELETE_HORIZON_BIT))


@dataclass(frozen=True, slots=True)
class SegmentShape:
    """end_offset: after its last batch. earliest_ms, latest_ms: None if no batch has a timestamp."""

    base_offset: int
    end_offset: int
    size_bytes: int
    batches: int
    earliest_ms: int | None
    latest_ms: int | None


@dataclass(frozen=True, slots=True)
class EpochShape:
    """The start of a leader epoch in the batches. at_ms: the timestamp of its first batch, None without one."""

    epoch: int
    first_offset: int
    at_ms: int | None


@dataclass(slots=True)
class CodecShape:
    """The batches of one codec. by_size: number of batches by n, with sizes from 2**(n-1) to below 2**n bytes. sampled_bytes: of the
    compressed records of the sampled batches; content_bytes: of these records when decompressed."""

    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    by_size: Counter[int] = field(default_factory=Counter)
    sampled_batches: int = 0
    sampled_bytes: int = 0
    content_bytes: int = 0

    def add(self, other: "CodecShape") -> None:
        self.batches += other.batches
        self.records += other.records
        self.size_bytes += other.size_bytes
        self.by_size.update(other.by_size)
        self.sampled_batches += other.sampled_batches
        self.sampled_bytes += other.sampled_bytes
        self.content_bytes += other.content_bytes


@dataclass(frozen=True, slots=True)
class LogShape:
    """directory: of the partition. log_bytes: of all segments. codecs: by name."""

    directory: str
    log_bytes: int
    segments: Sequence[SegmentShape]
    epochs: Sequence[EpochShape]
    codecs: "dict[str, CodecShape]"


class ShapeTaker:
    """Collects the shape of one log, segment by segment: `begin`, `take` the tables of valid batches in order, `end`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._segments: list[SegmentShape] = []
        self._epochs: list[EpochShape] = []
        self._codecs: dict[int, CodecShape] = {}
        self._base_offset = self._end_offset = self._batches = 0
        self._earliest_ms: int | None = None
        self._latest_ms: int | None = None
        self._samples: dict[int, _Samples] = {}

    @property
    def shape(self) -> LogShape:
        codecs = {L.codec_name(codec): shape for codec, shape in sorted(self._codecs.items())}
        log_bytes = sum(segment.size_bytes for segment in self._segments)
        return LogShape(self._directory, log_bytes, tuple(self._segments), tuple(self._epochs), codecs)

    def begin(self, base_offset: int) -> None:
        self._base_offset = self._end_offset = base_offset
        self._batches = 0
        self._earliest_ms = self._latest_ms = None
        self._samples = {}

    def take(self, table: Columns, first: int, stop: int) -> None:
        """Add rows first … stop - 1."""
        if first == stop:
            return
        self._batches += stop - first
        self._end_offset = table.at(C.LAST_OFFSET, stop - 1) + 1
        kinds = set(zip(_cells(table, C.MAGIC, first, stop), _cells(table, C.ATTRIBUTES, first, stop), strict=True))  # fmt: skip
        is_first_hidden = any(hides_first_time(magic, attributes) for magic, attributes in kinds)
        first_time = C.MAX_TIMESTAMP if is_first_hidden else C.BASE_TIMESTAMP
        self._take_times(table, first, stop, first_time)
        self._take_epochs(table, first, stop, first_time)
        codecs = {attributes & L.CODEC_MASK for _, attributes in kinds}
        if len(codecs) == 1:
            self._take_batches(codecs.pop(), table, range(first, stop))
            return
        rows: dict[int, list[int]] = {codec: [] for codec in codecs}
        for row, attributes in enumerate(_cells(table, C.ATTRIBUTES, first, stop), first):
            rows[attributes & L.CODEC_MASK].append(row)
        for codec, of_codec in rows.items():
            self._take_batches(codec, table, of_codec)

    def end(self, size_bytes: int, view: memoryview) -> None:
        """Called when the segment has no more batches. view: its bytes."""
        for codec, samples in self._samples.items():
            samples.open(codec, view, self._codecs[codec])
        self._segments.append(
            SegmentShape(
                self._base_offset,
                self._end_offset,
                size_bytes,
                self._batches,
                self._earliest_ms,
                self._latest_ms,
            )
        )

    def _take_times(self, table: Columns, first: int, stop: int, first_field: int) -> None:
        earliest = min((time for time in _cells(table, first_field, first, stop) if time >= 0), default=None)
        latest = max(_cells(table, C.MAX_TIMESTAMP, first, stop))
        if earliest is not None and (self._earliest_ms is None or earliest < self._earliest_ms):
            self._earliest_ms = earliest
        if latest >= 0 and (self._latest_ms is None or latest > self._latest_ms):
            self._latest_ms = latest

    def _take_epochs(self, table: Columns, first: int, stop: int, first_time: int) -> None:
        epoch = self._epochs[-1].epoch if self._epochs else L.NO_LEADER_EPOCH
        row = first
        while len(self._epochs) < MAX_EPOCHS:
            row = verify_records.next_epoch(table.cells, table.capacity, row, stop, epoch)
            if row >= stop:
                return
            epoch = table.at(C.LEADER_EPOCH, row)
            if epoch >= 0:
                time = table.at(first_time, row)
                at_ms = time if time >= 0 else None
                self._epochs.append(EpochShape(epoch, table.at(C.BASE_OFFSET, row), at_ms))
            row += 1

    def _take_batches(self, codec: int, table: Columns, rows: Sequence[int]) -> None:
        shape = self._codecs.setdefault(codec, CodecShape())
        sizes = [table.at(C.SIZE, row) for row in rows]
        shape.batches += len(rows)
        shape.records += sum(max(0, table.at(C.COUNT, row)) for row in rows)
        shape.size_bytes += sum(sizes)
        shape.by_size.update(map(int.bit_length, sizes))
        if codec != L.NONE:
            self._samples.setdefault(codec, _Samples()).take(table, rows)


class _Samples:
    """Every s-th batch of a codec in a segment."""

    def __init__(self) -> None:
        self._places: list[tuple[int, int]] = []
        self._stride = 1
        self._seen = 0

    def take(self, table: Columns, rows: Sequence[int]) -> None:
        at = -self._seen % self._stride
        while at < len(rows):
            row = rows[at]
            if table.at(C.MAGIC, row) >= L.MAGIC_V2:
                self._places.append((table.at(C.POSITION, row), table.at(C.SIZE, row)))
            if len(self._places) > 2 * SAMPLED:
                self._places = self._places[::2]
                self._stride *= 2
            at += self._stride - (self._seen + at) % self._stride
        self._seen += len(rows)

    def open(self, codec: int, view: memoryview, shape: CodecShape) -> None:
        for position, size in self._places:
            body = view[position + L.BATCH_HEADER : position + size]
            try:
                content = decompress(codec, L.MAGIC_V2, body, _MAX_CONTENT_BYTES)
            except CodecError:  # verify --deep reports it
                continue
            shape.sampled_batches += 1
            shape.sampled_bytes += len(body)
            shape.content_bytes += len(content)


def _cells(table: Columns, column: int, first: int, stop: int) -> memoryview:
    start = column * table.capacity
    return table.cells[start + first : start + stop]
