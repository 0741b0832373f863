"""`kseg compact` as a user types it: the plan and its exit status, settings from a file, refusals, output."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.compact_helpers import T0, Topic, kept, log
from tests.support.trees import unchanged

Say = Callable[..., tuple[int, str, str]]
POLICY = ("--cleanup-policy", "compact")


@pytest.fixture
def say(capfd: Capfd) -> Say:
    def call(*words: str | Path) -> tuple[int, str, str]:
        # these directories have no metadata log with the policy
        policy = () if "--config" in words else POLICY
        status = run(["compact", *policy, *map(str, words)])
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return call


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    topic = Topic(tmp_path / "data")
    topic.send(("a", 1), ("b", 2), ("a", None))
    topic.roll()
    topic.send(("b", 3), ("c", 4))
    topic.roll()
    (tmp_path / "data" / "meta.properties").write_text(
        "version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"
    )
    return topic.close()


def rows(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_compact_plan_changes_nothing_and_names_the_next_command(partition: Path, say: Say) -> None:
    with unchanged(partition.parent):
        status, out, err = say("--now", T0, partition)
    assert status == 1
    assert "accounts-0: a compaction is due:" in out
    assert "5 records to 3: 2 replaced by later ones" in out
    assert f"kseg compact --apply --cleanup-policy compact --now {T0} {partition}" in out + err


def test_compaction_that_lengthens_a_log_says_so(tmp_path: Path, say: Say) -> None:
    """A batch with a tombstone gets the time of its deletion, and its timestamps become larger differences."""
    for number in range(2):
        topic = Topic(tmp_path / "data", name=f"accounts-{number}")
        topic.send(("a", None))
        topic.roll_and_close()
    (tmp_path / "data" / "meta.properties").write_text("version=1\nnode.id=1\n")
    _, out, _ = say("--now", T0, tmp_path / "data")
    assert "DUE: 2 of 2 compacted partitions, 138 bytes to 144 bytes (6 bytes more), 2 records to 2" in out


def test_compact_json_lines(partition: Path, say: Say) -> None:
    status, out, _ = say("--json", "--now", T0, "--delete-retention-ms", "1h", partition)
    found = rows(out)
    assert status == 1
    assert {row["type"] for row in found} == {"horizon", "key", "step", "result", "summary"}
    horizon = next(row for row in found if row["type"] == "horizon")
    assert (horizon["delete_horizon_ms"], horizon["wait_ms"], horizon["words"]) == (
        T0 + 3_600_000,
        3_600_000,
        "1 h",
    )
    result = next(row for row in found if row["type"] == "result")
    wanted = {
        "partition",
        "applied",
        "next_dirty_offset",
        "segments_before",
        "segments_after",
        "bytes_before",
        "bytes_after",
    }
    wanted |= {"records_before", "records_after", "tombstones_kept", "tombstones_removed", "invalid_records"}
    assert wanted <= set(result)
    assert (result["applied"], result["next_dirty_offset"], result["passes"]) == (False, 5, 1)
    log_dir = found[-2]
    assert log_dir["next_dirty_offsets"] == {"accounts-0": 5}


def test_compact_applied_twice_has_nothing_left_to_clean(partition: Path, say: Say) -> None:
    status, out, _ = say("--apply", "--now", T0, partition)
    assert status == 0
    assert "5 records to 3: 2 replaced by later ones, 0 of aborted transactions, 0 expired tombstones" in out
    assert "undo with: kseg undo" in out
    assert kept(partition) == [(2, "a", None), (3, "b", "3"), (4, "c", "4")]
    assert (partition.parent / "cleaner-offset-checkpoint").read_text() == "0\n1\naccounts 0 5\n"
    with unchanged(partition.parent):
        status, out, _ = say("--apply", "--now", T0, "--first-dirty-offset", "checkpoint", partition)
    assert status == 0
    assert "nothing to clean below offset 5 (active segment)" in out


def test_compact_output_writes_a_compacted_copy(partition: Path, tmp_path: Path, say: Say) -> None:
    with unchanged(partition.parent):
        status, out, _ = say("--output", tmp_path / "copy", "--now", T0, partition)
    assert status == 0
    assert "copied to" in out
    assert kept(tmp_path / "copy" / "accounts-0") == [(2, "a", None), (3, "b", "3"), (4, "c", "4")]


def test_compact_reads_settings_from_a_file(partition: Path, tmp_path: Path, say: Say) -> None:
    config = tmp_path / "topic.properties"
    config.write_text(
        "cleanup.policy=compact\ndelete.retention.ms=5000\nsegment.bytes=1\nlog.segment.bytes=9999999\n"
        "min.cleanable.dirty.ratio=0.5\ncompression.type=zstd\nmax.message.bytes=10\n"
    )
    _, out, err = say("--json", "--now", T0, "--config", config, partition)
    result = next(row for row in rows(out) if row["type"] == "result")
    assert result["segments_after"] == 3
    assert [row["wait_ms"] for row in rows(out) if row["type"] == "horizon"] == [5000]
    assert "compression.type, max.message.bytes: no effect" in err
    _, out, _ = say("--json", "--now", T0, "--config", config, "--segment-bytes", "1MiB", partition)
    assert next(row for row in rows(out) if row["type"] == "result")["segments_after"] == 2
    config.write_text("cleanup.policy=delete\nmin.cleanable.dirty.ratio=1\n")
    status, out, err = say("--now", T0, "--config", config, partition)
    assert status == 0
    assert "its cleanup.policy is delete (--config) (not-compacted)" in out
    config.write_text("cleanup.policy=compact\nmin.cleanable.dirty.ratio=1\n")
    status, out, err = say("--now", T0, "--config", config, partition)
    assert (status, err) == (0, "")
    assert "not due: 100% of its bytes are dirty" in out


def test_compact_reads_settings_as_printed_by_kafka_configs(
    partition: Path, tmp_path: Path, say: Say
) -> None:
    """The lines are those of `kafka-configs.sh --describe` of Kafka 4.3.1."""
    config = tmp_path / "described"
    config.write_text(
        "Dynamic configs for topic accounts are:\n"
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
        "  delete.retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:delete.retention.ms=5000, "
        "DEFAULT_CONFIG:log.cleaner.delete.retention.ms=86400000}\n"
        "  flush.ms=9223372036854775807 sensitive=false synonyms={}\n"
        "  min.cleanable.dirty.ratio=0.25 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:min.cleanable.dirty.ratio=0.25, "
        "DEFAULT_CONFIG:log.cleaner.min.cleanable.ratio=0.5}\n"
    )
    _, out, err = say("--json", "--now", T0, "--config", config, partition)
    assert [row["wait_ms"] for row in rows(out) if row["type"] == "horizon"] == [5000]
    assert "would not clean" not in err


def test_compact_warns_about_a_config_file_without_known_properties(
    partition: Path, tmp_path: Path, say: Say
) -> None:
    config = tmp_path / "topic.properties"
    config.write_text("delete_retention_ms=5000\n")
    status, _, err = say(*POLICY, "--now", T0, "--config", config, partition)
    assert status == 1
    assert "contains no property that compact uses" in err
    config.write_text("delete.retention.ms=5000\n")
    assert "contains no property" not in say("--now", T0, "--config", config, partition)[2]


@pytest.mark.parametrize(
    "line",
    [
        "segment.bytes=-1",
        "max.compaction.lag.ms=0",
        "min.compaction.lag.ms=5000\nmax.compaction.lag.ms=4999",
        "cleanup.policy=COMPACT",
        "min.cleanable.dirty.ratio=2",
        "min.cleanable.dirty.ratio=x",
        "delete.retention.ms=soon",
    ],
)
def test_compact_refuses_settings_that_no_broker_accepts(
    line: str, partition: Path, tmp_path: Path, say: Say
) -> None:
    config = tmp_path / "topic.properties"
    config.write_text(line)
    assert say("--config", config, partition)[0] == 2


@pytest.mark.parametrize(
    "words",
    [
        ["--apply", "--output", "x"],
        ["--hard-link"],
        ["--quarantine", "x", "--output", "y"],
        ["--map-memory", "10"],
        ["--first-dirty-offset", "soon"],
        ["--min-cleanable-dirty-ratio", "1.5"],
        ["--damaged", "launder"],
    ],
)
def test_compact_rejects_wrong_usage(words: list[str], partition: Path, say: Say) -> None:
    with unchanged(partition.parent):
        assert say(*words, partition)[0] == 2


def test_compact_refuses_a_segment_file(partition: Path, say: Say) -> None:
    assert say(log(partition, 0))[0] == 2


def test_compact_refuses_damage_and_names_the_repair(partition: Path, say: Say) -> None:
    path = log(partition, 0)
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with unchanged(partition.parent):
        status, out, err = say("--apply", partition)
    assert status == 4
    assert f"kseg recover {partition}" in out + err
    status, out, _ = say("--apply", "--damaged", "skip", "--segment-bytes", "1", "--now", T0, partition)
    assert status == 1
    assert "clean up to 0 (damage) in 1 pass" in out
    assert (partition.parent / "cleaner-offset-checkpoint").read_text() == "0\n1\naccounts 0 0\n"
    assert path.read_bytes() == bytes(data)


def test_compact_cleans_several_partitions_at_once(tmp_path: Path, say: Say) -> None:
    for number in range(4):
        topic = Topic(tmp_path / "data", name=f"accounts-{number}")
        topic.send(("a", 1), ("a", 2))
        topic.roll_and_close()
    (tmp_path / "data" / "meta.properties").write_text(
        "version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n"
    )
    assert say("--apply", "--jobs", "2", "--quiet", tmp_path / "data")[0] == 0
    for number in range(4):
        assert kept(tmp_path / "data" / f"accounts-{number}") == [(1, "a", "2")]
    noted = (tmp_path / "data" / "cleaner-offset-checkpoint").read_text().splitlines()
    assert noted == ["0", "4", *(f"accounts {number} 2" for number in range(4))]


@pytest.mark.parametrize("command", ["compact", "recover"])
def test_compact_refuses_an_output_inside_the_input(
    partition: Path, tmp_path: Path, command: str, capfd: Capfd
) -> None:
    """LogManager exits if a data directory contains a directory that is not named topic-partition."""
    policy = POLICY if command == "compact" else ()
    link = tmp_path / "link"
    link.symlink_to(partition)
    inside = (partition, partition / "copy", link / "copy", partition.parent, partition.parent / "copy")
    for output in inside:
        with unchanged(partition.parent):
            assert run([command, *policy, "--output", str(output), str(partition)]) == 4
        assert "is in the input directory" in capfd.readouterr().err
    # now it is not a broker's directory, and a copy may be beside its original
    (partition.parent / "meta.properties").unlink()
    assert run([command, *policy, "--output", str(partition.parent / "copy"), str(partition)]) == 0


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_compact_reports_a_log_that_is_not_a_regular_file(
    partition: Path, say: Say, make: Callable[[Path], None]
) -> None:
    path = partition / f"{99:020d}.log"
    make(path)
    status, _, err = say("--now", T0, partition)
    assert status == 3
    assert f"cannot read {path}: not a regular file" in err


def test_copy_of_a_single_segment_may_be_written_beside_it(
    partition: Path, tmp_path: Path, capfd: Capfd
) -> None:
    alone = tmp_path / "alone" / "00000000000000000000.log"
    alone.parent.mkdir()
    alone.write_bytes((partition / alone.name).read_bytes())
    with unchanged(alone.parent):
        assert run(["recover", "--output", str(alone.parent), str(alone)]) == 4
    assert "is in the input directory" in capfd.readouterr().err
    assert run(["recover", "--output", str(alone.parent / "copy"), str(alone)]) == 0
    assert (alone.parent / "copy" / "alone" / alone.name).read_bytes() == alone.read_bytes()
