"""`what-if` on one partition: recompress its samples with each candidate.

Sizes are those of whole batches, headers included, now and with each candidate. CPU time is the compressor's alone, on this machine;
a broker or producer spends more around it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from kseg.inspection.what_if.candidates import TriedSetting
from kseg.inspection.what_if.log_places import Sample, Stretch, stretches
from kseg.inspection.what_if.rebatching import RatioEstimator, SampledBatch, joined
from kseg.jobs.events import Event, Row
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.codecs.codec import MAX_BODY_BYTES, compress, decompress
from kseg.segment.errors import CodecError, VanishedInput
from kseg.segment.model import Record
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.values import dataclass

_LEARNT_ABOVE = 0.025  # how much a producer overestimates its ratio, on average


@dataclass(frozen=True, slots=True)
class MeasureOptions:
    """samples: by partition directory. candidates: the settings to try."""

    samples: Mapping[str, Sample]
    candidates: tuple[TriedSetting, ...]


@dataclass(frozen=True, slots=True)
class Measured:
    """One candidate on one sample. content_bytes, cpu_ns: how much was compressed, and the CPU time that took. batches: how many,
    if they change."""

    size_bytes: int
    content_bytes: int
    cpu_ns: int
    batches: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredPlace:
    """size_bytes: of its batches now. fixed_bytes: of those that no setting changes. by_codec: of all, by codec. candidates: in the order
    of the options."""

    size_bytes: int
    fixed_bytes: int
    by_codec: Mapping[int, int]
    candidates: tuple[Measured, ...]


@dataclass(frozen=True, slots=True)
class MeasuredPartition:
    """The measurements in a partition. is_all: its samples cover all of it."""

    directory: str
    is_all: bool
    places: tuple[MeasuredPlace, ...]


def measure(target: PartitionTarget, options: MeasureOptions) -> Iterator[Event]:
    """One row, without values, whose result is a `MeasuredPartition`."""
    sample = options.samples.get(target.path, Sample((), True))
    wants_records = any(candidate.is_rebatched for candidate in options.candidates)
    found = []
    # raises for a pipe in the place of a log, which sampling would skip like an empty log
    with PartitionLog(target):
        pass
    for place in sample.places:
        with suppress(VanishedInput):  # a running broker deletes old segments
            batches = [
                batch
                for stretch in stretches(place, sample.is_all)
                for batch in sampled_batches(stretch, wants_records=wants_records)
            ]
            if batches:
                found.append(measured_place(batches, options.candidates, is_cut=not sample.is_all))
    yield Row({}, MeasuredPartition(target.path, sample.is_all, tuple(found)))


def measured_place(
    batches: Sequence[SampledBatch], candidates: Sequence[TriedSetting], *, is_cut: bool
) -> MeasuredPlace:
    """Try the candidates on adjacent batches. is_cut: the log continues before and after them, so batches at the ends would be
    joined further."""
    by_codec: dict[int, int] = {}
    for batch in batches:
        by_codec[batch.codec] = by_codec.get(batch.codec, 0) + batch.size_bytes
    fixed_bytes = sum(batch.size_bytes for batch in batches if batch.is_fixed)
    measured = []
    for candidate in candidates:
        if candidate.is_rebatched:
            found = _rebatched(batches, candidate, fixed_bytes)
            if is_cut:
                found = _without_ends(found, batches, candidate, fixed_bytes)
        else:
            blocks = [(each.codec, each.content) for each in batches if not each.is_fixed]
            found = _compressed(blocks, candidate, fixed_bytes)
        measured.append(found)
    size_bytes = sum(batch.size_bytes for batch in batches)
    return MeasuredPlace(size_bytes, fixed_bytes, by_codec, tuple(measured))


def _rebatched(batches: Sequence[SampledBatch], candidate: TriedSetting, fixed_bytes: int) -> Measured:
    """The batches that a long-running producer would send: the second of two passes begins with the ratio estimated in the first."""
    estimator = RatioEstimator(None if _is_plain(batches, candidate) else _ratio(batches, candidate))
    if estimator.ratio is not None and candidate.batch_size is not None:
        sizes = _sent(batches, candidate, estimator, 0)
        packed = sizes.size_bytes - L.BATCH_HEADER * sizes.batches
        estimator = RatioEstimator(packed / max(1, sizes.content_bytes) + _LEARNT_ABOVE)
    return _sent(batches, candidate, estimator, fixed_bytes)


def _sent(
    batches: Sequence[SampledBatch], candidate: TriedSetting, estimator: RatioEstimator, fixed_bytes: int
) -> Measured:
    total = Measured(fixed_bytes, 0, 0)
    for block in joined(batches, candidate.batch_size, candidate.linger_ms, estimator):
        one = _compressed([(block.codec, block.content)], candidate, 0)
        estimator.learn((one.size_bytes - L.BATCH_HEADER) / len(block.content))
        total = Measured(
            total.size_bytes + one.size_bytes,
            total.content_bytes + one.content_bytes,
            total.cpu_ns + one.cpu_ns,
            total.batches + 1,
        )
    return total


def _is_plain(batches: Sequence[SampledBatch], candidate: TriedSetting) -> bool:
    if candidate.codec is not None:
        return candidate.codec == L.NONE
    return not any(batch.codec for batch in batches)


def _without_ends(
    whole: Measured, batches: Sequence[SampledBatch], candidate: TriedSetting, fixed_bytes: int
) -> Measured:
    """A sample cuts a joined batch in two at either end, and shares each cut with the adjacent one: one cut per sample that the
    log itself does not have. The cost of such a cut is measured by an additional one in the middle, and subtracted."""
    middle = len(batches) // 2
    halves = [_rebatched(half, candidate, 0).size_bytes for half in (batches[:middle], batches[middle:])]
    cost = max(0, sum(halves) + fixed_bytes - whole.size_bytes)
    return Measured(whole.size_bytes - cost, whole.content_bytes, whole.cpu_ns)


def _ratio(batches: Sequence[SampledBatch], candidate: TriedSetting) -> float:
    """Compressed to uncompressed bytes of the batches as they are: the ratio that a producer has estimated."""
    changed = [batch for batch in batches if not batch.is_fixed]
    plain = sum(len(batch.content) for batch in changed)
    if candidate.codec is None:
        packed = sum(batch.size_bytes - L.BATCH_HEADER for batch in changed)
    else:
        blocks = [(batch.codec, batch.content) for batch in changed]
        packed = _compressed(blocks, candidate, 0).size_bytes - L.BATCH_HEADER * len(changed)
    return packed / plain if plain else 1.0


def _compressed(blocks: Sequence[tuple[int, bytes]], candidate: TriedSetting, fixed_bytes: int) -> Measured:
    size_bytes, content_bytes, cpu_ns = fixed_bytes, 0, 0
    for codec, content in blocks:
        began = time.thread_time_ns()
        packed = compress(
            codec if candidate.codec is None else candidate.codec, L.MAGIC_V2, content, candidate.level
        )
        cpu_ns += time.thread_time_ns() - began
        size_bytes += L.BATCH_HEADER + len(packed)
        content_bytes += len(content)
    return Measured(size_bytes, content_bytes, cpu_ns)


def sampled_batches(stretch: Stretch, *, wants_records: bool) -> Iterator[SampledBatch]:
    """The batches of a stretch of a log."""
    table = stretch.table
    decoder = Decoder(stretch.view) if wants_records else None
    for row in stretch.rows:
        size, attributes = table.at(C.SIZE, row), table.at(C.ATTRIBUTES, row)
        codec = attributes & L.CODEC_MASK
        producer_id = table.at(C.PRODUCER_ID, row)
        is_transactional = bool(attributes & L.TRANSACTIONAL_BIT)
        producer = producer_id, table.at(C.PRODUCER_EPOCH, row), is_transactional
        content = _content(stretch, row, codec)
        if content is None or attributes & L.CONTROL_BIT:
            yield SampledBatch(size, codec, b"", True, producer)
            continue
        records: tuple[Record, ...] = ()
        if decoder is not None:
            records = tuple(
                record_at(chunk, at)
                for chunk in decoder.chunks(table, row, row + 1)
                for at in range(chunk.records.count)
            )
            if len(records) != table.at(C.COUNT, row):
                yield SampledBatch(size, codec, b"", True, producer)
                continue
        yield SampledBatch(size, codec, content, False, producer, records)


def _content(stretch: Stretch, row: int, codec: int) -> bytes | None:
    table = stretch.table
    if table.at(C.MAGIC, row) < L.MAGIC_V2 or table.at(C.COUNT, row) <= 0:
        return None
    position = table.at(C.POSITION, row)
    body = stretch.view[position + L.BATCH_HEADER : position + table.at(C.SIZE, row)]
    try:
        return bytes(decompress(codec, L.MAGIC_V2, body, MAX_BODY_BYTES))
    except CodecError:
        return None
