"""`kseg transactions` on partitions whose producer snapshots are missing, damaged, too old or misplaced: the `producer` rows equal what a
broker describes that is started on the same directory, after a clean and after an unclean stop.

Takes about half a minute: one broker writes, and two more are started on copies.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.transaction_clients import TransactionClients
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

FARES = "fares"
PRODUCER = (
    *("topic", "partition", "producer_id", "producer_epoch", "last_sequence", "last_timestamp"),
    *("coordinator_epoch", "transaction_start_offset"),
)


def _snapshots(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.snapshot"))


def _without(*which: slice) -> Callable[[Path], None]:
    def remove(partition: Path) -> None:
        files = _snapshots(partition)
        for path in {path for each in which for path in files[each]}:
            path.unlink()

    return remove


def _cut(which: slice) -> Callable[[Path], None]:
    def cut(partition: Path) -> None:
        for path in _snapshots(partition)[which]:
            path.write_bytes(path.read_bytes()[:-1])

    return cut


def _moved(distance: int, *, is_alone: bool) -> Callable[[Path], None]:
    """Move the newest snapshot to another offset. is_alone: remove the others."""

    def move(partition: Path) -> None:
        *others, newest = _snapshots(partition)
        for path in others if is_alone else ():
            path.unlink()
        newest.rename(partition / f"{int(newest.stem) + distance:020}.snapshot")

    return move


def _only_one_cut(partition: Path) -> None:
    _without(slice(0, -1))(partition)
    _cut(slice(None))(partition)


def _between_segments(partition: Path) -> None:
    """The only snapshot is below the last segment and not at the base of any."""
    files = _snapshots(partition)
    for path in (files[0], *files[2:]):
        path.unlink()
    files[1].rename(partition / f"{int(files[1].stem) + 1:020}.snapshot")


CASES: dict[str, Callable[[Path], None]] = {
    "untouched": _without(),
    "none": _without(slice(None)),
    "newest gone": _without(slice(-1, None)),
    "two newest gone": _without(slice(-2, None)),
    "only the oldest": _without(slice(1, None)),
    "newest cut": _cut(slice(-1, None)),
    "all cut": _cut(slice(None)),
    "only one, and that is cut": _only_one_cut,
    "beyond the end": _moved(5, is_alone=False),
    "one beyond the end": _moved(5, is_alone=True),
    "one before the end": _moved(-1, is_alone=True),
    "between segments": _between_segments,
}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory after a clean stop. Each partition has an early producer whose transactions are complete, and one with an open
    transaction."""
    require_kafka()
    root = tmp_path_factory.mktemp("snapshots")
    data = root / "data"
    broker = Broker(root / "broker", data, log_dirs=str(data))
    with broker:
        broker.create_topic(FARES, len(CASES), internal_segment_bytes="400")
        with TransactionClients(broker.bootstrap) as clients:
            for name, end in (("early", "commit"), ("later", "abort"), ("open", None)):
                clients.ask("begin", name)
                for partition in range(len(CASES)):
                    clients.ask("send", name, FARES, partition, 7)
                if end is not None:
                    clients.ask(end, name)
    for number, change in enumerate(CASES.values()):
        place = data / f"{FARES}-{number}"
        assert len(_snapshots(place)) >= 4
        change(place)
    return data


@pytest.fixture(scope="module", params=[True, False], ids=["clean", "unclean"])
def answers(
    request: pytest.FixtureRequest, stopped: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A copy of the directory, and what Admin says about a broker that was started on another copy."""
    root = tmp_path_factory.mktemp("started")
    copies = [Path(shutil.copytree(stopped, root / name)) for name in ("read", "data")]
    if not request.param:
        for copy in copies:
            (copy / ".kafka_cleanshutdown").unlink()
    broker = Broker(root / "broker", copies[1], log_dirs=str(copies[1]))
    with broker, TransactionClients(broker.bootstrap) as clients:
        yield copies[0], clients.ask("describe")


@pytest.mark.behaviour("X21")
def test_producers_are_those_of_a_broker_that_loads_the_snapshots(
    answers: tuple[Path, dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    copy, truth = answers
    rows = rows_of(capfd, "transactions", copy)
    found = [row for row in rows if row["type"] == "producer" and row["topic"] == FARES]
    reported = [row for row in truth["producers"] if row["topic"] == FARES]
    assert _by_case(found) == _by_case(reported)
    held = {
        row["partition"]: row["held_by_producer_id"]
        for row in rows
        if row["type"] == "partition" and row["topic"] == FARES
    }
    is_open = {
        row["partition"]: row["producer_id"]
        for row in reported
        if row["transaction_start_offset"] is not None
    }
    assert held == {number: is_open.get(number) for number in range(len(CASES))}


def _by_case(rows: list[dict[str, Any]]) -> dict[str, list[tuple[Any, ...]]]:
    names = list(CASES)
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
    for row in rows:
        found[names[row["partition"]]].append(tuple(row[name] for name in PRODUCER))
    return {name: sorted(each, key=lambda row: row[2]) for name, each in found.items()}
