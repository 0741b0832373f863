"""Groups loaded from chunks, where the kernel handles ordinary commits, equal groups loaded record by record."""

from __future__ import annotations

from array import array
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kseg.internal_topics.coordinator_log import read_coordinator_chunks, read_coordinator_log
from kseg.internal_topics.decoding import decode_value
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS, is_commit_well_formed, parse_commit
from kseg.internal_topics.groups.group_replay import LoadedGroups, load_groups
from kseg.internal_topics.groups.group_rows import TopicNames, offset_line, offset_row
from kseg.internal_topics.groups.partition_ends import LogEnds, PartitionEnds
from kseg.segment.java import uuids
from kseg.segment.json_line import json_line
from kseg.segment.kernel import state_fields as S
from kseg.segment.partition.targets import PartitionTarget
from tests.internal_topics.coordinator_logs import T0, batch, key, marker, value, write_segment
from tests.support.kernel_variants import both, outcome, read_rows, table_of

Pair = tuple[bytes | None, bytes | None]

GROUPS = st.sampled_from(["g", "other", "größe"])
PLAIN = st.just(-1)
OFFSETS = st.integers(-2, 2**40)
# created once: creating a strategy in each draw costs several times the draw itself
TYPES = st.sampled_from([0, 1, 1, 1])
VERSIONS = st.sampled_from([3, 3, 3, 0, 1, 2, 4])
METADATA = st.sampled_from(["", "m", 'ü"\n', "x" * 130])
TIMES = st.integers(T0, T0 + 9)
TOPIC_IDS = st.sampled_from([uuids.ZERO, "AAECAwQFBgcICQoLDA0ODw"])
EXPIRIES = st.sampled_from([-1, 5])
ABOUT = st.sampled_from([2, 2, 3, 99])
PRODUCERS = st.sampled_from([-1, -1, -1, 7, 8])
BOOLEANS = st.booleans()
UP_TO_1, UP_TO_11, UP_TO_20 = (st.integers(0, most) for most in (1, 11, 20))


@st.composite
def commits(draw: st.DrawFn) -> Pair:
    type_id = draw(TYPES)
    version = draw(VERSIONS) if type_id else 0
    made: bytes | None = value(
        CONSUMER_OFFSETS,
        type_id,
        version,
        offset=draw(OFFSETS),
        metadata=draw(METADATA),
        commitTimestamp=draw(TIMES),
        **({"topicId": draw(TOPIC_IDS)} if version == 4 else {}),
        **({"expireTimestamp": draw(EXPIRIES)} if version == 1 else {}),
    )
    name = key(CONSUMER_OFFSETS, type_id, group=draw(GROUPS), topic="t", partition=draw(UP_TO_1))
    match draw(UP_TO_11):
        case 0:
            made = None
        case 1 if made is not None:
            made = made[: draw(st.integers(0, len(made)))]
        case 2:
            name += b"more"
        case 3 if made is not None:
            made += b"more"
    return name, made


@st.composite
def about_groups(draw: st.DrawFn) -> Pair:
    name = draw(GROUPS)
    type_id = draw(ABOUT)
    if type_id == 99:
        return b"\0\x63", b"\0\0"
    group = {"group" if type_id == 2 else "groupId": name}
    if draw(BOOLEANS):
        return key(CONSUMER_OFFSETS, type_id, **group), None
    fields = {"protocolType": "consumer", "members": []} if type_id == 2 else {"epoch": 3}
    return key(CONSUMER_OFFSETS, type_id, **group), value(
        CONSUMER_OFFSETS, type_id, 3 if type_id == 2 else 0, **fields
    )


RECORDS = st.lists(st.one_of(commits(), commits(), commits(), about_groups()), min_size=1, max_size=6)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    made: list[bytes] = []
    offset = 0
    for number in count():
        if number >= 12 or (number and draw(UP_TO_11) == 0):
            return b"".join(made)
        at_ms = T0 + draw(UP_TO_20)
        producer_id = draw(PRODUCERS)
        if producer_id != -1 and draw(BOOLEANS):
            made.append(marker(offset, producer_id, 0, is_abort=draw(BOOLEANS), at_ms=at_ms))
            offset += 1
            continue
        records = draw(RECORDS)
        more: dict[str, Any] = {}
        if producer_id != -1:
            more = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": 0,
                "transactional": True,
            }
        made.append(batch(offset, *records, at_ms=at_ms, **more))
        offset += len(records)
    raise AssertionError


def _state_of(loaded: LoadedGroups) -> list[Any]:
    offsets = loaded.offsets
    return [
        offsets.offsets,
        offsets.deletions,
        offsets.pending,
        offsets.still_open,
        offsets.rewinds,
        offsets.rewind_counts,
        loaded.unknown,
        *_groups_of(loaded),
    ]


def _groups_of(loaded: LoadedGroups) -> list[Any]:
    return [
        {name: group.type for name, group in loaded.metadata.groups.items()},
        loaded.tombstones,
        loaded.unknown_types,
        loaded.failures,
        loaded.records,
    ]


@given(logs(), st.none() | st.integers(T0, T0 + 20), st.integers(0, 20), st.booleans())
def test_groups_loaded_from_chunks_equal_those_loaded_record_by_record(
    data: bytes, until_ms: int | None, cleaned_end: int, keeps_rewinds: bool
) -> None:
    with TemporaryDirectory() as root:
        write_segment(Path(root) / f"{CONSUMER_OFFSETS}-0", data)
        target = PartitionTarget(f"{root}/{CONSUMER_OFFSETS}-0")
        how: dict[str, Any] = {
            "until_ms": until_ms,
            "cleaned_end": cleaned_end,
            "keeps_rewinds": keeps_rewinds,
        }
        by_chunks = load_groups(read_coordinator_chunks(target), **how)
        by_records = load_groups(read_coordinator_log(target), **how)
        assert _state_of(by_chunks) == _state_of(by_records)
        names, ends = TopicNames({}, {}, {}), PartitionEnds({})
        ends._known["t", 0] = LogEnds(1, 10, 9)
        for each, record in by_chunks.offsets.offsets.items():
            assert offset_line(each, record, names, ends) == json_line(offset_row(each, record, names, ends))


@given(logs())
def test_loading_without_offsets_gives_the_same_groups_and_failures(data: bytes) -> None:
    with TemporaryDirectory() as root:
        write_segment(Path(root) / f"{CONSUMER_OFFSETS}-0", data)
        target = PartitionTarget(f"{root}/{CONSUMER_OFFSETS}-0")
        without = load_groups(read_coordinator_chunks(target), keeps_offsets=False)
        whole = load_groups(read_coordinator_log(target))
        assert _groups_of(without) == _groups_of(whole)
        assert not without.offsets.offsets


@given(commits())
def test_kernel_reads_commits_like_the_decoder(pair: Pair) -> None:
    name, made = pair
    assert name is not None
    if made is None or not is_commit_well_formed(name[1], made):
        return
    values = decode_value(CONSUMER_OFFSETS, name[1], made).values
    read = parse_commit(name[1], made)[0]
    assert (read.offset, read.metadata, read.commit_timestamp_ms) == (
        values["offset"],
        values["metadata"],
        values["commitTimestamp"],
    )
    assert read.leader_epoch == values.get("leaderEpoch", -1)
    assert read.expire_timestamp_ms == values.get("expireTimestamp", -1)
    assert (read.topic_id or uuids.ZERO) == (values.get("topicId") or uuids.ZERO)


@given(logs(), st.booleans(), st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=4))
def test_compiled_and_interpreted_kernel_agree(
    data: bytes, keeps: bool, changes: list[tuple[int, int]]
) -> None:
    changed = bytearray(data)
    for at, byte in changes:
        changed[at % len(changed)] = byte
    data = bytes(changed)
    table, rows = table_of(data)

    def run(kernel: dict[str, ModuleType], wrap: Any) -> Any:
        cells = array("q", bytes(8 * 12 * 64))
        state = read_rows(kernel, wrap, data, table, rows, cells)
        found = state[S.WALK_COUNT]
        keys = {
            data[start : start + length]: number % 3
            for number in range(found)
            if (length := cells[4 * 64 + number]) > 0 and (start := cells[3 * 64 + number]) >= 0
        }
        values, entries = [b""] * 3, array("q", bytes(8 * 4 * 5))
        raws, known = [b""] * 3, None if changes and changes[0][0] % 2 else {b"met": None}
        take, at, stopped = kernel["plain_commits"].take_commits, 0, []
        while at < found:
            at = take(
                wrap(data),
                wrap(cells),
                64,
                at,
                found,
                wrap(table),
                16,
                keys,
                raws,
                values,
                known,
                wrap(entries),
                T0,
                T0 + 15,
                keeps,
            )
            stopped.append(at)
            at += 1
        at, skip = 0, kernel["plain_commits"].skip_commits
        while at < found:
            at = skip(wrap(data), wrap(cells), 64, at, found, {b"g", b"other"})
            stopped.append(at)
            at += 1
        return stopped, raws, values, entries.tolist()

    both(lambda kernel, wrap: outcome(lambda: run(kernel, wrap)))
