"""A run is undone, listed and forgotten as a whole, by the path that was given to it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import kseg.cli.run
from kseg.change.apply.disk import Disk
from kseg.cli.main import run
from kseg.cli.run import clock_ms
from tests.support.command_lines import Capfd, Say
from tests.support.failing_disks import die_at
from tests.support.file_flags import flagged
from tests.support.trees import Entry, tree_state

# 0: the stride of each test
STRIDE = int(os.environ.get("KSEG_KILL_STRIDE", "0"))
MARKER = ".kafka_cleanshutdown"
LAST = f"{72:020}.log"


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    return shutil.copytree(capture_small / "data", tmp_path / "kafka" / "data")


def tear(data: Path, name: str) -> None:
    log = max((data / name).glob("*.log"))
    os.truncate(log, log.stat().st_size - 7)


def one(data: Path) -> None:
    tear(data, "metro-none-0")


def several(data: Path) -> None:
    for name in ("metro-none-0", "fares-0", "metro-zstd-0"):
        tear(data, name)


def torn_over_two(data: Path) -> Path:
    """Move some partitions to a second data directory of the node, and tear logs in both; returns the second one."""
    other = data.parent / "other"
    other.mkdir()
    for name in ("gates-append-0", "gates-append-1"):
        shutil.move(data / name, other / name)
    for file in ("meta.properties", "recovery-point-offset-checkpoint"):
        shutil.copy2(data / file, other / file)
    meta = (other / "meta.properties").read_text()
    (other / "meta.properties").write_text(meta.replace("directory.id=U", "directory.id=A"))
    several(data)
    tear(other, "gates-append-0")
    return other


def none_and_checkpoint(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").write_text("x")


def without_marker(data: Path) -> None:
    several(data)
    (data / MARKER).unlink()


DAMAGES = (one, several, none_and_checkpoint, without_marker)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("way", [(), ("--mark-clean",), ("--policy", "kafka")])
def test_run_is_undone_by_the_path_given_to_it(
    data: Path, damage: Callable[[Path], None], way: tuple[str, ...], say: Say
) -> None:
    damage(data)
    before = tree_state(data)
    # policy kafka leaves some damage
    assert say("recover", "--apply", *way, data)[0] in (0, 1)
    assert tree_state(data) != before
    assert say("undo", data)[0] == 0
    assert tree_state(data) == before
    assert say("undo", data)[0] == 3, "there is nothing more to take back"


@pytest.mark.parametrize("mark", [(), ("--mark-clean",)])
def test_run_over_several_data_directories_is_undone_by_their_parent(
    data: Path, say: Say, mark: tuple[str, ...]
) -> None:
    torn_over_two(data)
    before = tree_state(data.parent)
    say("recover", "--apply", *mark, data.parent)
    assert say("undo", data.parent)[0] == 0
    assert tree_state(data.parent) == before


@pytest.mark.parametrize("name", ["metro-none-0", "made-0"])
def test_run_over_one_partition_is_undone_by_its_path(data: Path, name: str, say: Say) -> None:
    """This includes what it changed in the data directory's own files."""
    lines = data.with_name("lines.jsonl")
    lines.write_text('{"type":"record","value":"b"}\n', encoding="utf-8")
    before = tree_state(data)
    assert say("append", "--apply", "--from", lines, data / name)[0] == 0
    assert tree_state(data).keys() != before.keys()
    status, rows = say("undo", data / name)
    assert status == 0 and not any("whole_run" in row for row in rows)
    assert tree_state(data) == before


@pytest.mark.parametrize("end", ["", "/"])
def test_run_over_two_partitions_is_undone_by_their_paths(
    data: Path, end: str, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(data)
    several(data)
    (data / MARKER).unlink()
    before = tree_state(data)
    paths = [f"gates-append-{number}{end}" for number in range(2)]
    for path in paths:
        tear(data, path.rstrip("/"))
    damaged = tree_state(data)
    assert damaged != before
    assert say("recover", "--apply", *paths)[0] == 0
    assert any(data.glob("kseg-journal-*"))
    status, rows = say("undo", *paths)
    assert status == 0 and not any("whole_run" in row for row in rows)
    assert tree_state(data) == damaged


def test_undo_of_a_partition_keeps_files_set_by_a_later_run(data: Path, say: Say) -> None:
    """Only the partition is restored, and the journal of the rest is named."""
    lines = data.with_name("lines.jsonl")
    lines.write_text('{"type":"record","value":"b"}\n', encoding="utf-8")
    for name in ("metro-none-0", "made-0"):
        assert say("append", "--apply", "--from", lines, data / name)[0] == 0
    made = tree_state(data / "made-0")
    status, rows = say("undo", data / "metro-none-0")
    assert status == 0 and all("whole_run" in row for row in rows)
    assert tree_state(data / "made-0") == made


@pytest.mark.parametrize("rows_shown", [20, 0])
def test_undo_output_names_what_was_not_restored(
    data: Path, capfd: Capfd, monkeypatch: pytest.MonkeyPatch, rows_shown: int
) -> None:
    """The output does not say that everything was restored, even if too many directories were restored to list them."""
    monkeypatch.chdir(data.parent)
    monkeypatch.setattr("kseg.cli.text.folded_rows._ROWS_SHOWN", rows_shown)
    names = [f"{data.name}/{name}" for name in ("metro-none-0", "fares-0", "gates-append-0")]
    for name in names:
        tear(data, Path(name).name)
    assert run(["recover", "--apply", "--quiet", *names]) == 0
    capfd.readouterr()
    assert run(["undo", *names[:2]]) == 0
    reported = capfd.readouterr().out
    assert reported.splitlines()[-1].startswith(
        "2 directories restored; the data directory's own files remain as that run left them; "
    )
    (command,) = {line.partition("undo it with: kseg ")[2] for line in reported.splitlines()} - {""}
    assert command.startswith(f"undo {data.name}/kseg-journal-")
    assert run(command.split()) == 0
    assert not [*data.glob("kseg-journal-*"), *data.glob("*/.kseg")]


def without_journals(state: Mapping[str, Entry]) -> dict[str, Entry]:
    """The state without kseg's directories, because the journals of an earlier run were beside others."""
    return {path: entry for path, entry in state.items() if not path.endswith(".kseg")}


def test_undo_of_a_path_means_its_newest_run(data: Path, say: Say) -> None:
    several(data)
    states = [tree_state(data)]
    assert say("recover", "--apply", data)[0] == 0
    states.append(tree_state(data))
    retain = ("--retention-ms", "1", "--cleanup-policy", "delete", "--topic", "metro-*")
    assert say("retain", "--apply", *retain, data)[0] == 0
    status, rows = say("undo", "--list", data)
    assert status == 0 and [row.get("changed_by") for row in rows] == ["retain", "recover", None]
    assert rows[-1]["runs"] == 2 and rows[-1]["bytes"] == rows[0]["bytes"] + rows[1]["bytes"]
    for state in reversed(states):
        assert say("undo", data)[0] == 0
        assert without_journals(tree_state(data)) == without_journals(state)
    assert say("undo", "--list", data)[1][-1]["runs"] == 0


def set_back(monkeypatch: pytest.MonkeyPatch, now_ms: int) -> None:
    monkeypatch.setattr(kseg.cli.run, "clock_ms", lambda given=None: now_ms if given is None else given)


def test_undo_finds_the_newest_run_after_the_clock_was_set_back(
    data: Path, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine starts with the time of its hardware clock, and between two runs NTP corrects it by hours or years."""
    now_ms = clock_ms()
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"value":"a"}\n')
    several(data)
    limits = ("--retention-ms", "1", "--cleanup-policy", "delete", "--topic", "metro-*")
    runs: tuple[tuple[str | Path, ...], ...] = (
        ("recover", "--apply", data),
        ("append", "--apply", "--from", lines, data / "gates-append-0"),
        ("retain", "--apply", *limits, "--now", str(now_ms), data),
    )
    states = []
    for number, words in enumerate(runs):
        states.append(tree_state(data))
        set_back(monkeypatch, now_ms - number * 10**11)
        assert say(*words)[0] == 0
    listed = [row.get("changed_by") for row in say("undo", "--list", data)[1]]
    assert listed == ["retain", "append", "recover", None]
    for state in reversed(states):
        assert say("undo", data)[0] == 0
        assert without_journals(tree_state(data)) == without_journals(state)


def test_clean_marker_relies_on_a_repair_with_a_later_date(
    data: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was set back between the repair and the run that wrote the marker."""
    without_marker(data)
    now_ms = clock_ms()
    assert say("recover", "--apply", data / "fares-0")[0] == 0
    set_back(monkeypatch, now_ms - 10**10)
    assert say("recover", "--apply", "--mark-clean", data)[0] == 0
    assert say("undo", data / "fares-0")[0] == 4


def test_undo_of_a_partition_restores_only_its_part_of_a_run(data: Path, say: Say) -> None:
    several(data)
    before = tree_state(data / "fares-0")
    assert say("recover", "--apply", data)[0] == 0
    repaired = tree_state(data / "metro-zstd-0")
    status, rows = say("undo", data / "fares-0")
    assert status == 0 and [row["directory"] for row in rows] == [str(data / "fares-0")]
    assert tree_state(data / "fares-0") == before and tree_state(data / "metro-zstd-0") == repaired
    assert say("undo", data)[0] == 0, "what is left of the run"


def test_undo_list_as_text(data: Path, capfd: Capfd) -> None:
    several(data)
    run(["recover", "--apply", "--quiet", str(data)])
    (journal,) = data.glob("kseg-journal-*-end.jsonl")
    capfd.readouterr()
    assert run(["undo", "--list", str(data)]) == 0
    first, last = capfd.readouterr().out.splitlines()
    assert " recover of 4 directories: holds " in first and first.endswith(f"undo with: kseg undo {journal}")
    assert last.startswith(f"{data}: 1 run can be undone, holding ")


# --- forgetting


def journals(data: Path) -> list[Path]:
    return [*data.rglob("kseg-journal-*"), *data.rglob(".kseg")]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("elsewhere", ["", "journal", "quarantine", "both"])
def test_undo_forget_frees_the_space(
    data: Path, damage: Callable[[Path], None], elsewhere: str, say: Say, tmp_path: Path
) -> None:
    damage(data)
    side = tmp_path / "side"
    words = {
        "": [],
        "journal": ["--journal", side],
        "quarantine": ["--quarantine", side],
        "both": ["--journal", side, "--quarantine", side],
    }[elsewhere]
    assert say("recover", "--apply", *words, data)[0] == 0
    assert say("list", data)[0] == 0
    added = {*journals(data)}
    kept = {path for path in data.rglob("*") if not {path, *path.parents} & added}
    status, planned = say("undo", "--forget", data)
    (row,) = planned
    assert (status, row["state"], row["applied"]) == (1, "forgotten", False) and journals(data)
    assert row["bytes"] > 0
    status, (row,) = say("undo", "--forget", "--apply", data)
    assert (status, row["applied"], row["bytes"]) == (0, True, planned[0]["bytes"])
    assert not journals(data) and not (side.exists() and list(side.iterdir()))
    assert {path for path in data.rglob("*") if path.name != ".lock"} == kept
    assert say("undo", "--forget", data) == (0, [])
    assert say("undo", data)[0] == 3


def test_undo_forget_plan_prints_the_command(data: Path, capfd: Capfd) -> None:
    one(data)
    run(["recover", "--apply", "--quiet", str(data)])
    capfd.readouterr()
    assert run(["undo", "--forget", str(data)]) == 1
    output = capfd.readouterr()
    assert "to be forgotten" in output.out
    assert (output.out + output.err).splitlines()[-1] == f"next: kseg undo --apply --forget {data}"
    assert run(["undo", "--apply", "--forget", str(data)]) == 0
    assert "can no longer be undone" in capfd.readouterr().out


def test_undo_forget_refuses_a_part_of_a_run(data: Path, say: Say) -> None:
    """Otherwise the rest of the run could not be undone as a whole."""
    several(data)
    assert say("recover", "--apply", data)[0] == 0
    before = tree_state(data)
    assert say("undo", "--forget", "--apply", data / "fares-0")[0] == 4
    assert tree_state(data) == before


@pytest.mark.parametrize("is_link", [True, False])
def test_undo_forget_keeps_files_unknown_to_the_journal(
    data: Path, say: Say, tmp_path: Path, is_link: bool
) -> None:
    one(data)
    assert say("recover", "--apply", data)[0] == 0
    (old,) = (data / "metro-none-0" / ".kseg").glob("*/old")
    precious = tmp_path / "precious"
    precious.write_text("mine")
    if is_link:
        (old / LAST).unlink(missing_ok=True)
        (old / "other").symlink_to(precious)
    else:
        (old / "other").write_text("mine")
    before = tree_state(data)
    assert say("undo", "--forget", "--apply", data)[0] == 4
    assert tree_state(data) == before and precious.read_text() == "mine"


@pytest.mark.parametrize(
    "words", [("--list", "--forget"), ("--list", "--finish"), ("--forget", "--finish"), ("--apply",)]
)
def test_undo_rejects_contradictory_options(data: Path, words: tuple[str, ...], say: Say) -> None:
    assert say("undo", *words, data)[0] == 2


@pytest.mark.slow
@pytest.mark.parametrize("at", range(3, 90, 8))
def test_one_undo_reverts_a_run_killed_at_any_point(data: Path, at: int, say: Say, capfd: Capfd) -> None:
    """Without a clean-shutdown marker, the data directory has no journal before the partitions do, and the last of these may only be
    staged."""
    several(data)
    (data / MARKER).unlink()
    # otherwise a killed run would leave one
    (data / ".lock").touch()
    before = tree_state(data)
    child = os.fork()
    if not child:
        die_at(at)
        run(["recover", "--apply", "--quiet", "--jobs", "1", str(data)])
        os._exit(0)
    os.waitpid(child, 0)
    assert tree_state(data) != before
    listed = say("undo", "--list", data)[1][-1]
    assert listed["runs"] or len(listed["uncommitted"]) == 1
    capfd.readouterr()
    assert run(["undo", "--list", str(data)]) == 0
    is_told = (
        "was interrupted before it changed anything; what it left is removed with: kseg undo"
        in capfd.readouterr().out
    )
    assert is_told == bool(listed["uncommitted"])
    assert run(["undo", "--quiet", str(data)]) == 0
    assert tree_state(data) == before


# --- a run over several data directories: all or nothing, and how to continue


@pytest.mark.parametrize(("flag", "what"), [("i", "immutable"), ("a", "append-only")])
@pytest.mark.parametrize("of_directory", [False, True], ids=["log", "directory"])
def test_change_of_an_immutable_file_is_refused_before_it_begins(
    data: Path, say: Say, flag: str, what: str, of_directory: bool
) -> None:
    """Staging copies what it cannot link, and the change used to end halfway. In an append-only directory, names can be added but not
    removed."""
    several(data)
    log = data / "fares-0" if of_directory else max((data / "fares-0").glob("*.log"))
    with flagged(log, flag):
        before = tree_state(data / "fares-0")
        status, rows = say("recover", "--apply", data)
        (error,) = [row for row in rows if row["type"] == "error"]
        assert (
            status == 5
            and f"{log} is {what} (`chattr {'-R ' * of_directory}-{flag} {log}` lifts that"
            in error["message"]
            and "nothing was changed" in error["message"]
        )
        assert tree_state(data / "fares-0") == before
        assert say("undo", "--list", data)[1][0]["half_done"] is False


def test_data_directory_below_a_directory_named_kseg_is_not_a_journal(
    capture_small: Path, tmp_path: Path, say: Say
) -> None:
    """`undo` used to take /mnt/kseg-work/data for the place of a journal, and refused."""
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "kseg-work" / "data"))
    several(data)
    before = tree_state(data)
    assert say("recover", "--apply", data)[0] == 0
    assert say("undo", "--list", data)[1][-1]["runs"] == 1
    assert say("undo", data)[0] == 0
    assert without_journals(tree_state(data)) == without_journals(before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "stride"),
    [
        (("undo",), STRIDE or 23),
        (("undo", "--list"), STRIDE or 7),
        (("undo", "--forget", "--apply"), STRIDE or 7),
    ],
)
def test_failed_examination_prints_one_sentence_and_a_repeat_completes(
    data: Path, words: tuple[str, ...], stride: int, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking at files fails, for one file after the other. Whatever was done by then, the same command completes it when it is run
    again."""
    several(data)
    shutil.copytree(data, tmp_path / "damaged")
    examined = Disk.status
    failed = 0
    for left in range(0, 1 << 20, stride):
        shutil.rmtree(data)
        shutil.copytree(tmp_path / "damaged", data)
        assert say("recover", "--apply", data)[0] == 0
        calls = 0

        def status(disk: Disk, path: str) -> os.stat_result | None:
            nonlocal calls
            calls += 1
            if calls == left + 1:  # noqa: B023
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return examined(disk, path)

        with monkeypatch.context() as patched:
            patched.setattr(Disk, "status", status)
            ended, rows = say(*words, data)
        sentences = [row["message"] for row in rows if row["type"] == "error"]
        assert ended in (0, 3, 4, 5) and all("Input/output error" in each for each in sentences), sentences
        failed += bool(ended)
        if calls <= left:
            break
    assert failed > 2
