"""The output of the commands in incidents equals the reviewed transcripts."""

from __future__ import annotations

import re

import pytest

from kseg.cli.registry import COMMANDS
from tests import transcripts
from tests.transcript_incidents import INCIDENTS, Incident
from tests.transcripts import FOLDER

# creates and reads a thousand partitions many times
SLOW = {"running-1050-partitions"}
CASES = [
    pytest.param(incident, id=incident.name, marks=[pytest.mark.slow] * (incident.name in SLOW))
    for incident in INCIDENTS
]


@pytest.mark.parametrize("incident", CASES)
def test_transcript_is_up_to_date(incident: Incident) -> None:
    expected = (FOLDER / f"{incident.name}.txt").read_text(encoding="utf-8")
    assert transcripts.transcript(incident) == expected, "run python -m tests.transcripts and review the diff"


def test_every_transcript_belongs_to_an_incident() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == {incident.name for incident in INCIDENTS}


def _outputs(name: str) -> list[list[str]]:
    """The lines that each command of a transcript printed."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    return [part.splitlines()[1:-1] for part in text.split("$ kseg ")[1:]]


# --- every command in every situation

FLIPPED = "# one bit of"
SITUATIONS = {
    "sound, 1,050 partitions": ("running-1050-partitions",),
    "one flipped bit": ("one-flipped-bit", "running-1050-partitions"),
    "crashed": ("crashed",),
    "torn disk": ("torn-disk",),
    "full disk": ("full-disk", "filling-disk"),
    "60 columns, NO_COLOR": ("narrow-terminal", "narrow-groups"),
    "no terminal": tuple(incident.name for incident in INCIDENTS if incident.columns is None),
}
# the reasons why a command is in no transcript
NOT_PLAYED = {
    "what-if": "it prints the processor time that it measured; tests/cli/test_what_if.py holds its lines",
    "diff": "it takes two directories; two-copies plays it",
}
WRITING = ("append", "compact", "export", "recover", "retain", "undo")


def _played(situation: str, name: str) -> list[str]:
    """The commands of a transcript that belong to the situation."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    if name == "running-1050-partitions" and situation.startswith(("sound", "one")):
        before, mark, behind = text.partition(FLIPPED)
        assert mark
        text = before if situation.startswith("sound") else behind
    return re.findall(r"^\$ kseg (.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_command_is_in_the_transcripts_of_every_situation(situation: str) -> None:
    played = [line for name in SITUATIONS[situation] for line in _played(situation, name)]
    assert set(COMMANDS) - NOT_PLAYED.keys() <= {line.split()[0] for line in played}


@pytest.mark.parametrize("situation", ["one flipped bit", "torn disk", "full disk"])
def test_transcripts_apply_changes_and_do_not_only_plan(situation: str) -> None:
    """Each transcript applies a change and does not only plan it; `export` and `undo` have no plan."""
    played = [line for name in SITUATIONS[situation] for line in _played(situation, name)]
    done = {
        line.split()[0] for line in played if "--apply" in line or line.startswith(("export", "undo data"))
    }
    assert done >= set(WRITING) - ({"compact"} if situation == "one flipped bit" else set())


def test_transcript_of_a_thousand_partitions_is_short() -> None:
    """A valid directory takes at most 60 lines, one with an error 70, with the error among the first ten. No other command takes more."""
    sound, *others, flipped, page, plan, _, _, _ = reported = _outputs("running-1050-partitions")
    assert len(sound) <= 60
    assert len(others) >= 8 and all(len(lines) <= 70 for lines in reported)
    for lines in (flipped, plan):
        assert len(lines) <= 70 and any("error:" in line for line in lines[:10])
    assert (
        len(page) <= 60
        and page[0].startswith("DAMAGED: 1 error")
        and "       kseg recover --repair-bits data" in page
    )
    assert any("1 damaged: orders.07-31" in line and "records in the damage" in line for line in flipped)
    assert "next: kseg recover data" in flipped and "next: kseg recover --repair-bits data" in plan


def test_lookup_hit_in_transcripts_fits_six_lines() -> None:
    text = (FOLDER / "sound.txt").read_text(encoding="utf-8")
    printed = next(part for part in text.split("$ kseg ") if part.startswith("lookup --key")).splitlines()[1:]
    hits = sum(line.startswith("orders.") for line in printed)
    assert hits == 4 and len(printed) <= 6 * hits + 10


def test_transcripts_explain_a_full_disk_once() -> None:
    for name in ("full-disk", "filling-disk"):
        for lines in _outputs(name):
            advice = [line for line in lines if "retain --purge --apply" in line]
            assert len(advice) <= 3, name
