"""Compare rows of `kseg metadata --json` with the image that the real classes build from the same files (kseg.oracle.Images)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kseg.cli.main import run
from tests.kafka.shared_java import run_java

Row = dict[str, Any]


def rows_of(capfd: pytest.CaptureFixture[str], *words: object, status: int | None = 0) -> list[Row]:
    """status: the expected exit status. None allows either, because an earlier state may assign replicas that no longer exist."""
    capfd.readouterr()
    done = run(["metadata", "--json", *map(str, words)])
    assert done == status or (status is None and done in (0, 1))
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def of_kind(rows: Sequence[Row], kind: str, fields: Sequence[str]) -> list[str]:
    """Rows of a kind, reduced to these fields and sorted."""
    found = []
    for row in rows:
        if row["type"] == kind:
            if kind == "broker" and "host" not in row:
                (client,) = [each for each in row["listeners"] if each["name"] == "PLAINTEXT"]
                row = {**row, **client}
            found.append(json.dumps({field: row[field] for field in fields}, sort_keys=True))
    return sorted(found)


def real_images(
    snapshot: str | None, from_offset: int, segments: Sequence[str], offsets: Sequence[int]
) -> dict[int | None, list[Row]]:
    asked = {"snapshot": snapshot, "from": from_offset, "segments": segments, "offsets": offsets}
    done = run_java("kseg.oracle.Images", stdin=json.dumps(asked))
    done.check_returncode()
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    return {answer["offset"]: answer["rows"] for answer in answers}


def assert_same(rows: Sequence[Row], truth: Sequence[Row]) -> None:
    """Compare every field that the real image has."""
    kinds = {row["type"]: [name for name in row if name != "type"] for row in truth}
    compared = ("feature", "broker", "topic", "partition", "config", "acl", "scram", "quota")
    assert set(kinds) <= set(compared)
    ours = [row for row in rows if not (row["type"] == "feature" and row["name"] == "kraft.version")]
    for kind in compared:
        fields = kinds.get(kind, ["type"])
        assert of_kind(ours, kind, fields) == of_kind(truth, kind, fields), kind
