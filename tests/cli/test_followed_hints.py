"""Every `next:` line that a command prints works as printed and covers everything that was requested. Following these lines from `verify`
on leads to a directory in which `recover` has nothing left to repair.

Every command on every kind of damage makes several hundred commands and as many hints, which take half a minute of CPU time; hence `slow`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fixtures import diseases, healthy
from fixtures import side_diseases as S
from kseg.cli.main import run
from kseg.segment.findings import CATALOGUE
from kseg.segment.terminal import shell_quoted
from tests.internal_topics.metadata_logs import topic_id
from tests.recovery.verify.test_verify_side_diseases import SIDE_DISEASES
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.damaged_dirs import ID, INNER

Inflict = Callable[[Path], object]
NOW = ("--now", "1800000000000")
# beside the data directory
OUTPUT = "exported"
COMMANDS: dict[str, tuple[str, ...]] = {
    "verify": NOW,
    "list": NOW,
    "dump": (),
    "lookup": ("--offset", "3"),
    "read": ("--offset", "0", "--max-bytes", "1KiB"),
    "recover": NOW,
    "compact": ("--cleanup-policy", "compact", *NOW),
    "retain": ("--retention-ms", "7d", "--cleanup-policy", "delete", *NOW),
    "groups": (),
    "transactions": NOW,
    "metadata": (),
    "doctor": NOW,
    "export": ("--to", "json", "--output", OUTPUT),
    "undo": ("--forget",),
}
# until there are no more hints: verify, a plan, its --apply
STEPS = 4


def in_log(disease: Callable[[Path], object], data: Path) -> None:
    disease(data / f"{INNER}.log")


CASES: dict[str, Inflict] = {
    **{disease.__name__: partial(in_log, disease) for disease in diseases.LOG_DISEASES},
    **{name: damage for name, damage, _ in SIDE_DISEASES},
    "stray": lambda data: S.stray_directory(data / "metro-1"),
    "deleted": lambda data: S.deleted_directory(data / "metro-1"),
    "future": lambda data: S.future_directory(data / "metro-1"),
    "bad_name": lambda data: S.bad_directory_name(data / "metro-1"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy.log_dir(tmp_path_factory.mktemp("sound") / "data")


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "a data dir")


class Shell:
    """Runs commands and reads the suggested next command."""

    def __init__(self, capfd: Capfd) -> None:
        self._capfd = capfd

    def type(self, *words: str | Path) -> tuple[int, list[str]]:
        """Returns the exit status and the arguments of the next command."""
        self._capfd.readouterr()
        shutil.rmtree(OUTPUT, ignore_errors=True)
        status = run([*map(str, words)])
        out, err = self._capfd.readouterr()
        lines = [
            line.removeprefix("next: ") for line in (out + err).splitlines() if line.startswith("next: ")
        ]
        assert len(lines) <= 1
        return status, shlex.split(lines[0])[1:] if lines else []

    def complaints(self, data: Path) -> set[str]:
        rows = rows_of(self._capfd, "verify", *NOW, data)
        return {row["id"] for row in rows if row.get("severity") in ("error", "warning")}


@pytest.fixture
def shell(capfd: Capfd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    return Shell(capfd)


# --- append, export, undo


@pytest.mark.parametrize("partition", ["metro-0", "a new one-3"])
def test_printed_append_command_carries_out_the_plan(data: Path, partition: str, shell: Shell) -> None:
    lines = data.with_name("some lines.jsonl")
    lines.write_text('{"type":"record","key":"a","value":"b"}\n', encoding="utf-8")
    target = data / partition.replace(" ", ".")
    words = ("append", "--from", lines, "--codec", "gzip", *NOW, target)
    assert shell.type(*words) == (1, ["append", "--apply", *map(str, words[1:])])
    status, next_words = shell.type(*shell.type(*words)[1])
    assert (status, next_words) == (0, [])
    assert shell.type("undo", target)[0] == 0


def test_append_hint_after_a_pipe_asks_for_the_input_again(data: Path, capfd: Capfd) -> None:
    """The plan has consumed the pipe, so the same command without the pipe would not work."""
    lines = data.with_name("lines.jsonl")
    lines.write_text('{"type":"record","value":"b"}\n', encoding="utf-8")
    head = "next, with the same lines on standard input: "
    assert with_input(lines, ["append", "--from", "-", str(data / "metro-0")]) == 1
    output = "".join(capfd.readouterr())
    (reported,) = [line.removeprefix(head) for line in output.splitlines() if line.startswith(head)]
    assert "next: " not in output
    assert with_input(lines, shlex.split(reported)[1:]) == 0
    assert "1 record in 1 batch" in capfd.readouterr().out


def with_input(path: Path, words: list[str]) -> int:
    kept = os.dup(0)
    with path.open("rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        return run(words)
    finally:
        os.dup2(kept, 0)
        os.close(kept)


def test_hint_of_an_export_with_damage_leads_to_its_repair(data: Path, shell: Shell) -> None:
    diseases.bad_crc(data / f"{INNER}.log")
    words = ("export", "--to", "json", "--output", OUTPUT, "--topic", "metro", data)
    assert shell.type(*words) == (1, ["recover", "--topic", "metro", str(data)])
    assert shell.type(*shell.type("recover", "--topic", "metro", *NOW, data)[1])[0] == 0
    assert shell.type(*words) == (0, [])


def test_printed_forget_command_forgets_the_run(data: Path, shell: Shell) -> None:
    """This includes a relative path, although the journals of a run contain absolute paths."""
    diseases.bad_crc(data / f"{INNER}.log")
    assert shell.type("recover", "--apply", *NOW, data)[0] == 0
    assert shell.type("undo", "--forget", data.name) == (1, ["undo", "--apply", "--forget", data.name])
    assert shell.type("undo", "--apply", "--forget", data.name) == (0, [])
    assert not [*data.rglob(".kseg"), *data.glob("kseg-journal*")]


@pytest.mark.slow
@pytest.mark.parametrize("damage", CASES.values(), ids=CASES.keys())
def test_every_hint_of_every_command_works(data: Path, damage: Inflict, shell: Shell, tmp_path: Path) -> None:
    damage(data)
    followed: list[
        list[str]
    ] = []  # nothing changes before the break, so a repeated hint would give the same result
    for command, options in COMMANDS.items():
        status, words = shell.type(command, *options, data)
        assert status not in (2, 70)
        if not words or words in followed:
            continue
        followed.append(words)
        assert words[-1] == str(data) or words[0] == "dump", "it is about all that was asked"
        assert shell.type(*words)[0] not in (2, 3, 70) or words[0] == "dump"
        if "--apply" in words:
            # the other commands were tried before the change
            break


@pytest.mark.slow
@pytest.mark.parametrize("damage", CASES.values(), ids=CASES.keys())
def test_hints_from_verify_lead_to_a_repair(data: Path, damage: Inflict, shell: Shell) -> None:
    damage(data)
    words, typed = ["verify", *NOW, str(data)], 0
    while words and words[0] in ("verify", "recover"):
        typed += 1
        assert typed <= STEPS
        _, words = shell.type(*words)
    left = {kind for kind in shell.complaints(data) if CATALOGUE[kind].hint.startswith("kseg recover")}
    assert left <= {
        *("partition-metadata-corrupt", "partition-metadata-missing"),
        *("meta-properties-corrupt", "meta-properties-missing"),
    }, "nobody knows the ids here, and the plan asks for --topic-id or --node-id"


def test_hint_repairs_nine_partitions_in_one_run(data: Path, shell: Shell) -> None:
    for number in range(9):
        partition = healthy.partition(data / f"ward-{number}")
        (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(5)}")
        diseases.bad_crc(sorted(partition.glob("*.log"))[1])
    for command in ("verify", "dump"):
        _, words = shell.type(command, data)
        assert words == ["recover", str(data)]
    status, words = shell.type(*words)
    assert status == 1 and words[:2] == ["recover", "--apply"]
    assert shell.type(*words)[0] == 0
    assert shell.complaints(data) == set()


@pytest.mark.evidence("meta-properties")
@pytest.mark.parametrize("content", [None, b"", b"version=1\n", b"\0" * 70])
def test_hint_asks_last_for_values_only_the_user_knows(
    data: Path, content: bytes | None, shell: Shell, capfd: Capfd
) -> None:
    """It is asked for in one line with all other repairs. With the values filled in, that command repairs everything."""
    (data / "meta.properties").unlink()
    if content is not None:
        (data / "meta.properties").write_bytes(content)
    diseases.bad_crc(data / f"{INNER}.log")
    run(["recover", *NOW, str(data)])
    head, _, command = capfd.readouterr().out.splitlines()[-1].partition(": ")
    assert head == "next, with the values of this node"
    words = shlex.split(command)[1:]
    assert words[:2] == ["recover", "--apply"] and words[-1] == str(data)
    values = {"N": "1", "ID": "Mz9XvQe1R0mU7bTq2LkP5w", "UUID": "BwcHBwcHBwcHBwcHBwcHBw"}
    status, more = shell.type(*(values.get(word, word) for word in words))
    assert status == 0 and not more
    assert not {kind for kind in shell.complaints(data) if kind.startswith(("meta-", "bad-crc"))}


def test_hint_of_a_partly_failed_plan_leads_to_recover(data: Path, shell: Shell) -> None:
    """`recover` repairs what the cleaner refuses and what a broker cannot load."""
    diseases.bad_crc(data / f"{INNER}.log")
    assert shell.type("compact", "--cleanup-policy", "compact", *NOW, data) == (5, ["recover", str(data)])
    (data / "metro-0" / "partition.metadata").write_bytes(bytes(43))
    status, words = shell.type("recover", "--policy", "kafka", *NOW, data)
    assert status == 5 and words[0] == "recover" and "--policy" not in words and "--apply" not in words


# --- directories that are marked for deletion


@pytest.fixture
def marked(data: Path) -> Path:
    """A damaged directory of a deleted topic."""
    diseases.bad_crc(data / f"{INNER}.log")
    S.deleted_directory(data / "metro-0")
    return data / f"metro-0.{ID}-delete"


@pytest.mark.evidence("suffixed-directory")
@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in ("groups", "metadata", "doctor", "undo")]
)
def test_directory_marked_for_deletion_is_not_damage(
    data: Path, marked: Path, command: str, shell: Shell, capfd: Capfd
) -> None:
    status = run([command, *COMMANDS[command], str(data)])
    output = "".join(capfd.readouterr())
    assert "marked for deletion; the broker removes it at its next start" in output
    assert "bad-crc" not in output and f"recover {marked}" not in output
    if command in ("verify", "recover", "list"):
        assert status == 0


def test_directory_marked_for_deletion_is_not_repaired(data: Path, marked: Path, shell: Shell) -> None:
    before = {path: path.read_bytes() for path in marked.iterdir()}
    assert shell.type("recover", "--apply", "--mark-clean", *NOW, data)[0] == 0
    assert {path: path.read_bytes() for path in marked.iterdir()} == before


def test_directory_marked_for_deletion_can_be_given_explicitly(
    marked: Path, shell: Shell, capfd: Capfd
) -> None:
    """As if somebody deleted a topic by mistake and stopped the broker before it deleted the files."""
    status, words = shell.type("verify", *NOW, marked)
    assert status == 1 and words == ["recover", str(marked)]
    assert shell.type("recover", "--apply", *NOW, marked)[0] == 0
    assert run(["verify", *NOW, str(marked)]) == 0
    assert "marked for deletion" in capfd.readouterr().out


def test_directory_marked_for_deletion_is_named_if_nothing_else_matches(
    data: Path, marked: Path, capfd: Capfd
) -> None:
    assert run(["recover", "--topic", "metro", "--partition", "0", str(data)]) == 2
    assert f"{marked} is marked for deletion" in capfd.readouterr().err


# --- typed into a shell, where the path has anything in it

ODD = os.fsdecode(b"a b\n\xffc 'd'")


class TypedShell:
    """Runs lines in bash exactly as they were printed, in the directory above the data directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def type(self, line: str, mark: str = "next: ") -> tuple[int, str]:
        """Returns the exit status, and the next line to type: what follows the mark."""
        done = subprocess.run(
            ["bash", "-c", line], cwd=self._folder, env=self._environment, capture_output=True, check=False
        )
        # fails if any of it is not UTF-8
        printed = (done.stdout + done.stderr).decode().splitlines()
        reported = [each.partition(mark)[2] for each in printed if each.lstrip().startswith(mark)]
        assert len(reported) <= 1 and done.returncode not in (2, 70), printed
        return done.returncode, reported[0] if reported else ""


@pytest.fixture
def typed(sound: Path, tmp_path: Path) -> TypedShell:
    shutil.copytree(sound, tmp_path / ODD / "data")
    (tmp_path / ODD / "lines.jsonl").write_text('{"type":"record","key":"a","value":"b"}\n', encoding="utf-8")
    return TypedShell(tmp_path)


def test_printed_hints_work_in_a_shell_with_odd_names(typed: TypedShell, tmp_path: Path) -> None:
    data = tmp_path / ODD / "data"
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    diseases.bad_crc(data / f"{INNER}.log")
    damaged = (data / f"{INNER}.log").read_bytes()
    status, line = typed.type(f"kseg verify --now {NOW[1]} {shell_quoted(f'{ODD}/data')}")
    assert status == 1 and line.startswith("kseg recover ")
    status, line = typed.type(line)
    assert status == 1 and line.startswith("kseg recover --apply ")
    status, line = typed.type(line, "undo with: ")
    assert status == 0 and line.startswith("kseg undo ")
    assert typed.type(line)[0] == 0
    assert {path: path.read_bytes() for path in before} == before | {data / f"{INNER}.log": damaged}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("append --from {folder}/lines.jsonl --codec gzip {folder}/data/metro-0", 1),
        ("compact --cleanup-policy compact --include-active {folder}/data/metro-0", 1),
        ("retain --retention-bytes 1 --cleanup-policy delete {folder}/data/metro-0", 1),
    ],
)
def test_printed_apply_and_undo_commands_work_in_a_shell(
    typed: TypedShell, command: str, status: int
) -> None:
    folder = shell_quoted(ODD)
    reported, line = typed.type(f"kseg {command.format(folder=folder)} --now {NOW[1]}")
    assert reported == status and " --apply " in line
    reported, line = typed.type(line, "undo with: ")
    assert reported == 0 and line.startswith("kseg undo ")
    assert typed.type(line)[0] == 0


@pytest.mark.slow
def test_printed_export_and_forget_hints_work_in_a_shell(typed: TypedShell, tmp_path: Path) -> None:
    diseases.bad_crc(tmp_path / ODD / "data" / f"{INNER}.log")
    folder = shell_quoted(ODD)
    status, line = typed.type(f"kseg export --to json --output {folder}/out {folder}/data")
    assert status == 1 and line.startswith("kseg recover ")
    assert typed.type(typed.type(line)[1])[0] == 0
    status, line = typed.type(f"kseg undo --forget {folder}/data")
    assert status == 1 and line.startswith("kseg undo --apply --forget ")
    assert typed.type(line) == (0, "")
