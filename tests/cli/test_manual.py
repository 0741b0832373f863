"""The man pages are up to date."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from kseg.cli import manual
from kseg.cli.help_page import STATUS
from kseg.cli.option_schema import parameters
from kseg.cli.registry import COMMANDS, function_of, module_of
from kseg.segment.findings import CATALOGUE
from tests.support.paths import ROOT

MAN = ROOT / "man"


def test_man_pages_are_up_to_date() -> None:
    lying = {path.name: path.read_text(encoding="utf-8") for path in MAN.glob("*.[17]")}
    assert lying == manual.pages(), "stale: run python -m kseg.cli.manual"


def test_completion_scripts_are_up_to_date() -> None:
    lying = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "completions").iterdir()}
    assert lying == manual.completions(), "stale: run python -m kseg.cli.manual"
    assert lying["_kseg"].startswith("#compdef kseg\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_man_page_starts_with_examples(name: str) -> None:
    headings = re.findall(r"^\.SH (.*)$", manual.pages()[f"kseg-{name}.1"], re.MULTILINE)
    assert headings[:4] == ["NAME", "SYNOPSIS", "EXAMPLES", "DESCRIPTION"]


def plain(page: str) -> str:
    return re.sub(r"\\f[BIR]", "", page).replace(r"\-", "-").replace(r"\e", "\\").replace(r"\&", "")


def test_man_page_lists_every_finding_with_severity_and_sentence() -> None:
    page = plain(manual.pages()["kseg-findings.7"])
    listed = re.findall(r"^\.TP\n([a-z0-9-]+) \((\w+)\)\n(.*)\.$", page, re.MULTILINE)
    assert listed == [(kind.id, kind.severity, kind.sentence) for kind in CATALOGUE.values()]


@pytest.mark.parametrize("name", COMMANDS)
def test_man_page_has_every_option_example_and_status(name: str) -> None:
    page = plain(manual.pages()[f"kseg-{name}.1"])
    for parameter in parameters(function_of(name)):
        assert parameter.spec.help in page
        for flag in parameter.flags:
            assert re.search(rf"^(.*, )?{re.escape(flag)}\b", page, re.MULTILINE)
    for _, words in module_of(name).EXAMPLES:
        assert f"\n{words}\n" in page
    for status, meaning in STATUS:
        assert f"\n{status}\n{meaning}.\n" in page


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_accepts_every_man_page() -> None:
    for name in manual.pages():
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z", str(MAN / name)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), name
