"""A log truncated by the real UnifiedLog, compared with one that was cut by hand and loaded by kseg."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.healthy import T0
from kseg.segment import layout as L
from kseg.segment.encoding.batch import encode_batch
from tests.kafka.oracle import Oracle
from tests.support.load_helpers import INTERVAL_BYTES, data, load, log_file, partition, remove

pytestmark = pytest.mark.kafka

SEGMENTS = {
    0: [data(offset, 2, epoch=1) for offset in range(0, 10, 2)],
    10: [data(offset, 2, epoch=2) for offset in range(10, 16, 2)],
    16: [data(16, epoch=3), data(17, epoch=4)],
}


def cut_by_hand(directory: Path, offset: int) -> None:
    """Keep the batches below `offset`, and of the side files only the leader epochs."""
    remove(directory, L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX, L.SNAPSHOT_SUFFIX)
    for base, batches in SEGMENTS.items():
        kept = [batch for batch in batches if batch.records[0].offset < offset]
        if kept or base == 0:
            log_file(directory, base).write_bytes(b"".join(map(encode_batch, kept)))
        else:
            log_file(directory, base).unlink()


@pytest.mark.behaviour("R36", "R42")
@pytest.mark.parametrize(
    ("offset", "epochs"),
    [
        (18, [(1, 0), (2, 10), (3, 16), (4, 17)]),
        (17, [(1, 0), (2, 10), (3, 16)]),
        (12, [(1, 0), (2, 10)]),
        (4, [(1, 0)]),
    ],
)
def test_hand_truncated_log_loads_like_one_truncated_by_unified_log(
    oracle: Oracle, tmp_path: Path, offset: int, epochs: list[tuple[int, int]]
) -> None:
    directory = partition(tmp_path, SEGMENTS)
    answer = oracle.partition(
        directory,
        [{"what": "truncate", "offset": offset}],
        clean=True,
        now=T0,
        delayed=True,
        config={"index.interval.bytes": INTERVAL_BYTES, "segment.index.bytes": 4000},
    )
    assert answer.ended["log_end_offset"] == offset
    cut_by_hand(directory, offset)
    loaded = load(directory)
    theirs = {path.name: path.read_bytes() for path in answer.directory.iterdir()}
    kinds = (L.LOG_SUFFIX, L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX, "checkpoint")
    assert {name: content for name, content in loaded.files.items() if name.endswith(kinds)} == {
        name: content for name, content in theirs.items() if name.endswith(kinds)
    }
    assert loaded.repair.log_end_offset == offset
    assert loaded.epochs == epochs
