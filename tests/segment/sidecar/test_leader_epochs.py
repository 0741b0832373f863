"""The history of leader epochs: rows of the acceptance list, which quote Kafka's own LeaderEpochFileCacheTest."""

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.errors import FormatError
from kseg.segment.model import Batch
from kseg.segment.sidecar.leader_epochs import EpochHistory, truncation_offset

Entries = list[tuple[int, int]]

BATCH = Batch(
    position=0,
    size_bytes=81,
    magic=2,
    base_offset=0,
    last_offset=0,
    count=1,
    attributes=0,
    leader_epoch=0,
    crc=0,
    base_timestamp_ms=0,
    max_timestamp_ms=0,
    producer_id=-1,
    producer_epoch=-1,
    base_sequence=-1,
    crc_valid=True,
)


def batch(leader_epoch: int, base_offset: int, magic: int = 2) -> Batch:
    return replace(BATCH, leader_epoch=leader_epoch, base_offset=base_offset, magic=magic)


def recovered(batches: Iterable[Batch]) -> EpochHistory:
    history = EpochHistory()
    for each in batches:
        history.recover_batch(each)
    return history


@pytest.mark.behaviour("R37", "R38")
def test_recovery_records_the_first_offset_of_each_epoch() -> None:
    history = recovered(
        batch(epoch, offset) for epoch, offset in [(0, 104), (0, 105), (1, 106), (1, 108), (2, 110)]
    )
    assert history.entries == ((0, 104), (1, 106), (2, 110))


@pytest.mark.behaviour("R37")
def test_recovery_ignores_old_formats_unknown_and_lower_epochs() -> None:
    history = recovered(
        [batch(-1, 0), batch(5, 1, magic=1), batch(4, 2), batch(3, 3), batch(4, 4), batch(-1, 5)]
    )
    assert history.entries == ((4, 2),)


def test_append_of_an_old_format_clears_the_epoch_history() -> None:
    history = EpochHistory([(1, 5)])
    assert history.append_batch(batch(0, 9, magic=1))
    assert history.latest is None
    assert not history.append_batch(batch(0, 10, magic=0))
    assert history.append_batch(batch(3, 11))
    # a lower epoch replaces the entries after it
    assert history.append_batch(batch(2, 12))
    assert history.entries == ((2, 12),)


@pytest.mark.behaviour("R39")
@pytest.mark.parametrize(
    ("end", "left"), [(8, [(2, 6)]), (9, [(2, 6), (3, 8)]), (11, [(2, 6), (3, 8)]), (6, [])]
)
def test_truncation_from_the_end_removes_later_epochs(end: int, left: Entries) -> None:
    history = EpochHistory([(2, 6), (3, 8), (4, 11)])
    assert history.truncate_from_end(end)
    assert history.entries == tuple(left)


@pytest.mark.behaviour("R39")
@pytest.mark.parametrize("end", [-1, 12, 2**63 - 1])
def test_truncation_after_the_last_epoch_start_changes_nothing(end: int) -> None:
    history = EpochHistory([(2, 6), (3, 8), (4, 11)])
    assert not history.truncate_from_end(end)
    assert history.entries == ((2, 6), (3, 8), (4, 11))


@pytest.mark.behaviour("R40")
@pytest.mark.parametrize(
    ("assigned", "history"),
    [
        ([(2, 6), (2, 7)], [(2, 6)]),
        ([(2, 9), (3, 9)], [(3, 9)]),
        ([(2, 6), (3, 5)], [(3, 5)]),
        ([(1, 5), (2, 6), (1, 7)], [(1, 7)]),
        ([(1, 5), (1, 4)], [(1, 4)]),
        ([(0, 0), (1, 5), (2, 10), (5, 5)], [(0, 0), (5, 5)]),
    ],
)
def test_assigned_epoch_replaces_conflicting_entries(assigned: Entries, history: Entries) -> None:
    assert EpochHistory(assigned).entries == tuple(history)


@pytest.mark.behaviour("R41")
def test_epoch_history_round_trips() -> None:
    history = EpochHistory([(2, 6), (3, 8), (4, 11)])
    history.truncate_from_start(7)
    history.truncate_from_end(11)
    assert EpochHistory(history.entries).entries == history.entries == ((2, 7), (3, 8))


@pytest.mark.behaviour("R40")
@pytest.mark.parametrize("entry", [(-1, 5), (1, -1)])
def test_negative_epoch_entry_is_refused(entry: tuple[int, int]) -> None:
    with pytest.raises(FormatError):
        EpochHistory([entry])


@pytest.mark.behaviour("T15", "T16", "T17")
@pytest.mark.parametrize(
    ("entries", "start", "left"),
    [
        ([(0, 0), (1, 5), (2, 10)], 5, [(1, 5), (2, 10)]),
        ([(0, 0), (1, 7), (2, 10)], 5, [(0, 5), (1, 7), (2, 10)]),
        ([(2, 6), (3, 8), (4, 11)], 1, [(2, 6), (3, 8), (4, 11)]),
        ([(2, 6), (3, 8), (4, 11)], 6, [(2, 6), (3, 8), (4, 11)]),
        ([(2, 6), (3, 8), (4, 11)], 8, [(3, 8), (4, 11)]),
        ([(2, 6), (3, 8), (4, 11)], 9, [(3, 9), (4, 11)]),
        ([(2, 6), (3, 8), (4, 11)], 11, [(4, 11)]),
        ([(2, 6), (3, 8), (4, 11)], 15, [(4, 15)]),
        ([], 15, []),
    ],
)
def test_truncation_from_the_start_moves_the_first_epoch(entries: Entries, start: int, left: Entries) -> None:
    history = EpochHistory(entries)
    history.truncate_from_start(start)
    assert history.entries == tuple(left)


@pytest.mark.behaviour("L16", "L17", "L18", "L19")
@pytest.mark.parametrize(
    ("entries", "epoch", "answer"),
    [
        ([(2, 9)], 2, (2, 100)),
        ([(1, 11), (2, 13), (3, 15)], 2, (2, 15)),
        ([(0, 10), (2, 13), (4, 17)], 1, (0, 13)),
        ([(0, 10), (2, 13), (4, 17)], 2, (2, 17)),
        ([(0, 10), (2, 13), (4, 17)], 3, (2, 17)),
        ([(5, 11), (6, 12), (7, 13)], 4, (4, 11)),
        ([(2, 9)], 3, (-1, -1)),
        ([(2, 9)], -1, (-1, -1)),
        ([], 0, (-1, -1)),
    ],
)
def test_end_offset_of_an_epoch_equals_kafkas(entries: Entries, epoch: int, answer: tuple[int, int]) -> None:
    assert EpochHistory(entries).end_offset_for(epoch, log_end_offset=100) == answer


@pytest.mark.behaviour("L20")
@pytest.mark.parametrize(("offset", "epoch"), [(5, None), (10, 0), (20, 1), (25, 1), (30, 5), (50, 5)])
def test_epoch_of_an_offset_equals_kafkas(offset: int, epoch: int | None) -> None:
    assert EpochHistory([(0, 10), (1, 20), (5, 30)]).epoch_for_offset(offset) == epoch


@pytest.mark.behaviour("R40")
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 30)), max_size=20), st.integers(0, 30))
def test_epochs_and_starts_always_increase(assigned: Entries, cut: int) -> None:
    history = EpochHistory(assigned)
    for change in (history.truncate_from_start, history.truncate_from_end):
        entries = history.entries
        assert all(
            a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in itertools.pairwise(entries)
        )
        change(cut)
    assert all(entry.start_offset < cut for entry in history.entries)


@pytest.mark.parametrize(
    ("follower", "leader", "offset"),
    [
        # the leader has a later epoch, from an unclean election
        ([(1, 0)], [(1, 0), (2, 60)], 60),
        # both have written since, each with an epoch that the other lacks
        ([(1, 0), (3, 60)], [(1, 0), (2, 50), (5, 80)], 50),
        # the follower's end is earlier than that of the epoch on the leader
        ([(1, 0)], [(1, 0), (2, 120)], 100),
        # the leader's log begins after the follower's last epoch
        ([(1, 0)], [(4, 30)], 30),
        # unknown on the leader, or without epochs
        ([(7, 0)], [(1, 0)], None),
        ([], [(1, 0)], None),
        ([(1, 0)], [], None),
    ],
)
def test_follower_truncates_where_its_epochs_and_the_leaders_diverge(
    follower: Entries, leader: Entries, offset: int | None
) -> None:
    """Worked out by hand from Kafka's getOffsetTruncationState."""
    assert truncation_offset(EpochHistory(follower), 100, EpochHistory(leader), 150) == offset
