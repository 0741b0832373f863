"""A follower appends many batches at a time, so its side files may differ from those of the leader."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.change.append.partition_writer import RollRules
from kseg.cli.main import run
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.sidecar.txn_index import TxnIndex, encode_txn_index
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.kafka.appending import kafka_appends
from tests.kafka.oracle import Oracle
from tests.support.verify_helpers import judge

pytestmark = pytest.mark.kafka

T0 = 1_700_000_000_000


def transactions(rng: random.Random, count: int) -> Iterator[bytes]:
    """Batches of three producers, each of which begins a transaction, continues one, or is the marker that ends one."""
    opened: set[int] = set()
    sequences = dict.fromkeys((7, 8, 9), 0)
    for offset in range(count):
        producer_id = rng.choice([*sequences])
        if producer_id in opened and rng.random() < 0.5:
            opened.remove(producer_id)
            marker = EndTransactionMarker(rng.random() < 0.8, 0, T0 + offset)
            yield encode_batch(end_transaction_batch(marker, offset, producer_id, 0, 0))
            continue
        opened.add(producer_id)
        yield encode_batch(
            NewBatch(
                records=(Record(offset, T0 + offset, b"k", b"v"),),
                leader_epoch=0,
                transactional=True,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
            )
        )
        sequences[producer_id] += 1


@pytest.mark.evidence("transaction-index")
@pytest.mark.parametrize("seed", range(4))
def test_transaction_begun_in_the_append_that_ends_another_is_no_mismatch(
    tmp_path: Path, oracle: Oracle, seed: int
) -> None:
    """The last stable offset of an index entry may be the start of a transaction that began after the marker."""
    rng = random.Random(seed)
    batches = [*transactions(rng, 300)]
    appends, at = [], 0
    while at < len(batches):
        step = rng.choice([1, 4, 40])
        appends.append(b"".join(batches[at : at + step]))
        at += step
    directory = tmp_path / "fares-0"
    directory.mkdir()
    kafka_appends(oracle, directory, appends, RollRules())
    (index,) = directory.glob("*.txnindex")
    entries = [*TxnIndex(index.read_bytes(), 0)]
    ahead = [n for n, entry in enumerate(entries) if entry.last_stable_offset > entry.last_offset + 1]
    assert ahead
    assert judge(directory, now_ms=T0 + 1000).ids("error", "warning") == set()
    # status 0: nothing to repair
    assert run(["recover", str(directory)]) == 0
    # no other offset after the marker is accepted
    for number in ahead:
        wrong = entries[number]._replace(last_stable_offset=entries[number].last_stable_offset + 1)
        index.write_bytes(encode_txn_index([*entries[:number], wrong, *entries[number + 1 :]]))
        (found,) = judge(directory, now_ms=T0 + 1000).of("txn-index-wrong-entry")
        assert found.numbers["slot"] == number
