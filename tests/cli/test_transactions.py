"""`kseg transactions` on handmade directories: the join with the coordinators' log, verdict by verdict."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS as OFFSETS
from kseg.internal_topics.transactions.transaction_rows import TransactionsOptions, _ended
from kseg.jobs.events import Row, Text
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.header_tables import Columns
from kseg.segment.json_line import json_line
from kseg.segment.kernel import follow_transactions as T
from kseg.segment.model import NewBatch
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, encode_snapshot
from tests.internal_topics.coordinator_logs import T0, batch, data_batch, marker, write_segment
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.group_dirs import commit as group_commit
from tests.support.transaction_dirs import (
    AS_OF,
    COMMAND,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PID,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    transaction,
    transaction_rows,
    write_orders,
    write_state,
)


def test_transactions_are_committed_aborted_or_open(tmp_path: Path, capfd: Capfd) -> None:
    write_orders(
        tmp_path,
        data_batch(0, PID, 0, count=3, at_ms=T0),
        data_batch(3, 8, 1, count=2, at_ms=T0 + 50),
        marker(5, PID, 0, coordinator_epoch=4, at_ms=T0 + 60),
        marker(6, 8, 1, is_abort=True, at_ms=T0 + 70),
        # a marker without data
        marker(7, 9, 0, at_ms=T0 + 80),
        data_batch(8, PID, 0, count=2, sequence=3, at_ms=T0 + 90),
        batch(10, (b"k", b"v"), at_ms=T0 + 95),
    )
    write_state(
        tmp_path,
        transaction("till", partitions=[("orders", 0)]),
        transaction("other", producerId=8, transactionStatus=COMPLETE_ABORT),
    )
    found = transaction_rows(capfd, *AS_OF, str(tmp_path))
    fields = (
        "status",
        "producer_id",
        "producer_epoch",
        "transactional_id",
        "start_offset",
        "last_offset",
        "marker_offset",
    )
    assert [tuple(row[name] for name in fields) for row in found["transaction"]] == [
        ("committed", PID, 0, "till", 0, 2, 5),
        ("aborted", 8, 1, "other", 3, 4, 6),
        ("open", PID, 0, "till", 8, 9, None),
    ]
    assert [row["last_timestamp"] for row in found["transaction"]] == [T0 + 2, T0 + 51, T0 + 91]
    assert {row["abort_command"] for row in found["transaction"]} == {None}
    (partition,) = [row for row in found["partition"] if row["topic"] == "orders"]
    assert (partition["log_start_offset"], partition["log_end_offset"]) == (0, 11)
    assert (partition["last_stable_offset"], partition["held_by_producer_id"]) == (8, PID)
    assert [
        (row["producer_id"], row["last_sequence"], row["coordinator_epoch"], row["transaction_start_offset"])
        for row in found["producer"]
    ] == [(PID, 4, 4, 8), (8, 1, 0, None), (9, -1, 0, None)]
    assert [row["transactional_id"] for row in found["transactional_id"]] == ["other", "till"]


@pytest.mark.parametrize(("lost", "open_first"), [(2, [0]), (3, [0, 2]), (5, [])])
def test_damage_that_may_contain_a_marker_is_reported(
    lost: int, open_first: list[int], tmp_path: Path, capfd: Capfd
) -> None:
    """If a transaction is open before unreadable bytes, it is unknown whether it ended there."""
    parts = [
        data_batch(0, PID, 0, count=2),
        data_batch(2, 8, 0),
        marker(3, PID, 0),
        marker(4, 8, 0, is_abort=True),
        batch(5, (b"k", b"v")),
        batch(6, (b"k", b"v")),
    ]
    # because the first batch has two records
    at = lost - 1
    parts[at] = parts[at][:-1] + bytes([parts[at][-1] ^ 0xFF])
    path = write_orders(tmp_path, *parts)
    write_state(tmp_path, transaction("till", transactionStatus=COMPLETE_COMMIT))
    found = transaction_rows(capfd, *AS_OF, str(tmp_path), status=1)
    errors = [row for row in found["finding"] if row["severity"] == "error"]
    assert [(row["id"], row["path"], row["first_offset"]) for row in errors] == [("bad-crc", str(path), lost)]
    ends = [row for row in found["finding"] if row["id"] == "transaction-end-lost"]
    assert [row["first_offset"] for row in ends] == open_first
    assert all(row["lost_first_offset"] == lost == row["lost_last_offset"] for row in ends)
    run(["transactions", *AS_OF, str(tmp_path)])
    head = capfd.readouterr().out.splitlines()[0]
    assert head.startswith("HANGING:" if lost == 3 else "UNCERTAIN: nothing hangs in what can be read")


def test_producer_with_only_an_emptied_marker_is_not_listed(tmp_path: Path, capfd: Capfd) -> None:
    """The cleaner keeps the empty marker of a transaction that ended long ago. A broker started on it describes no such producer."""
    emptied = encode_batch(
        NewBatch(
            base_offset=5,
            last_offset=5,
            transactional=True,
            control=True,
            producer_id=8,
            producer_epoch=1,
        )
    )
    write_orders(tmp_path, data_batch(0, PID, 0, count=3), marker(3, PID, 0), emptied)
    found = transaction_rows(capfd, *AS_OF, str(tmp_path))
    assert [row["producer_id"] for row in found["producer"]] == [PID]
    assert found["partition"][0]["log_end_offset"] == 6


@pytest.mark.behaviour("X20")
@pytest.mark.parametrize(
    ("record", "epoch", "status", "verdict"),
    [
        (transaction("till", partitions=[("orders", 0)]), 0, "open", "ongoing"),
        (transaction("till", partitions=[("orders", 1)]), 0, "hanging", "orphaned"),
        (transaction("till", partitions=[("orders", 0)], producerEpoch=3), 0, "open", "stale"),
        (
            transaction("till", partitions=[("orders", 0)], transactionStatus=PREPARE_COMMIT),
            0,
            "open",
            "ending",
        ),
        # second protocol: the decision already has the next epoch
        (
            transaction(
                "till",
                partitions=[("orders", 0)],
                transactionStatus=PREPARE_ABORT,
                producerEpoch=5,
                clientTransactionVersion=2,
            ),
            4,
            "open",
            "ending",
        ),
        (
            transaction("till", partitions=[("orders", 0)], transactionStatus=PREPARE_ABORT, producerEpoch=5),
            3,
            "open",
            "stale",
        ),
        (transaction("till", transactionStatus=COMPLETE_COMMIT), 0, "hanging", "orphaned"),
        (transaction("till", version=0, transactionStatus=COMPLETE_ABORT), 0, "hanging", "orphaned"),
        # second protocol: each transaction has its own epoch
        (
            transaction(
                "till", transactionStatus=COMPLETE_COMMIT, producerEpoch=1, clientTransactionVersion=2
            ),
            0,
            "hanging",
            "unmarked",
        ),
        (
            transaction(
                "till", transactionStatus=COMPLETE_COMMIT, producerEpoch=2, clientTransactionVersion=2
            ),
            0,
            "hanging",
            "orphaned",
        ),
        (
            transaction(
                "till", transactionStatus=COMPLETE_ABORT, producerEpoch=1, clientTransactionVersion=2
            ),
            0,
            "hanging",
            "orphaned",
        ),
        (transaction("till", transactionStatus=EMPTY, transactionPartitions=None), 0, "hanging", "orphaned"),
        (transaction("till", producerId=99, partitions=[("orders", 0)]), 0, "hanging", "unknown"),
    ],
)
def test_verdict_on_an_open_transaction_follows_the_coordinator_state(
    tmp_path: Path, capfd: Capfd, record: tuple[bytes, bytes], epoch: int, status: str, verdict: str
) -> None:
    write_orders(tmp_path, batch(0, *[(b"k", b"v")] * 5), data_batch(5, PID, epoch, count=2))
    write_state(tmp_path, record)
    found = transaction_rows(capfd, *AS_OF, str(tmp_path), status=int(status == "hanging"))
    (row,) = found["transaction"]
    assert (row["status"], row["verdict"]) == (status, verdict)
    assert (row["start_offset"], row["last_offset"]) == (5, 6)
    assert row["abort_command"] == (COMMAND if status == "hanging" else None)


@pytest.mark.parametrize("then", ["another", "another that is committed", "expired"])
def test_lost_commit_is_recognized_by_replaced_coordinator_records(
    then: str, tmp_path: Path, capfd: Capfd
) -> None:
    """In the second protocol each transaction has its own epoch, so the record of a decision stays true when the id continues."""
    second = {"clientTransactionVersion": 2, "previousProducerId": PID}
    write_orders(tmp_path, batch(0, *[(b"k", b"v")] * 5), data_batch(5, PID, 3, count=2))
    write_orders(tmp_path, data_batch(0, PID, 4, count=2), number=1)
    name, _ = transaction("till")
    records: list[tuple[bytes | None, bytes | None]] = [
        transaction("till", transactionStatus=COMPLETE_COMMIT, producerEpoch=4, **second)
    ]
    if then == "expired":
        records.append((name, None))
    else:
        records.append(transaction("till", partitions=[("orders", 1)], producerEpoch=4, **second))
    if then == "another that is committed":
        records.append(transaction("till", transactionStatus=COMPLETE_COMMIT, producerEpoch=5, **second))
    write_state(tmp_path, *records)
    found = transaction_rows(capfd, *AS_OF, str(tmp_path), status=1)
    rows = {row["partition"]: row for row in found["transaction"]}
    assert (rows[0]["status"], rows[0]["verdict"]) == ("hanging", "unmarked")
    assert "it committed this transaction" in rows[0]["reason"]
    assert rows[1]["verdict"] == {"another": "ongoing", "expired": "unknown"}.get(then, "unmarked")


def test_lost_commit_that_exhausted_the_epochs_is_recognized(tmp_path: Path, capfd: Capfd) -> None:
    """These are the records of 4.3.1: the id is complete with its next producer id, while the marker has the former one and epoch 32767."""
    write_orders(tmp_path, data_batch(0, PID, 32766))
    second = {"partitions": [("orders", 0)], "clientTransactionVersion": 2}
    ended = {"transactionStatus": COMPLETE_COMMIT, "producerEpoch": 0, "clientTransactionVersion": 2}
    write_state(
        tmp_path,
        transaction("till", producerEpoch=32766, previousProducerId=PID, **second),
        transaction(
            "till", transactionStatus=PREPARE_COMMIT, producerEpoch=32767, nextProducerId=1000, **second
        ),
        transaction("till", producerId=1000, previousProducerId=PID, **ended),
    )
    (row,) = transaction_rows(capfd, *AS_OF, str(tmp_path), status=1)["transaction"]
    assert (row["status"], row["verdict"]) == ("hanging", "unmarked")


@pytest.mark.parametrize(
    ("state", "verdict"),
    [(ONGOING, "unmarked"), (PREPARE_COMMIT, "stale"), (PREPARE_ABORT, "unmarked")],
)
def test_marker_of_a_later_transaction_ends_a_committed_one(
    state: int, verdict: str, tmp_path: Path, capfd: Capfd
) -> None:
    """A broker goes by the first open offset of the producer (tests/kafka/test_ids_behind.py), so an abort hides what was committed."""
    second = {"clientTransactionVersion": 2, "previousProducerId": PID}
    write_orders(tmp_path, data_batch(0, PID, 3))
    epoch = 4 + (state != ONGOING)
    write_state(
        tmp_path,
        transaction("till", transactionStatus=COMPLETE_COMMIT, producerEpoch=4, **second),
        transaction(
            "till", partitions=[("orders", 0)], transactionStatus=state, producerEpoch=epoch, **second
        ),
    )
    (row,) = transaction_rows(capfd, *AS_OF, str(tmp_path))["transaction"]
    assert (row["status"], row["verdict"]) == ("open", verdict)
    run(["doctor", *AS_OF, str(tmp_path)])
    text = capfd.readouterr().out
    when = "as soon as it runs" if state == PREPARE_ABORT else "at 2026-"
    is_told = f"orders-0: offsets 0 to 0, producer {PID}; {when}" in text
    assert is_told == (f"kseg export --to json --producer-id {PID}" in text) == (verdict == "unmarked")


@pytest.mark.parametrize(
    ("version", "epoch", "is_abort", "verdict"),
    [
        (2, 1, False, "unmarked"),
        (2, 1, True, "ongoing"),  # the coordinator aborts it once more
        (2, 0, False, "ongoing"),  # a marker of the previous transaction
        (0, 1, False, "ongoing"),
    ],
)
def test_marker_in_another_partition_decides_a_lost_transaction(
    version: int, epoch: int, is_abort: bool, verdict: str, tmp_path: Path, capfd: Capfd
) -> None:
    """The end of the coordinator's log is lost, including the decision, and the end of one partition with its marker."""
    write_orders(tmp_path, data_batch(0, PID, 0))
    write_orders(tmp_path, data_batch(0, PID, 0), marker(1, PID, epoch, is_abort=is_abort), number=1)
    places = [("orders", 0), ("orders", 1)]
    write_state(tmp_path, transaction("till", partitions=places, clientTransactionVersion=version))
    (row,) = (
        each
        for each in transaction_rows(capfd, *AS_OF, str(tmp_path))["transaction"]
        if each["partition"] == 0
    )
    assert (row["status"], row["verdict"], row["abort_command"]) == ("open", verdict, None)
    assert ("orders-1 has the COMMIT marker" in row["reason"]) == (verdict == "unmarked")
    capfd.readouterr()
    run(["doctor", *AS_OF, str(tmp_path)])
    text = capfd.readouterr().out
    exported = f"--producer-id {PID} --from-offset 0 --to-offset 1 --output orders-0-0 {tmp_path}/orders-0"
    assert (exported in text) == (verdict == "unmarked")
    assert ("1 committed transaction that a coordinator aborts" in text) == (verdict == "unmarked")


@pytest.mark.parametrize("is_superseded", [False, True])
def test_offsets_of_a_committed_transaction_that_its_coordinator_aborts(
    is_superseded: bool, tmp_path: Path, capfd: Capfd
) -> None:
    """They are committed again by the group, unless it has committed others since (a coordinator keeps the newer record)."""
    pending = group_commit(7, "g", "orders", 1)
    then = [batch(1, group_commit(2, "g", "orders", 1))] if is_superseded else []
    write_segment(
        tmp_path / f"{OFFSETS}-0",
        batch(0, pending, producer_id=PID, producer_epoch=0, base_sequence=0, transactional=True),
        *then,
    )
    write_orders(tmp_path, data_batch(0, PID, 0), marker(1, PID, 1), number=1)
    places = [(OFFSETS, 0), ("orders", 1)]
    write_state(tmp_path, transaction("till", partitions=places, clientTransactionVersion=2))
    (row,) = transaction_rows(capfd, *AS_OF, str(tmp_path))["transaction"][:1]
    assert (row["topic"], row["status"], row["verdict"]) == (OFFSETS, "open", "unmarked")
    capfd.readouterr()
    run(["doctor", *AS_OF, str(tmp_path)])
    text = capfd.readouterr().out
    assert "export" not in text
    command = "--group g --topic orders:1 --reset-offsets --to-offset 7 --dry-run"
    assert (command in text) == (not is_superseded)


@pytest.mark.behaviour("X19")
def test_transaction_is_not_hanging_before_the_maximum_timeout(tmp_path: Path, capfd: Capfd) -> None:
    write_orders(tmp_path, data_batch(0, PID, 0, at_ms=T0))
    write_state(tmp_path, transaction("till", transactionStatus=COMPLETE_COMMIT))
    for now, status in ((T0 + 900_000, "open"), (T0 + 900_001, "hanging")):
        found = transaction_rows(capfd, "--now", str(now), str(tmp_path), status=int(status == "hanging"))
        assert [row["status"] for row in found["transaction"]] == [status]
    found = transaction_rows(
        capfd, "--now", str(T0 + 1001), "--max-transaction-timeout-ms", "1000", str(tmp_path), status=1
    )
    assert [row["status"] for row in found["transaction"]] == ["hanging"]


def test_open_transaction_without_coordinator_log_is_not_hanging(tmp_path: Path, capfd: Capfd) -> None:
    write_orders(tmp_path, data_batch(0, PID, 0))
    found = transaction_rows(capfd, *AS_OF, str(tmp_path))
    assert [(row["status"], row["verdict"]) for row in found["transaction"]] == [("open", "unknown")]
    assert "no __transaction_state" in found["stderr"][0]["text"]


@pytest.mark.behaviour("X21")
def test_producer_state_starts_at_the_snapshot(tmp_path: Path, capfd: Capfd) -> None:
    path = write_orders(tmp_path, batch(0, (b"k", b"v")), data_batch(1, PID, 0), marker(2, PID, 0, at_ms=T0))
    entries = [
        ProducerSnapshotEntry(5, 2, 9, 0, 0, T0, 3, 0),
        ProducerSnapshotEntry(6, 0, 4, 0, 0, T0, -1, None),
    ]
    (path.parent / f"{1:020}.snapshot").write_bytes(encode_snapshot(entries))
    write_state(tmp_path, transaction("till", transactionStatus=COMPLETE_COMMIT))
    found = transaction_rows(capfd, *AS_OF, str(tmp_path), status=1)
    producers = [
        (row["producer_id"], row["coordinator_epoch"], row["transaction_start_offset"])
        for row in found["producer"]
    ]
    assert producers == [(5, 3, 0), (6, None, None), (PID, 0, None)]
    (partition,) = [row for row in found["partition"] if row["topic"] == "orders"]
    assert (partition["last_stable_offset"], partition["held_by_producer_id"]) == (0, 5)
    (path.parent / f"{1:020}.snapshot").write_bytes(b"damaged")
    found = transaction_rows(capfd, *AS_OF, str(tmp_path))
    assert [row["producer_id"] for row in found["producer"]] == [PID]


@pytest.mark.parametrize("is_clean", [False, True], ids=["running", "stopped"])
def test_producers_below_a_moved_log_start_equal_the_brokers(
    is_clean: bool, tmp_path: Path, capfd: Capfd
) -> None:
    """The same producers as those of a real broker that is started on such a log (tests/kafka/test_random_transactions.py)."""
    data = tmp_path / "data"
    write_segment(
        data / "fares-0",
        data_batch(0, PID, 0, count=2),
        data_batch(2, 8, 0, count=2, transactional=False),
        data_batch(4, PID, 0, count=4, sequence=2),
        data_batch(8, 9, 0, transactional=False),
    )
    (data / "log-start-offset-checkpoint").write_text("0\n1\nfares 0 6\n")
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    if is_clean:
        (data / ".kafka_cleanshutdown").write_text("")
        # at the log start, not after it
        (data / "fares-0" / f"{6:020}.snapshot").write_bytes(encode_snapshot([]))
    rows = transaction_rows(capfd, str(data))
    assert [row["producer_id"] for row in rows["producer"]] == ([PID, 9] if is_clean else [PID, 8, 9])
    (partition,) = rows["partition"]
    assert (partition["log_start_offset"], partition["last_stable_offset"]) == (6, 4)
    assert [row["start_offset"] for row in rows["transaction"]] == [4 if is_clean else 0]
    for words in (["list", "--count"], ["lookup", "--latest", "--isolation", "read_committed"]):
        reported = rows_of(capfd, *words, data / "fares-0", status=0)
        assert [row["last_stable_offset"] for row in reported if row["type"] == "partition"] == [4] * (
            words[0] == "list"
        )
        assert [row["offset"] for row in reported if row["type"] == "lookup"] == [4] * (words[0] == "lookup")


def test_lagging_replica_does_not_make_a_transaction_hang(tmp_path: Path, capfd: Capfd) -> None:
    for broker, batches in (
        ("a", [data_batch(0, PID, 0)]),
        ("b", [data_batch(0, PID, 0), marker(1, PID, 0)]),
    ):
        write_segment(tmp_path / broker / "orders-0", *batches)
        (tmp_path / broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    write_state(tmp_path / "a", transaction("till", transactionStatus=COMPLETE_COMMIT))
    found = transaction_rows(capfd, *AS_OF, str(tmp_path))
    assert [(row["status"], row.get("verdict")) for row in found["transaction"]] == [
        ("open", "decided"),
        ("committed", None),
    ]
    found = transaction_rows(capfd, *AS_OF, str(tmp_path / "a"), status=1)
    assert [row["status"] for row in found["transaction"]] == ["hanging"]


def test_a_marker_above_the_start_of_a_later_epoch_was_never_committed(tmp_path: Path, capfd: Capfd) -> None:
    """Broker b had led, and was longer; a was elected without its last batches, and b truncates its log."""
    for broker, batches, epochs in (
        ("a", [data_batch(0, PID, 0)], "0\n2\n3 0\n4 1\n"),
        ("b", [data_batch(0, PID, 0), marker(1, PID, 0)], "0\n1\n3 0\n"),
    ):
        write_segment(tmp_path / broker / "orders-0", *batches)
        (tmp_path / broker / "orders-0" / "leader-epoch-checkpoint").write_text(epochs)
        (tmp_path / broker / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    write_state(tmp_path / "a", transaction("till", partitions=[("orders", 0)]))
    found = transaction_rows(capfd, *AS_OF, str(tmp_path))
    assert [(row["status"], row.get("verdict")) for row in found["transaction"]] == [
        ("open", "ongoing"),
        ("committed", None),
    ]


def test_transactions_text_starts_with_the_verdict(tmp_path: Path, capfd: Capfd) -> None:
    write_orders(tmp_path, batch(0, *[(b"k", b"v")] * 5), data_batch(5, PID, 0, count=2))
    write_state(tmp_path, transaction("till", transactionStatus=COMPLETE_COMMIT))
    assert run(["transactions", *AS_OF, str(tmp_path)]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("HANGING: 1 transaction in 1 of 2 partitions")
    assert lines[1].startswith("orders-0 hangs at offset 5 since 2026-")
    assert lines[3] == f"  {COMMAND}"
    assert lines[-1].endswith("transactions: 0 committed, 0 aborted, 0 open, 1 hanging")
    assert run(["transactions", "--now", str(T0 + 1), str(tmp_path)]) == 0
    assert capfd.readouterr().out.startswith("DOUBTFUL: 1 open transaction")
    assert run(["transactions", "--verbose", *AS_OF, str(tmp_path)]) == 1
    assert f"  {COMMAND}\n" in capfd.readouterr().out


def test_transactions_accepts_a_partition_or_a_segment(tmp_path: Path, capfd: Capfd) -> None:
    path = write_orders(tmp_path, data_batch(0, PID, 0))
    for given in (path.parent, path):
        found = transaction_rows(capfd, *AS_OF, str(given))
        assert [row["start_offset"] for row in found["transaction"]] == [0]
        assert [row["topic"] for row in found["partition"]] == ["orders"]


def test_old_formats_have_no_transactions(legacy_small: Path, capfd: Capfd) -> None:
    for state in ("0.9.0.1/2-compacted", "0.10.2.2/3-compacted", "1.1.1/4-compacted"):
        found = transaction_rows(capfd, *AS_OF, str(legacy_small / "data" / state))
        assert "transaction" not in found
        assert {row["log_end_offset"] - row["last_stable_offset"] for row in found["partition"]} == {0}
    found = transaction_rows(capfd, *AS_OF, str(legacy_small / "data" / "0.7" / "1-written"))
    assert {row["last_stable_offset"] for row in found["partition"]} == {None}


def test_json_lines_of_ended_transactions_equal_their_rows() -> None:
    table = Columns(T.ENDED_WIDTH, 2)
    table.count = 2
    for field, values in enumerate(((7, 8), (0, 32767), (0, 5), (3, 2**62), (T0, -1), (9, 10), (0, 1))):
        table.column(field)[:] = memoryview(array("q", values))
    names = {7: 'till "\u00e9\n\ud800'}
    place: dict[str, Any] = {"topic": "orders", "partition": 3}
    shown = []
    for as_json in (False, True):
        options = TransactionsOptions(now_ms=T0, as_json=as_json)
        counts = {"committed": 0, "aborted": 0}
        events = list(_ended(table, place, options, names, counts))
        assert counts == {"committed": 1, "aborted": 1}
        shown.append(
            b"".join(
                each.data if isinstance(each, Text) else json_line(each.values)
                for each in events
                if isinstance(each, Text | Row)
            )
        )
    assert shown[0] == shown[1] and shown[0].count(b"\n") == 2
