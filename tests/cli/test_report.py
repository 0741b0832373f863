"""The output of a run over many partitions: the verdict comes first, for any number; --verbose and JSON contain everything."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from fixtures.diseases import bad_crc
from kseg.cli.main import run
from kseg.cli.render import Style, show
from kseg.cli.report import FAILURES_ALIKE_SHOWN, FINDING_LINES, FindingGroups
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.compact import CompactReport
from kseg.cli.text.folded_rows import FoldedRows
from kseg.cli.text.lookup import LookupReport
from kseg.cli.text.recover import RecoverReport
from kseg.jobs.events import Failure
from kseg.segment.counted import listed
from kseg.segment.findings import CATALOGUE, ERROR, INFO, WARNING, Finding
from tests.support.broken_dirs import broken_dir
from tests.support.broker_dirs import broker_dir
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

NOW = ("--now", "1795250600000")
Say = Callable[..., tuple[int, list[str]]]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 partitions in the state after a broker was killed."""
    return broker_dir(tmp_path_factory.mktemp("report") / "data", 3, 8)


@pytest.fixture(scope="module")
def flipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same partitions with one flipped bit."""
    data = broker_dir(tmp_path_factory.mktemp("report") / "flipped", 3, 8)
    bad_crc(data / "orders.01-5" / f"{0:020d}.log")
    return data


@pytest.fixture
def say(capfd: Capfd) -> Say:
    def say(*words: object) -> tuple[int, list[str]]:
        status = run([*map(str, words)])
        return status, capfd.readouterr().out.splitlines()

    return say


def test_verify_reports_a_crashed_but_undamaged_directory_in_a_few_lines(crashed: Path, say: Say) -> None:
    status, lines = say("verify", *NOW, crashed)
    assert status == 0 and len(lines) < 12
    assert lines[0] == "SOUND: no errors in 25 partitions"
    assert sum("index-preallocated" in line for line in lines) == 1
    assert lines[-1].endswith("; 0 errors, 0 warnings")


def test_single_error_is_printed_below_the_verdict(flipped: Path, say: Say) -> None:
    status, lines = say("verify", *NOW, flipped)
    assert status == 1 and len(lines) < 15
    assert lines[0] == "DAMAGED: 1 error in 1 of 25 partitions"
    assert "orders.01-5/00000000000000000000.log: error: " in lines[1] and "(bad-crc; " in lines[1]
    assert any(line.startswith("25 partitions: 24 sound, 1 damaged: orders.01-5; at most ") for line in lines)


def test_verbose_prints_every_finding_of_the_json(flipped: Path, say: Say) -> None:
    _, lines = say("verify", "--json", *NOW, flipped)
    rows = [json.loads(line) for line in lines]
    findings = [row for row in rows if row["type"] == "finding"]
    _, reported = say("verify", "-v", *NOW, flipped)
    for each in findings:
        assert any(
            f"{each['path']}: {each['severity']}: {each['message']} ({each['id']}" in line
            for line in reported
        )
    by_kind = Counter(each["id"] for each in findings)
    assert by_kind["index-preallocated"] == 50 and len(reported) > len(findings)
    assert rows[-1]["type"] == "summary" and rows[-1]["errors"] == 1
    assert {row["kind"] for row in rows if row["type"] == "verified"} == {"partition", "log-dir"}


def test_plan_text_has_totals_first_and_groups_equal_partitions(flipped: Path, say: Say) -> None:
    status, lines = say("recover", *NOW, flipped)
    assert status == 1 and len(lines) < 20
    assert lines[0].startswith("DUE: ") and " of 25 partitions are to be repaired, " in lines[0]
    (own,) = [line for line in lines if line.startswith("orders.01-5: ")]
    assert own.startswith("orders.01-5: a repair is due: ") and "policy salvage loses 4 records" in own
    (alike,) = [line for line in lines if line.startswith("23 partitions (")]
    assert alike.endswith("): a repair is due: 3 steps, no record lost")
    assert (
        "1 partition: nothing to repair" in lines
    )  # the metadata log, whose preallocated indexes a node rebuilds at every start
    assert any(line.startswith("policy salvage (this plan): 4 records lost") for line in lines)
    assert lines[-1] == f"next: kseg recover --apply --now {NOW[1]} {flipped}"


def test_one_partition_is_reported_in_full(flipped: Path, say: Say) -> None:
    _, lines = say("recover", *NOW, flipped / "orders.01-5")
    assert sum(line.startswith("  write ") for line in lines) >= 3
    _, folded = say("recover", *NOW, flipped)
    assert not any(line.startswith("  write ") for line in folded)
    _, reported = say("recover", "--verbose", *NOW, flipped)
    assert sum(line.startswith("  write ") for line in reported) > 60


@pytest.mark.parametrize("command", ["recover", "retain", "compact"])
def test_json_output_ends_with_a_summary(flipped: Path, say: Say, command: str) -> None:
    _, lines = say(command, "--json", *NOW, flipped)
    rows = [json.loads(line) for line in lines]
    assert [row["type"] for row in rows].count("summary") == 1
    assert (rows[-1]["type"], rows[-1]["command"], rows[-1]["targets"]) == ("summary", command, 25)


def on_terminal(words: list[str], **variables: str) -> bytes:
    """The output of the command on a terminal."""
    child, master = pty.fork()
    if not child:
        os.environ.update({"TERM": "xterm", **variables})
        status = run(words)
        os._exit(status)
    return b"".join(_read(master))


def _read(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, 1 << 16)
        except OSError:
            return
        if not data:
            return
        yield data


def test_severities_are_coloured_on_a_terminal_unless_disabled(flipped: Path) -> None:
    words = ["verify", *NOW, "--no-progress", "--jobs", "1", str(flipped)]
    shown = on_terminal(words)
    assert shown.startswith(b"\x1b[1;31mDAMAGED:\x1b[0m 1 error")
    assert b": \x1b[1;31merror\x1b[0m: " in shown
    (flipped / "orders.01-5" / "leader-epoch-checkpoint").write_text("garbage")
    page = on_terminal(["doctor", *NOW, "--no-progress", "--jobs", "1", str(flipped)])
    assert b"\n  \x1b[1;31ma 4.3.1 broker on node 1 does not start: " in page
    assert b"\x1b[1;31m\x1b[0m" not in page
    assert b"\x1b" not in on_terminal(words, NO_COLOR="1")
    assert b"\x1b" not in on_terminal(words, TERM="dumb")


def test_lookup_answers_of_many_partitions_fit_a_few_lines(tmp_path: Path, say: Say) -> None:
    """`lookup --latest` has one answer for each partition: the first ones are shown in full, more of them in a line each, and the others
    are counted."""
    data = broker_dir(tmp_path / "data", 1, 60, linked=True)
    words = ("lookup", "--latest", "--topic", "orders.00", data)
    status, lines = say(*words)
    assert status == 0 and len(lines) <= 70
    answers = [line for line in lines if line.startswith("orders.00-")]
    assert len(answers) == 40 and any(line == "… and 20 more answers (--verbose shows all)" for line in lines)
    assert len([line for line in say(*words, "--verbose")[1] if line.startswith("orders.00-")]) == 60
    rows = [json.loads(line) for line in say(*words, "--json")[1]]
    assert len({row["partition"] for row in rows if row["type"] == "lookup"}) == 60


# --- everything at once


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of damage, twice."""
    return broken_dir(tmp_path_factory.mktemp("broken") / "data", 2, 60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "at_most"),
    [
        (("verify",), 60),
        (("recover",), 70),
        (("recover", "--policy", "kafka"), 70),
        (("doctor",), 70),
        (("compact", "--cleanup-policy", "compact"), 70),
        (("retain", "--cleanup-policy", "delete", "--retention-ms", "7d"), 70),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_output_fits_a_screen_for_any_amount_of_damage(
    words: tuple[str, ...], at_most: int, broken: Path, capfd: Capfd
) -> None:
    assert run([*words, *NOW, "--jobs", "1", str(broken)]) in (1, 5)
    reported = "".join(capfd.readouterr()).splitlines()
    assert len(reported) <= at_most
    assert any(": error: " in line for line in reported[:10]) or words[0] in ("compact", "retain", "doctor")
    assert any("--verbose shows all" in line for line in reported) or words[0] == "retain"
    rows = rows_of(capfd, *words, *NOW, "--jobs", "1", broken, status=range(6))
    kinds = {row["id"] for row in rows if row["type"] == "finding" and row["severity"] != "info"}
    text = "\n".join(reported)
    assert not {kind for kind in kinds if kind not in text}, "each kind is there, by its number at least"


def test_many_finding_kinds_show_the_first_of_each_and_counts() -> None:
    groups = FindingGroups()
    for kind in CATALOGUE:
        for number in range(42):
            groups.add(Finding(kind, f"data/t-{number}", "it is so"))
    lines = [line for severity in (ERROR, WARNING, INFO) for line in groups.lines(severity)]
    assert len(lines) <= FINDING_LINES
    text = "\n".join(line.text for line in lines)
    assert [kind for kind in CATALOGUE if f"({kind})" not in text and f"42 × {kind}" not in text] == []


@pytest.mark.parametrize(("count", "reported", "more"), [(9, 3, "6"), (4, 4, ""), (5, 3, "2")])
def test_single_remaining_finding_is_printed_instead_of_one_more(
    count: int, reported: int, more: str
) -> None:
    """Such a line would take the place of the finding itself. Together with findings of another kind there are too many to show all."""
    groups = FindingGroups()
    if count < 9:
        for number in range(5):
            groups.add(Finding("time-index-missing", f"data/other-{number}", "it is so"))
    for number in range(count):
        groups.add(Finding("index-missing", f"data/t-{number}", "it is so"))
    texts = [line.text for line in groups.lines(WARNING)]
    own = [text for text in texts if "(index-missing" in text or "more index-missing" in text]
    assert len(own) == reported + bool(more)
    assert not more or own[-1].startswith(f"  … and {more} more ")


def _hit(number: int) -> dict[str, object]:
    return {
        "type": "lookup",
        "partition": f"t-{number}",
        "directory": f"t-{number}",
        "found": True,
        "offset": 7,
    }


def _streamed(report: LookupReport | FoldedRows, rows: Iterable[Mapping[str, object]]) -> list[str]:
    lines: list[str] = []
    for row in rows:
        report.row(row)
        lines += report.words(row)
    return [*lines, *(line.text for line in report.closing(RunSummary(1)))]


@pytest.mark.parametrize("number", range(1, 60))
def test_last_remaining_line_is_printed_instead_of_1_more(number: int) -> None:
    """`1 more` would take the same space and say less."""
    numbers = range(number)
    names = [f"t-{each}" for each in numbers]
    plan = RecoverReport(lambda _options, _paths: "")
    for each in numbers:
        plan.row({"type": "step", "words": f"step {each}"})
    plan.row({"type": "result", "partition": "p-0", "steps": number, "policy": "salvage", "costs": {}})
    folded = FoldedRows(lambda row: [str(row["path"])], "file", lambda _count, _summary: "")
    for reported in (
        [listed(names, 5)],
        [listed(names[:6], 5, "partition", number)],
        _streamed(LookupReport(False, True), map(_hit, numbers)),
        _streamed(folded, ({"type": "result", "path": name} for name in names)),
        [line.text for line in plan.opening(RunSummary(1))],
    ):
        text = "\n".join(reported)
        more = sum(int(each) for each in re.findall(r"and (\d+) more", text))
        assert more != 1
        shown = [name for name in names if re.search(rf"\b{name}\b", text)] or re.findall(r"step \d+", text)
        assert len(shown) + more == number


def test_costliest_plans_are_listed_first() -> None:
    report = RecoverReport(lambda _options, _paths: "")
    for number in range(2200):
        cost = {
            "batches": 0,
            "bytes": 78,
            "offsets": number % 100,
            "records": number % 100,
            "damaged_bytes_left": 0,
        }
        costs = {"salvage": cost, "kafka": cost | {"records": 2 * (number % 100)}}
        report.row(
            {"type": "result", "partition": f"t-{number}", "steps": 3, "policy": "salvage", "costs": costs}
        )
    lines = [line.text for line in report.opening(RunSummary(2200))]
    assert lines[0] == "DUE: 2,200 of 2,200 partitions are to be repaired, 108,900 records lost"
    assert lines[1:3] == [
        "policy salvage (this plan): 108,900 records lost",
        "policy kafka: 217,800 records lost",
    ]
    assert len(lines) == 24
    assert lines[3] == (
        "22 partitions (t-99, t-199, t-299, …): a repair is due: 3 steps; policy salvage loses 99 records; policy kafka loses 198 records"
    )
    assert lines[-1] == f"… and {2200 - 20 * 22:,} more partitions (--verbose shows all)"


def test_unprintable_names_are_quoted_for_a_shell(tmp_path: Path, say: Say) -> None:
    """This holds for lines about partitions and for lines about paths."""
    (made,) = broker_dir(tmp_path / "made", 1, 1).glob("orders.00-0")
    odd = os.fsdecode(b"a\nb\xff-0")
    shutil.copytree(made, tmp_path / "odd" / odd)
    shutil.copytree(made, tmp_path / "odd" / "even-0")
    bad_crc(tmp_path / "odd" / odd / f"{0:020d}.log")
    quoted = r"$'a\x0ab\xff-0'"
    for command in ("verify", "recover"):
        text = "\n".join(say(command, *NOW, tmp_path / "odd")[1])
        assert quoted in text and "\\n" not in text and "\udcff" not in text


def test_failures_at_different_files_are_grouped(capfd: Capfd) -> None:
    """For example if a file system has no inodes left, each change fails at another file."""
    sentence = "cannot change {}: No space left on device; nothing was changed"
    files = ("/.kseg/20261126T024225Z-7fad7822/old", "/00000000000000000000.log", "", "/.kseg")
    failures = [
        Failure(f"data/orders-{at}", sentence.format(f"data/orders-{at}{files[at % 4]}"), 4)
        for at in range(40)
    ]
    tally = RunSummary(len(failures))
    style = Style(command="compact", report=CompactReport(), findings_are_result=True)
    show(iter(failures), style, [], tally)
    reported = capfd.readouterr().err.splitlines()
    assert len(reported) == FAILURES_ALIKE_SHOWN + 1 and "37 more targets failed" in reported[-1]


def test_failed_targets_never_exceed_the_number_of_targets() -> None:
    """The data directory's own files failed as well, but are not a target of compact."""
    summary = RunSummary(2)
    for path in ("data/a-0", "data/b-0", "data"):
        summary.fail(Failure(path, f"cannot read {path}: Input/output error", 3))
    (line, *_) = CompactReport().opening(summary)
    assert line.text.startswith("INCOMPLETE: 2 of 2 targets failed") and summary.exit_status() == 3
