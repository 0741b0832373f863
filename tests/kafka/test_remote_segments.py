"""After random records, kseg has the same segments in remote storage as the real store, and the same segment serves each offset."""

from __future__ import annotations

import base64
import json
import os
import random
from collections.abc import Sequence

import pytest

from kseg.internal_topics.remote_log.remote_copies import remote_copies
from kseg.internal_topics.remote_log.remote_segments import RemoteLogState, RemotePartition
from tests.internal_topics.metadata_logs import topic_id
from tests.internal_topics.remote_logs import delete_partition, update, upload
from tests.kafka.conftest import require_kafka
from tests.kafka.shared_java import run_java

pytestmark = pytest.mark.kafka

CASES = int(os.environ.get("KSEG_REMOTE_CASES", "300"))
SEED = int(os.environ.get("KSEG_REMOTE_SEED", "11"))
EPOCHS, END = (0, 1, 2), 60


def place_of(case: int) -> tuple[str, str, int]:
    """Each case has its own partition."""
    return "orders", topic_id(9), case


def random_records(draw: random.Random, number: int) -> list[bytes]:
    """In every other case each upload has an id of its own, as with a broker."""
    place, records = place_of(number), []
    known: list[str] = []
    for _ in range(draw.randint(1, 25)):
        kind = draw.random()
        if kind < 0.4 or not known:
            segment = topic_id(draw.randint(1, 12) if number % 2 else 1 + len(known))
            start = draw.randrange(END)
            end = min(END - 1, start + draw.randint(0, 25))
            first = draw.randint(0, 2)
            epochs = {first: start}
            if first < 2 and end > start and draw.random() < 0.4:
                epochs[first + 1] = draw.randint(start + 1, end)
            records.append(upload(place, segment, start, end, epochs))
            known.append(segment)
        elif kind < 0.98:
            state = draw.choices((1, 2, 3), (6, 2, 2))[0]
            records.append(update(place, draw.choice(known), state))
        else:
            records.append(delete_partition(place, draw.choices((0, 1, 2), (2, 2, 1))[0]))
    return records


def random_lineage(draw: random.Random) -> list[tuple[int, int]]:
    """Leader epochs of a log and the offsets at which they begin."""
    epochs = sorted(draw.sample(EPOCHS, draw.randint(1, len(EPOCHS))))
    return list(zip(epochs, sorted(draw.sample(range(END), len(epochs))), strict=True))


def _compare_copies(
    partition: RemotePartition, lineage: Sequence[tuple[int, int]], ids: Sequence[str] | None
) -> int:
    """Compare the segments that retention considers with the real ones, and return their number. ids: None where the real retention
    fails, at records that no broker writes."""
    if ids is None:
        return 0
    ours = [(each.start_offset, each.end_offset) for each in remote_copies(partition, lineage)]
    of_log = [partition.segments[each] for each in ids]
    # segments that overlap are not always in the same order
    assert sorted(ours) == sorted((each.start, each.end + 1) for each in of_log), (SEED, lineage)
    return len(ours)


@pytest.mark.behaviour("M09")
def test_remote_segments_of_random_records_equal_the_real_store() -> None:
    require_kafka()
    draw = random.Random(SEED)
    cases = [random_records(draw, number) for number in range(CASES)]
    lineages = [random_lineage(draw) for _ in cases]
    asked = "".join(
        json.dumps(
            {
                "records": [base64.b64encode(each).decode() for each in case],
                "epochs": EPOCHS,
                "end": END,
                "lineage": lineage,
            }
        )
        + "\n"
        for case, lineage in zip(cases, lineages, strict=True)
    )
    done = run_java("kseg.oracle.RemoteSegments", stdin=asked)
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == len(cases)
    readable = gone = copied = 0
    state = RemoteLogState()
    waiting = [iter(case) for case in cases]
    # the records of all partitions interleaved, those of one partition in order
    while waiting:
        at = draw.randrange(len(waiting))
        value = next(waiting[at], None)
        if value is None:
            waiting[at] = waiting[-1]
            waiting.pop()
        else:
            state.take(0, value)
    assert all("after the deletion" in reason for _, reason in state.problems)
    for number, truth in enumerate(answers):
        # neither has segments of a partition whose deletion starts again after it was complete
        partition = state.partitions.get(place_of(number)[1:], RemotePartition("orders"))
        gone += truth["gone"]
        assert not (truth["gone"] and partition.segments), (SEED, number)
        assert {each.id: each.state_name for each in partition.segments.values()} == truth["segments"], number
        for epoch in EPOCHS:
            # any segment with this epoch
            ours = {
                offset
                for first, last in partition.readable([(epoch, 0)])
                for offset in range(first, last + 1)
            }
            theirs = {offset for offset, segment in enumerate(truth["read"][str(epoch)]) if segment}
            assert ours == theirs, (SEED, number, epoch)
            readable += len(theirs)
        lineage = lineages[number]
        ours = {offset for first, last in partition.readable(lineage) for offset in range(first, last + 1)}
        ends = [begin for _, begin in lineage[1:]] + [END]
        assert ours == {
            offset
            for (epoch, begin), end in zip(lineage, ends, strict=True)
            for offset in range(begin, end)
            if truth["read"][str(epoch)][offset]
        }, (SEED, number, lineage)
        if not number % 2:
            copied += _compare_copies(partition, lineage, truth["copies"])
        read = {segment for found in truth["read"].values() for segment in found if segment}
        assert read <= {each for each in partition.segments if partition.is_read(each)}
    # the comparison was not empty
    assert readable > CASES and copied > CASES / 8 and gone and state.problems
