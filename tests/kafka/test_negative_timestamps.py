"""Records with negative timestamps, which a broker accepts from KafkaJS and other clients that do not reject them as the Java producer does
(`LogValidator` compares a timestamp only with the limits of the topic).

The broker declares −1 as the maximum timestamp of a batch in which all are negative. Its cleaner fails at such a batch that loses some of
its records, and does not clean the partition any more.
"""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from kseg.change.append.partition_writer import PartitionWriter
from kseg.cli.main import run
from kseg.compaction.cleaner.options import CleanSettings
from kseg.segment.model import NewBatch, Record
from tests.kafka.cleaning import our_clean, real_clean
from tests.kafka.oracle import Oracle
from tests.support.append_helpers import appender, dumped, written_rows
from tests.support.raw_batches import T0, gzip, record, sealed

pytestmark = pytest.mark.kafka

DAY_MS = 86_400_000
# more than any record below
LATER_MS = T0 + DAY_MS


@pytest.fixture
def stored(oracle: Oracle, tmp_path: Path) -> Path:
    """A partition to which the real log, as leader, has appended batches of a client: some timestamps negative, all negative, and all
    negative in a compressed batch. A segment with a record from kseg follows."""
    directory = tmp_path / "events-0"
    with PartitionWriter(directory) as writer:
        writer.append(NewBatch(records=(Record(0, T0, b"first", b"v"),), leader_epoch=0))
    mixed = record(0, key=b"a", timestamp_delta=-T0 - 5000) + record(1, key=b"b")
    before_1970 = record(0, key=b"a") + record(1, key=b"c", timestamp_delta=-7)
    batches = (
        sealed(mixed, 2, base_offset=0),
        sealed(before_1970, 2, base_offset=0, base_timestamp=-DAY_MS, max_timestamp=-DAY_MS),
        sealed(gzip(before_1970), 2, base_offset=0, attributes=1, base_timestamp=-DAY_MS, max_timestamp=-5),
        sealed(record(0, key=b"a"), 1, base_offset=0),
    )
    steps = [{"what": "append", "batches": base64.b64encode(data).decode()} for data in batches]
    answer = oracle.partition(directory, [*steps, {"what": "roll"}], in_place=True, clean=True, now=LATER_MS)
    assert not [line for line in answer.found if "exception" in line]
    return directory


def test_negative_timestamps_are_shown_and_are_no_fault(
    stored: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["verify", "--deep", "--now", str(LATER_MS), str(stored)]) == 0
    assert "0 errors, 0 warnings" in capfd.readouterr().out
    assert run(["dump", "--format", "table", str(stored)]) == 0
    assert "1969-12-31T00:00:00.000Z" in capfd.readouterr().out
    assert run(["lookup", "--offset", "3", str(stored)]) == 0
    assert "record offset 3 at 1969-12-31T00:00:00.000Z" in capfd.readouterr().out


def test_copy_of_a_log_with_negative_timestamps_equals_it(stored: Path, tmp_path: Path) -> None:
    appender(tmp_path)(tmp_path / "copy-0", dumped(stored))
    assert written_rows(tmp_path / "copy-0") == written_rows(stored)

    lines = tmp_path / "exported"
    assert run(["export", "--to", "json", "--quiet", "--output", str(lines), str(stored)]) == 0
    (file,) = lines.glob("*.json")
    appender(tmp_path)(tmp_path / "again-0", file.read_bytes())
    assert _times(tmp_path / "again-0") == _times(stored)


def _times(directory: Path) -> list[tuple[int, int]]:
    return [(row["offset"], row["timestamp"]) for row in written_rows(directory) if row["type"] == "record"]


def test_compaction_of_negative_timestamps_says_that_the_cleaner_fails(stored: Path, oracle: Oracle) -> None:
    settings = CleanSettings(now_ms=LATER_MS)
    theirs = real_clean(oracle, stored, settings, None)
    assert theirs.threw == "java.lang.IllegalArgumentException: Invalid negative timestamp -86400007"
    ours = our_clean(stored, settings, None)
    assert not ours.refused
    (finding,) = [each for each in ours.findings if each.id == "negative-timestamp-rewritten"]
    assert finding.numbers["batches"] == 1
    again = our_clean(stored, settings, None)
    assert "negative-timestamp-rewritten" not in {each.id for each in again.findings}
    assert not real_clean(oracle, stored, settings, None).threw
