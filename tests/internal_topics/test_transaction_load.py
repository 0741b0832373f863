"""Records of `__transaction_state` that a coordinator cannot load: the quick check of their bytes never misses one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kseg.internal_topics.coordinator_log import CoordinatorRecord, read_coordinator_log
from kseg.internal_topics.transactions.load_check import check_transaction_log, is_ordinary
from kseg.internal_topics.transactions.transaction_log import PassedOver, Unloadable, loaded_record
from kseg.segment.partition.targets import PartitionTarget
from tests.internal_topics.coordinator_logs import batch, key, value, write_segment

STATE = "__transaction_state"
# its length is a varint of two bytes, which the quick check leaves to the decoder
LONG_TOPIC = b"t" * 200


@st.composite
def records(draw: st.DrawFn) -> tuple[bytes, bytes]:
    version = draw(st.integers(0, 1))
    partitions = draw(
        st.none()
        | st.lists(
            st.fixed_dictionaries(
                {
                    "topic": st.text(max_size=5) | st.just(LONG_TOPIC.decode()),
                    "partitionIds": st.lists(st.integers(-1, 2**31 - 1), max_size=4),
                }
            ),
            max_size=3,
        )
    )
    values: dict[str, Any] = {
        "producerId": draw(st.integers(-1, 2**62)),
        "transactionStatus": draw(st.integers(-1, 9)),
        "transactionPartitions": partitions,
    }
    if version == 1 and draw(st.booleans()):
        values |= {"previousProducerId": 3, "clientTransactionVersion": draw(st.integers(-1, 4))}
    made = value(STATE, 0, version, **values)
    name = key(STATE, 0, transactionalId=draw(st.text(max_size=5)))
    return name, made


@given(records(), st.data())
def test_record_that_passes_the_quick_check_is_loaded(
    record: tuple[bytes, bytes], data: st.DataObject
) -> None:
    name, made = (bytearray(part) for part in record)
    for part in (name, made):
        for _ in range(data.draw(st.integers(0, 2))):
            at = data.draw(st.integers(0, max(0, len(part) - 1)))
            if part and data.draw(st.booleans()):
                part[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
            else:
                del part[at:]
    if not is_ordinary(bytes(name), bytes(made)):
        return
    loaded_record(CoordinatorRecord(0, 0, bytes(name), bytes(made), -1, -1, False))


@given(records())
def test_record_of_a_coordinator_passes_the_quick_check(record: tuple[bytes, bytes]) -> None:
    try:
        _, known = loaded_record(CoordinatorRecord(0, 0, *record, -1, -1, False))
    except (Unloadable, PassedOver):
        assert not is_ordinary(*record)
        return
    assert known is not None
    if known.partitions and LONG_TOPIC not in record[1]:
        assert is_ordinary(*record)


def test_transaction_log_of_a_broker_passes_the_quick_check(capture_small: Path) -> None:
    log = PartitionTarget(str(capture_small / "data" / f"{STATE}-0"))
    found = [entry for entry in read_coordinator_log(log) if isinstance(entry, CoordinatorRecord)]
    ordinary = sum(is_ordinary(entry.key, entry.value) for entry in found)
    # the first record of a transactional id has no partitions
    assert ordinary >= len(found) - 2
    assert list(check_transaction_log(log)) == []


def test_unloadable_transaction_records_are_reported(tmp_path: Path) -> None:
    name = key(STATE, 0, transactionalId="till")
    log = tmp_path / f"{STATE}-0"
    write_segment(
        log,
        batch(
            0,
            (name, value(STATE, 0, 0, transactionStatus=9)),
            (None, b""),
            (name, None),
            (name, b"\0\2rest"),
            (name, value(STATE, 0, 1, transactionStatus=1, transactionPartitions=None)),
            (name, value(STATE, 0, 1, transactionStatus=1)[:-4]),
            (
                name,
                value(STATE, 0, 1, transactionStatus=1, transactionPartitions=[], clientTransactionVersion=3),
            ),
        ),
    )
    found = [(each.id, each.first_offset) for each in check_transaction_log(PartitionTarget(str(log)))]
    fails = "coordinator-load-fails"
    assert found == [
        (fails, 0),
        (fails, 1),
        ("coordinator-record-unknown", 3),
        (fails, 4),
        (fails, 5),
        (fails, 6),
    ]
