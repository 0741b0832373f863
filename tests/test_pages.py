"""What the pages name exists: commands, options, findings, files of the repository, links, and the numbers of the long runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kseg.cli.option_schema import bind, parameters, quick_read
from kseg.cli.registry import COMMANDS, function_of
from kseg.compaction.cleaner.cleanable import Bound
from kseg.compaction.retention.freeing import Hold
from kseg.compaction.retention.rules import Rule
from kseg.inspection.copies.compare_copies import VERDICTS
from kseg.inspection.disk_leftovers import LeftoverKind
from kseg.internal_topics.metadata.directory_status import DirectoryStatus
from kseg.internal_topics.transactions.transaction_log import STATES
from kseg.recovery.broker_start.partition_start import Loading
from kseg.segment.findings import CATALOGUE
from kseg.segment.partition.topic_settings import Source
from tests.support.paths import ROOT
from tests.test_rooms import ROOMS

DOCS = sorted((ROOT / "docs").glob("*.md"))
# pages that are not on the site
BESIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "fixtures/README.md")]
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in (*DOCS, *BESIDE)}
OPTIONS = {name: {flag for each in parameters(function_of(name)) for flag in each.flags} for name in COMMANDS}
EVERY_OPTION = {"--help", "--version", "--install-completion"}.union(*OPTIONS.values())
# on the same line or the line before
OTHER_PROGRAMS = re.compile(
    r"kafka-[a-z-]+\.sh|\./release|mkdocs|ruff|sha256sum|aws s3|pip install|bench\.|the tool only|abort_command|--list --state"
)
# created by the build of the tests, or by a release
NOT_IN_REPOSITORY = ("tests/kafka/java/target/", "tests/spark/target/")


def _command_lines() -> Iterator[object]:
    for page, text in TEXTS.items():
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            start = r"(?:\$ )?" if language == "sh" else r"\$ "
            for line in re.findall(rf"^ *{start}(kseg [^#\n]+)", block, re.MULTILINE):
                yield pytest.param(line, id=f"{page}: {line.strip()}")


@pytest.mark.parametrize("line", [*_command_lines()])
def test_command_lines_on_the_pages_are_valid(line: str) -> None:
    _, name, *words = shlex.split(re.split(r"[|>]", line)[0])
    known = parameters(function_of(name))
    given = quick_read(known, words)
    assert given is not None
    bind(known, given)


@pytest.mark.parametrize("page", TEXTS)
def test_options_on_the_pages_exist(page: str) -> None:
    unknown = list[str]()
    before = ""
    for line in TEXTS[page].splitlines():
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", line)) - EVERY_OPTION
        unknown += [] if OTHER_PROGRAMS.search(before + line) else sorted(named)
        before = line
        for quoted in re.findall(r"`kseg ([^`]*)`", line):
            name, *words = quoted.split() or [""]
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            unknown += sorted(options - OPTIONS[name]) if name in OPTIONS else []
    assert unknown == []


@pytest.mark.parametrize("page", TEXTS)
def test_repository_paths_on_the_pages_exist(page: str) -> None:
    gone = list[str]()
    for word in re.findall(
        rf"`(?:\./)?((?:{'|'.join((*ROOMS, 'bench', 'docs', 'fixtures', 'man', 'tests'))})/[\w./*-]+)`",
        TEXTS[page],
    ):
        there = [*ROOT.glob(word), *ROOT.glob(f"{word}.*")]
        gone += [] if there or word.startswith(NOT_IN_REPOSITORY) else [word]
    assert gone == []


@pytest.mark.parametrize("path", BESIDE, ids=lambda path: path.name)
def test_links_on_the_pages_exist(path: Path) -> None:
    """The site generator checks the links of the other pages."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_findings_on_the_data_directory_page_are_in_the_catalogue() -> None:
    """They also have the severity that the page names."""
    severities = {name: kind.severity for name, kind in CATALOGUE.items()}
    text = TEXTS["docs/data-directory.md"]
    named = {
        each
        for many in re.findall(r"→ ((?:`[a-z-]+`(?:, )?)+)", text)
        for each in re.findall(r"`([^`]+)`", many)
    }
    assert len(named) > 60 and named <= severities.keys()
    for identifier, severity in re.findall(r"`([a-z-]+)` \((error|warning|info)s?\b", text):
        assert severities[identifier] == severity


def test_long_runs_table_has_the_defaults_of_the_tests() -> None:
    rows = re.findall(r"^\| (`tests/.+?) \| .+ \| (.+) \|$", TEXTS["CONTRIBUTING.md"], re.MULTILINE)
    assert len(rows) > 40
    for tests, numbers in rows:
        sources = [path for name in re.findall(r"`([^`]+)`", tests) for path in ROOT.glob(name)]
        text = "".join(
            path.read_text(encoding="utf-8") for path in (*sources, ROOT / "tests/support/failing_disks.py")
        )
        for variable, gate in re.findall(r"`(KSEG_\w+)`(?: ([\d,]+))?", numbers):
            default = re.search(rf'"{variable}", "?([\d_]+)', text)
            assert variable in text and (not gate or default is not None), (tests, variable)
            assert not gate or default is None or int(default[1]) == int(gate.replace(",", "")), (
                tests,
                variable,
            )


VALUES_IN_JSON: dict[str, Sequence[str]] = {
    "diff": VERDICTS,
    "doctor": [*LeftoverKind],
    "transactions": STATES,
    "compact": [*Bound],
    "metadata": [*DirectoryStatus],
    "retain": [*Rule, *Hold, *Source],
    "broker-start": [*Loading],
}


@pytest.mark.parametrize("section", VALUES_IN_JSON)
def test_json_contract_names_every_value_of_a_choice(section: str) -> None:
    """The sections of `docs/json.md`. `tests/cli/test_json_contract.py` compares their fields with the output."""
    (text,) = re.findall(rf"^## {section}\n(.*?)^## ", TEXTS["docs/json.md"], re.MULTILINE | re.DOTALL)
    quoted = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    named = {*quoted, *" ".join(quoted).split()}
    assert [value for value in VALUES_IN_JSON[section] if value not in named] == []
