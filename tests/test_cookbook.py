"""The cookbook is up to date: every command prints what the page shows, on a directory with that incident."""

from __future__ import annotations

import re

import pytest

from tests import cookbook

PAGE = cookbook.PAGE.read_text(encoding="utf-8")
SECTIONS = {section.name: section for section in cookbook.sections(PAGE)}
PARTS = ["Symptoms", "Diagnosis", "Repair", "Verification", "Undo"]


@pytest.mark.parametrize("name", SECTIONS)
def test_cookbook_shows_the_printed_output(name: str) -> None:
    assert cookbook.made_anew(PAGE, only=name) == PAGE, "run python -m tests.cookbook and review the diff"


def test_cookbook_has_fifteen_incidents_with_all_parts() -> None:
    assert list(SECTIONS) == list(cookbook.INCIDENTS) and len(SECTIONS) == 15
    assert len(re.findall(r"^## \d+\. ", PAGE, re.MULTILINE)) == 15
    for section in SECTIONS.values():
        assert re.findall(r"^### (.*)$", section.text, re.MULTILINE) == PARTS, section.name
        assert any("$ kseg " in block for block in section.blocks("console")), section.name


def test_incident_of_a_start_has_the_lines_of_a_broker() -> None:
    """`tests/kafka/test_cookbook.py` looks for these lines, and for those of a coordinator, of retention and of the cleaner."""
    reported = {section.name for section in SECTIONS.values() if section.blocks("log")}
    starts = {name for name, incident in cookbook.INCIDENTS.items() if incident.log_dirs}
    assert reported == {*starts, "group-went-back", "expired", "uncleaned"}


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_damaged_directory_of_an_incident_is_repaired_and_then_restored(section: cookbook.Section) -> None:
    """If the incident is about files, the last verdict is a good one, and the last command undoes the repair."""
    if section.name in ("hanging-transaction", "group-went-back", "expired"):
        return
    commands = [line for block in section.blocks("console") for line in block.splitlines() if line.startswith("$ ")]  # fmt: skip
    assert commands[-1].startswith(("$ kseg undo ", "$ mv "))
    sure = section.text[section.text.index("### Verification") : section.text.index("### Undo")]
    assert "(exit status 0)" in sure and "DAMAGED" not in sure
