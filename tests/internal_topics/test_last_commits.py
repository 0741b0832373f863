"""Which committed transactions of a producer are remembered, of more than can be."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest

from kseg.internal_topics.coordinator_log import CoordinatorRecord
from kseg.internal_topics.transactions.last_commits import LastCommits
from kseg.internal_topics.transactions.transaction_log import TRANSACTION_STATE, partitions_in
from tests.internal_topics.coordinator_logs import T0, key, value

PREPARE_COMMIT = 2
# more than a varint of one byte can count
MANY = 200


def _commit(offset: int, partitions: Iterable[int]) -> CoordinatorRecord:
    content = value(
        TRANSACTION_STATE,
        0,
        1,
        producerId=7,
        producerEpoch=offset,
        transactionTimeoutMs=60_000,
        transactionStatus=PREPARE_COMMIT,
        transactionPartitions=[{"topic": "fares", "partitionIds": sorted(partitions)}],
        transactionLastUpdateTimestampMs=T0 + offset,
        transactionStartTimestampMs=T0 + offset,
        clientTransactionVersion=2,
    )
    name = key(TRANSACTION_STATE, 0, transactionalId="till")
    return CoordinatorRecord(offset, T0 + offset, name, content, -1, -1, False)


def _remembered(commits: Iterable[CoordinatorRecord]) -> dict[int, int]:
    """The offset of the last one of each partition."""
    return {number: record.offset for record in commits for _, number in partitions_in(record)}


def _random_sets(rng: random.Random, of: int) -> Sequence[Iterable[int]]:
    return [rng.sample(range(of), rng.randrange(1, 1 + of // 2)) for _ in range(400)]


@pytest.mark.parametrize("of", [3, 10, MANY])
def test_last_transaction_of_each_partition_is_remembered(of: int) -> None:
    last = LastCommits()
    added = []
    for offset, partitions in enumerate(_random_sets(random.Random(of), of)):
        added.append(_commit(offset, partitions))
        last.add(added[-1])
        assert _remembered(last) == _remembered(added)
    kept = [*last]
    assert kept == sorted(kept, key=lambda each: each.offset) and kept[-4:] == added[-4:]
    assert len(kept) <= 4 + max(64, 2 * of)


def test_one_transaction_of_the_same_partitions_is_remembered_beside_the_last_ones() -> None:
    last = LastCommits()
    for offset in range(30):
        last.add(_commit(offset, [offset // 20]))
    assert [each.offset for each in last] == [19, 25, 26, 27, 28, 29]
