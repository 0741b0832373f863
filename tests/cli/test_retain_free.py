"""`retain --free` for a full disk: the chosen segments over all topics, the equivalent limits, and what cannot be freed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.compaction.retention.freeing import Freeable, Hold, Survey, choose
from kseg.compaction.retention.rules import Threshold
from tests.internal_topics.metadata_logs import config, topic, topic_id, write_log, write_meta_properties
from tests.support import trees
from tests.support.command_lines import Capfd, Rows, Say
from tests.support.command_rows import of_type

NOW = ("--now", "2100-01-01")


def one(rows: Rows) -> dict[str, Any]:
    (row,) = of_type(rows, "free")
    return row


def going(rows: Rows) -> set[tuple[str, int]]:
    return {
        (row["partition"], row["base_offset"])
        for row in of_type(rows, "segment")
        if row["verdict"] == "delete"
    }


def occupied(directory: Path) -> int:
    return sum(
        path.stat().st_size for path in directory.rglob("*") if path.is_file() and ".kseg" not in path.parts
    )


def without_marks(data: Path) -> Path:
    for path in data.rglob("*.deleted"):
        path.unlink()
    return data


# --- what is chosen


@pytest.mark.evidence("segment-age")
@pytest.mark.parametrize("wanted", [1, 5_000, 12_000, 20_000, 40_000])
def test_free_chooses_the_oldest_segments_until_the_size_is_reached(
    data: Path, say: Say, wanted: int
) -> None:
    without_marks(data)
    with trees.unchanged(data):
        status, rows = say("retain", "--free", str(wanted), *NOW, data)
    assert status == 1
    free = one(rows)
    assert free["reached"] and free["chosen_bytes"] >= wanted and free["marked_bytes"] == 0
    segments = of_type(rows, "segment")
    ages = {(row["partition"], row["base_offset"]): row["largest_timestamp"] for row in segments}
    gone = going(rows)
    assert sum(share["segments"] for share in of_type(rows, "free_topic")) == len(gone) == free["segments"]
    # not one segment more than needed: without the youngest of them, the freed bytes would not suffice
    eligible = {
        key
        for key in ages
        if not key[0].startswith(("__", "stations"))
        and key[1] < max(at for name, at in ages if name == key[0])
    }
    youngest_gone = max(ages[key] for key in gone)
    assert all(ages[key] >= youngest_gone for key in eligible - gone)
    assert not any(name.startswith(("__", "stations")) for name, _ in gone)


def test_free_apply_frees_the_planned_bytes(data: Path, say: Say) -> None:
    before = occupied(data)
    _, planned = say("retain", "--free", "50KiB", "--purge", *NOW, data)
    status, rows = say("retain", "--free", "50KiB", "--purge", "--apply", *NOW, data)
    assert status == 0 and going(rows) == going(planned)
    free = one(rows)
    assert free["marked_bytes"] > 0 and free["applied"] and free["reached"]
    freed = before - occupied(data)
    # checkpoints, new producer snapshots and leader epochs of the remaining logs take a few bytes
    journals = sum(path.stat().st_size for path in data.rglob("*kseg*") if path.is_file())
    # the signed journal of the log dir's own files
    assert 0 < journals < 4_096
    assert abs(freed + journals - (free["marked_bytes"] + free["chosen_bytes"])) < 1_000
    assert freed >= 50 << 10 and not list(data.rglob("*.deleted"))
    assert run(["verify", "--quiet", str(data)]) == 0


@pytest.mark.evidence("deleted-file")
def test_marked_files_count_first_and_free_nothing_until_purged(data: Path, say: Say, capfd: Capfd) -> None:
    marked = sum(path.stat().st_size for path in data.rglob("*.deleted"))
    _, rows = say("retain", "--free", str(marked), *NOW, data)
    assert one(rows)["marked_bytes"] == marked and going(rows) == set()
    _, rows = say("retain", "--free", str(marked + 1), *NOW, data)
    assert len(going(rows)) == 1
    before = occupied(data)
    assert run(["retain", "--free", str(marked + 1), "--apply", *NOW, str(data)]) == 0
    assert abs(occupied(data) - before) < 1_000, "nothing is free yet"
    out = capfd.readouterr().out
    assert "marked files free no space until they are purged" in out
    command = out.splitlines()[-1].removeprefix("next: kseg ")
    assert command.startswith("retain --apply --purge ")
    assert run(command.split()) == 0
    assert before - occupied(data) >= marked


@pytest.mark.evidence("segment-age")
def test_free_equals_the_limits_it_names(data: Path, say: Say) -> None:
    without_marks(data)
    _, rows = say("retain", "--free", "25KiB", *NOW, data)
    for share in of_type(rows, "free_topic"):
        expected = {(name, base) for name, base in going(rows) if name.rpartition("-")[0] == share["topic"]}
        assert len(expected) == share["segments"]
        for option, limit in (("--retention-ms", "retention_ms"), ("--retention-bytes", "retention_bytes")):
            _, by_limit = say("retain", option, str(share[limit]), "--topic", share["topic"], *NOW, data)
            assert going(by_limit) == expected, (share, option)
        _, by_more = say(
            "retain", "--retention-ms", str(share["retention_ms"] + 1), "--topic", share["topic"], *NOW, data
        )
        assert going(by_more) < expected


def test_unreachable_size_is_reported_and_nothing_is_changed(data: Path, say: Say, capfd: Capfd) -> None:
    with trees.unchanged(data):
        status, rows = say("retain", "--free", "1GiB", *NOW, data)
        free = one(rows)
        assert status == 1 and not free["reached"]
        assert set(free["held"]) == {"active", "cleanup.policy", "internal-topic", "set-aside"}
        assert free["freeable_bytes"] == free["marked_bytes"] + free["chosen_bytes"] < 1 << 30
        files = [path for path in data.glob("*/*") if path.is_file()]
        assert free["freeable_bytes"] + sum(free["held"].values()) == pytest.approx(
            sum(path.stat().st_size for path in files), abs=1_500
        )
        assert run(["retain", "--free", "1GiB", "--apply", *NOW, str(data)]) == 4
        output = capfd.readouterr()
        assert f"(--free {free['freeable_bytes']}); nothing was changed" in output.err
        assert run(["retain", "--free", "1GiB", *NOW, str(data)]) == 1
        out = capfd.readouterr().out
        assert out.splitlines()[-1].startswith(f"next: kseg retain --apply --free {free['freeable_bytes']} ")
        assert "not possible: " in out and "topics that are compacted only 4,695" in out
    status, _ = say("retain", "--free", str(free["freeable_bytes"]), "--apply", *NOW, data)
    assert status == 0


def test_free_keeps_segments_above_the_high_watermark(data: Path, say: Say) -> None:
    without_marks(data)
    checkpoint = data / "replication-offset-checkpoint"
    lines = checkpoint.read_text().splitlines()
    checkpoint.write_text(
        "\n".join("metro-none 0 100" if line.startswith("metro-none 0") else line for line in lines) + "\n"
    )
    _, rows = say("retain", "--free", "1GiB", *NOW, data)
    assert {base for name, base in going(rows) if name == "metro-none-0"} == {0}
    assert one(rows)["held"]["high-watermark"] > 5_000


def test_free_keeps_topics_with_an_unknown_policy(data: Path, say: Say, tmp_path: Path) -> None:
    shutil.rmtree(data / "__cluster_metadata-0")
    without_marks(data)
    _, rows = say("retain", "--free", "1GiB", *NOW, data)
    assert going(rows) == set() and one(rows)["held"]["policy-unknown"] > 30_000
    properties = tmp_path / "server.properties"
    properties.write_text("log.cleanup.policy=delete\n")
    _, rows = say("retain", "--free", "10KiB", "--cleanup-policy", "delete", "--topic", "metro-*", *NOW, data)
    assert one(rows)["reached"] and len(going(rows)) > 0


@pytest.mark.evidence("segment-age")
def test_free_chooses_first_what_the_topics_own_limits_delete(
    data: Path, say: Say, capture_small: Path, tmp_path: Path
) -> None:
    """It is younger, but a broker deletes it at its next start anyway."""
    log_dir = tmp_path / "other"
    write_meta_properties(log_dir)
    for number, (name, source) in enumerate((("young", "fares-0"), ("old", "metro-none-0"))):
        shutil.copytree(capture_small / "data" / source, log_dir / f"{name}-0")
        (log_dir / f"{name}-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(number)}")
    write_log(
        log_dir / "__cluster_metadata-0",
        topic("young", topic_id(0)),
        topic("old", topic_id(1)),
        [config("young", "retention.ms", "1000"), config("old", "retention.ms", "-1")],
    )
    _, rows = say("retain", "--free", "4KiB", *NOW, log_dir)
    assert going(rows) == {("young-0", 0)}
    (row,) = (row for row in of_type(rows, "segment") if row["verdict"] == "delete")
    assert row["rule"] == "retention.ms"
    _, rows = say("retain", "--free", "8KiB", *NOW, log_dir)
    assert going(rows) == {("young-0", 0), ("old-0", 0)}


@pytest.mark.evidence("occupied-bytes")
def test_hard_linked_files_free_nothing(data: Path, say: Say, tmp_path: Path) -> None:
    """A hard-linked copy, for example a backup before the repair, keeps the blocks."""
    without_marks(data)
    _, rows = say("retain", "--free", "1GiB", *NOW, data)
    all_bytes = one(rows)["freeable_bytes"]
    log = data / "metro-none-0" / f"{0:020d}.log"
    os.link(log, tmp_path / "backup.log")
    _, rows = say("retain", "--free", "1GiB", *NOW, data)
    assert one(rows)["freeable_bytes"] == all_bytes - log.stat().st_size
    assert one(rows)["held"]["hard-link"] == log.stat().st_size


def test_files_that_a_broker_removes_itself_are_named(data: Path, say: Say) -> None:
    (data / "fares-0").rename(data / f"fares-0.{'a' * 32}-delete")
    (data / "metro-none-0" / f"{0:020d}.log.cleaned").write_bytes(b"x" * 3000)
    _, rows = say("retain", "--free", "1GiB", *NOW, data)
    held = one(rows)["held"]
    assert held["deleted-directory"] > 8_000 and held["unfinished-files"] == 3000


def test_free_chooses_segments_of_0_7_logs(ancient_small: Path, tmp_path: Path, say: Say) -> None:
    partition = tmp_path / "data" / "old-0"
    source = max(
        (path.parent for path in ancient_small.rglob("*.kafka")),
        key=lambda path: len(list(path.glob("*.kafka"))),
    )
    shutil.copytree(source, partition)
    logs = sorted(partition.glob("*.kafka"))
    first = logs[0].stat().st_size
    _, rows = say("retain", "--free", "1", *NOW, partition)
    if len(logs) > 1:
        assert one(rows)["chosen_bytes"] == first and len(going(rows)) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--free", "0"],
        ["--free", "1GiB", "--unmark"],
        ["--free", "1GiB", "--what-if"],
        ["--free", "1GiB", "--log-start-offset", "5"],
        ["--free", "lots"],
    ],
)
def test_free_rejects_wrong_usage(data: Path, words: list[str]) -> None:
    with trees.unchanged(data):
        assert run(["retain", *words, str(data)]) == 2


def test_free_without_eligible_partitions_is_not_reached(data: Path, say: Say) -> None:
    without_marks(data)
    status, rows = say("retain", "--free", "1", "--topic", "stations", *NOW, data)
    assert status == 1 and not one(rows)["reached"] and one(rows)["freeable_bytes"] == 0
    assert set(one(rows)["held"]) == {"cleanup.policy"}


# --- several file systems


def test_each_file_system_is_freed_by_the_given_size() -> None:
    def on(device: int, number: int, stamps: list[int]) -> Survey:
        pieces = tuple(
            Freeable(100 * (at + 1), 1000, stamp, False, Threshold(1, 1)) for at, stamp in enumerate(stamps)
        )
        return Survey(f"/d{device}/t-{number}", f"/d{device}", "t", device, pieces, held={Hold.ACTIVE: 7})

    surveys = [on(1, 0, [10, 40]), on(1, 1, [20, 30]), on(2, 0, [1, 2, 3]), on(3, 0, [])]
    choice = choose(surveys, 2500)
    assert [each.log_dirs for each in choice.file_systems] == [("/d1",), ("/d2",), ("/d3",)]
    assert [each.is_reached for each in choice.file_systems] == [True, True, False]
    assert choice.cuts == {"/d1/t-0": 100, "/d1/t-1": 200, "/d2/t-0": 300}
    assert [each.held for each in choice.file_systems] == [
        {Hold.ACTIVE: 14},
        {Hold.ACTIVE: 7},
        {Hold.ACTIVE: 7},
    ]


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory on another file system than that of the tests."""
    for root in ("/dev/shm", "/var/tmp"):
        if os.access(root, os.W_OK) and os.stat(root).st_dev != tmp_path.stat().st_dev:
            with tempfile.TemporaryDirectory(prefix=".kseg-", dir=root) as place:
                yield Path(place)
            return
    pytest.skip("there is no second file system to write to")


def test_two_log_dirs_on_two_file_systems_are_both_freed(data: Path, say: Say, elsewhere: Path) -> None:
    without_marks(data)
    second = elsewhere / "data"
    second.mkdir()
    shutil.copy(data / "meta.properties", second)
    for name in ("fares-0", "metro-gzip-0", "metro-none-0"):
        shutil.move(data / name, second / name)
    before = occupied(data), occupied(second)
    status, rows = say("retain", "--free", "6KiB", "--purge", "--apply", *NOW, data, second)
    assert status == 0
    frees = of_type(rows, "free")
    assert [row["log_dirs"] for row in frees] == [[str(data)], [str(second)]]
    assert all(row["reached"] for row in frees)
    assert before[0] - occupied(data) > 5_000 and before[1] - occupied(second) > 5_000


def test_free_choice_is_deterministic(data: Path, say: Say) -> None:
    first = going(say("retain", "--free", "30KiB", *NOW, "--jobs", "1", data)[1])
    assert all(
        going(say("retain", "--free", "30KiB", *NOW, "--jobs", str(jobs), data)[1]) == first
        for jobs in (1, 2)
    )
