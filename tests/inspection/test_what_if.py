"""Estimates of `what-if` compared with the complete log: the true number is within the interval as often as claimed."""

from __future__ import annotations

import gzip
import random
import zlib
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fixtures.diseases import bad_crc, batch_spans
from kseg.inspection.what_if.candidates import TriedSetting, read_candidate
from kseg.inspection.what_if.estimation import Estimate, estimated, student
from kseg.inspection.what_if.log_places import Sample, spread
from kseg.inspection.what_if.measuring import MeasuredPartition, MeasureOptions, measure
from kseg.jobs.events import Row
from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.errors import UsageError
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import PartitionTarget

WORDS = [f"{random.Random(at).getrandbits(40):x}" for at in range(400)]
CANDIDATES = (
    *(TriedSetting(L.NONE), TriedSetting(L.GZIP, 1), TriedSetting(L.LZ4), TriedSetting(L.ZSTD, 3)),
    *(TriedSetting(None, None, 16 << 10, 50), TriedSetting(L.ZSTD, 3, 16 << 10, 50)),
)


def records(lots: random.Random, first: int, count: int, share_of_words: float) -> Iterator[Record]:
    """Records of which some compress well and some hardly."""
    for offset in range(first, first + count):
        length = lots.randrange(5, 40)
        words = " ".join(lots.choices(WORDS, k=length)).encode()
        value = words if lots.random() < share_of_words else lots.randbytes(length * 6)
        yield Record(offset, 1795250600000 + offset * 5, b"key-%d" % lots.randrange(500), value)


def write_log(folder: Path, seed: int, batches: int, codec: int = L.NONE, *, indexed: bool = True) -> Path:
    """A partition whose records become more compressible along the log, in batches of very different sizes."""
    lots = random.Random(seed)
    folder.mkdir(parents=True)
    offset, position, written, entries = 0, 0, [], array("i")
    for at in range(batches):
        found = tuple(records(lots, offset, lots.choice((1, 3, 8, 40)), at / batches))
        data = encode_batch(NewBatch(records=found, codec=codec, leader_epoch=0))
        if position - (entries[-1] if entries else 0) >= 4096:
            entries += array("i", (offset, position))
        written.append(data)
        offset, position = offset + len(found), position + len(data)
    (folder / f"{0:020d}.log").write_bytes(b"".join(written))
    if indexed:
        entries.byteswap()
        (folder / f"{0:020d}.index").write_bytes(entries.tobytes())
    return folder


def measured(
    folders: Sequence[Path], sample_bytes: int, place_bytes: int, candidates: tuple[TriedSetting, ...]
) -> tuple[list[MeasuredPartition], bool, int]:
    logs = {
        str(folder): [(str(log), log.stat().st_size) for log in sorted(folder.glob("*.log"))]
        for folder in folders
    }
    samples = spread(logs, sample_bytes, place_bytes)
    options = MeasureOptions(samples, candidates)
    found = []
    for folder in folders:
        (row,) = measure(PartitionTarget(str(folder), None), options)
        assert isinstance(row, Row)
        assert isinstance(row.result, MeasuredPartition)
        found.append(row.result)
    is_all = all(sample.is_all for sample in samples.values())
    return found, is_all, sum(size for files in logs.values() for _, size in files)


def estimates(
    folders: Sequence[Path],
    sample_bytes: int,
    place_bytes: int,
    candidates: tuple[TriedSetting, ...] = CANDIDATES,
) -> list[Estimate]:
    partitions, is_all, total = measured(folders, sample_bytes, place_bytes, candidates)
    places = [place for partition in partitions for place in partition.places]
    found = []
    for at in range(len(candidates)):
        pairs = [(place.size_bytes, place.candidates[at].size_bytes) for place in places]
        estimate = estimated(pairs, total, is_all)
        assert estimate is not None
        found.append(estimate)
    return found


EVERYTHING = 1 << 40


def test_estimate_of_a_complete_log_equals_the_sum_of_its_batches(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "orders-0", 1, 300)
    log = folder / f"{0:020d}.log"
    data = log.read_bytes()
    bodies = [data[at + 61 : at + size] for at, size in batch_spans(log)]
    for place_bytes in (700, 4096, 1 << 20):
        none, packed, lz4, zstd, *_ = estimates([folder], EVERYTHING, place_bytes)
        assert (none.size_bytes, none.is_exact) == (len(data), True)
        assert lz4.size_bytes == sum(61 + len(compress(L.LZ4, 2, body)) for body in bodies)
        assert zstd.size_bytes == sum(61 + len(compress(L.ZSTD, 2, body, 3)) for body in bodies)
        by_hand = 0
        # a gzip member (RFC 1952) has ten bytes before the data and eight after it
        for body in bodies:
            deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
            by_hand += 61 + 18 + len(deflate.compress(body) + deflate.flush())
        assert packed.size_bytes == by_hand


def test_compressed_batches_are_decompressed_before_the_estimate(tmp_path: Path) -> None:
    plain = write_log(tmp_path / "plain" / "orders-0", 2, 200)
    packed = write_log(tmp_path / "packed" / "orders-0", 2, 200, L.GZIP)
    assert [each.size_bytes for each in estimates([plain], EVERYTHING, 4096)[:4]] == [
        each.size_bytes for each in estimates([packed], EVERYTHING, 4096)[:4]
    ]
    log = packed / f"{0:020d}.log"
    data = log.read_bytes()
    content = sum(61 + len(gzip.decompress(data[at + 61 : at + size])) for at, size in batch_spans(log))
    assert estimates([packed], EVERYTHING, 4096)[0].size_bytes == content


@pytest.mark.slow
def test_true_size_is_within_the_confidence_interval(tmp_path: Path) -> None:
    """Topics of two or three partitions with five settings each; a twelfth of the bytes is recompressed."""
    inside, widths = 0, []
    trials = 0
    for seed in range(10):
        topic = tmp_path / str(seed)
        folders = [
            write_log(
                topic / f"orders-{number}", 100 * seed + number, 350 + 150 * number, indexed=bool(seed % 4)
            )
            for number in range(2 + seed % 2)
        ]
        truth = estimates(folders, EVERYTHING, 1 << 30)
        total = truth[0].size_bytes
        # the first setting changes nothing, so there is nothing to estimate
        for estimate, true in zip(estimates(folders, total // 12, 8 << 10)[1:], truth[1:], strict=True):
            trials += 1
            assert not estimate.is_exact
            assert true.is_exact
            inside += estimate.least_bytes <= true.size_bytes <= estimate.most_bytes
            widths.append((estimate.most_bytes - estimate.least_bytes) / 2 / true.size_bytes)
    assert inside / trials >= 0.9, (inside, trials)
    # an interval that contains everything would be useless
    assert sorted(widths)[len(widths) // 2] < 0.25


def test_larger_sample_narrows_the_interval(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "orders-0", 7, 1500)
    size = (folder / f"{0:020d}.log").stat().st_size
    widths = []
    for share in (40, 10, 3):
        zstd = estimates([folder], size // share, 4096)[3]
        widths.append(zstd.most_bytes - zstd.least_bytes)
    assert widths[0] > widths[1] > widths[2] > 0


def test_damaged_batches_are_left_out_of_the_estimate(tmp_path: Path) -> None:
    folder = write_log(tmp_path / "orders-0", 9, 60)
    log = folder / f"{0:020d}.log"
    whole = estimates([folder], EVERYTHING, 4096)[0].size_bytes
    position, size = batch_spans(log)[20]
    bad_crc(log, 20)
    assert position
    assert estimates([folder], EVERYTHING, 4096)[0].size_bytes == whole - size


def test_larger_batches_join_consecutive_ones_of_a_producer(tmp_path: Path) -> None:
    """Two producers alternate with 10 ms between their batches, so the batches that linger.ms joins can be counted."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    data, alone = [], []
    for at in range(60):
        record = Record(at, 1795250600000 + 10 * at, b"k", b"x" * 100)
        data.append(
            encode_batch(
                NewBatch(records=(record,), producer_id=at % 2, producer_epoch=0, base_sequence=at // 2)
            )
        )
        alone.append(len(data[-1]) - 61)
    (folder / f"{0:020d}.log").write_bytes(b"".join(data))

    def batches(batch_size: int | None, linger_ms: int | None) -> float:
        (estimate,) = estimates(
            [folder], EVERYTHING, 1 << 20, (TriedSetting(None, None, batch_size, linger_ms),)
        )
        return (estimate.size_bytes - sum(alone)) / 61

    assert round(batches(1 << 20, 0)) == 60
    # the next batch of the same producer comes after 20 ms
    assert round(batches(1 << 20, 19)) == 60
    # pairs; the deltas of the records take a little more space
    assert 29.5 < batches(1 << 20, 20) < 32
    assert 1.9 < batches(1 << 20, 10_000) < 5
    per_record = alone[0]
    # three records fit
    assert round(batches(61 + 3 * per_record + per_record // 2, 10_000)) == 20


def test_sample_places_are_proportional_to_the_bytes() -> None:
    logs = {"a": [("a/0.log", 900), ("a/1.log", 0)], "b": [("b/0.log", 100)]}
    samples = spread(logs, 500, 5)
    found = [place for sample in samples.values() for place in sample.places]
    assert len(found) == 100
    assert 80 <= len(samples["a"].places) <= 95
    assert all(0 <= place.position < 900 for place in samples["a"].places)
    places = sorted(place.position for place in samples["a"].places)
    assert all(10 * at <= place < 10 * at + 10 for at, place in enumerate(places))
    assert spread(logs, 500, 5) == samples
    assert spread({"a": []}, 500, 5) == {"a": Sample((), True)}


@pytest.mark.parametrize(("freedom", "value"), [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (15, 2.131), (30, 2.042), (1000, 1.962)])  # fmt: skip
def test_student_quantiles_equal_the_published_tables(freedom: int, value: float) -> None:
    assert student(freedom) == pytest.approx(value, rel=0.012)


def test_codec_candidates_are_parsed_with_kafkas_properties() -> None:
    assert read_candidate("zstd:9").properties == {"compression.type": "zstd", "compression.zstd.level": "9"}
    assert read_candidate("none").properties == {"compression.type": "uncompressed"}
    for wrong in ("brotli", "zstd:99", "gzip:0", "snappy:1", "none:1", "lz4:x"):
        with pytest.raises(UsageError, match=r"^--codec "):
            read_candidate(wrong)
