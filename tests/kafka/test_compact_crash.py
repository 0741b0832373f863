"""A compaction killed between any two of its steps, and the broker that opens the result.

The steps of a plan are applied one by one to a copy. After each step the real loader opens the directory, as after a crash. It must find
the old log or the new one. When it completes a swap in between, it may keep old segments beyond the end of the new one. So the last value
of each key, as a consumer sees it, and the log end are the same in every state.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.change.plan.content import Fresh, Made
from kseg.change.plan.steps import Plan, Remove, Rename, Step, Truncate, Write
from kseg.change.run.prepared import Prepared
from kseg.compaction.cleaner.compact import carry_out, prepare
from kseg.compaction.cleaner.options import CompactOptions
from kseg.compaction.cleaner.rows import CompactResult
from kseg.jobs.events import Event
from kseg.segment import layout as L
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.txn_index import AbortedTxn, TxnIndex
from tests.kafka.cleaning import config_of, random_case, records_of
from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

SEEDS = (1, 2, 3, 5, 10, 16, 18, 19)
STATES = 40


def planned(directory: Path, options: CompactOptions) -> Prepared[CompactResult]:
    half = prepare(PartitionTarget(str(directory)), options)
    events: list[Event] = []
    while True:
        try:
            events.append(next(half))
        except StopIteration as stop:
            assert isinstance(stop.value, Prepared), events
            return stop.value


def take(step: Step, directory: Path, found: Path) -> None:
    """Do one step with plain file operations. found: the original directory, which still exists."""
    match step:
        case Write():
            data = b""
            for piece in step.content:
                if isinstance(piece, Made):
                    data += os.pread(piece.descriptor, piece.length, 0)
                else:
                    assert isinstance(piece, Fresh)
                    data += piece.data
            (directory / step.name).write_bytes(data)
            if step.like is not None:
                mtime = (found / step.like).stat().st_mtime_ns
                os.utime(directory / step.name, ns=(mtime, mtime))
        case Rename():
            (directory / step.name).rename(directory / step.new_name)
        case Remove():
            (directory / step.name).unlink()
        case Truncate():
            raise AssertionError("a compaction cuts nothing")


def states(plan: Plan, found: Path, work: Path) -> Iterator[tuple[int, Path]]:
    """The directory after each step, as a copy."""
    now = work / "now"
    shutil.copytree(found, now, ignore=shutil.ignore_patterns(".kseg"))
    for number, step in enumerate(plan.steps):
        take(step, now, found)
        copy = work / f"state-{number}" / found.name
        shutil.copytree(now, copy)
        yield number, copy
        shutil.rmtree(copy.parent)


def logs(directory: Path) -> list[bytes]:
    """The bytes of the live logs, in order."""
    names = sorted(path.name for path in directory.iterdir())
    live = [name for name in names if (p := parse_file_name(name)).role is Role.LOG and p.is_live]
    return [(directory / name).read_bytes() for name in live]


def table(directory: Path) -> dict[bytes, tuple[int, bytes]]:
    """The table that a consumer of committed data has at the end: offset and value by key."""
    found: dict[bytes, tuple[int, bytes]] = {}
    last = -1
    aborted = [
        entry
        for path in directory.glob("*.txnindex")
        for entry in TxnIndex(path.read_bytes(), int(path.name[:20]))
    ]
    for data in logs(directory):
        for fields, records in records_of(data):
            assert fields[1] > last, "offsets do not rise"
            last = fields[2]
            if fields[4] & L.CONTROL_BIT or is_aborted(fields, aborted):
                continue
            for record in records:
                if record.key is None:
                    continue
                if record.value is None:
                    found.pop(record.key, None)
                else:
                    found[record.key] = (record.offset, record.value)
    return found


def is_aborted(fields: tuple[int, ...], aborted: list[AbortedTxn]) -> bool:
    base, attributes, producer = fields[1], fields[4], fields[8]
    return bool(attributes & L.TRANSACTIONAL_BIT) and any(
        entry.producer_id == producer and entry.first_offset <= base <= entry.last_offset for entry in aborted
    )


@pytest.mark.behaviour("C18")
@pytest.mark.parametrize("seed", SEEDS)
def test_broker_finds_the_old_or_the_new_log_after_a_killed_compaction(
    seed: int, tmp_path: Path, oracle: Oracle
) -> None:
    case = random_case(seed, tmp_path)
    options = CompactOptions(settings=case.settings, apply=True, run_id="a-run")
    prepared = planned(case.directory, options)
    plan = prepared.plan
    if plan.is_empty:
        pytest.skip("nothing goes in this case")
    old_logs = logs(case.directory)
    seen: list[tuple[int, list[bytes], dict[bytes, tuple[int, bytes]], int]] = []
    every = max(1, len(plan.steps) // STATES)
    for number, state in states(plan, case.directory, tmp_path / "work"):
        if number % every and number + 1 < len(plan.steps):
            continue
        answer = oracle.partition(
            state,
            clean=bool(number % 2),
            in_place=True,
            now=case.settings.now_ms,
            config=config_of(case.settings),
        )
        seen.append((number, logs(state), table(state), answer.loaded["log_end_offset"]))
    list(carry_out(prepared, options))
    new_logs, new_table = logs(case.directory), table(case.directory)
    end = seen[-1][3]
    for number, contents, last_values, log_end in seen:
        assert log_end == end, plan.steps[number]
        if contents != new_logs and contents != old_logs:
            assert set(contents) <= {*old_logs, *new_logs}, plan.steps[number]
        assert last_values == new_table, plan.steps[number]
    assert seen[-1][1] == new_logs
