"""The leader epochs of a log with tiered storage: no local batch has those below the first local segment, and a broker that does not know
them deletes remote segments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.healthy import T0
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.recovery.policy import BrokerState
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.findings import ERROR
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.topic_settings import REMOTE_STORAGE, Setting, Source, TopicSettings
from tests.support.salvage_helpers import SETTINGS, needs_no_repair, plan, write_repaired

EPOCHS = "leader-epoch-checkpoint"
TIERED = TopicSettings({REMOTE_STORAGE: Setting("true", Source.TOPIC)})
REMOTE = ((0, 0), (2, 12), (3, 17))
LOST = "remote-epochs-lost"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with offsets 20 to 29 and epochs 3 and 5, in a data directory."""
    directory = tmp_path / "data" / "metro-0"
    directory.parent.mkdir()
    with PartitionWriter(directory, start_offset=20, rules=RollRules()) as writer:
        for offset in range(20, 30):
            record = Record(offset, T0, b"key", b"value")
            writer.append(encode_batch(NewBatch(records=(record,), leader_epoch=3 if offset < 25 else 5)))
    (directory / EPOCHS).write_text("0\n4\n0 0\n2 12\n3 17\n5 25\n")
    return directory


def repaired(
    log: Path,
    target: Path,
    epochs: tuple[tuple[int, int], ...] = (),
    *,
    start: int = 0,
    rebuild: bool = False,
) -> tuple[str | None, set[str]]:
    """The checkpoint after salvage, or None, and the ids of errors. epochs: of the remote segments, if they are known."""
    settings = replace(SETTINGS, topic=replace(TIERED, remote_epochs=epochs))
    around = BrokerState(is_clean=True, log_start_offset=start, log_dir=str(log.parent))
    repair = plan(log, rebuild=rebuild, settings=settings, broker_state=around)
    result = write_repaired(repair, log, target / log.name)
    again = plan(result, settings=settings, broker_state=around)
    assert needs_no_repair(result, again), again.why
    errors = {finding.id for finding in repair.findings if finding.severity == ERROR}
    assert (LOST in errors and not epochs) == (LOST in {finding.id for finding in again.findings})
    file = result / EPOCHS
    return file.read_text() if file.exists() else None, errors


def test_intact_remote_epochs_need_no_repair(log: Path, tmp_path: Path) -> None:
    before = (log / EPOCHS).read_text()
    assert repaired(log, tmp_path) == (before, set())


@pytest.mark.evidence("remote-epochs")
@pytest.mark.parametrize("lost", [None, "", "\0\0\0\0", "0\n2\n3 20\n5 25\n"])
def test_lost_epochs_are_restored_from_the_remote_segments(
    log: Path, tmp_path: Path, lost: str | None
) -> None:
    whole = (log / EPOCHS).read_text()
    if lost is None:
        (log / EPOCHS).unlink()
    else:
        (log / EPOCHS).write_text(lost)
    content, errors = repaired(log, tmp_path, REMOTE)
    assert content == whole and LOST in errors


@pytest.mark.evidence("remote-epochs")
@pytest.mark.parametrize("lost", [None, "", "0\n0\n"])
def test_a_log_without_local_records_gets_the_epochs_of_the_remote_segments(
    log: Path, tmp_path: Path, lost: str | None
) -> None:
    for file in log.iterdir():
        file.unlink()
    (log / f"{20:020d}.log").touch()
    if lost is not None:
        (log / EPOCHS).write_text(lost)
    assert repaired(log, tmp_path, REMOTE) == ("0\n3\n0 0\n2 12\n3 17\n", {LOST})


def test_restored_epochs_begin_at_the_log_start(log: Path, tmp_path: Path) -> None:
    (log / EPOCHS).unlink()
    assert repaired(log, tmp_path, REMOTE, start=14)[0] == "0\n3\n2 14\n3 17\n5 25\n"


@pytest.mark.evidence("remote-epochs")
@pytest.mark.parametrize("lost", [None, "", "\0\0\0\0", "0\n2\n3 20\n5 25\n"])
def test_incomplete_epochs_a_broker_would_trust_are_not_written(
    log: Path, tmp_path: Path, lost: str | None
) -> None:
    if lost is None:
        (log / EPOCHS).unlink()
    else:
        (log / EPOCHS).write_text(lost)
    content, errors = repaired(log, tmp_path)
    assert content == lost and LOST in errors


def test_epochs_below_the_log_start_are_not_restored(log: Path, tmp_path: Path) -> None:
    (log / EPOCHS).unlink()
    assert repaired(log, tmp_path, start=20) == ("0\n2\n3 20\n5 25\n", set())


@pytest.mark.parametrize("rebuild", [True, False])
def test_wrong_epoch_entry_keeps_the_entries_before_it(log: Path, tmp_path: Path, rebuild: bool) -> None:
    before = (log / EPOCHS).read_text()
    (log / EPOCHS).write_text(before.replace("5 25", "6 25"))
    assert repaired(log, tmp_path, rebuild=rebuild)[0] == before
