"""Findings and answers as DataFrames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fixtures import diseases, healthy
from kseg.jobs import fanout as local
from kseg.jobs.events import Failure, Row
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import Expansion, FileTarget, resolve_targets
from kseg.spark.findings_frame import EVENT_COLUMNS, FINDING_COLUMNS, events, findings
from kseg.spark.options import ClusterOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
OPTIONS = VerifyOptions(now_ms=healthy.T0)


@pytest.fixture
def home(tmp_path: Path) -> str:
    directory = healthy.log_dir(tmp_path / "data")
    for disease, log in zip(diseases.LOG_DISEASES, sorted(directory.glob("metro-*/*.log")), strict=False):
        disease(log)
    return str(directory)


def test_findings_dataframe_has_a_row_for_each_finding(any_spark: SparkSession, home: str) -> None:
    targets = resolve_targets([home], expand=Expansion.VERIFY)
    expected = [event for event in local.run(verify, targets, OPTIONS) if isinstance(event, Finding)]
    frame = findings(verify, targets, OPTIONS, ClusterOptions())
    assert [f"{name} {kind}" for name, kind in frame.dtypes] == FINDING_COLUMNS.split(", ")
    rows = frame.collect()
    assert len(expected) > 10
    assert [(row.id, row.path, row.message, row.position, row.first_offset) for row in rows] == [
        (each.id, each.path, each.message, each.position, each.first_offset) for each in expected
    ]
    assert {row.target for row in rows} <= {target.path for target in targets}
    figures = [
        {name: value if value is None else str(value) for name, value in each.numbers.items()}
        for each in expected
    ]
    assert [row.numbers for row in rows] == figures
    assert any(None in each.values() for each in figures), "a figure that there is not is null, and no word"


def test_answers_dataframe_has_a_row_with_its_json_line(local_spark: SparkSession, home: str) -> None:
    targets = [*resolve_targets([home], expand=Expansion.VERIFY), FileTarget(f"{home}/absent.log")]
    expected = [
        event for event in local.run(verify, targets, OPTIONS) if isinstance(event, Finding | Row | Failure)
    ]
    frame = events(verify, targets, OPTIONS, ClusterOptions())
    assert [f"{name} {kind}" for name, kind in frame.dtypes] == EVENT_COLUMNS.split(", ")
    rows = frame.collect()
    assert len(rows) == len(expected)
    for row, event in zip(rows, expected, strict=True):
        values = json.loads(row.json)
        assert values["type"] == row.type
        if isinstance(event, Finding):
            assert values == json.loads(json.dumps(event.as_row()))
        elif isinstance(event, Row):
            assert values == json.loads(json.dumps(dict(event.values)))
        else:
            assert (values["path"], values["message"]) == (event.path, event.sentence)
