"""Reduce the rows that several commands print about one log to answers that can be compared."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.counted import counted
from kseg.segment.layout import INT64_MAX
from tests.support.command_rows import rows_of

KINDS = {"torn-tail", "zero-tail", "zero-filled", "bad-crc", "bad-length", "foreign-bytes", "bad-magic"}
ALTERED = {"altered-base-offset", "altered-leader-epoch"}
LEVELS = ("position", "length", "first_offset", "last_offset", "records")
Answer = tuple[Any, ...]


def answers(found: list[dict[str, Any]]) -> set[Answer]:
    """The answers in the findings about damage."""
    return {
        (row["id"], Path(row["path"]).name, *(row[name] for name in LEVELS))
        for row in found
        if row["type"] == "finding" and row["id"] in KINDS and "claimed_offset" in row
    }


def altered(found: list[dict[str, Any]]) -> set[Answer]:
    """The answers in the findings about header fields that the checksum does not cover."""
    return {
        (
            row["id"],
            Path(row["path"]).name,
            *(row[name] for name in LEVELS[:-1]),
            row.get("found_base_offset", row["first_offset"]),
        )
        for row in found
        if row["type"] == "finding" and row["id"] in ALTERED
    }


def common_answers(partition: Path, capfd: pytest.CaptureFixture[str]) -> set[Answer]:
    """The answers of verify about the damage in a partition, after checking that dump, lookup and recover give the same ones."""
    found = rows_of(capfd, "verify", partition)
    verified = answers(found)
    logs = sorted(partition.glob("*.log"))
    dumped = [rows_of(capfd, "dump", path) for path in logs]
    assert set().union(*map(answers, dumped)) == verified
    if altered(found):
        assert set().union(*map(altered, dumped)) == altered(found)
        for answer in altered(found):
            for offset in _asked_for(answer, (answer[4], answer[6]), logs)[:1]:
                assert answer in altered(rows_of(capfd, "lookup", "--offset", offset, partition))
    run(["dump", *map(str, logs)])
    output = capfd.readouterr().err
    for _, _, position, length, *_ in verified:
        assert f"no valid batch in the {counted(length, 'byte')} at position {position}" in output
    planned = rows_of(capfd, "recover", partition)
    assert answers(planned) == verified
    (result,) = (row for row in planned if row["type"] == "result")
    removed = {
        (row["finding"], Path(row["file"]).name, *(row[name] for name in LEVELS))
        for row in result["removed"]
        if row["finding"] in KINDS
    }
    known = {answer for answer in verified if answer[5] is not None and not _holds_more(answer, planned)}
    assert known <= removed, (known - removed, planned)
    for answer in verified:
        for offset in _asked_for(answer, (answer[4],), logs):
            found_there = rows_of(capfd, "lookup", "--offset", offset, partition)
            looked = answers(found_there)
            assert looked <= verified
            assert answer in looked or _is_answered_before(answer, offset, altered(found_there))
    return verified


def _asked_for(answer: Answer, offsets: Iterable[int | None], logs: list[Path]) -> list[int]:
    """The offsets whose lookup searches the log of this answer. A base offset that was altered may claim one in the range of another
    log."""
    base = int(Path(answer[1]).stem)
    following = min((int(log.stem) for log in logs if int(log.stem) > base), default=INT64_MAX)
    return [offset for offset in offsets if offset is not None and base <= offset < following]


def _is_answered_before(answer: Answer, offset: int, altered: set[Answer]) -> bool:
    """Whether a batch before the damage claims the offset or a later one, with a header that the lookup reports as altered. A fetch returns
    that batch and never reads the damage."""
    return any(
        name == answer[1]
        and position < answer[2]
        and claimed + (0 if last is None else last - first) >= offset
        for _, name, position, _, first, last, claimed in altered
    )


def _holds_more(answer: Answer, planned: list[dict[str, Any]]) -> bool:
    """Whether salvage found a complete batch inside the damage, at another offset, and keeps or restores it."""
    _, name, position, length, *_ = answer
    return any(
        row["type"] == "finding"
        and row["id"] not in KINDS
        and Path(row["path"]).name == name
        and row["position"] is not None
        and position <= row["position"] < position + length
        for row in planned
    )
