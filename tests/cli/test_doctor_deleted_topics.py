"""A topic that was deleted by mistake: `doctor` names its logs before a start of the broker deletes them.

Observed with a 4.3.1 broker that marked the directories of a topic and was stopped: without the steps it deletes them a minute after its
start. If they are moved out, and then replace the partitions of a new topic of that name, with the id that `doctor` prints, the broker
serves every record.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.internal_topics.metadata_logs import record
from tests.support.command_lines import Capfd
from tests.support.command_rows import of_type
from tests.support.doctor_helpers import doctor
from tests.support.known_topics import append, ids
from tests.support.lock_holders import child, running_broker


@pytest.fixture
def marked(data: Path) -> Path:
    """A log dir in which a broker has marked for deletion both partitions of a deleted topic, and a partition of a topic that still
    exists."""
    append(data, record("RemoveTopicRecord", topicId=ids(data)["gates-append"]))
    for number, name in enumerate(("gates-append-0", "gates-append-1", "fares-0")):
        (data / name).rename(data / f"{name}.{number:032x}-delete")
    shutil.copytree(data / f"fares-0.{2:032x}-delete", data / "fares-0")
    return data


def test_doctor_names_the_logs_of_a_deleted_topic(marked: Path, capfd: Capfd) -> None:
    rows = doctor(capfd, marked, status=0)
    (start,) = of_type(rows, "broker-start")
    assert len(start["partitions_removed"]) == 3
    steps = of_type(rows, "step")
    assert not any(step["due"] for step in steps)
    assert [step["command"] for step in steps] == [
        f"mv {marked}/{name} {marked}-{name}"
        for name in (f"gates-append-{number}.{number:032x}-delete" for number in (0, 1))
    ]
    assert "a broker deletes this log a minute after its start" in steps[0]["why"]
    assert "create it again with as many partitions" in steps[0]["why"]


def test_deleted_topic_whose_name_is_taken_gets_another_name(marked: Path, capfd: Capfd) -> None:
    """Its log must not replace the one of the new topic, which has other records (observed: a broker serves both)."""
    append(marked, record("TopicRecord", name="gates-append", topicId="AAAAAAAAAAAAAAAAAAAAEg"))
    first, second = of_type(doctor(capfd, marked, status=0), "step")
    assert "create a topic with another name" in first["why"]
    assert "create it again" not in first["why"] and second["why"].startswith("Likewise")


def test_deleted_topic_without_remaining_records_needs_no_step(marked: Path, capfd: Capfd) -> None:
    """A running broker deletes such a directory by itself, and an empty log has no records."""
    with child(running_broker(marked)) as other:
        assert other.output() == "in"
        assert not of_type(doctor(capfd, marked, status=0), "step")
    for directory in marked.glob("gates-append-*-delete"):
        for file in directory.glob("*[0-9].*"):
            file.unlink()
    assert not of_type(doctor(capfd, marked, status=0), "step")
