"""`retain` compared with UnifiedLog.deleteOldSegments: random directories, several rounds with an advancing clock.

`KSEG_RETENTIONS` is the number of directories (default 100), half of them with odd logs, `KSEG_RETENTIONS_SEED` the first seed.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kseg.compaction.retention.run import RetainRun
from kseg.jobs.events import Failure, Row
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment.findings import Finding
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.targets import Expansion, PartitionTarget, resolve_targets
from kseg.segment.partition.topic_settings import REMOTE_STORAGE, Setting, Source, TopicSettings
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint, offsets_by_partition
from tests.kafka.oracle import Oracle
from tests.kafka.random_logs import RandomLog
from tests.kafka.retentions import OddCalmLog, Retention, kafka_steps, random_retention
from tests.support.one_target import retain
from tests.support.trees import files_in, unchanged

pytestmark = pytest.mark.kafka
COUNT = int(os.environ.get("KSEG_RETENTIONS", "100"))
FIRST_SEED = int(os.environ.get("KSEG_RETENTIONS_SEED", "1"))
HALF = (COUNT + 1) // 2
CHUNK = 20


def by_kafka(oracle: Oracle, case: Retention) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """(the state after each round, the files at the end) of the real log."""
    answer = oracle.partition(
        case.partition,
        kafka_steps(case),
        clean=case.recovery_point is None,
        recovery_point=case.recovery_point or 0,
        now=case.rounds[0].now_ms,
        log_start_offset=case.log_start_offset,
        high_watermark=case.high_watermark,
        config=case.config(),
        tiered=case.limits.is_tiered,
    )
    assert not [line for line in answer.found if "exception" in line], answer.found
    files = files_in(answer.directory)
    shutil.rmtree(answer.directory.parent)
    return [line for line in answer.found if "segments" in line], files


def by_kseg(case: Retention, number: int, apply: bool) -> dict[str, Any]:
    """The result row of one round, with its checkpoints written."""
    options = replace(case.rounds[number], apply=apply, run_id=f"round-{number}" if apply else "")
    target = PartitionTarget(str(case.partition), str(case.log_dir))
    run = RetainRun(options)
    with run.held([target]):
        events = list(run.through(retain(target, options)))
    failures = [event.sentence for event in events if isinstance(event, Failure)]
    assert not failures, failures
    rows = [dict(event.values) for event in events if isinstance(event, Row)]
    return next(row for row in rows if row["type"] == "result" and "partition" in row)


def noted_start(case: Retention) -> int | None:
    data = (case.log_dir / NAME_BY_ROLE[Role.LOG_START_OFFSETS]).read_bytes()
    offsets = offsets_by_partition(decode_offset_checkpoint(data))
    assert offsets["other", 3] == 77
    return offsets.get(("metro", 0))


def lost_by(case: Retention) -> list[Finding]:
    """The findings of `verify` about lost segments in a log whose first segments were deleted. The files are those that Kafka leaves."""
    topic = TopicSettings({REMOTE_STORAGE: Setting(str(case.limits.is_tiered).lower(), Source.TOPIC)})
    (target,) = resolve_targets([str(case.partition)], expand=Expansion.VERIFY)
    options = VerifyOptions(now_ms=0, topics={str(case.partition): topic})
    return [
        event
        for event in verify(target, options)
        if isinstance(event, Finding) and event.id in ("segment-missing", "log-start-gap")
    ]


def differences(oracle: Oracle, case: Retention) -> list[str]:
    """One line for each way in which our result differs from Kafka's."""
    states, files = by_kafka(oracle, case)
    lines = []
    rolled = set[int]()
    left = sorted(int(path.stem) for path in case.partition.glob("*.log"))
    for number, state in enumerate(states):
        with unchanged(case.log_dir):
            planned = by_kseg(case, number, apply=False)
        ours = by_kseg(case, number, apply=True)
        if ours["deleted"] != planned["deleted"]:
            lines.append(f"round {number}: planned {planned['deleted']}, did {ours['deleted']}")
        bases = [segment["base_offset"] for segment in state["segments"]]
        # a broker rolls an active segment that exceeds a limit, so that it can be copied; kseg leaves that to the broker
        if case.limits.is_tiered and len(bases) > 1 and bases[-1] == state["log_end_offset"] not in left:
            rolled.update(bases[-2:] if ours["segments"] else bases[-1:])
            bases = bases[:-1]
        gone = [base for base in left if base not in bases]
        left = bases
        first = bases[0]
        start = state["log_start_offset"]
        # in a later round that segment is closed: the broker deletes it because of the log start if all of it is below that
        if rolled.intersection(gone) and not ours["deleted"] and start == state["log_end_offset"]:
            return lines
        expected = {
            "deleted": gone,
            "log_start_offset": start,
            "log_end_offset": state["log_end_offset"],
            "high_watermark": state["high_watermark"],
            "first_base_offset": first,
            "segments": len(bases),
        }
        lines += [
            f"round {number}: {name} {value} by kafka, {ours[name]} by ours"
            for name, value in expected.items()
            if ours[name] != value
        ]
        if noted_start(case) != (start if case.limits.is_tiered or start > first else None):
            lines.append(
                f"round {number}: {noted_start(case)} is noted, the log starts at {start} in {first}"
            )
    lines += [f"{found.id}: {found.message}" for found in lost_by(case)]
    if case.recovery_point is not None:
        # the recovery determines what is left of the side files
        return lines
    made = files_in(case.partition)
    compared = {
        name for name in {*files, *made} if not name[:20].isdigit() or int(name.split(".")[0]) not in rolled
    }
    if case.has_lies:
        compared = {name for name in compared if ".timeindex" not in name}
    # each load alternately creates and removes snapshots at or below the log start
    compared -= {
        name for name in compared if ".snapshot" in name and int(name.split(".")[0]) <= case.log_start_offset
    }
    # a broker creates the offset index of a new segment on first use, and recovers the segment if there is none
    compared -= {name for name in made.keys() - files.keys() if name.endswith(".index") and not made[name]}
    lines += [
        f"{name}: {_shown(files.get(name))} by kafka, {_shown(made.get(name))} by ours"
        for name in sorted(compared)
        if files.get(name) != made.get(name)
    ]
    return lines


def _shown(data: bytes | None) -> str:
    return "absent" if data is None else f"{len(data)} bytes {data[:60].hex()}"


@pytest.mark.evidence("high-watermark", "record-times", "segment-sizes")
@pytest.mark.behaviour("T10")
@pytest.mark.behaviour("T13")
@pytest.mark.behaviour("T19")
@pytest.mark.behaviour("T20")
@pytest.mark.behaviour("T21")
@pytest.mark.parametrize("kind", [None, OddCalmLog])
@pytest.mark.parametrize("chunk", range((HALF + CHUNK - 1) // CHUNK))
def test_retention_of_random_directories_equals_unified_log(
    oracle: Oracle, tmp_path: Path, kind: type[RandomLog] | None, chunk: int
) -> None:
    failures = []
    for seed in range(FIRST_SEED + chunk * CHUNK, FIRST_SEED + min(HALF, (chunk + 1) * CHUNK)):
        place = tmp_path / str(seed)
        place.mkdir()
        case = random_retention(seed, place, oracle, kind)
        lines = differences(oracle, case)
        if lines:
            reported = (
                f"seed {seed} ({case.rounds}, lies: {case.has_lies}, starts at {case.log_start_offset})"
            )
            failures.append("\n    ".join([reported, *lines]))
        shutil.rmtree(place)
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("kind", [None, OddCalmLog])
@pytest.mark.parametrize("seed", [4100105, 5100007, 5100462])
def test_rolled_segment_below_the_log_start_is_deleted_by_age(
    oracle: Oracle, tmp_path: Path, seed: int, kind: type[RandomLog] | None
) -> None:
    """With tiered storage; all records of the log had been deleted, and both limits were exceeded, or one of them in a later round."""
    assert differences(oracle, random_retention(seed, tmp_path, oracle, kind)) == []
