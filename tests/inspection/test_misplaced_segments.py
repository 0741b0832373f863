"""Lookups beside segments whose files have the names of others: the answer is a broker's, and its finding says where the offset is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.raw_batches import T0
from tests.support.scan_helpers import batch, file_of

STARTS = (0, 20, 40, 60)


@pytest.fixture
def swapped(tmp_path: Path) -> Path:
    """Four segments of five batches with four records each; the contents of the second and the third have changed places."""
    partition = tmp_path / "orders-0"
    partition.mkdir()
    for name, start in zip(STARTS, (0, 40, 20, 60), strict=True):
        data, _ = file_of([batch(first, 4) for first in range(start, start + 20, 4)])
        (partition / f"{name:020d}.log").write_bytes(data)
    return partition


def look_up(
    capfd: Capfd, partition: Path, *query: str
) -> tuple[int, list[int | None], list[tuple[str, str, str]]]:
    """The status, the offsets of the answers, and the errors: id, file, message."""
    capfd.readouterr()
    status = run(["lookup", "--json", *query, str(partition)])
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    answers = [row["offset"] for row in rows if row["type"] == "lookup"]
    errors = [
        (row["id"], Path(row["path"]).name, row["message"])
        for row in rows
        if row["type"] == "finding" and row["severity"] == "error"
    ]
    return status, answers, errors


@pytest.mark.parametrize(
    ("offset", "answer", "finding", "file", "place"),
    [
        # behind the name of the asked segment there are later batches
        (25, 40, "segment-overlap", 20, 40),
        # there are earlier ones, and a broker continues with the next segment
        (41, 60, "offset-below-segment", 40, 20),
        (59, 60, "offset-below-segment", 40, 20),
    ],
)
def test_lookup_says_that_an_offset_is_in_a_segment_with_another_name(
    swapped: Path, capfd: Capfd, offset: int, answer: int, finding: str, file: int, place: int
) -> None:
    status, answers, errors = look_up(capfd, swapped, "--offset", str(offset))
    assert (status, answers) == (1, [answer])
    ((found, where, message),) = errors
    assert (found, where) == (finding, f"{file:020d}.log")
    assert (
        f"offset {offset} is in " in message and f"{place:020d}.log, where no broker looks for it" in message
    )


@pytest.mark.parametrize("offset", [0, 19, 60, 79])
def test_lookup_in_a_segment_with_the_right_name_reports_nothing(
    swapped: Path, capfd: Capfd, offset: int
) -> None:
    assert look_up(capfd, swapped, "--offset", str(offset)) == (0, [offset], [])


def test_lookup_by_time_reports_a_segment_with_another_name(swapped: Path, capfd: Capfd) -> None:
    status, answers, errors = look_up(capfd, swapped, "--timestamp", str(T0))
    assert (status, answers, errors) == (0, [0], [])
    (swapped / f"{0:020d}.log").unlink()
    status, answers, errors = look_up(capfd, swapped, "--timestamp", str(T0))
    assert (status, answers) == (1, [40])
    assert [error[0] for error in errors] == ["segment-overlap"]


def test_newest_record_of_a_key_is_that_with_the_highest_offset(tmp_path: Path, capfd: Capfd) -> None:
    """Each batch has the same keys. In the last segment by its name there are batches of the one before."""
    partition = tmp_path / "orders-0"
    partition.mkdir()
    for name, start in zip((0, 20, 40), (0, 40, 20), strict=True):
        data, _ = file_of([batch(first, 4) for first in range(start, start + 20, 4)])
        (partition / f"{name:020d}.log").write_bytes(data)
    status, answers, errors = look_up(capfd, partition, "--key", "k1")
    assert (status, answers) == (1, [57])
    assert [error[0] for error in errors] == ["segment-overlap"]
