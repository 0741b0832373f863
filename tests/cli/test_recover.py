"""`kseg recover`: the plan, the result of applying it, copies, and refusals."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd, json_run
from tests.support.trees import files_in

Unchanged = Callable[[Path], AbstractContextManager[None]]
FIRST = "00000000000000000000.log"


@pytest.fixture
def log_dir(capture_small: Path, tmp_path: Path) -> Path:
    """A data directory with three partitions of a real broker."""
    made = tmp_path / "data"
    made.mkdir()
    for name in ("metro-zstd-0", "metro-none-0", "fares-0"):
        shutil.copytree(capture_small / "data" / name, made / name)
    for file in (capture_small / "data").iterdir():
        if file.is_file():
            shutil.copy2(file, made / file.name)
    return made


def damage(log: Path, at: int = 600) -> None:
    data = bytearray(log.read_bytes())
    data[at] ^= 0x55
    log.write_bytes(data)


def result_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [row for row in rows if row["type"] == "result" and "partition" in row]
    return found


def test_recover_of_an_undamaged_directory_has_nothing_to_repair(
    log_dir: Path, unchanged: Unchanged, capfd: Capfd
) -> None:
    with unchanged(log_dir):
        assert run(["recover", str(log_dir)]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert out == "SOUND: nothing to repair in 3 partitions\n"
    assert run(["recover", "--verbose", str(log_dir)]) == 0
    assert capfd.readouterr().out.count(": nothing to repair") == 3


def test_recover_plan_changes_nothing_and_names_the_cost_of_both_policies(
    log_dir: Path, unchanged: Unchanged, capfd: Capfd
) -> None:
    partition = log_dir / "metro-zstd-0"
    damage(partition / FIRST)
    with unchanged(log_dir):
        status, rows = json_run(
            "recover", partition, "--unclean-shutdown", "--recovery-point", "0", capfd=capfd
        )
    assert status == 1
    result = result_of(rows)
    assert result["applied"] is False and result["journal"] is None
    (removed,) = result["removed"]
    # the second batch of the capture: 575 bytes from position 477 on, offsets 12 to 23
    assert removed["file"] == str(partition / FIRST)
    assert [removed[name] for name in ("position", "length", "first_offset", "last_offset")] == [
        477,
        575,
        12,
        23,
    ]
    assert removed["finding"] == "bad-crc" and removed["batches"] == 0
    lost = {"offsets": 12, "records": 12, "records_at_most": 12}
    assert result["costs"]["salvage"] == {**lost, "bytes": 575, "batches": 0, "damaged_bytes_left": 0}
    kafka = result["costs"]["kafka"]
    # a broker truncates the first segment at position 477 and deletes the second, so offsets 12 to 159 are lost
    sizes = [log.stat().st_size for log in partition.glob("*.log")]
    assert kafka["bytes"] == sum(sizes) - 477
    assert kafka["offsets"] == kafka["records"] == 160 - 12 and kafka["batches"] == 12
    assert result["log_end_offset"] == 160
    steps = [row for row in rows if row["type"] == "step" and row["partition"] == "metro-zstd-0"]
    assert steps and len(steps) == result["steps"] and all(step["words"] for step in steps)


def test_recovered_directory_is_sound_and_needs_no_second_repair(log_dir: Path, capfd: Capfd) -> None:
    partition = log_dir / "metro-zstd-0"
    damage(partition / FIRST)
    before = files_in(partition)
    status, rows = json_run("recover", "--apply", partition, capfd=capfd)
    assert status == 0
    result = result_of(rows)
    assert result["applied"] is True
    assert Path(result["journal"]).is_file() and Path(result["quarantine"]).is_dir()
    assert (partition / FIRST).read_bytes() == before[FIRST][:477] + before[FIRST][477 + 575 :]
    assert (partition / FIRST).stat().st_mtime_ns // 10**9 > 0
    assert run(["verify", str(partition)]) == 0
    capfd.readouterr()
    status, rows = json_run("recover", "--apply", partition, capfd=capfd)
    assert status == 0 and result_of(rows)["steps"] == 0 and result_of(rows)["journal"] is None

    assert run(["undo", result["journal"]]) == 0
    assert files_in(partition) == before
    assert not (partition / ".kseg").exists()


def test_verdict_says_if_only_files_of_the_data_directory_were_repaired(log_dir: Path, capfd: Capfd) -> None:
    assert run(["recover", "--apply", "--quiet", str(log_dir)]) == 0
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n3\n")
    verdicts = []
    for words in (["recover"], ["recover", "--apply"], ["recover"]):
        capfd.readouterr()
        run([*words, str(log_dir)])
        verdicts.append(capfd.readouterr().out.splitlines()[0].split(";")[0])
    assert verdicts[0] == "DUE: files of the data directory are to be repaired"
    assert verdicts[1] == "REPAIRED: files of the data directory were repaired"
    assert verdicts[2].startswith("SOUND: nothing to repair in ")


def test_data_directory_is_undone_by_one_journal(log_dir: Path, capfd: Capfd) -> None:
    for name in ("metro-zstd-0", "metro-none-0"):
        damage(log_dir / name / FIRST)
    before = {name: files_in(log_dir / name) for name in os.listdir(log_dir) if (log_dir / name).is_dir()}
    own = files_in(log_dir)
    status, rows = json_run("recover", "--apply", "--jobs", "2", log_dir, capfd=capfd)
    assert status == 0
    assert [row["partition"] for row in rows if row["type"] == "result" and "partition" in row] == [
        "fares-0",
        "metro-none-0",
        "metro-zstd-0",
    ]
    (whole,) = [row for row in rows if row["type"] == "result" and "log_dir" in row]
    assert run(["verify", str(log_dir)]) == 0
    assert run(["undo", whole["journal"]]) == 0
    assert {name: files_in(log_dir / name) for name in before} == before
    assert files_in(log_dir) == own


def test_undo_of_one_partition_names_the_journal_of_the_run(log_dir: Path, capfd: Capfd) -> None:
    (log_dir / ".kafka_cleanshutdown").unlink()
    for name in ("metro-zstd-0", "metro-none-0"):
        damage(log_dir / name / FIRST)
    _, rows = json_run("recover", "--apply", log_dir, capfd=capfd)
    results = [row for row in rows if row["type"] == "result"]
    (whole,) = [row["journal"] for row in results if "log_dir" in row]
    one = next(row["journal"] for row in results if row.get("partition") == "metro-none-0")
    _, (undone,) = json_run("undo", one, capfd=capfd)
    assert undone["whole_run"] == whole
    _, rows = json_run("undo", whole, capfd=capfd)
    assert rows and not any("whole_run" in row for row in rows)


def test_recover_output_repairs_a_copy_and_keeps_the_input(
    log_dir: Path, tmp_path: Path, unchanged: Unchanged, capfd: Capfd
) -> None:
    damage(log_dir / "metro-zstd-0" / FIRST)
    # as a killed broker leaves it
    (log_dir / ".lock").touch()
    (log_dir / "empty-0.0123456789abcdef0123456789abcdef-stray").mkdir()
    copy = tmp_path / "copy"
    with unchanged(log_dir):
        assert run(["recover", "--output", str(copy), str(log_dir)]) == 0
    capfd.readouterr()
    assert sorted(child.name for child in copy.iterdir() if child.is_dir()) == [
        "empty-0.0123456789abcdef0123456789abcdef-stray",
        "fares-0",
        "metro-none-0",
        "metro-zstd-0",
    ]
    assert run(["verify", str(copy)]) == 0
    own, copied = files_in(log_dir), files_in(copy)
    # unlike the original, the marker of the copy has no broker epoch, because a batch was lost
    assert copied[".kafka_cleanshutdown"] == b"" != own[".kafka_cleanshutdown"]
    # with which undo removes the copy
    journals = {name for name in copied if name.startswith("kseg-journal-")}
    assert len(journals) == 1
    assert (
        copied.keys() - journals == own.keys() - {".lock"}
        and copied["meta.properties"] == own["meta.properties"]
    )
    assert files_in(copy / "fares-0") == files_in(log_dir / "fares-0")
    capfd.readouterr()
    (log_dir / "empty-0.0123456789abcdef0123456789abcdef-stray").rmdir()
    with unchanged(copy):
        # the output already exists
        assert run(["recover", "--output", str(copy), str(log_dir)]) == 4


def test_recover_output_puts_several_data_directories_side_by_side(
    log_dir: Path, tmp_path: Path, capfd: Capfd
) -> None:
    shutil.copytree(log_dir, log_dir.parent / "other")
    damage(log_dir.parent / "other" / "fares-0" / FIRST)
    # of another node, because no two directories may have the same ids
    meta = log_dir.parent / "other" / "meta.properties"
    meta.write_text(
        meta.read_text().replace("node.id=1", "node.id=2").replace("directory.id=U", "directory.id=A")
    )
    copy = tmp_path / "copy"
    assert run(["recover", "--output", str(copy), str(log_dir), str(log_dir.parent / "other")]) == 0
    assert sorted(child.name for child in copy.iterdir() if child.is_dir()) == ["data", "other"]
    assert files_in(copy / "data" / "fares-0") == files_in(log_dir / "fares-0")
    assert run(["verify", "--quick", str(copy)]) == 0


def test_policy_kafka_refuses_where_a_broker_fails_to_load(
    log_dir: Path, unchanged: Unchanged, capfd: Capfd
) -> None:
    partition = log_dir / "fares-0"
    log = max(partition.glob("*.log"))
    with log.open("ab") as stream:
        stream.write(bytes(100))
    # a clean start determines the log end from the zeros (fact sheet 6.3c: CorruptRecordException)
    words = ("recover", "--policy", "kafka", "--clean-shutdown", "--apply", partition)
    with unchanged(log_dir):
        status, rows = json_run(*words, capfd=capfd)
    assert status == 4
    (finding,) = [row for row in rows if row["type"] == "finding" and row["id"] == "broker-load-fails"]
    assert finding["kafka_exception"] == "CorruptRecordException"


def test_recover_repairs_a_single_segment(log_dir: Path, unchanged: Unchanged, capfd: Capfd) -> None:
    partition = log_dir / "metro-zstd-0"
    damage(partition / FIRST)
    others = {name: data for name, data in files_in(partition).items() if not name.startswith(FIRST[:20])}
    status, rows = json_run("recover", "--apply", partition / FIRST, capfd=capfd)
    assert status == 0 and result_of(rows)["removed"][0]["length"] == 575
    assert {name: data for name, data in files_in(partition).items() if name in others} == others
    assert run(["verify", str(partition)]) == 0


def test_several_segments_of_one_partition_are_refused(
    log_dir: Path, unchanged: Unchanged, capfd: Capfd
) -> None:
    """The shell makes such a list of `orders-0/*.log`. Each change would have the partition's files as input while others change them."""
    partition, other = log_dir / "metro-zstd-0", log_dir / "metro-none-0"
    first, second, *_ = logs = sorted(map(str, partition.glob("*.log")))
    damage(Path(first))
    damage(Path(second))
    with unchanged(log_dir):
        for paths in (logs, [first, f"{first[:-3]}index"]):
            for words in (["recover"], ["recover", "--apply"]):
                assert run([*words, *paths]) == 2
                sentence = capfd.readouterr().err
                assert "are of one log: name its directory, or one segment" in sentence
    damage(other / FIRST)
    with unchanged(log_dir):
        assert run(["recover", "--apply", first, str(other / FIRST)]) == 0
        assert run(["undo", str(log_dir)]) == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--apply", "--output", "x"], "--apply and --output are mutually exclusive"),
        (["--hard-link"], "--hard-link requires --output"),
        (
            ["--quarantine", "x", "--output", "y"],
            "--quarantine applies to a change in place, not to --output",
        ),
        (["--journal", "x", "--output", "y"], "--journal applies to a change in place, not to --output"),
        (["--policy", "both"], "--policy"),
        (["--topic-id", "nonsense", "--apply"], "nonsense"),
        (["--recovery-point", "-5"], "--recovery-point takes an offset"),
        (["--log-start-offset", "-1"], "--log-start-offset takes an offset"),
    ],
)
def test_recover_rejects_wrong_usage(
    log_dir: Path, words: list[str], sentence: str, unchanged: Unchanged, capfd: Capfd
) -> None:
    with unchanged(log_dir):
        assert run(["recover", *words, str(log_dir / "fares-0")]) == 2
    assert sentence in capfd.readouterr().err


def test_recover_rejects_a_file_of_no_segment(log_dir: Path, capfd: Capfd) -> None:
    assert run(["recover", str(log_dir / "fares-0" / "leader-epoch-checkpoint")]) == 2
    assert "is not a segment file; name its partition directory" in capfd.readouterr().err
    shutil.copy(log_dir / "fares-0" / FIRST, log_dir.parent / "fares.log")
    assert run(["recover", str(log_dir.parent / "fares.log")]) == 2
    assert (
        f"rename it to its first offset in 20 digits, such as {FIRST}, to recover it"
        in capfd.readouterr().err
    )


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--policy", "kafka", "--unclean-shutdown", "--recovery-point", "0"],
        ["--policy", "kafka", "--unclean-shutdown", "--recovery-point", "0", "--now", "1900000000000",
         "--producer-id-expiration-ms", "1d"],
        ["--topic", "metro-*", "--partition", "0", "--log-start-offset", "12"],
        ["--rebuild", "--index-interval-bytes", "512", "--topic", "metro-zstd"],
        ["--mark-clean"],
    ],
)  # fmt: skip
def test_printed_next_command_carries_out_the_recover_plan(
    log_dir: Path, words: list[str], capfd: Capfd
) -> None:
    for name in ("metro-none-0", "metro-zstd-0"):
        damage(log_dir / name / FIRST)
    assert run(["recover", "--json", *words, str(log_dir)]) == 1
    out, err = capfd.readouterr()
    (advice,) = [line.removeprefix("next: kseg ") for line in err.splitlines() if line.startswith("next: ")]
    steps = [row for row in map(json.loads, out.splitlines()) if row["type"] == "step"]
    status, rows = json_run(*shlex.split(advice), capfd=capfd)
    assert status == 0
    assert [row for row in rows if row["type"] == "step"] == steps


@pytest.mark.parametrize("is_asked", [True, False])
def test_recover_drops_its_pages_from_the_page_cache(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd, is_asked: bool
) -> None:
    """With either policy, cached pages are dropped at the end, for valid and for damaged partitions."""
    damage(log_dir / "fares-0" / FIRST)
    dropped = set()

    def note(descriptor: int, start: int, length: int, advice: int) -> None:
        assert (start, length, advice) == (0, 0, os.POSIX_FADV_DONTNEED)
        dropped.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "posix_fadvise", note)
    paths = log_dir / "fares-0", log_dir / "metro-none-0"
    words = ["--jobs", "1", *map(str, paths), *(["--drop-cache"] if is_asked else [])]
    assert run(["recover", *words]) == 1
    capfd.readouterr()
    files = {file.resolve() for path in paths for file in path.iterdir()}
    assert dropped == (files if is_asked else set())
