"""What `kseg transactions` reads in the coordinators' log: removed ids, records that cannot be loaded, and selected ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.internal_topics.coordinator_logs import T0, batch, data_batch, key, marker, write_segment
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.transaction_dirs import (
    AS_OF,
    COMPLETE_COMMIT,
    PID,
    PREPARE_COMMIT,
    STATE,
    transaction,
    transaction_rows,
    write_orders,
    write_state,
)


@pytest.mark.behaviour("X17")
def test_removed_transactional_id_is_shown_as_former_id(tmp_path: Path, capfd: Capfd) -> None:
    write_orders(tmp_path, data_batch(0, PID, 0))
    kept, _ = record = transaction("till", transactionStatus=COMPLETE_COMMIT)
    write_state(tmp_path, record, (kept, None))
    found = transaction_rows(capfd, *AS_OF, str(tmp_path), status=1)
    (row,) = found["transaction"]
    assert "transactional_id" not in found
    assert (row["status"], row["transactional_id"], row["former_transactional_id"]) == (
        "hanging",
        None,
        "till",
    )


@pytest.mark.behaviour("X17")
@pytest.mark.parametrize(
    ("batches", "left"),
    [
        ([], [0, 1]),  # no batch in orders-0
        ([data_batch(0, PID, 0)], [0, 1]),
        ([data_batch(0, PID, 0), marker(1, PID, 0, at_ms=T0 + 9)], [1]),
        ([marker(0, PID, 0, at_ms=T0 + 9)], [1]),  # the partition was added, and no data was written
        (
            [data_batch(0, PID, 0), marker(1, PID, 0, at_ms=T0 - 9)],
            [0, 1],
        ),  # the marker belongs to the previous transaction
        ([data_batch(0, PID, 0), marker(1, PID, 0, at_ms=T0 + 9), data_batch(2, PID, 0, sequence=1)], [1]),
    ],
)
def test_prepared_transaction_lists_the_partitions_without_marker(
    tmp_path: Path, capfd: Capfd, batches: list[bytes], left: list[int]
) -> None:
    write_orders(tmp_path, *batches)
    write_state(
        tmp_path,
        transaction("till", partitions=[("orders", 0), ("orders", 1)], transactionStatus=PREPARE_COMMIT),
    )
    found = transaction_rows(capfd, *AS_OF, str(tmp_path), status=None)
    (row,) = found["transactional_id"]
    assert sorted(each["partition"] for each in row["partitions"]) == left


def test_topic_filter_does_not_hide_the_coordinator_log(tmp_path: Path, capfd: Capfd) -> None:
    write_orders(tmp_path, data_batch(0, PID, 0))
    write_orders(tmp_path, data_batch(0, PID, 0), number=1)
    write_segment(tmp_path / f"orders-2.{'a' * 32}-stray", data_batch(0, PID, 0))
    write_segment(tmp_path / "__cluster_metadata-0", batch(0, (None, b"\1\x14\0\0")))
    write_state(tmp_path, transaction("till", partitions=[("orders", 0)]))
    found = transaction_rows(capfd, *AS_OF, "--topic", "ord*", str(tmp_path), status=1)
    assert [(row["partition"], row["status"]) for row in found["transaction"]] == [
        (0, "open"),
        (1, "hanging"),
    ]
    assert [(row["topic"], row["partition"]) for row in found["partition"]] == [("orders", 0), ("orders", 1)]
    found = transaction_rows(capfd, *AS_OF, str(tmp_path), status=1)
    assert {row["topic"] for row in found["partition"]} == {"orders", STATE}


@pytest.mark.behaviour("X18")
def test_records_that_a_coordinator_cannot_load_are_reported(tmp_path: Path, capfd: Capfd) -> None:
    good = transaction("till", partitions=[("orders", 0)])
    write_state(
        tmp_path,
        good,
        transaction("odd", transactionStatus=9),
        (None, b"\0\0"),
        (key(STATE, 0, transactionalId="newer"), b"\0\5"),
        transaction("nothing", transactionPartitions=None),
        (b"\0\3x", b"\0\0"),
    )
    write_orders(tmp_path, data_batch(0, PID, 0))
    found = transaction_rows(capfd, *AS_OF, str(tmp_path), status=1)
    assert [row["transactional_id"] for row in found["transactional_id"]] == ["till"]
    reported = {(row["id"], row["first_offset"]) for row in found["finding"]}
    assert reported == {
        ("coordinator-load-fails", 1),
        ("coordinator-load-fails", 2),
        ("coordinator-record-unknown", 3),
        ("coordinator-load-fails", 4),
        ("coordinator-record-unknown", 5),
    }
    assert [row["status"] for row in found["transaction"]] == ["open"]


@pytest.mark.parametrize(
    ("newest", "finding"),
    [
        ((key(STATE, 0, transactionalId="till"), b"\0\5"), "coordinator-record-unknown"),
        (transaction("till", transactionStatus=9), "coordinator-load-fails"),
        ((key(STATE, 0, transactionalId="till"), b""), "coordinator-load-fails"),
    ],
)
def test_unloadable_record_leaves_the_earlier_state_of_its_id(
    newest: tuple[bytes, bytes], finding: str, tmp_path: Path, capfd: Capfd
) -> None:
    named = transaction("till", partitions=[("orders", 0)])
    write_state(
        tmp_path,
        transaction("gone"),
        transaction("till"),
        named,
        newest,
        newest,
        (newest[0][:-4] + b"gone", None),
    )
    write_orders(tmp_path, data_batch(0, PID, 0))
    found = transaction_rows(capfd, *AS_OF, str(tmp_path), status=None)
    (row,) = found["transactional_id"]
    assert (row["transactional_id"], row["partitions"]) == ("till", [{"topic": "orders", "partition": 0}])
    assert [(row["id"], row["first_offset"]) for row in found["finding"]] == [(finding, 3), (finding, 4)]
    assert [(row["status"], row["verdict"]) for row in found["transaction"]] == [("open", "ongoing")]


def test_lookup_finds_the_transactions_of_an_id(tmp_path: Path, capfd: Capfd) -> None:
    write_orders(
        tmp_path,
        data_batch(0, 6, 0, count=2),
        marker(2, 6, 0),
        data_batch(3, 8, 0),
        marker(4, 8, 0),
        data_batch(5, PID, 0),
    )
    before, now = (
        transaction("till", producerId=6, transactionStatus=COMPLETE_COMMIT),
        transaction("till", partitions=[("orders", 0)]),
    )
    write_state(tmp_path, before, now, transaction("other", producerId=8, transactionStatus=COMPLETE_COMMIT))
    words = ["lookup", "--json", "--transactional-id"]
    *rows, answer = rows_of(capfd, *words, "till", tmp_path, status=0)
    assert [row["type"] for row in rows] == ["transactional_id", "transaction", "transaction"]
    assert [(row["status"], row["producer_id"], row["start_offset"]) for row in rows[1:]] == [
        ("committed", 6, 0),
        ("open", PID, 5),
    ]
    assert (answer["found"], answer["producer_ids"], answer["transactions"]) == (True, [6, PID], 2)
    assert run([*words, "nobody", str(tmp_path)]) == 1
    shown = capfd.readouterr()
    assert json.loads(shown.out)["found"] is False
    assert "some partitions of __transaction_state are not under the given paths" in shown.err
    assert run(["lookup", "--transactional-id", "till", str(tmp_path)]) == 0
    assert capfd.readouterr().out.endswith("till: 2 transactions of producer 6, 7\n")
