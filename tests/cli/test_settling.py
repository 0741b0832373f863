"""Directories that disagree with the metadata log beside a running broker, represented by a process that holds its lock: it gets time to
finish what the metadata log says."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_log import read_metadata_log
from kseg.internal_topics.metadata.missing_replicas import missing_replicas
from tests.internal_topics.metadata_logs import record, topic, topic_id
from tests.support.command_lines import Say
from tests.support.known_topics import FILE, LOG, append, ids, set_id
from tests.support.lock_holders import child, running_broker


def deleted_soon(data: Path) -> Callable[[], object]:
    """The broker has written the deletion, and renames the directory while kseg examines it."""
    append(data, record("RemoveTopicRecord", topicId=ids(data)["fares"]))
    return lambda: (data / "fares-0").rename(data / f"fares-0.{'a' * 32}-delete")


def written_soon(data: Path) -> Callable[[], object]:
    """The broker creates a partition, writing partition.metadata after the directory."""
    text = (data / "fares-0" / FILE).read_text()
    (data / "fares-0" / FILE).unlink()
    return lambda: (data / "fares-0" / FILE).write_text(text)


def made_again_soon(data: Path) -> Callable[[], object]:
    """The broker creates a topic again under the name of a deleted one, with an id that is written to the metadata log only after that was
    read."""
    append(data, record("RemoveTopicRecord", topicId=ids(data)["fares"]))

    def create() -> None:
        append(data, *topic("fares", topic_id(4), directories=["UsCu_Qd6HlJL_AROE7wUxg"]))
        set_id(data / "fares-0", topic_id(4))

    return create


@pytest.fixture(params=[True, False], ids=["finished", "unfinished"])
def is_finished(request: pytest.FixtureRequest) -> bool:
    """Whether the broker finishes its change while kseg waits."""
    return bool(request.param)


@pytest.fixture(params=[deleted_soon, written_soon, made_again_soon])
def change(
    request: pytest.FixtureRequest, data: Path, is_finished: bool, monkeypatch: pytest.MonkeyPatch
) -> Iterator[object]:
    """A change that a running broker has begun."""
    finish = request.param(data)
    with child(running_broker(data)) as broker:
        assert broker.output() == "in"
        monkeypatch.setattr(time, "sleep", lambda _: is_finished and finish())
        yield request.param


@pytest.mark.usefixtures("change")
def test_verify_gives_a_running_broker_time_to_finish(data: Path, say: Say, is_finished: bool) -> None:
    status, rows = say("verify", "--quick", "--jobs", "1", data)
    strays = {Path(row["path"]).name for row in rows if row.get("id") == "becomes-stray"}
    assert strays == (set() if is_finished else {"fares-0"})
    assert status == (0 if is_finished else 1), rows


def test_metadata_gives_a_running_broker_time_to_finish(
    data: Path, say: Say, change: object, is_finished: bool
) -> None:
    _, rows = say("metadata", data)
    statuses = {Path(row["path"]).name: row["status"] for row in rows if row["type"] == "directory"}
    is_renamed = is_finished and change is deleted_soon
    assert statuses.get("fares-0") == (None if is_renamed else "known" if is_finished else "stray")
    assert statuses["stations-0"] == "known"


def test_earlier_metadata_state_does_not_wait_for_a_broker(
    data: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier state of the metadata log is compared with today's directories, whether or not a broker is running."""
    shutil.rmtree(data / "fares-0")
    end = read_metadata_log(str(data / LOG)).end_offset
    append(data, record("RemoveTopicRecord", topicId=ids(data)["fares"]))
    stopped = say("metadata", "--offset", str(end - 1), data)
    assert "missing" in {row.get("status") for row in stopped[1]}
    with child(running_broker(data)) as broker:
        assert broker.output() == "in"
        monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("no need to wait"))
        assert say("metadata", "--offset", str(end - 1), data) == stopped


def test_constantly_recreated_topic_is_not_stray(
    data: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the directory finds another topic, newer than the metadata log that was read."""
    numbers = count(10)

    def make_again(_: float = 0) -> None:
        set_id(data / "fares-0", topic_id(next(numbers)))

    make_again()
    with child(running_broker(data)) as broker:
        assert broker.output() == "in"
        monkeypatch.setattr(time, "sleep", make_again)
        for command in ("verify", "metadata"):
            status, rows = say(command, data)
            assert status == 0, rows
    assert next(numbers) > 13


def test_verify_waits_for_a_busy_broker(data: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker renames the directory of a deleted topic some seconds after it wrote the record."""
    finish, waited = deleted_soon(data), list[float]()

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if sum(waited) > 2:
            finish()

    with child(running_broker(data)) as broker:
        assert broker.output() == "in"
        monkeypatch.setattr(time, "sleep", sleep)
        assert say("verify", "--quick", "--jobs", "1", data)[0] == 0


@pytest.mark.usefixtures("no_pauses")
def test_replica_moved_between_two_listings_is_not_missing(data: Path) -> None:
    """The log dirs are listed one after the other, the first before the replica arrives there, the other after it has left."""
    away = shutil.move(data / "fares-0", data.parent / "fares-0")

    def others() -> list[str]:
        shutil.move(away, data / "fares-0")
        return []

    finder = MetadataFinder([str(data)])
    image = finder.image_for(str(data))
    assert image is not None
    with child(running_broker(data)) as broker:
        assert broker.output() == "in"
        assert not [*missing_replicas(str(data), finder.placed_node_of(str(data)), image, others, list)]
