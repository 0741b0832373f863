"""Delta and Iceberg tables, with the published jars.

Neither has a release for Spark 4.3 so far. These tests record what happens with it: Delta's jars for Spark 4.2 write new tables and append
to them, but cannot replace or read one; Iceberg's for Spark 4.1 do not work at all. With another pyspark in the directory KSEG_SPARK_4_1,
both are tested completely.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests.kafka.jars import MissingTool
from tests.spark.conftest import require_spark
from tests.spark.jars import table_jars
from tests.support.expected_exports import ExportedRecord, dumped

pytestmark = pytest.mark.spark

# runs all command lines in one process, because the jars belong to its session; prints the results as JSON, a line each
ASK = """
import contextlib, io, json, os, sys
from kseg.cli.main import run
for words in json.loads(sys.argv[1]):
    err = io.StringIO()
    with contextlib.redirect_stderr(err), open(os.devnull, "w") as nowhere:
        out = os.dup(1)
        os.dup2(nowhere.fileno(), 1)
        status = run(words)
        os.dup2(out, 1)
    print(json.dumps([status, err.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    require_spark()
    try:
        return table_jars()
    except MissingTool as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


def ask(jars: list[Path], lines: list[list[str]], spark: str = "") -> list[tuple[int, str]]:
    """(status, stderr) of command lines in one session that has the jars. spark: the directory of another pyspark."""
    settings = [
        "spark.driver.memory=1g",
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
    ]
    common = ["--spark", "--master", "local[1]", "--jars", ",".join(map(str, jars))]
    for setting in settings if any("delta" in jar.name for jar in jars) else settings[:1]:
        common += ["--spark-conf", setting]
    program = [sys.executable, "-c", ASK, json.dumps([["export", *line, *common] for line in lines])]
    environment = {**os.environ, "PYTHONPATH": spark} if spark else dict(os.environ)
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def delta_rows(table: Path) -> list[ExportedRecord]:
    """The records of a Delta table, determined from its log by the specification: files that were added and not removed."""
    import pyarrow.parquet as pq

    files: dict[str, dict[str, str]] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                files[action["add"]["path"]] = action["add"]["partitionValues"]
            elif "remove" in action:
                del files[action["remove"]["path"]]
    rows = []
    for name, values in files.items():
        for row in pq.ParquetFile(table / name).read().to_pylist():
            rows.append(_exported_record(row | values))
    return sorted(rows, key=lambda row: row[:3])


def _exported_record(row: dict[str, Any]) -> ExportedRecord:
    timestamp = round(row["timestamp"].timestamp() * 1000)
    headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
    where = (row["topic"], int(row["partition"]), row["offset"])
    return *where, timestamp, row["timestampType"], row["key"], row["value"], headers


def test_delta_table_on_this_spark_is_written(capture_small: Path, jars: list[Path], tmp_path: Path) -> None:
    data, table = capture_small / "data", tmp_path / "table"

    def line(mode: str, topic: str) -> list[str]:
        words = ["--to", "delta", "--mode", mode, "--topic", topic, "--partition-by", "topic,date"]
        return [*words, "--output", str(table), str(data)]

    created, refused, appended, replaced, iceberg = ask(
        jars,
        [
            line("errorifexists", "metro-none"),
            line("errorifexists", "fares"),
            line("append", "fares"),
            line("overwrite", "stations"),
            ["--to", "iceberg", "--output", str(tmp_path / "iceberg"), str(data)],
        ],
    )
    assert created == (0, "") and appended == (0, "")
    assert refused[0] == 4 and "already exists" in refused[1]
    # Delta 4.4.0 for Spark 4.2, running on Spark 4.3
    assert (
        replaced[0] == 2
        and "the Delta jars do not fit Spark 4.3" in replaced[1]
        and replaced[1].count("\n") == 1
    )
    assert iceberg[0] == 2 and "the Iceberg jars do not fit Spark 4.3" in iceberg[1]
    expected = dumped([data / "metro-none-0", data / "fares-0"])
    assert delta_rows(table) == expected
    assert {path.name for path in table.iterdir()} == {"_delta_log", "topic=fares", "topic=metro-none"}


@pytest.mark.skipif("KSEG_SPARK_4_1" not in os.environ, reason="KSEG_SPARK_4_1 names no pyspark 4.1")
def test_iceberg_table_on_spark_4_1_is_written(capture_small: Path, jars: list[Path], tmp_path: Path) -> None:
    data, table = capture_small / "data", tmp_path / "table"

    def line(mode: str, topic: str) -> list[str]:
        words = ["--to", "iceberg", "--mode", mode, "--topic", topic, "--partition-by", "topic,date"]
        return [*words, "--output", str(table), str(data)]

    def records(spark: str) -> list[tuple[str, int, int]]:
        code = "import json, sys; from kseg.spark import session; from kseg.spark.options import ClusterOptions\n"
        code += "options = ClusterOptions(jars=(sys.argv[1],), conf=(('spark.driver.memory', '1g'),))\n"
        code += "spark = session.get(options); frame = spark.read.format('iceberg').load(sys.argv[2])\n"
        code += (
            "print(json.dumps([list(row) for row in frame.select('topic', 'partition', 'offset').collect()]))"
        )
        own = [str(jar) for jar in jars if "iceberg" in jar.name]
        program = [sys.executable, "-c", code, *own, str(table)]
        environment = {**os.environ, "PYTHONPATH": spark}
        done = subprocess.run(program, capture_output=True, text=True, check=True, env=environment)
        return sorted(tuple(row) for row in json.loads(done.stdout.splitlines()[-1]))

    spark = os.environ["KSEG_SPARK_4_1"]
    own = [jar for jar in jars if "iceberg" in jar.name]
    lines = [line("overwrite", "stations"), line("overwrite", "metro-none"), line("append", "fares")]
    created, replaced, appended, refused, ignored = ask(
        own, [*lines, line("errorifexists", "fares"), line("ignore", "fares")], spark
    )
    assert created == replaced == appended == (0, "") and ignored[0] == 0
    assert refused[0] == 4 and "already exists" in refused[1]
    assert records(spark) == [row[:3] for row in dumped([data / "fares-0", data / "metro-none-0"])]
