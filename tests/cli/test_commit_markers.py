"""Markers for transactions that are open in a log: `kseg append --marker`, and the step of `kseg doctor` that writes lost COMMIT markers.
A real broker serves the records of a partition with such a marker (tests/kafka/test_ids_behind.py)."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from kseg.cli.doctor.client_steps import Clients, end_transactions, write_markers
from kseg.cli.doctor.next_steps import next_steps
from kseg.cli.doctor.situation import Situation
from kseg.cli.main import run
from kseg.cli.request import Request
from kseg.internal_topics.broker_directories import ReplicaProgress
from kseg.internal_topics.groups.group_results import PendingOffset
from kseg.internal_topics.transactions.transaction_log import CoordinatorView
from kseg.internal_topics.transactions.transaction_rows import (
    HangingTransaction,
    LostCommit,
    TransactionsOptions,
    partition_transactions,
)
from kseg.jobs.events import Row
from kseg.segment.partition.targets import PartitionTarget
from tests.internal_topics.coordinator_logs import T0, data_batch, marker
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.transaction_dirs import LATER, PID, write_orders
from tests.support.trees import files_in, unchanged

NOW = "1700000000000"


def _open_transaction(place: Path) -> Path:
    """A partition with an aborted transaction of producer 7 and an open one from offset 3 on, epoch 0."""
    lines = place.parent / "lines.jsonl"
    lines.write_text('{"value":"a"}\n{"value":"b"}\n')
    for end in ("abort", "open"):
        words = ["--from", str(lines), "--producer-id", "7", "--transactional", "--end", end, "--now", NOW]
        assert run(["append", "--apply", *words, str(place)]) == 0
    return place


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_written_marker_equals_that_of_a_transaction_written_at_once(end: str, tmp_path: Path) -> None:
    """All files are as if the transaction had been written at once, which tests/kafka/test_append.py compares with a broker's."""
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value":"a"}\n{"value":"b"}\n')
    producer = ["--producer-id", "7", "--now", NOW]
    at_once, later = (tmp_path / name / "orders-0" for name in ("at once", "later"))
    for place, how in ((at_once, end), (later, "open")):
        place.parent.mkdir()
        words = ["--from", str(lines), "--transactional", "--end", how, *producer]
        assert run(["append", "--apply", *words, str(place)]) == 0
    assert run(["append", "--apply", "--marker", end, *producer, str(later)]) == 0
    (later / f"{2:020}.snapshot").unlink()  # of the first append
    assert files_in(later) == files_in(at_once)


def test_marker_append_is_planned_applied_and_undone(tmp_path: Path, capfd: Capfd) -> None:
    place = _open_transaction(tmp_path / "orders-0")
    before = files_in(place)
    capfd.readouterr()
    words = ["append", "--marker", "commit", "--producer-id", "7", "--producer-epoch", "1", "--now", NOW]
    with unchanged(place):
        assert run([*words, str(place)]) == 1
    out, err = capfd.readouterr()
    assert out == (
        "orders-0: the COMMIT marker of the transaction of producer 7 from offset 3 (78 bytes) to be appended at offset 5; the log would "
        "end at 6, 0 segments rolled\n"
    )
    (line,) = err.splitlines()
    assert line.startswith("next: kseg append --apply ")
    assert run([*shlex.split(line)[2:], "--json"]) == 0
    (result,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert (result["applied"], result["transaction_start_offset"], result["batches"]) == (True, 3, 1)
    assert run(["dump", "--json", str(place)]) == 0
    batches = [row for row in map(json.loads, capfd.readouterr().out.splitlines()) if row["type"] == "batch"]
    last = batches[-1]
    assert (last["base_offset"], last["control"], last["producer_epoch"], last["base_sequence"]) == (
        5,
        True,
        1,
        -1,
    )
    assert run([*words, "--apply", str(place)]) == 2
    assert "producer 7 has no open transaction in orders-0" in capfd.readouterr().err
    assert run(["undo", result["journal"]]) == 0
    assert files_in(place) == before


def test_marker_continues_the_coordinator_epoch_of_the_producer(tmp_path: Path, capfd: Capfd) -> None:
    """A broker rejects a marker whose coordinator epoch is below the last one (ProducerAppendInfo.checkCoordinatorEpoch)."""
    place = write_orders(tmp_path, marker(0, PID, 0, coordinator_epoch=4), data_batch(1, PID, 0)).parent
    assert run(["recover", "--apply", str(place)]) == 0
    assert run(["append", "--apply", "--marker", "abort", "--producer-id", str(PID), str(place)]) == 0
    rows = rows_of(capfd, "dump", "--deep-iteration", place)
    markers = [row["control"] for row in rows if row["type"] == "record" and row.get("control")]
    assert [(each["kind"], each["coordinator_epoch"]) for each in markers] == [("COMMIT", 4), ("ABORT", 4)]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--producer-id", "8"], "producer 8 has no open transaction in orders-0"),
        ([], "a transaction needs a producer id"),
        (["--producer-id", "7", "--from", "x"], "either lines (--from) or a marker (--marker)"),
        (["--producer-id", "7", "--leader-epoch", "-1"], "--leader-epoch takes"),
    ],
)
def test_invalid_markers_are_refused(words: list[str], sentence: str, tmp_path: Path, capfd: Capfd) -> None:
    place = _open_transaction(tmp_path / "orders-0")
    with unchanged(place):
        assert run(["append", "--apply", "--marker", "commit", *words, str(place)]) == 2
    assert sentence in capfd.readouterr().err


def test_marker_epoch_below_that_of_the_producer_is_refused(tmp_path: Path, capfd: Capfd) -> None:
    place = write_orders(tmp_path, data_batch(0, PID, 3)).parent
    assert run(["recover", "--apply", str(place)]) == 0
    words = ["--marker", "commit", "--producer-id", str(PID), "--producer-epoch", "2"]
    with unchanged(place):
        assert run(["append", "--apply", *words, str(place)]) == 2
    assert f"epoch 2 is below 3, the latest of producer {PID} in orders-0" in capfd.readouterr().err


@pytest.mark.parametrize("format", ["auto", "0.7"])
def test_marker_for_a_new_partition_is_refused(format: str, tmp_path: Path, capfd: Capfd) -> None:
    words = ["--marker", "commit", "--producer-id", "7", "--format", format]
    assert run(["append", "--apply", *words, str(tmp_path / "orders-0")]) == 2
    assert "transaction" in capfd.readouterr().err and not (tmp_path / "orders-0").exists()


# --- the step of doctor


def _judged(place: Path, view: CoordinatorView) -> HangingTransaction:
    options = TransactionsOptions(now_ms=LATER, ended=False, view=view, before_a_start=True)
    events = partition_transactions(PartitionTarget(str(place), None), options)
    (found,) = (each.result for each in events if isinstance(each, Row) and each.result is not None)
    assert isinstance(found, HangingTransaction)
    return found


@pytest.mark.parametrize(
    ("epochs", "is_settled", "is_writable"),
    [
        ((3,), True, True),
        ((3, 3), True, True),
        (
            (2, 3),
            True,
            False,
        ),  # the marker of the transaction of epoch 2 is lost as well: nobody knows its outcome
        ((3,), False, False),  # a broker elsewhere may have the marker
    ],
)
def test_lost_commits_whose_markers_can_be_written_are_found(
    epochs: tuple[int, ...], is_settled: bool, is_writable: bool, tmp_path: Path
) -> None:
    batches = [data_batch(at, PID, epoch, sequence=at) for at, epoch in enumerate(epochs)]
    # of another producer, in between
    place = write_orders(tmp_path, *batches, data_batch(len(batches), PID + 1, 9, transactional=False)).parent
    view = CoordinatorView(partitions=(0,), is_whole=True, is_settled=is_settled, committed={PID: (4,)})
    commit = _judged(place, view).commit
    end = ReplicaProgress(-1, len(epochs) + 1)
    assert commit == LostCommit(
        str(place), "orders", 0, PID, 4, 0, len(epochs) - 1, end, is_writable, is_crashed=True
    )


COMMIT = LostCommit(
    "/a/orders-0", "orders", 0, PID, 4, 17, 20, ReplicaProgress(5, 30), is_writable=True, is_crashed=False
)


def _steps(*commits: LostCommit) -> tuple[list[str], list[str]]:
    """(commands before the start, commands once the brokers run)."""
    clients = Clients(Request(("/a",)), now_ms=T0)
    clients.hanging += [HangingTransaction("orders", 0, PID, f"abort {each.path}", each) for each in commits]
    return (
        [step.command for step in write_markers(clients)],
        [step.command for step in end_transactions(clients, "HOST:PORT")],
    )


def _command(path: str) -> str:
    return f"kseg append --apply --marker commit --producer-id {PID} --producer-epoch 4 --now {T0} {path}"


@pytest.mark.parametrize("progress", [ReplicaProgress(5, 29), ReplicaProgress(4, 31)])
def test_most_recent_replicas_get_the_same_marker(progress: ReplicaProgress) -> None:
    equal = replace(COMMIT, path="/b/orders-0")
    behind = replace(COMMIT, path="/c/orders-0", progress=progress)
    before, after = _steps(behind, COMMIT, equal)
    assert before == [f"{_command('/a/orders-0')} && {_command('/b/orders-0')}"]
    assert after == []


def test_partition_of_a_crashed_broker_is_recovered_before_the_marker() -> None:
    """Its indexes are preallocated, and `append` refuses it."""
    before, _ = _steps(replace(COMMIT, is_crashed=True))
    assert before == [f"kseg recover --apply /a/orders-0 && {_command('/a/orders-0')}"]


def test_no_marker_is_written_if_the_last_leader_is_unknown() -> None:
    unknown = replace(COMMIT, path="/b/orders-0", progress=ReplicaProgress(-1, 30))
    assert _steps(COMMIT, unknown)[0] == []


def test_transaction_whose_marker_cannot_be_written_is_aborted() -> None:
    longer = replace(COMMIT, path="/b/orders-0", progress=ReplicaProgress(5, 31), is_writable=False)
    before, after = _steps(COMMIT, longer)
    assert before == [] and after == ["abort /a/orders-0", "abort /b/orders-0"]


def test_many_markers_are_written_by_few_commands() -> None:
    commits = [replace(COMMIT, partition=number, path=f"/a/orders-{number}") for number in range(45)]
    before, _ = _steps(*commits)
    assert [command.count("kseg append") for command in before] == [20, 20, 5]
    clients = Clients(Request(("/a",)), lost_commits=commits)
    first, *_ = write_markers(clients)
    assert "orders-0 from offset 17, orders-1" in first.why and "15 more" in first.why
    assert first.needs_stopped_broker


def test_markers_of_several_nodes_are_written_after_examining_all() -> None:
    """No node by itself shows that a marker is lost: another one may have it."""
    situation = Situation(Request(("/a", "/b")))
    situation.identities.nodes |= {"node 1": ["/a"], "node 2": ["/b"]}
    situation.identities.apart["/b"] = False
    situation.clients.lost_commits += [COMMIT, replace(COMMIT, path="/b/orders-0")]
    steps = [*next_steps(situation)]
    assert [step.command.split(" --")[0] for step in steps] == [
        "kseg doctor /a",
        "kseg doctor /b",
        "kseg append",
    ]
    assert all(step.is_due for step in steps)


def test_offsets_of_a_committed_transaction_are_committed_again_after_the_abort() -> None:
    """Judged once by 4.3.1: the group's consumers got UNSTABLE_OFFSET_COMMIT until the abort, after it the group had the offset of its
    transaction before, and then the offset that the command committed."""
    commit = replace(COMMIT, topic="__consumer_offsets", partition=3, is_writable=False)
    clients = Clients(Request(("/a",)))
    clients.hanging.append(HangingTransaction("__consumer_offsets", 3, PID, "abort", commit))
    clients.pending += [
        PendingOffset("riders", "orders", 0, 5, PID, takes_effect=True),
        PendingOffset(
            "riders", "orders", 1, 9, PID, takes_effect=False
        ),  # it has committed a later offset since
        PendingOffset("others", "orders", 2, 7, PID + 1, takes_effect=True),
    ]
    abort, again = end_transactions(clients, "HOST:PORT")
    assert abort.command == "abort" and "Consumers of riders wait until it ends" in abort.why
    assert again.command == (
        "kafka-consumer-groups.sh --bootstrap-server HOST:PORT --group riders --topic orders:0 --reset-offsets --to-offset 5 --dry-run"
    )
