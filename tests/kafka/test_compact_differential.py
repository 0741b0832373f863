"""`compact` against the real Cleaner on random logs: whole files, the next dirty offset, the marked files.

KSEG_CLEAN_CASES makes it thorough, KSEG_CLEAN_SEED begins elsewhere; a failure names the seed that repeats it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kafka.cleaning import Case, Ours, Theirs, assert_same, marked, random_case, rounds
from tests.kafka.odd_cleaning import odd_clean_case
from tests.kafka.oracle import KafkaRaised, Oracle

pytestmark = pytest.mark.kafka

CASES = int(os.environ.get("KSEG_CLEAN_CASES", "80"))
FIRST = int(os.environ.get("KSEG_CLEAN_SEED", "0"))
# what a batch that a cleaner rewrites must not have, and no broker has let in (MemoryRecordsBuilder); kseg rewrites it nevertheless
UNWRITABLE = (
    "Empty batches are only supported for magic v2",
    "Invalid negative",
    "Cannot write transactional messages",
    "Illegal offset",
)
# what a cleaner does not look at, or does not have to read because the record has no key
NOT_LOOKED_AT = {"altered-leader-epoch", "altered-base-offset", "offset-not-monotonic", "undecodable-batch"}


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (CASES + 1) // 2))
def test_the_real_cleaner_leaves_the_same(seed: int, tmp_path: Path, oracle: Oracle) -> None:
    case = random_case(seed, tmp_path)
    for theirs, ours in rounds(case, oracle):
        assert not ours.refused
        if theirs.threw:
            assert "Empty batches are only supported for magic v2" in theirs.threw, theirs.threw
            assert "legacy-batch-emptied" in {finding.id for finding in ours.findings}
            return
        _compare(case, theirs, ours)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES // 2))
def test_odd_logs(seed: int, tmp_path: Path, oracle: Oracle) -> None:
    """Where the cleaner fails, kseg refuses the log or rewrites what a broker cannot. It may refuse more, but never less."""
    case = odd_clean_case(seed, tmp_path)
    try:
        for theirs, ours in rounds(case, oracle):
            if theirs.threw:
                assert ours.refused or any(text in theirs.threw for text in UNWRITABLE), theirs.threw
                return
            if ours.refused:
                assert {finding.id for finding in ours.findings} & NOT_LOOKED_AT, ours
                return
            _compare(case, theirs, ours)
    except KafkaRaised:
        return  # it cannot even be loaded


@pytest.mark.parametrize("seed", [2607])
def test_odd_logs_that_were_cleaned_differently(seed: int, tmp_path: Path, oracle: Oracle) -> None:
    """A null value of an old message whose length is not −1, in a batch that is rewritten."""
    test_odd_logs(seed, tmp_path, oracle)


def _compare(case: Case, theirs: Theirs, ours: Ours) -> None:
    if not theirs.cleanable_bytes:
        assert ours.result["steps"] == 0
        return
    assert ours.result["next_dirty_offset"] == theirs.next_dirty_offset
    assert_same(theirs.directory, case.directory)
    if theirs.rounds == 1:
        stays = {name.removesuffix(".deleted") for name in marked(theirs.directory)} - {
            name.removesuffix(".deleted") for name in marked(case.directory)
        }
        assert stays <= {path.name for path in case.directory.iterdir()}, stays
