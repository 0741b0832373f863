"""Replicas that somebody moved to another log dir of their broker while it was stopped. A real broker accepts such a replica with its
records and tells the controller, so `kseg metadata` does not call it missing. If the directory there has the id of another topic, or is a
`-future` log (which the broker truncates to nothing), the broker creates the replica again, empty: these are missing.

Takes some fifteen seconds: one broker with one restart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.internal_topics.metadata_logs import topic_id
from tests.kafka.broker import Broker
from tests.kafka.conftest import require_kafka
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

MOVED, OF_ANOTHER, BEGUN = TOPICS = ("moved", "of-another", "begun")
RECORDS = 25


class Story:
    """A broker with two log dirs, and what `kseg metadata` says of them."""

    def __init__(self, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.data = root / "data"
        log_dirs = [self.data / "a", self.data / "b"]
        self.broker = Broker(root / "broker", log_dirs[0], log_dirs=",".join(map(str, log_dirs)))
        self._capfd = capfd

    def rows(self, *, status: int = 0) -> list[dict[str, Any]]:
        found = rows_of(self._capfd, "metadata", self.data, status=status)
        return [row for row in found if row.get("topic") in TOPICS]

    def statuses(self, *, status: int = 0) -> dict[str, str]:
        """The status of each topic directory, by its path below the data directory."""
        return {
            str(Path(row["path"]).relative_to(self.data)): row["status"]
            for row in self.rows(status=status)
            if row["type"] == "directory"
        }

    def assigned(self, topic: str) -> str:
        (ids,) = [
            row["directories"] for row in self.rows() if (row["type"], row["topic"]) == ("partition", topic)
        ]
        return str(ids[0])

    def move(self, topic: str, name: str) -> tuple[Path, Path]:
        """Move a partition's directory to the other log dir. Returns the old and the new path."""
        (place,) = self.data.glob(f"*/{topic}-0")
        other = self.data / ("b" if place.parent.name == "a" else "a") / name
        return place, place.rename(other)


@pytest.mark.behaviour("M06")
def test_broker_accepts_replicas_moved_by_hand_to_another_log_dir(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    story = Story(tmp_path, capfd)
    with story.broker as broker:
        producer = broker.producer()
        for topic in TOPICS:
            broker.create_topic(topic, 1)
            for number in range(RECORDS):
                producer.produce(topic, b"value %d" % number, partition=0)
        producer.flush()
    assert set(story.statuses().values()) == {"known"}
    before = story.assigned(MOVED)
    was, moved = story.move(MOVED, f"{MOVED}-0")
    other_was, other = story.move(OF_ANOTHER, f"{OF_ANOTHER}-0")
    (other / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(5)}")
    begun_was, _ = story.move(BEGUN, f"{BEGUN}-0.{'0' * 31}1-future")
    statuses = story.statuses(status=1)
    missing = {path for path, status in statuses.items() if status == "missing"}
    assert missing == {str(each.relative_to(story.data)) for each in (other_was, begun_was)}
    assert statuses[str(moved.relative_to(story.data))] == "known"
    with story.broker as broker:
        broker.wait_for("the controller to hear of it", lambda: story.assigned(MOVED) != before)
        assert [len(broker.consume(topic, 0)) for topic in TOPICS] == [RECORDS, 0, 0]
    # the broker may or may not have finished the move of the newly created, empty log
    assert not was.exists() and other_was.is_dir()
    assert story.statuses()[str(moved.relative_to(story.data))] == "known"
    assert story.assigned(MOVED) in (moved.parent / "meta.properties").read_text()
