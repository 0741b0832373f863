"""Transactional ids that are behind their partitions, in the cases that need no log of a real broker (for those see
tests/kafka/test_ids_behind.py).

A coordinator's epoch is the leader epoch of its partition. With a new metadata log these begin at 0; 4.3.1 then refused the marker of a
commit with "Invalid coordinator epoch for producerId 1 at offset 13 in partition fares-0: 2 (zombie), 6 (current)", after it had told the
producer that the transaction was committed. After a tombstone for the id, the next commit was visible.
"""

from __future__ import annotations

import base64
import json

import pytest

from kseg.internal_topics.decoding import decode_key
from kseg.internal_topics.transactions.ids_behind import ids_behind, tombstone_lines
from kseg.internal_topics.transactions.transaction_log import (
    COMPLETE_COMMIT,
    TRANSACTION_STATE,
    CoordinatorView,
    TransactionalId,
    by_producer,
)
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry

PID = 1
PLACE = ("fares", 0)


def _entry(epoch: int, coordinator_epoch: int) -> ProducerSnapshotEntry:
    return ProducerSnapshotEntry(PID, epoch, -1, -1, 0, 0, coordinator_epoch, None)


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "is_settled", "is_behind"),
    [
        (7, 6, True, True),  # observed with 4.3.1
        (7, 2, True, False),  # observed with 4.3.1
        (8, 2, True, False),  # the returning producer gets this epoch
        (9, 2, True, True),  # observed with 4.3.1
        (9, 6, False, False),  # another node, or a running one, may know more
    ],
)
def test_transactional_id_behind_is_found_by_its_epoch(
    epoch: int, coordinator_epoch: int, is_settled: bool, is_behind: bool
) -> None:
    known = TransactionalId("till", PID, 7, COMPLETE_COMMIT, 60_000, 0, 0, ())
    view = CoordinatorView(by_producer=by_producer([known]), is_settled=is_settled, coordinator_epochs={0: 2})
    found = [*ids_behind("fares-0", PLACE, [_entry(epoch, coordinator_epoch)], view)]
    assert [each.id for each in found] == ["transactional-id-behind"] * is_behind


def test_tombstone_line_has_the_key_of_the_transactional_id() -> None:
    (line,) = tombstone_lines(["till-ü"])
    made = json.loads(line)
    key = decode_key(TRANSACTION_STATE, base64.b64decode(made["key"]))
    assert (key.values["transactionalId"], made["value"]) == ("till-ü", None)
