"""The command line: two parsers with the same results; help, completion, versions, errors, start-up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.cli import main, typer_app
from kseg.cli.help_page import STATUS, help_lines
from kseg.cli.option_schema import Argument, Parameter, bind, parameters, quick_read
from kseg.cli.options import default_jobs, key_bytes
from kseg.cli.registry import COMMANDS, function_of, module_of
from kseg.jobs.events import Failure
from kseg.jobs.guarded import guarded
from kseg.segment.errors import UsageError
from kseg.segment.partition.targets import FileTarget
from kseg.segment.quantities import read_time
from tests.support.command_lines import Capfd
from tests.support.paths import ROOT

SAMPLES = {
    "N": "7",
    "N|checkpoint": "7",
    "E": "3",
    "R": "0.5",
    "TIME": "2024-05-01T12:00Z",
    "DURATION": "5m",
    "SIZE": "64KiB",
    "GLOB": "or*",
    "REGEX": "a.b",
    "K=V": "spark.ui.enabled=true",
}


def words_for(parameter: Parameter, negative: bool, glued: bool) -> list[str]:
    """One way to give a parameter on the command line."""
    if isinstance(parameter.spec, Argument):
        return ["some.log"]
    flag = parameter.flags[-1] if negative else parameter.flags[0]
    if parameter.shape in ("flag", "pair"):
        return [flag]
    value = parameter.spec.choices[-1] if parameter.spec.choices else SAMPLES.get(parameter.spec.metavar, "x")
    return [f"{flag}={value}"] if glued else [flag, value]


@st.composite
def command_lines(draw: st.DrawFn) -> tuple[str, list[str]]:
    name = draw(st.sampled_from(COMMANDS))
    known = parameters(function_of(name))
    chosen = draw(st.lists(st.sampled_from(known), max_size=8))
    needed = [parameter for parameter in known if parameter.required and parameter not in chosen]
    words = [words_for(each, draw(st.booleans()), draw(st.booleans())) for each in [*chosen, *needed]]
    return name, [word for group in draw(st.permutations(words)) for word in group]


@given(command_lines())
@settings(max_examples=150, deadline=None)
def test_both_parsers_give_the_same_values(line: tuple[str, list[str]]) -> None:
    name, words = line
    command = function_of(name)
    seen: list[dict[str, Any]] = []

    def spy(**values: Any) -> int:
        seen.append(values)
        return 0

    spy.__annotations__ = command.__annotations__
    spy.__kwdefaults__ = command.__kwdefaults__
    known = parameters(command)
    raw = quick_read(known, words)
    assert raw is not None

    import typer

    typed = typer.Typer(add_completion=False)
    typed.callback()(lambda: None)
    typed.command(name)(typer_app._for_typer(spy))
    typed(args=[name, *words], prog_name="kseg", standalone_mode=False)
    assert seen == [bind(known, raw)]


@pytest.mark.parametrize(
    "words",
    [["--help"], ["-h"], ["--nonsense"], ["--limit"], ["--json=1"], ["--", "x"], ["-x"], ["--lim", "1"]],
)
def test_quick_parser_leaves_unusual_arguments_to_typer(words: list[str]) -> None:
    assert quick_read(parameters(function_of("dump")), words) is None


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help_and_every_command_examples(name: str) -> None:
    for parameter in parameters(function_of(name)):
        assert parameter.spec.help.endswith("."), parameter.name
    examples = module_of(name).EXAMPLES
    assert len(examples) >= 3
    for _, words in examples:
        given_words = words.split(" > ")[0].split()
        assert given_words[:2] == ["kseg", name]
        known = parameters(function_of(name))
        raw = quick_read(known, given_words[2:])
        assert raw is not None, words
        bind(known, raw)


def kseg(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kseg", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"} | environment,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_shows_every_option_and_the_examples(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main.run([name, "--help"]) == 0
    shown = capfd.readouterr()
    assert shown.err == ""
    for parameter in parameters(function_of(name)):
        for flag in parameter.flags:
            assert flag in shown.out
    for _, words in module_of(name).EXAMPLES:
        assert words in shown.out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_two_screens(name: str) -> None:
    lines = [line for _, line in help_lines(name, 80)]
    assert len(lines) <= 100 and lines.index("Examples") < 10
    is_example = re.compile(" {4}[^ ]").match
    assert all(len(line) <= 80 for line in lines if not is_example(line))
    assert not any(line.endswith("?:") for line in lines)
    described = [line for line in lines if line.startswith("  --")]
    assert len(described) == len([each for each in parameters(function_of(name)) if each.flags])


def test_help_of_the_program_lists_the_commands_and_the_exit_status() -> None:
    shown = kseg("--help", COLUMNS="80").stdout.splitlines()
    assert sorted(line.split()[0] for line in shown if re.match(" {2}[a-z]", line)) == sorted(COMMANDS)
    assert [line.split(maxsplit=1) for line in shown if re.match(" +[0-9]", line)] == [
        [str(status), meaning] for status, meaning in STATUS
    ]
    assert max(map(len, shown)) <= 80
    assert kseg().returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--help"], ["dump", "--help"]])
def test_help_has_a_minimum_width_and_may_be_cut_short(words: list[str]) -> None:
    """COLUMNS=0 used to empty the help, and it ended with status 1 if its reader had exited."""
    assert kseg(*words, COLUMNS="0").stdout == kseg(*words, COLUMNS="80").stdout
    with subprocess.Popen(
        [sys.executable, "-m", "kseg", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dmp"], "kseg: No such command 'dmp'. Did you mean 'dump'? (see kseg --help)"),
        (["dump", "--limit", "0", "x"], "kseg: --limit takes a whole number from 1, not '0'"),
        (["dump", "--format", "xml", "x"], "kseg: --format takes one of kafka, json, table, not 'xml'"),
        (["dump", "--from-time", "noon", "x"], "kseg: --from-time takes epoch milliseconds, an ISO 8601 time such as 2024-05-01T12:00:00Z, a clock time such as 14:03, -1h or now, not 'noon'"),
        (["dump", "--max-bytes", "3GiB", "x"], "kseg: --max-bytes takes at most 2147483647 bytes, not '3GiB'"),
        (["dump", "--from-offset", "1_000", "x"], "kseg: --from-offset takes a whole number, not '1_000'"),
        (["dump", "--from-offset", "9" * 5000, "x"], "kseg: --from-offset takes a number of at most 64 bits, not '999"),
        (["dump", "--limit", "9" * 5000, "x"], "kseg: --limit takes a whole number from 1, not '999"),
        (["lookup", "--offset", "-5", "x"], "kseg: --offset takes an offset, a whole number from 0, not '-5'"),
        (["read", "--offset", "-1", "x"], "kseg: --offset takes an offset, a whole number from 0, not '-1'"),
        (["dump", "--from-offset", str(2**63), "x"], "kseg: --from-offset takes a number of at most 64 bits, not '9223372036854775808'"),
        (["dump", "--key-decoder-class", "com.example.D", "x"], "kseg: kseg cannot run the decoder class com.example.D: it has org.apache.kafka.tools.api.StringDecoder, org.apache.kafka.tools.api.IntegerDecoder, org.apache.kafka.tools.api.LongDecoder"),
        (["dump", "--key", "xyz", "--key-encoding", "hex", "x"], "kseg: --key 'xyz' is not hex"),
        (["dump", "--leader-epoch", "x", "x"], "kseg: --leader-epoch takes a leader epoch, a whole number from 0, not 'x'"),
        (["dump", "--master", "local", "x"], "kseg: --master requires --spark"),
        (["list", "--py-files", "a.py", "x"], "kseg: --py-files requires --spark"),
        (["dump", "--from-offset", "9", "--to-offset", "8", "x"], "kseg: --from-offset is after --to-offset: no record is in this range"),
        (["export", "--to", "csv", "--output", "o", "--from-time", "-1h", "--to-time", "-2h", "x"], "kseg: --from-time is after --to-time: no record is in this range"),
        (["lookup", "--key", "k", "--from-offset", "9", "--to-offset", "8", "x"], "kseg: --from-offset is after --to-offset: no record is in this range"),
        (["dump", "--key-regex", "(", "x"], "kseg: --key-regex '(' is not a regular expression"),
        (["dump"], "kseg: kseg dump needs at least one PATH"),
        (["verify", "--quick", "--deep", "x"], "kseg: --quick and --deep are mutually exclusive"),
        (["lookup", "x"], "kseg: kseg lookup takes exactly one of --offset, --timestamp, --max-timestamp, --earliest, --earliest-local, --latest-tiered, --earliest-pending-upload, --latest, --key, --leader-epoch"),
        (["lookup", "--latest", "--all", "x"], "kseg: --all requires --key"),
        (["metadata", "--node", "x", "x"], "kseg: --node takes a node id, a whole number from 0, not 'x'"),
        (["recover", "--node-id", str(2**31), "x"], "kseg: --node-id takes a node id, a whole number from 0, not '2147483648'"),
        (["verify", ""], "kseg: PATH takes a path, not '': is a variable of the shell not set?"),
        (["undo", ""], "kseg: JOURNAL takes a path, not '': is a variable of the shell not set?"),
        (["recover", "--output", "", "x"], "kseg: --output takes a path, not '': is a variable of the shell not set?"),
        (["recover", "--journal=", "x"], "kseg: --journal takes a path, not '': is a variable of the shell not set?"),
        (["doctor", "--html", "", "x"], "kseg: --html takes a path, not '': is a variable of the shell not set?"),
        (["append", "--from", "", "x"], "kseg: --from takes a path, not '': is a variable of the shell not set?"),
    ],
)  # fmt: skip
def test_wrong_usage_prints_one_sentence_and_exits_with_2(
    words: list[str], sentence: str, capfd: Capfd
) -> None:
    assert main.run(words) == 2
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(sentence) and shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("1714564800", "1970-01-20T20:16:04.800Z"),
        ("20240501", "1970-01-01T05:37:20.501Z"),
        ("1714564800000000", "after the year 5137"),
        ("1714564800000", None),
        ("0", None),
        ("2024-05-01", None),
    ],
)
def test_number_in_another_unit_than_milliseconds_is_named(text: str, when: str | None, capfd: Capfd) -> None:
    assert main.run(["dump", "--from-time", text, "missing.log"]) == 3
    note = f"kseg: numbers are times in epoch milliseconds: {text} is {when}\n" if when else ""
    assert capfd.readouterr().err == f"{note}kseg: cannot read missing.log: No such file or directory\n"


def test_deleted_current_directory_exits_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd
) -> None:
    """As in a shell whose directory the broker has deleted: a relative path was a bug in kseg."""
    (tmp_path / "orders-0").mkdir()
    monkeypatch.chdir(tmp_path / "orders-0")
    (tmp_path / "orders-0").rmdir()
    for words in (["verify", "."], ["doctor", "--html", "report.html", str(tmp_path)]):
        assert main.run(words) == 3
        assert capfd.readouterr() == (
            "",
            "kseg: the current directory has been deleted: change to one that exists (cd), and run the command again\n",
        )


def test_unreadable_path_exits_with_3(tmp_path: Path) -> None:
    done = kseg("dump", str(tmp_path / "none.log"))
    assert done.returncode == 3
    assert done.stderr == f"kseg: cannot read {tmp_path}/none.log: No such file or directory\n"


def test_lack_of_memory_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: Capfd) -> None:
    def out_of_memory(*_: object) -> NoReturn:
        raise MemoryError

    (failure,) = guarded(out_of_memory, FileTarget("a.log"), None)
    advice = "try --jobs 1, or raise the limit (ulimit -v)"
    assert failure == Failure("a.log", f"not enough memory for a.log: {advice}", 3)
    monkeypatch.setattr(main, "_dispatch", out_of_memory)
    assert main.run(["dump"]) == 3
    assert capsys.readouterr().err == f"kseg: not enough memory: {advice}\n"


def test_bug_exits_with_70_and_a_report_line(monkeypatch: pytest.MonkeyPatch, capsys: Capfd) -> None:
    def broken(_words: object) -> int:
        raise RuntimeError("toy")

    monkeypatch.delenv("KSEG_TRACEBACK", raising=False)
    monkeypatch.setattr(main, "_dispatch", broken)
    assert main.run(["dump"]) == 70
    assert capsys.readouterr().err.startswith("kseg: bug in kseg: RuntimeError: toy (")


def test_version_names_interpreter_kernel_and_libraries() -> None:
    import kseg as package

    shown = kseg("--version").stdout.splitlines()
    assert shown[0] == f"kseg {package.__version__}"
    assert shown[1].startswith(("kernel: compiled", "kernel: interpreted"))
    assert shown[2].startswith("CRC-32C: ") and "CRC-32: " in shown[2]
    assert shown[3].startswith(f"python {sys.version_info.major}.{sys.version_info.minor}.")
    assert "typer " in shown[4] and "zstandard " in shown[4]
    assert kseg("--version", "dump").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "environment", "expected"),
    [
        ("bash", {"COMP_WORDS": "kseg l", "COMP_CWORD": "1"}, ["lookup", "list"]),
        ("bash", {"COMP_WORDS": "kseg dump --print", "COMP_CWORD": "2"}, ["--print-data-log"]),
        ("bash", {"COMP_WORDS": "kseg dump --format ", "COMP_CWORD": "3"}, ["kafka", "json", "table"]),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "kseg verify --de"}, ['"--deep":']),
        (
            "fish",
            {"_TYPER_COMPLETE_ARGS": "kseg ver", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
            ["verify\t"],
        ),
    ],
)
def test_completion_offers_matching_words(
    shell: str, environment: dict[str, str], expected: list[str]
) -> None:
    shown = kseg(_KSEG_COMPLETE=f"complete_{shell}", **environment)
    assert shown.stderr == ""
    for word in expected:
        assert word in shown.stdout
    assert "read" not in shown.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed_for_each_shell(shell: str) -> None:
    assert "_KSEG_COMPLETE=complete_" in kseg(_KSEG_COMPLETE=f"source_{shell}").stdout


HEAVY = ("typer", "rich", "json", "logging", "multiprocessing", "concurrent.futures", "subprocess", "asyncio")


def imported(code: str) -> set[str]:
    shown = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(shown.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("words", [["--version"], ["dump", "--format", "kafka", "missing.log"]])
def test_start_up_imports_nothing_heavy(words: list[str]) -> None:
    modules = imported(f"from kseg.cli.main import run; run({words!r})")
    assert not modules.intersection(HEAVY)


def test_dataclasses_are_imported_without_inspect_until_it_is_used() -> None:
    """From Python 3.12 on, `dataclasses` uses it for every class, so it is imported then."""
    run_one = "from kseg.cli.main import run; run(['dump', '--format', 'kafka', 'missing.log'])"
    loaded = imported(run_one)
    assert "dataclasses" in loaded
    assert sys.version_info >= (3, 12) or not loaded & {"inspect", "ast", "dis", "tokenize"}
    use_it = "import dataclasses\n@dataclasses.dataclass\nclass Point: x: int\nassert Point.__doc__ == 'Point(x: int)'"
    is_real = "import inspect; assert inspect.signature(Point) and inspect.__file__"
    assert "inspect" in imported(f"{run_one}\n{use_it}\n{is_real}")


def test_help_does_not_import_the_library() -> None:
    modules = imported("from kseg.cli.main import run; run(['--help'])")
    assert not [
        name for name in modules if name.startswith(("kseg.segment.kernel.", "kseg.segment.codecs.codec"))
    ]
    assert "kseg.jobs.fanout" not in modules and "kseg.inspection.dump.dump" not in modules


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0), ("-1", -1), ("1714564800123", 1714564800123), ("1970-01-01", 0),
        ("2024-05-01T12:00:00.123Z", 1714564800123), ("2024-05-01T14:00:00+02:00", 1714564800000),
        ("2024-05-01T12:00:00", 1714564800000), ("1969-12-31T23:59:59.999Z", -1),
    ],
)  # fmt: skip
def test_time_arguments_are_parsed(text: str, expected: int) -> None:
    assert read_time(text) == expected


def test_keys_can_be_given_as_bytes() -> None:
    assert key_bytes("é", "utf8") == "é".encode()
    assert key_bytes(os.fsdecode(b"\xff"), "utf8") == b"\xff"
    assert key_bytes("00 ff", "hex") == b"\x00\xff"
    assert key_bytes("AP8=", "base64") == b"\x00\xff"
    with pytest.raises(UsageError):
        key_bytes("AP8", "base64")


def test_default_jobs_is_the_number_of_cores() -> None:
    assert 1 <= default_jobs() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_common_options(name: str) -> None:
    flags = {flag for parameter in parameters(function_of(name)) for flag in parameter.flags}
    assert {"--json", "--quiet", "--no-progress", "--jobs", "--now"} - flags == set()
