"""Grammar that a machine can check, in the transcripts and in every sentence of the sources: no "1 errors", no "offsets 7 to 7", no epoch
milliseconds."""

from __future__ import annotations

import io
import re
import tokenize

import pytest

from tests.support.paths import ROOT
from tests.test_rooms import ROOMS
from tests.transcripts import FOLDER
from tests.user_strings import said_in

# "1 errors", but not the end of a larger number, of a version or of a name
_PLURAL_OF_ONE = re.compile(
    r"(?<![\w.,:-])(?<!node )1 (?:more |valid |damaged |bad |marked |old |live |expired |empty )?([a-z]+s)\b"
)
_SAME_TWICE = re.compile(r"(?<![\w.:-])(\d[\d,]*) to \1(?![\d,.]*\d)")
_EPOCH_MS = re.compile(r"(?<![\w.])1[67]\d{11}(?: ms\b)?(?!\))")
_SINGULAR_IN_S = frozenset(
    ("alias", "bus", "has", "is", "was", "its", "this", "ms", "loss", "class", "pass", "address", "process")
)
_CALL = re.compile(r"\{[a-z_][a-z_.]*\(")
_MILLISECONDS = re.compile(r"\{[^{}]*(?:timestamp|_ms)[^{}]*\} ms\b")


def _shown() -> list[tuple[str, str]]:
    return [
        (path.name, line)
        for path in sorted(FOLDER.glob("*.txt"))
        for line in path.read_text(encoding="utf-8").splitlines()
        # commands and JSON
        if not line.startswith(("$ ", "{"))
    ]


def test_counts_of_one_have_no_plural() -> None:
    wrong = [
        (name, line)
        for name, line in _shown()
        for found in _PLURAL_OF_ONE.findall(line)
        if found not in _SINGULAR_IN_S
    ]
    assert not wrong


def test_range_of_one_is_not_written_as_a_range() -> None:
    assert not [(name, line) for name, line in _shown() if _SAME_TWICE.search(line)]


def test_times_are_printed_as_dates() -> None:
    """A lookup shows the number after the date, in parentheses."""
    assert not [(name, line) for name, line in _shown() if _EPOCH_MS.search(line)]


@pytest.mark.parametrize("room", ROOMS)
def test_no_source_sentence_has_epoch_milliseconds(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    output = [
        (path.name, sentence) for path in files for _, kind, sentence in said_in(path) if kind == "finding"
    ]
    assert not [each for each in output if _MILLISECONDS.search(each[1])]


def _calls_in_plain_strings(source: str) -> list[str]:
    """String literals with a call in braces that are no f-strings, so that users would read the call."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    plain = (each.string for each in tokens if each.type == tokenize.STRING)
    return [text for text in plain if "f" not in text[: text.index(text[-1])].lower() and _CALL.search(text)]


@pytest.mark.parametrize("room", ROOMS)
def test_no_sentence_shows_a_call_of_the_source(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert not [
        (path.name, text) for path in files for text in _calls_in_plain_strings(path.read_text("utf-8"))
    ]


def test_sentence_checks_find_their_mistakes() -> None:
    assert _calls_in_plain_strings('f"{a(b)}" "is {words(found)}"') == ['"is {words(found)}"']
    assert _PLURAL_OF_ONE.findall("1 errors") and _PLURAL_OF_ONE.findall("and 1 more batches")
    assert not _PLURAL_OF_ONE.findall("2.1 records") and not _PLURAL_OF_ONE.findall("orders-1 is")
    assert _SAME_TWICE.search("offsets 116 to 116") and not _SAME_TWICE.search("offsets 116 to 1160")
    assert _EPOCH_MS.search("since 1750000013001 ms") and not _EPOCH_MS.search("(1750000013001)")
