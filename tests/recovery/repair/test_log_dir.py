"""The data directory's own files before and after a repair: checkpoints, leftovers, marker, topic ids (fact sheet §1.3 to §1.5)."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from kseg.change.plan.content import Fresh
from kseg.change.plan.directory_image import DirectoryImage, steps_between
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan, Remove, Write
from kseg.recovery.policy import Policy, Repair
from kseg.recovery.repair.aligned_checkpoints import PartitionOutcome
from kseg.recovery.repair.clean_shutdown_marker import Marker, has_marker, marker_of
from kseg.recovery.repair.log_dir import closing_plan, doubts_about, opening_plan
from kseg.recovery.repair.topic_id_repair import (
    partition_metadata_step,
    refuse_foreign_topic_id,
    with_topic_id,
)
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment.errors import Refused, UsageError
from kseg.segment.findings import Finding
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import Role, parse_partition_directory
from kseg.segment.partition.targets import PartitionTarget

RECOVERY = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
MARKER = ".kafka_cleanshutdown"
TOPIC_ID = "v4WPZw1oQbyGYKrhXu5zKQ"
OTHER_ID = "0Uw4nQ2tT9CKn0Ih3aBhFA"


def a_log_dir(place: Path, *partitions: str, **checkpoints: str) -> Path:
    for partition in partitions:
        (place / partition).mkdir(parents=True)
    names = {"rp": RECOVERY, "start": LOG_START, "hw": HIGH_WATERMARK, "dirty": CLEANER}
    for key, lines in checkpoints.items():
        (place / names[key]).write_text(checkpoint(*lines.split(";")))
    return place


def checkpoint(*lines: str) -> str:
    """A checkpoint as Kafka writes it (CheckpointFile.write)."""
    found = [line for line in lines if line]
    return "".join(f"{line}\n" for line in ("0", str(len(found)), *found))


def outcome(name: str, start: int, end: int, **more: object) -> PartitionOutcome:
    values: dict[str, object] = {"first_base_offset": 0, "recovery_point": end} | more
    parsed = parse_partition_directory(name)
    return PartitionOutcome(name=parsed, log_start_offset=start, log_end_offset=end, **values)  # type: ignore[arg-type]


def written(plan: Plan) -> dict[str, str]:
    texts = {}
    for step in plan.steps:
        if isinstance(step, Write):
            assert all(isinstance(piece, Fresh) for piece in step.content)
            texts[step.name] = b"".join(p.data for p in step.content if isinstance(p, Fresh)).decode()
    return texts


def closing(
    place: Path, *outcomes: PartitionOutcome, policy: Policy = Policy.SALVAGE, **more: object
) -> Plan:
    return closing_plan(str(place), outcomes, policy, **more)  # type: ignore[arg-type]


# --- checkpoints


def test_consistent_log_dir_plans_nothing(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", "b.c-1", rp="a 0 7;b.c 1 0", hw="a 0 9;b.c 1 3", dirty="a 0 9")
    for policy in Policy:
        logs = (outcome("a-0", 0, 10, recovery_point=7), outcome("b.c-1", 0, 3, recovery_point=0))
        plan = closing(place, *logs, policy=policy)
        assert plan.is_empty and not plan.reasons
        assert {file.name for file in plan.inputs} == {RECOVERY, HIGH_WATERMARK, CLEANER}


def test_checkpoint_entries_beyond_the_log_end_are_lowered(tmp_path: Path) -> None:
    lines = "a 0 50;b 0 5"
    place = a_log_dir(tmp_path, "a-0", "b-0", rp=lines, hw=lines, dirty=lines, start="a 0 40")
    plan = closing(place, outcome("a-0", 0, 10, recovery_point=10))
    assert written(plan) == {
        RECOVERY: checkpoint("a 0 10", "b 0 5"),
        HIGH_WATERMARK: checkpoint("a 0 10", "b 0 5"),
        # the cleaner starts at the log start again (LogCleanerManager.cleanableOffsets)
        CLEANER: checkpoint("a 0 0", "b 0 5"),
        LOG_START: checkpoint(),
    }
    assert [f.id for f in plan.reasons] == ["checkpoint-beyond-log"] * 2 + [
        "log-start-beyond-end",
        "dirty-offset-reset",
    ]
    assert all(isinstance(step, Write) and step.like == step.name for step in plan.steps)
    reason = next(step.why for step in plan.steps if isinstance(step, Write) and step.name == RECOVERY)
    assert "a-0 50 → 10" in reason


@pytest.mark.evidence("recovery-point")
def test_salvage_never_raises_a_recovery_point(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", "b-0", rp="a 0 4")
    logs = (outcome("a-0", 0, 10), outcome("b-0", 0, 10))
    assert closing(place, *logs).is_empty
    assert written(closing(place, *logs, policy=Policy.KAFKA))[RECOVERY] == checkpoint("a 0 10", "b 0 10")


def test_checkpoint_entries_below_the_log_are_raised_only_with_other_changes(tmp_path: Path) -> None:
    """Such entries alone are no reason to write the file, because a broker that is killed after retention leaves them."""
    below = "a 0 3;b 0 50"
    place = a_log_dir(tmp_path, "a-0", rp="a 0 3", hw="a 0 3", dirty="a 0 3")
    log = outcome("a-0", 25, 30, first_base_offset=20)
    assert written(closing(place, log)) == {LOG_START: checkpoint("a 0 25")}
    place = a_log_dir(tmp_path / "more", "a-0", "b-0", rp=below, hw=below, dirty=below)
    plan = closing(place, log, outcome("b-0", 0, 40))
    assert written(plan) == {
        RECOVERY: checkpoint("a 0 20", "b 0 40"),
        HIGH_WATERMARK: checkpoint("a 0 25", "b 0 40"),
        CLEANER: checkpoint("a 0 25", "b 0 0"),
        LOG_START: checkpoint("a 0 25"),
    }


def test_log_start_at_or_below_the_first_segment_is_kept_for_tiered_storage(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", start="a 0 12")
    assert closing(place, outcome("a-0", 20, 30, first_base_offset=20)).is_empty


def test_checkpoint_entry_0_equals_no_entry(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", rp="a 0 0", hw="a 0 0", dirty="a 0 0")
    log = outcome("a-0", 20, 30, first_base_offset=20, recovery_point=0)
    for policy in Policy:
        assert closing(place, log, policy=policy).is_empty


@pytest.mark.evidence("checkpoint-unreadable")
def test_unreadable_checkpoint_is_rebuilt_from_the_logs(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0")
    for name in (RECOVERY, LOG_START, HIGH_WATERMARK):
        (place / name).write_text("0\n5\na 0 7\n")
    plan = closing(place, outcome("a-0", 5, 9, recovery_point=0))
    assert written(plan) == {
        RECOVERY: checkpoint(),
        LOG_START: checkpoint("a 0 5"),
        HIGH_WATERMARK: checkpoint(),
    }
    assert [f.id for f in plan.reasons] == ["checkpoint-corrupt"] * 3


@pytest.mark.evidence("checkpoint-orphan")
def test_checkpoint_entries_without_a_log_are_removed_only_with_other_changes(tmp_path: Path) -> None:
    place = a_log_dir(
        tmp_path, "a-0", "c-0.0123456789abcdef0123456789abcdef-delete", rp="gone 0 5;a 0 9;c 0 1"
    )
    assert closing(place, outcome("a-0", 0, 9)).is_empty
    assert written(closing(place, outcome("a-0", 0, 8)))[RECOVERY] == checkpoint("a 0 8")


def test_stray_and_metadata_logs_have_no_checkpoint_entries(tmp_path: Path) -> None:
    stray = "s-0.0123456789abcdef0123456789abcdef-stray"
    place = a_log_dir(tmp_path, "__cluster_metadata-0", stray, "a-0", rp="a 0 9")
    logs = (outcome("__cluster_metadata-0", 0, 99), outcome(stray, 0, 5), outcome("a-0", 0, 9))
    plan = closing(place, *logs, policy=Policy.KAFKA, mark_clean=True)
    assert written(plan) == {MARKER: ""}


@pytest.mark.evidence("tmp-file")
def test_leftover_temporary_files_are_removed(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", rp="a 0 9")
    for name in (f"{RECOVERY}.tmp", "meta.properties.tmp", "notes.tmp"):
        (place / name).write_text("half")
    plan = closing(place, outcome("a-0", 0, 9))
    assert [step.name for step in plan.steps] == ["meta.properties.tmp", f"{RECOVERY}.tmp"]
    assert all(isinstance(step, Remove) for step in plan.steps)
    assert [f.id for f in plan.reasons] == ["leftover-tmp"] * 2


def test_replaced_checkpoint_is_read_again(tmp_path: Path) -> None:
    """Files that a plan writes keep their old modification times, so a cached checkpoint must not be taken for the new one."""
    place = a_log_dir(tmp_path, "a-0", rp="a 0 50")
    assert read_log_dir_state(str(place)).offset(Role.RECOVERY_POINTS, "a", 0) == 50
    path = place / RECOVERY
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    new = place / "new"
    new.write_text(checkpoint("a 0 10"))
    new.replace(path)
    os.utime(path, ns=times)
    assert read_log_dir_state(str(place)).offset(Role.RECOVERY_POINTS, "a", 0) == 10


# --- the marker


def test_mark_clean_is_the_last_step_and_sets_recovery_points_to_the_log_end(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", "b-0", rp="a 0 4")
    logs = (outcome("a-0", 0, 10, recovery_point=4), outcome("b-0", 0, 7, recovery_point=0))
    plan = closing(place, *logs, mark_clean=True)
    assert [step.name for step in plan.steps] == [RECOVERY, MARKER]
    # without a broker epoch: whatever other data directories contain, the broker registers as after an unclean stop
    assert written(plan) == {RECOVERY: checkpoint("a 0 10", "b 0 7"), MARKER: ""}


def test_mark_clean_writes_high_watermarks_a_killed_broker_had_not_written(tmp_path: Path) -> None:
    """The high watermark checkpoint is created empty at a start and written five seconds later. A clean stop never leaves it empty."""
    place = a_log_dir(tmp_path, "a-0", start="", rp="a 0 4")
    (place / HIGH_WATERMARK).write_bytes(b"")
    log = outcome("a-0", 0, 10)
    assert HIGH_WATERMARK not in written(closing(place, log))
    plan = closing(place, log, mark_clean=True)
    assert written(plan) == {RECOVERY: checkpoint("a 0 10"), HIGH_WATERMARK: checkpoint(), MARKER: ""}
    assert not plan.reasons  # nothing was lost
    for name, content in written(plan).items():
        (place / name).write_text(content)
    assert closing(place, log, mark_clean=True, marker=Marker(str(place / MARKER))).is_empty


def test_mark_clean_is_refused_with_the_list_of_damaged_partitions(tmp_path: Path) -> None:
    gone = "x-0.0123456789abcdef0123456789abcdef-delete"
    place = a_log_dir(tmp_path, "a-0", "b-0", "c-0", gone, rp="a 0 4")
    logs = (outcome("a-0", 0, 10), outcome("b-0", 0, 7, doubt="has damage at 3"))
    with pytest.raises(Refused) as refused:
        closing(place, *logs, mark_clean=True)
    assert refused.value.exit_status == 4
    assert "b-0 has damage at 3" in str(refused.value) and "c-0 was not checked" in str(refused.value)
    assert "a-0" not in str(refused.value) and gone not in str(refused.value)


@pytest.mark.evidence("false-marker")
def test_clean_marker_is_removed_before_partitions_change(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0")
    assert opening_plan(str(place), ["a-0 is cut"]).is_empty
    (place / MARKER).write_text('{"version":0,"brokerEpoch":17}')
    assert opening_plan(str(place), []).is_empty
    plan = opening_plan(str(place), ["a-0 is cut", "b-0 is cut"])
    assert [step.name for step in plan.steps] == [MARKER] and isinstance(plan.steps[0], Remove)
    assert "a-0 is cut; b-0 is cut" in plan.steps[0].why
    assert [finding.id for finding in plan.reasons] == ["false-clean-shutdown"]


@pytest.mark.evidence("false-marker")
def test_clean_marker_is_restored_only_if_it_is_still_true(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", rp="a 0 10")
    output = '{"version":0,"brokerEpoch":17}'
    (place / MARKER).write_text(output)
    marker = marker_of(str(place))
    assert marker is not None and marker.content == output.encode() and has_marker(str(place))
    # the marker still exists, and stays as it is
    for changed in (False, True):
        assert closing(place, outcome("a-0", 0, 10, changed=changed), marker=marker).is_empty
    plan = closing(place, outcome("a-0", 0, 10, changed=True, doubt="has damage at 3"), marker=marker)
    assert [step.name for step in plan.steps if isinstance(step, Remove)] == [MARKER]
    assert written(closing(place, outcome("a-0", 0, 10, changed=True, loses_bytes=True), marker=marker)) == {
        MARKER: ""
    }
    # what is wrong with a partition that stays as it is was so behind the marker as well
    harmful = outcome("a-0", 0, 10, doubt="contains a harmful batch")
    assert MARKER not in [
        step.name for step in closing(place, harmful, outcome("b-0", 0, 5, changed=True), marker=marker).steps
    ]
    (place / MARKER).rename(place / "kept")
    assert not has_marker(str(place)) and marker_of(str(place)) is None
    marker = Marker(str(place / "kept"))
    unsound = outcome("a-0", 0, 10, doubt="cannot be loaded", is_known=False)
    assert closing(place, unsound, marker=marker).is_empty
    assert written(closing(place, outcome("a-0", 0, 10), marker=Marker(marker.path, ("a-0",)))) == {
        MARKER: ""
    }
    repaired = closing(place, outcome("a-0", 0, 8, changed=True), marker=marker)
    assert written(repaired) == {RECOVERY: checkpoint("a 0 8"), MARKER: output}
    # there was no marker
    assert closing(place, outcome("a-0", 0, 10)).is_empty


def test_mark_clean_keeps_the_epoch_unless_something_was_lost(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", rp="a 0 10")
    (place / "kept").write_text('{"version":0,"brokerEpoch":17}')
    marker = Marker(str(place / "kept"))
    for loses, content in ((False, '{"version":0,"brokerEpoch":17}'), (True, "")):
        log = outcome("a-0", 0, 10, changed=True, loses_bytes=loses)
        assert written(closing(place, log, mark_clean=True, marker=marker)) == {MARKER: content}


def test_repair_outcome_can_be_pickled() -> None:
    found = outcome("a-0", 25, 40, first_base_offset=20)
    assert pickle.loads(pickle.dumps(found)) == found


def test_doubts_name_their_directories(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", "no partition", "b-12")
    assert doubts_about(str(place), [outcome("a-0", 0, 1)]) == ["b-12 was not checked"]


# --- topic ids


def metadata(topic_id: str) -> str:
    return f"version: 0\ntopic_id: {topic_id}"


def test_missing_topic_id_is_written() -> None:
    image = DirectoryImage({f"{0:020}.log": ()})
    why = partition_metadata_step(image, TOPIC_ID, None)
    assert why and image.content("partition.metadata") == (Fresh(metadata(TOPIC_ID).encode()),)
    assert partition_metadata_step(DirectoryImage(), TOPIC_ID, metadata(TOPIC_ID).encode()) is None


@pytest.mark.evidence("topic-id-missing")
@pytest.mark.parametrize(
    "topic_id", ["", "short", "A" * 22, "v4WPZw1oQbyGYKrhXu5z+Q", "not a uuid at all here"]
)
def test_invalid_topic_id_is_refused(topic_id: str) -> None:
    image = DirectoryImage()
    with pytest.raises(UsageError):
        partition_metadata_step(image, topic_id, None)
    assert image == DirectoryImage()


def test_different_topic_id_is_not_replaced_but_garbage_is() -> None:
    with pytest.raises(Refused, match=OTHER_ID):
        partition_metadata_step(DirectoryImage(), TOPIC_ID, metadata(OTHER_ID).encode())
    why = partition_metadata_step(DirectoryImage(), TOPIC_ID, b"rubbish")
    assert why is not None and "cannot be read" in why


@pytest.mark.evidence("topic-id-conflict")
def test_topic_id_must_agree_with_the_other_partitions(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", "a-1", "b-0")
    (place / "a-1" / "partition.metadata").write_text(metadata(TOPIC_ID))
    (place / "b-0" / "partition.metadata").write_text(metadata(OTHER_ID))
    name = parse_partition_directory("a-0")
    refuse_foreign_topic_id(str(place), name, TOPIC_ID)
    with pytest.raises(Refused, match="b"):
        refuse_foreign_topic_id(str(place), name, OTHER_ID)
    with pytest.raises(Refused, match="a-1"):
        refuse_foreign_topic_id(str(place), name, "AAAAAAAAAAAAAAAAAAAAAQ")


@pytest.mark.evidence("topic-id-missing")
def test_missing_topic_id_is_suggested_from_the_topics_other_partitions(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", "a-1", "c-0")
    (place / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    (place / "a-1" / "partition.metadata").write_text(metadata(TOPIC_ID))
    messages = {}
    for partition in ("a-0", "c-0"):
        (place / partition / f"{0:020}.log").write_bytes(b"")
        target = PartitionTarget(str(place / partition), str(place))
        events = verify(target, VerifyOptions(now_ms=0))
        messages[partition] = [
            e.message for e in events if isinstance(e, Finding) and e.id == "partition-metadata-missing"
        ]
    assert len(messages["a-0"]) == len(messages["c-0"]) == 1
    assert f"--topic-id {TOPIC_ID}" in messages["a-0"][0] and "a-1" in messages["a-0"][0]
    assert "--topic-id" not in messages["c-0"][0]


@pytest.mark.evidence("topic-id-missing")
def test_zookeeper_broker_needs_no_topic_ids(tmp_path: Path) -> None:
    """Observed: 2.8.2 on the data directory of a 1.1.1 assigns ids only to the partitions that it moves between data directories."""
    place = a_log_dir(tmp_path, "a-0", "a-1")
    (place / "a-1" / "partition.metadata").write_text(metadata(TOPIC_ID))
    (place / "a-0" / f"{0:020}.log").write_bytes(b"")
    found = {}
    for properties in ("version=0\nbroker.id=1\n", "version=0\n"):
        (place / "meta.properties").write_text(properties)
        repair = with_topic_id(a_repair(place / "a-0"), str(place / "a-0"), str(place), None)
        found[properties] = [finding.id for finding in repair.findings], bool(repair.doubt)
    assert [*found.values()] == [([], False), (["partition-metadata-missing"], True)]


def a_repair(directory: Path) -> Repair:
    return Repair(
        image=DirectoryImage.of(inputs_of(str(directory))),
        log_start_offset=0,
        log_end_offset=0,
        last_stable_offset=0,
        recovery_point=0,
    )


@pytest.mark.evidence("topic-id-missing")
def test_repair_includes_the_topic_id(tmp_path: Path) -> None:
    place = a_log_dir(tmp_path, "a-0", "a-1")
    (place / "a-1" / "partition.metadata").write_text(metadata(TOPIC_ID))
    log = place / "a-0"
    (log / f"{0:020}.log").write_bytes(b"")
    without = with_topic_id(a_repair(log), str(log), str(place), None)
    assert [f.id for f in without.findings] == ["partition-metadata-missing"] and without.doubt
    assert without.findings[0].numbers == {"topic_id": TOPIC_ID}
    given = with_topic_id(a_repair(log), str(log), str(place), TOPIC_ID)
    assert not given.findings and not given.doubt
    steps = steps_between(a_repair(log).image, given.image, given.why)
    assert [step.name for step in steps] == ["partition.metadata"]
    with pytest.raises(Refused):
        with_topic_id(a_repair(log), str(log), str(place), OTHER_ID)
    other = place / "a-1"
    assert with_topic_id(a_repair(other), str(other), str(place), TOPIC_ID).image == a_repair(other).image
    with pytest.raises(Refused):
        with_topic_id(a_repair(other), str(other), str(place), OTHER_ID)
