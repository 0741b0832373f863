"""`compact` against the real Cleaner on random logs: whole files, the next dirty offset, the marked files.

KSEG_CLEAN_CASES makes it thorough, KSEG_CLEAN_SEED begins elsewhere; a failure names the seed that repeats it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kafka.cleaning import assert_same, marked, random_case, rounds
from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

CASES = int(os.environ.get("KSEG_CLEAN_CASES", "80"))
FIRST = int(os.environ.get("KSEG_CLEAN_SEED", "0"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES))
def test_the_real_cleaner_leaves_the_same(seed: int, tmp_path: Path, oracle: Oracle) -> None:
    case = random_case(seed, tmp_path)
    for theirs, ours in rounds(case, oracle):
        if theirs.threw:
            assert "Empty batches are only supported for magic v2" in theirs.threw, theirs.threw
            assert "legacy-batch-emptied" in {finding.id for finding in ours.findings}
            return
        if not theirs.cleanable_bytes:
            assert ours.result["steps"] == 0
            continue
        assert ours.result["next_dirty_offset"] == theirs.next_dirty_offset
        assert_same(theirs.directory, case.directory)
        if theirs.rounds == 1:
            stays = {name.removesuffix(".deleted") for name in marked(theirs.directory)} - {
                name.removesuffix(".deleted") for name in marked(case.directory)
            }
            assert stays <= {path.name for path in case.directory.iterdir()}, stays
