"""`compact` against the real Cleaner on random logs: the complete files, the next dirty offset, and the files marked as deleted.

KSEG_CLEAN_CASES sets the number of cases, KSEG_CLEAN_SEED the first seed. A failure names the seed that repeats it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from kseg.change.append.partition_writer import PartitionWriter
from kseg.cli.main import run
from kseg.compaction.cleaner.options import CleanSettings
from kseg.segment import layout as L
from kseg.segment.model import NewBatch, Record
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.kafka.cleaning import (
    Case,
    Ours,
    Theirs,
    assert_same,
    marked,
    our_clean,
    random_case,
    real_clean,
    rounds,
)
from tests.kafka.odd_cleaning import ForeignKeyedLog, odd_clean_case
from tests.kafka.oracle import KafkaRaised, Oracle
from tests.support.raw_batches import T0, field, record, sealed, varint

pytestmark = pytest.mark.kafka

CASES = int(os.environ.get("KSEG_CLEAN_CASES", "80"))
FIRST = int(os.environ.get("KSEG_CLEAN_SEED", "0"))
# exceptions for batches that a cleaner cannot rewrite (MemoryRecordsBuilder); kseg rewrites them. A broker accepts negative timestamps, and
# in uncompressed batches offsets that do not increase.
UNWRITABLE = (
    "Empty batches are only supported for magic v2",
    "Invalid negative",
    "Cannot write transactional messages",
    "Illegal offset",
)
NEGATIVE = "Invalid negative timestamp"
# what a cleaner does not check, or does not have to read because the record has no key
NOT_LOOKED_AT = {"altered-leader-epoch", "altered-base-offset", "offset-not-monotonic", "undecodable-batch"}


@pytest.mark.parametrize("seed", range(FIRST, FIRST + (CASES + 1) // 2))
def test_compacted_random_logs_equal_those_of_the_real_cleaner(
    seed: int, tmp_path: Path, oracle: Oracle
) -> None:
    case = random_case(seed, tmp_path)
    for theirs, ours in rounds(case, oracle):
        assert not ours.refused
        if theirs.threw:
            assert "Empty batches are only supported for magic v2" in theirs.threw, theirs.threw
            assert "legacy-batch-emptied" in {finding.id for finding in ours.findings}
            return
        _compare(case, theirs, ours)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES // 2))
def test_compacted_odd_logs_equal_those_of_the_real_cleaner(
    seed: int, tmp_path: Path, oracle: Oracle
) -> None:
    """Where the cleaner fails, kseg refuses the log, or rewrites what a broker cannot. It may refuse more logs than the cleaner, never
    fewer."""
    _assert_alike_or_refused(odd_clean_case(seed, tmp_path), oracle)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES // 4))
def test_compacted_logs_of_other_libraries_equal_those_of_the_real_cleaner(
    seed: int, tmp_path: Path, oracle: Oracle
) -> None:
    """A cleaning changes a header name that is not UTF-8, because Java decodes and encodes it."""
    _assert_alike_or_refused(random_case(seed, tmp_path, ForeignKeyedLog), oracle)


def _assert_alike_or_refused(case: Case, oracle: Oracle) -> None:
    try:
        for theirs, ours in rounds(case, oracle):
            if theirs.threw:
                assert ours.refused or any(text in theirs.threw for text in UNWRITABLE), theirs.threw
                if NEGATIVE in theirs.threw and not ours.refused:
                    assert "negative-timestamp-rewritten" in {finding.id for finding in ours.findings}
                return
            if ours.refused:
                assert {finding.id for finding in ours.findings} & NOT_LOOKED_AT, ours
                return
            _compare(case, theirs, ours)
    except KafkaRaised:
        # it cannot even be loaded
        return


def test_rewritten_headers_equal_those_of_the_real_cleaner(tmp_path: Path, oracle: Oracle) -> None:
    """A cleaning writes the lengths of headers in the shortest form, and header names as UTF-8."""
    # a varint with bits above the 32nd, which Java drops
    one = b"\x82\x80\x80\x80\x70"
    headers = varint(3) + one + b"n" + b"\x82\x00v" + field(random.Random(1).randbytes(5000)) + field(None)
    headers += field("\u00e4".encode("latin-1")) + b"\x80\x00"
    directory = tmp_path / "keyed-0"
    with PartitionWriter(directory) as writer:
        records = (record(0), record(1, key=b"other", headers=headers), record(2, key=b"other one"))
        writer.append(sealed(b"".join(records), 3, base_offset=0))
        writer.append(sealed(record(), 1, base_offset=3))
        writer.roll(4)
    settings = CleanSettings(now_ms=T0)
    theirs = real_clean(oracle, directory, settings, None)
    our_clean(directory, settings, None)
    assert_same(theirs.directory, directory)
    assert (directory / f"{0:020d}.log").stat().st_size > 9_000


def test_largest_delete_retention_sets_no_delete_horizon(
    tmp_path: Path, oracle: Oracle, capfd: pytest.CaptureFixture[str]
) -> None:
    """With the largest `delete.retention.ms`, its sum with the clock overflows, and neither tombstones nor markers get a delete horizon."""
    directory = tmp_path / "keyed-0"
    marker = EndTransactionMarker(True, 0, T0)
    with PartitionWriter(directory) as writer:
        writer.append(
            NewBatch(records=(Record(0, T0, b"a", None), Record(1, T0, b"a", None)), leader_epoch=0)
        )
        writer.append(end_transaction_batch(marker, 2, 5, 0, 0))
        writer.roll(3)
        writer.append(NewBatch(records=(Record(3, T0, b"b", b"v"),), leader_epoch=0))
    settings = CleanSettings(now_ms=T0, delete_retention_ms=L.INT64_MAX)
    theirs = real_clean(oracle, directory, settings, None)
    words = ["--now", str(T0), "--delete-retention-ms", str(L.INT64_MAX), "--cleanup-policy", "compact"]
    assert run(["compact", "--json", *words, str(directory)]) == 1
    assert '"type":"horizon"' not in capfd.readouterr().out
    our_clean(directory, settings, None)
    assert_same(theirs.directory, directory)


@pytest.mark.parametrize("seed", [2607])
def test_odd_logs_that_once_differed_equal_those_of_the_real_cleaner(
    seed: int, tmp_path: Path, oracle: Oracle
) -> None:
    """Seed 2607 has an old message whose null value has a length other than −1, in a batch that is rewritten."""
    test_compacted_odd_logs_equal_those_of_the_real_cleaner(seed, tmp_path, oracle)


def _compare(case: Case, theirs: Theirs, ours: Ours) -> None:
    if not theirs.cleanable_bytes:
        assert ours.result["steps"] == 0
        return
    assert ours.result["next_dirty_offset"] == theirs.next_dirty_offset
    assert_same(theirs.directory, case.directory)
    _assert_trimmed(theirs.directory)
    if theirs.rounds == 1:
        stays = {name.removesuffix(".deleted") for name in marked(theirs.directory)} - {
            name.removesuffix(".deleted") for name in marked(case.directory)
        }
        assert stays <= {path.name for path in case.directory.iterdir()}, stays


def _assert_trimmed(directory: Path) -> None:
    """A log that a cleaner has emptied has indexes of 0 bytes; `verify` takes others for those of a lost log."""
    for log in sorted(directory.glob("*.log"))[:-1]:
        if not log.stat().st_size:
            assert [log.with_suffix(suffix).stat().st_size for suffix in (".index", ".timeindex")] == [0, 0]
