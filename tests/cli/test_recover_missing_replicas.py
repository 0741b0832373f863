"""What `recover` reports and does about missing replicas."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.internal_topics.metadata import replica_directories
from kseg.segment.errors import cannot_read
from kseg.segment.partition.names import PartitionName
from tests.cli.test_known_topics import reported
from tests.internal_topics.metadata_logs import topic_id
from tests.support.command_lines import Capfd, Say
from tests.support.missing_replicas import change


def own_row(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of the data directory itself."""
    (row,) = [row for row in rows if row["type"] == "result" and "log_dir" in row]
    return row


@pytest.mark.evidence("replica-missing")
@pytest.mark.parametrize("gone", [["fares-0"], ["__consumer_offsets-0", "stations-0"]])
@pytest.mark.parametrize(
    "way", [(), ("--apply",), ("--policy", "kafka", "--apply"), ("--apply", "--mark-clean")]
)
def test_recover_reports_missing_replicas_until_they_return(
    data: Path, say: Say, gone: list[str], way: tuple[str, ...], tmp_path: Path
) -> None:
    for name in gone:
        shutil.move(data / name, tmp_path / name)
    status, rows = say("recover", *way, data)
    assert (status, sorted(reported(rows, "replica-missing"))) == (1, gone)
    wanted = [{"partition": name, "finding": "replica-missing", "set_aside": None} for name in gone]
    assert sorted(own_row(rows)["replicas_missing"], key=str) == sorted(wanted, key=str)
    for name in gone:
        shutil.move(tmp_path / name, data / name)
    assert say("recover", data)[0] == 0 and say("verify", data)[0] == 0


def test_data_directory_that_cannot_be_listed_is_no_missing_replica(
    data: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount fails while the replicas in it are compared with the metadata log."""

    def fail(log_dir: str) -> list[tuple[str, PartitionName]]:
        raise cannot_read(log_dir, OSError(errno.ESTALE, os.strerror(errno.ESTALE)))

    monkeypatch.setattr(replica_directories, "partitions_in", fail)
    for command in ("recover", "verify", "list"):
        _, rows = say(command, data)
        (found,) = [row for row in rows if row.get("id") == "unreadable-file"]
        assert found["path"] == str(data) and os.strerror(errno.ESTALE) in found["message"]
        assert not reported(rows, "replica-missing")
        # recover has nothing to do with the data directory itself
        assert not [row for row in rows if row["type"] == "result" and "log_dir" in row]


def test_recover_text_explains_a_missing_replica(data: Path, capfd: Capfd) -> None:
    shutil.rmtree(data / "fares-0")
    assert run(["recover", str(data)]) == 1
    (line,) = [line for line in capfd.readouterr().out.splitlines() if "still missing" in line]
    assert (
        "1 replica (fares-0)" in line
        and "empty when it starts" in line
        and "put the directories back" in line
    )


@pytest.mark.evidence("replica-missing")
@pytest.mark.parametrize("other", ["fares-0.bak", "fares-0 (copy)", "_fares-0.orig"])
def test_recover_and_doctor_give_the_same_step_for_a_renamed_replica(
    data: Path, capfd: Capfd, say: Say, other: str
) -> None:
    (data / "fares-0").rename(data / other)
    (replica,) = own_row(say("recover", data)[1])["replicas_missing"]
    assert replica["set_aside"] == str(data / other)
    steps = []
    for command in ("recover", "doctor"):
        assert run([command, str(data)]) == 1
        output = capfd.readouterr().out
        assert "from a copy" not in output
        steps.append([line.strip() for line in output.splitlines() if line.strip().startswith("mv -T")])
    assert steps[0] == steps[1] and len(steps[0]) == 1


def test_missing_replica_that_is_fetched_again_exits_with_0(data: Path, say: Say) -> None:
    shutil.rmtree(data / "fares-0")
    two: dict[str, Any] = {"replicas": [1, 2], "directories": ["UsCu_Qd6HlJL_AROE7wUxg", topic_id(5)]}
    change(data, "fares", isr=[1, 2], leader=2, **two)
    status, rows = say("recover", data)
    assert status == say("verify", data)[0] == 0
    wanted = {"partition": "fares-0", "finding": "replica-fetched-anew", "set_aside": None}
    assert own_row(rows)["replicas_missing"] == [wanted]


def test_recover_of_selected_partitions_reports_no_missing_replica(data: Path, say: Say) -> None:
    shutil.rmtree(data / "fares-0")
    for words in ((data / "stations-0",), ("--topic", "stations", data)):
        status, rows = say("recover", *words)
        assert status == 0 and not reported(rows, "replica-missing")


@pytest.mark.evidence("marker-without-epoch")
@pytest.mark.parametrize("is_missing", [True, False])
def test_clean_marker_beside_a_missing_replica_has_no_broker_epoch(
    data: Path, say: Say, is_missing: bool
) -> None:
    """The epoch tells the controller that nothing has been lost since (KIP-966), so it would keep the empty replica in sync."""
    marker = data / ".kafka_cleanshutdown"
    before = marker.read_bytes()
    assert b'"brokerEpoch":103' in before
    if is_missing:
        shutil.rmtree(data / "fares-0")
    status, _ = say("recover", "--apply", "--mark-clean", data)
    assert (status, marker.read_bytes()) == ((1, b"") if is_missing else (0, before))


@pytest.mark.parametrize("is_missing", [True, False])
def test_broker_epoch_is_not_restored_beside_a_missing_replica(
    data: Path, say: Say, is_missing: bool
) -> None:
    before = (data / ".kafka_cleanshutdown").read_bytes()
    if is_missing:
        shutil.rmtree(data / "fares-0")
    (data / "stations-0" / f"{0:020}.index").unlink()
    say("recover", "--apply", data)
    assert (data / ".kafka_cleanshutdown").read_bytes() == (b"" if is_missing else before)


def test_checkpoint_entries_of_a_missing_replica_stay(data: Path, say: Say) -> None:
    """Its directory may return, and without its log start offset deleted records would return with it."""
    points = data / "recovery-point-offset-checkpoint"
    shutil.rmtree(data / "fares-0")
    points.write_text(points.read_text().replace("stations 0 300", "stations 0 9999"))
    say("recover", "--apply", data)
    text = points.read_text()
    assert "stations 0 300" in text and "fares 0 117" in text
    assert say("verify", data)[0] == 1, "and so it is still known that there was one"
