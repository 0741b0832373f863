"""`kseg retain`: its output and exit statuses, and that it leaves its input unchanged without --apply."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.cli.text.amounts import size_words
from kseg.cli.text.retain import KEPT
from tests.support.command_lines import Capfd, json_run
from tests.support.command_rows import rows_of

Unchanged = Callable[[Path], AbstractContextManager[None]]
NAMES = ("metro-none-0", "metro-lz4-0")
# given because there is no metadata log with the policy
DELETE = ("--cleanup-policy", "delete")
# timestamp of the last record in each partition of the capture
LAST_MS = 1_750_000_159_000


@pytest.fixture
def log_dir(capture_small: Path, tmp_path: Path) -> Path:
    """A data directory with two partitions of a real broker."""
    made = tmp_path / "data"
    made.mkdir()
    for name in NAMES:
        shutil.copytree(capture_small / "data" / name, made / name)
    for file in (capture_small / "data").iterdir():
        if file.is_file():
            shutil.copy2(file, made / file.name)
    return made


def bases(partition: Path) -> list[int]:
    return sorted(int(path.stem) for path in partition.glob("*.log"))


def test_retain_plan_changes_nothing(log_dir: Path, unchanged: Unchanged, capfd: Capfd) -> None:
    partition = log_dir / "metro-none-0"
    now = ("--now", str(LAST_MS))
    with unchanged(log_dir):
        status = run(
            ["retain", *DELETE, "--retention-ms", "20s", *now, "--what-if", "--purge", str(partition)]
        )
    out, err = capfd.readouterr()
    assert (status, err) == (1, "")
    lines = out.splitlines()
    assert lines[0] == "metro-none-0: 1 segment of 5,358 bytes to be deleted; offsets 72 to 160"
    assert lines[1] == "  by cleanup.policy delete (option), retention.ms 20s (option)"
    reported = next(number for number, line in enumerate(lines) if line.startswith("  0000"))
    assert lines[reported] == (
        "  00000000000000000000  delete          5,358  it is 1 min 28 s old, which is more than 20 s (retention.ms)"
    )
    assert lines[reported + 1] == (
        "  00000000000000000072  keep            5,549  its greatest timestamp 2025-06-15T15:09:03.000Z at offset 143 is 16 s old, "
        "the limit is 20 s (retention.ms)"
    )
    assert (
        "  with retention.bytes 0 (0 bytes): 3 segments, 12,037 bytes freed, the log starts at 160" in lines
    )
    assert lines[-1].startswith(
        "next: kseg retain --apply --retention-ms 20s --cleanup-policy delete --purge --now "
    )


def test_retain_json_of_a_partition(log_dir: Path, unchanged: Unchanged, capfd: Capfd) -> None:
    partition = log_dir / "metro-none-0"
    with unchanged(log_dir):
        status, rows = json_run(
            "retain", *DELETE, "--retention-bytes", "6KiB", "--now", str(LAST_MS), partition, capfd=capfd
        )
    assert status == 1
    segments, result = [row for row in rows if row["type"] == "segment"], rows[-2]
    assert (result["type"], rows[-1]["type"]) == ("result", "summary")
    names = ("partition", "base_offset", "bytes", "largest_timestamp", "verdict", "rule")
    assert [tuple(row[name] for name in names) for row in segments] == [
        ("metro-none-0", 0, 5358, LAST_MS - 88_000, "delete", "retention.bytes"),
        ("metro-none-0", 72, 5549, LAST_MS - 16_000, "keep", "retention.bytes"),
        ("metro-none-0", 144, 1130, LAST_MS, "keep", "retention.bytes"),
    ]
    assert all(row["reason"] for row in segments)
    wanted = {
        "applied": False,
        "deleted": [0],
        "log_start_offset": 72,
        "log_end_offset": 160,
        "bytes_freed": 5358,
    }
    assert {name: result[name] for name in wanted} == wanted


def test_retain_mark_purge_and_undo(log_dir: Path, capfd: Capfd) -> None:
    partition = log_dir / "metro-none-0"
    status, rows = json_run("retain", *DELETE, "--retention-ms", "1", "--apply", log_dir, capfd=capfd)
    results = [row for row in rows if row["type"] == "result"]
    assert status == 0 and [row["applied"] for row in results] == [True] * 3
    assert bases(partition) == [160] and len(list(partition.glob("*.deleted"))) == 11
    assert run(["verify", "--quick", str(log_dir)]) in (0, 1)
    capfd.readouterr()
    assert run(["undo", "--quiet", results[-1]["journal"]]) == 0
    assert bases(partition) == [0, 72, 144]
    capfd.readouterr()
    assert run(["retain", *DELETE, "--retention-ms", "1", "--apply", "--quiet", str(partition)]) == 0
    capfd.readouterr()
    status, rows = json_run("retain", "--purge", "--apply", "--now", "2100-01-01", partition, capfd=capfd)
    assert len([row for row in rows if row["type"] == "mark" and row["verdict"] == "purge"]) == 11
    assert not list(partition.rglob("*.deleted"))


def test_retain_unmark_restores_marked_segments(log_dir: Path, capfd: Capfd) -> None:
    partition = log_dir / "metro-lz4-0"
    before = bases(partition)
    run(["retain", *DELETE, "--retention-bytes", "0", "--apply", str(partition)])
    capfd.readouterr()
    assert run(["retain", "--unmark", str(partition)]) == 1
    out = capfd.readouterr().out
    assert "can be restored; offsets 0 to 160" in out and "next: kseg retain --apply --unmark " in out
    assert run(["retain", "--unmark", "--apply", str(partition)]) == 0
    assert bases(partition) == [*before, 160]


def test_retain_reads_topic_properties_from_a_file(log_dir: Path, tmp_path: Path, capfd: Capfd) -> None:
    partition, file = log_dir / "metro-none-0", tmp_path / "topic.properties"
    now = ("--now", str(LAST_MS))
    for text, deleted in (
        ("retention.ms=20000\ncleanup.policy=delete\n", [0]),
        ("log.retention.ms=20000\nlog.retention.hours=1\nlog.cleanup.policy=delete\n", [0]),
        ("log.retention.minutes=1\ncleanup.policy=delete\nlog.cleanup.policy=compact\n", [0]),
        ("log.retention.hours=1\ncleanup.policy=delete\n", []),
        ("retention.ms=20000\ncleanup.policy=compact\n", []),
        ("retention.ms=20000\ncleanup.policy=compact, delete\n", [0]),
        ("retention.ms=-1\nretention.bytes=1200\ncleanup.policy=delete\n", [0]),
        ("segment.bytes=5\ncleanup.policy=delete\n", []),
        # in the format of Kafka 4.3.1's `kafka-configs.sh --describe`
        (
            (
                "Dynamic configs for topic metro-none are:\n"
                "  cleanup.policy=delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=delete, "
                "DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
                "  retention.ms=20000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=20000}\n"
            ),
            [0],
        ),
    ):
        file.write_text(text)
        _, rows = json_run("retain", "--config", file, *now, partition, capfd=capfd)
        assert next(row for row in rows if "deleted" in row)["deleted"] == deleted, text
    _, rows = json_run("retain", "--config", file, "--retention-ms", "20s", *now, partition, capfd=capfd)
    assert next(row for row in rows if "deleted" in row)["deleted"] == [0]
    file.write_text("local.retention.ms=5\nremote.storage.enable=true\n")
    assert run(["retain", *DELETE, "--config", str(file), str(partition)]) == 0
    captured = capfd.readouterr()
    assert captured.err == "" and "nothing here says what remote storage has" in captured.out
    file.write_text("local.retention.ms=-2\nremote.storage.enable=false\nretention.ms=-1\n")
    assert run(["retain", *DELETE, "--config", str(file), str(partition)]) == 0
    assert capfd.readouterr().err == ""
    file.write_text("retention=5\n")
    assert run(["retain", *DELETE, "--config", str(file), str(partition)]) == 0
    assert "contains no property that retain uses" in capfd.readouterr().err
    for text in (
        "retention.ms=soon\n",
        "retention.ms=-2\n",
        "cleanup.policy=shred\n",
        "file.delete.delay.ms=-5\n",
    ):
        file.write_text(text)
        assert run(["retain", *DELETE, "--config", str(file), str(partition)]) == 2
    capfd.readouterr()


@pytest.mark.parametrize(
    "words",
    [
        ["--retention-ms", "soon"],
        ["--retention-bytes", "-2"],
        ["--log-start-offset", "-1"],
        ["--unmark", "--purge"],
        ["--cleanup-policy", "shred"],
    ],
)
def test_retain_rejects_wrong_usage(words: list[str], log_dir: Path, unchanged: Unchanged) -> None:
    with unchanged(log_dir):
        assert run(["retain", *words, "--apply", str(log_dir)]) == 2


def test_retain_refuses_a_segment_file(log_dir: Path, capfd: Capfd) -> None:
    assert run(["retain", str(log_dir / "metro-none-0" / f"{0:020}.log")]) == 2
    assert "name its partition directory" in capfd.readouterr().err


def test_retain_over_a_data_directory_with_several_jobs(capture_small: Path, capfd: Capfd) -> None:
    """The capture itself: stray directories and the metadata log are named and skipped."""
    one = json_run("retain", "--retention-ms", "1", "--jobs", "1", capture_small / "data", capfd=capfd)
    two = json_run("retain", "--retention-ms", "1", "--jobs", "2", capture_small / "data", capfd=capfd)
    assert _without_clock(one[1]) == _without_clock(two[1]) and one[0] == two[0] == 1
    assert {row["id"] for row in one[1] if row["type"] == "finding"} <= {"not-retained", "index-preallocated"}


def _without_clock(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in ("reason", "goes_at")} for row in rows]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("--retention-ms", "-1"), "retention.ms is -1, no limit"),
        (
            ("--retention-ms", "-1", "--retention-bytes", "-1"),
            "retention.ms is -1 and retention.bytes is -1, no limit",
        ),
    ],
)
def test_disabled_limit_counts_as_given(
    log_dir: Path, given: tuple[str, ...], reason: str, capfd: Capfd
) -> None:
    rows = rows_of(capfd, "retain", "--cleanup-policy", "delete", *given, log_dir / "metro-none-0", status=0)
    assert {row["reason"] for row in rows if row["type"] == "segment"} == {reason}


@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ((), {"no-limit", "cleanup.policy"}),
        (("--retention-ms", "20s", "--now", str(LAST_MS)), {"retention.ms", "future-timestamp"}),
        (("--retention-bytes", "3000"), {"retention.bytes", "order"}),
        (("--free", "30KiB"), {"free", "active"}),
    ],
)
def test_kept_segments_are_counted_by_reason(
    options: tuple[str, ...], rules: set[str], capture_small: Path, unchanged: Unchanged, capfd: Capfd
) -> None:
    _, rows = json_run("retain", *options, capture_small / "data", capfd=capfd)
    kept: dict[str, list[int]] = {}
    for row in rows:
        if row["type"] == "segment" and row["verdict"] == "keep":
            kept.setdefault(row["rule"], []).append(row["bytes"])
    assert rules <= kept.keys()
    with unchanged(capture_small):
        run(["retain", *options, str(capture_small / "data")])
    (line,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("kept: ")]
    expected = {
        f"{len(sizes)} segment{'s' * (len(sizes) > 1)} of {size_words(sum(sizes))} {KEPT[rule]}"
        for rule, sizes in kept.items()
    }
    assert set(line.removeprefix("kept: ").split(", ")) == {
        part for words in expected for part in words.split(", ")
    }


def test_purge_alone_does_not_mention_cleanup_policies(log_dir: Path, capfd: Capfd) -> None:
    _, rows = json_run("retain", "--purge", log_dir, capfd=capfd)
    segments = [row for row in rows if row["type"] == "segment"]
    assert {(row["verdict"], row["rule"]) for row in segments} == {("keep", "marked-only")}
    assert "cleanup.policy" not in segments[0]["reason"]
    run(["retain", "--purge", str(log_dir)])
    assert "what stays" not in capfd.readouterr().out


def test_files_a_purge_keeps_are_reported_with_the_reason(log_dir: Path, capfd: Capfd) -> None:
    """On a full disk, NOTHING GOES is not a sufficient answer without a word about the marked files."""
    assert run(["retain", *DELETE, "--retention-ms", "20s", "--apply", str(log_dir)]) == 0
    capfd.readouterr()
    assert run(["retain", "--purge", "--apply", str(log_dir)]) == 0
    nothing, waits, *_ = capfd.readouterr().out.splitlines()
    assert nothing.startswith("NOTHING TO DELETE")
    assert re.fullmatch(r"waiting: \d+ marked files of .* \(--file-delete-delay-ms 0 does not wait\)", waits)
    assert run(["retain", "--purge", "--apply", "--file-delete-delay-ms", "0", str(log_dir)]) == 0
    assert not list(log_dir.glob("*/*.deleted")) and "waiting:" not in capfd.readouterr().out
