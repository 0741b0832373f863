"""Small versions of the benchmark corpora have the properties that the benchmarks rely on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import corpus
from tests.kafka.conftest import require_kafka
from tests.kafka.oracle import Oracle
from tests.support.trees import unchanged

pytestmark = pytest.mark.kafka

FIRST_MS = 1_700_000_000_000
CODECS = ("plain", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_kafka()
    directory = tmp_path_factory.mktemp("corpus")
    corpus.make(directory, segment_bytes=1 << 20, big_bytes=1 << 20, partitions=6)
    return directory


def _records(oracle: Oracle, small: Path, name: str) -> list[tuple[int, int, bytes, bytes]]:
    lines = oracle.records(small / name / "bench-0" / "00000000000000000000.log")
    assert not [line for line in lines if line["type"] == "error"]
    return [(r["offset"], r["timestamp"], r["key"], r["value"]) for r in lines if r["type"] == "record"]


@pytest.mark.parametrize("batch", [100, 1])
def test_every_codec_holds_the_same_records(oracle: Oracle, small: Path, batch: int) -> None:
    plain = _records(oracle, small, f"plain-{batch}")
    assert [(o, t) for o, t, _, _ in plain] == [(n, FIRST_MS + n) for n in range(len(plain))]
    for codec in CODECS[1:]:
        assert _records(oracle, small, f"{codec}-{batch}") == plain, codec
    batches = [b for b in oracle.records(_log(small, f"zstd-{batch}"), deep=False) if b["type"] == "batch"]
    assert {b["count"] for b in batches} == {batch}
    assert {b["compression"] for b in batches} == {"zstd"}


def test_records_have_the_documented_sizes_and_ratios(oracle: Oracle, small: Path) -> None:
    for offset, _, key, value in _records(oracle, small, "plain-100")[:500]:
        assert (len(key), len(value)) == (13, 100)
        assert int(json.loads(value)["id"]) == offset
    plain, gzip = (_log(small, name).stat().st_size for name in ("plain-100", "gzip-100"))
    assert (1 << 20) * 0.98 < plain <= 1 << 20
    assert 2.5 < plain / gzip < 3.5


def test_corpus_indexes_exist_and_are_valid(oracle: Oracle, small: Path) -> None:
    log = _log(small, "gzip-100")
    assert oracle.offset_index(log.with_suffix(".index"))["insane"] is None
    assert len(oracle.time_index(log.with_suffix(".timeindex"))["entries"]) > 10


def test_corpus_many_is_a_clean_log_dir(oracle: Oracle, small: Path) -> None:
    many = small / "many"
    assert len(list(many.glob("many-*/*.log"))) == 12
    assert {p.name for p in many.glob("many-0/*")} >= {"leader-epoch-checkpoint", "partition.metadata"}
    answer = oracle.partition(many / "many-3", clean=True)
    assert (answer.loaded["log_end_offset"], len(answer.loaded["segments"])) == (400, 2)
    assert answer.loaded["producers"][0]["last_sequence"] == 399


def test_existing_corpora_are_left_alone(small: Path) -> None:
    with unchanged(small):
        corpus.make(small, segment_bytes=1 << 20, big_bytes=1 << 20, partitions=6)


def _log(small: Path, name: str) -> Path:
    return small / name / "bench-0" / "00000000000000000000.log"
