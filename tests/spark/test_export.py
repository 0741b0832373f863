"""`kseg export --spark`: Spark's own writers write files with the same content as an export without a cluster."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.expected_exports import dumped, exported, files_of, odd_partition, text_of
from tests.support.run_commands import as_without_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Unchanged = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def data(capture_small: Path) -> Path:
    return capture_small / "data"


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    return odd_partition(tmp_path / "in")


def both(tmp_path: Path, words: list[str], capfd: Capfd) -> tuple[Path, Path, str, str]:
    """Export without and with a cluster, which must exit with the same status; returns the outputs, and what was written to stderr."""
    here, there = tmp_path / "here", tmp_path / "there"
    status = run(["export", "--output", str(here), *words])
    printed = capfd.readouterr().err
    assert run(["export", "--spark", "--output", str(there), *words]) == status
    return here, there, printed, as_without_spark(capfd.readouterr().err)


def partitions(root: Path) -> list[Path]:
    return sorted({path.parent for path in root.rglob("*.log")})


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """The complete rows of an export as JSON lines, including `_meta`."""
    rows = [json.loads(line) for path in files_of(directory) for line in text_of(path).split("\n")[:-1]]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def test_spark_json_export_equals_the_local_one(
    local_spark: SparkSession, data: Path, tmp_path: Path, unchanged: Unchanged, capfd: Capfd
) -> None:
    with unchanged(data):
        here, there, *printed = both(tmp_path, ["--to", "json", str(data)], capfd)
    assert printed == ["", ""]
    assert rows_of(there) == rows_of(here)
    lines = [
        {line for path in files_of(root) for line in text_of(path).splitlines()} for root in (here, there)
    ]
    # equal byte for byte, because nothing needs an escape
    assert lines[0] == lines[1]
    assert (there / "_SUCCESS").exists()


def test_spark_parquet_export_equals_the_local_one(
    local_spark: SparkSession, data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    import pyarrow.dataset as ds

    words = ["--to", "parquet", "--partition-by", "topic,date,hour", "--compression", "zstd", str(data)]
    here, there, *_ = both(tmp_path, words, capfd)
    directories = [{path.parent.relative_to(root) for path in files_of(root)} for root in (here, there)]
    assert directories[0] == directories[1] and len(directories[0]) >= 11
    tables = [ds.dataset(root, partitioning="hive").to_table() for root in (here, there)]
    assert tables[0].schema.equals(tables[1].schema)
    order = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
    assert tables[0].sort_by(order).to_pylist() == tables[1].sort_by(order).to_pylist()


def test_spark_csv_export_equals_the_local_one(
    local_spark: SparkSession, odd: Path, data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    words = ["--to", "csv", "--bytes", "base64", str(data / "metro-none-0"), str(odd)]
    here, there, *_ = both(tmp_path, words, capfd)
    assert exported(there, "csv") == exported(here, "csv") == dumped([data / "metro-none-0", odd])
    heads = {
        text_of(path).splitlines()[0].replace('"', "") for root in (here, there) for path in files_of(root)
    }
    assert len(heads) == 1


@pytest.mark.parametrize("mode", ["auto", "utf8", "hex"])
def test_spark_export_of_bytes_as_text_equals_the_local_one(
    mode: str, local_spark: SparkSession, odd: Path, tmp_path: Path, capfd: Capfd
) -> None:
    here, there, *_ = both(tmp_path, ["--to", "json", "--bytes", mode, str(odd)], capfd)
    assert rows_of(there) == rows_of(here)


@pytest.mark.parametrize(
    "words",
    [
        ["--isolation", "read_committed"],
        ["--include-control"],
        ["--control", "--no-meta"],
        ["--from-offset", "20", "--to-offset", "71", "--key-regex", "^f[0-3]$", "--no-key"],
        ["--producer-id", "2", "--limit", "7", "--no-value"],
        ["--from-time", "2025-06-15T15:06:41Z", "--to-time", "2025-06-15T15:06:44Z", "--leader-epoch", "0"],
    ],
    ids=["committed", "with control", "control", "keys", "producer", "times"],
)
def test_spark_export_filters_equal_the_local_ones(
    words: list[str], local_spark: SparkSession, data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    here, there, *_ = both(tmp_path, ["--to", "json", *words, str(data / "fares-0")], capfd)
    assert rows_of(there) == rows_of(here) != []


def test_spark_export_reports_damage_like_the_local_one(
    local_spark: SparkSession, data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    damaged = tmp_path / "in" / "metro-zstd-0"
    shutil.copytree(data / "metro-zstd-0", damaged)
    log = damaged / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[500] ^= 1
    log.write_bytes(content[:-7])
    here, there, *printed = both(tmp_path, ["--to", "json", str(damaged), str(data / "fares-0")], capfd)
    assert printed[0] == printed[1] and "bad-crc" in printed[0] and "torn-tail" in printed[0]
    assert rows_of(there) == rows_of(here)
    words = ["export", "--spark", "--to", "json", "--json", "--output", str(tmp_path / "more")]
    assert not (here / "_SUCCESS").exists() and not (there / "_SUCCESS").exists()
    assert run([*words, "--fail-on-damage", str(damaged)]) == 1
    assert "nothing was exported" in capfd.readouterr().err and not (tmp_path / "more").exists()
    assert run([*words, str(damaged)]) == 1
    result, summary = [json.loads(line) for line in capfd.readouterr().out.splitlines()][-2:]
    assert result["type"] == "result" and result["damaged_bytes"] == summary["damaged_bytes"] > 575
    assert result["records"] == len(dumped([damaged])) and len(result["files"]) == len(
        files_of(tmp_path / "more")
    )


def test_records_below_the_log_start_are_exported_while_they_exist(
    local_spark: SparkSession, data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    shutil.copytree(data / "fares-0", tmp_path / "in" / "fares-0")
    shutil.copy(data / "meta.properties", tmp_path / "in")
    (tmp_path / "in" / "log-start-offset-checkpoint").write_text("0\n1\nfares 0 50\n")
    here, there, *_ = both(tmp_path, ["--to", "json", str(tmp_path / "in")], capfd)
    assert rows_of(there) == rows_of(here)
    assert rows_of(here)[0]["offset"] == 0


def test_spark_export_save_modes(local_spark: SparkSession, data: Path, tmp_path: Path, capfd: Capfd) -> None:
    output = tmp_path / "out"

    def export(mode: str, topic: str) -> int:
        words = ["export", "--spark", "--to", "json", "--mode", mode, "--topic", topic]
        return run([*words, "--output", str(output), str(data)])

    def topics() -> set[str]:
        return {row["topic"] for row in rows_of(output)}

    # an empty directory does not count as an existing output
    output.mkdir()
    assert export("errorifexists", "fares") == 0
    assert export("errorifexists", "stations") == 4
    assert "already exists" in capfd.readouterr().err
    assert export("ignore", "stations") == 0 and topics() == {"fares"}
    assert export("append", "stations") == 0 and topics() == {"fares", "stations"}
    assert export("overwrite", "gates-*") == 0 and topics() == {"gates-append"}
    (output / "thesis.tex").write_text("mine")
    assert export("overwrite", "fares") == 4
    assert "no export wrote" in capfd.readouterr().err


def test_export_on_a_standalone_cluster(
    cluster_spark: SparkSession, data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    words = ["export", "--spark", "--to", "parquet", "--key-regex", ".", "--output", str(tmp_path / "out")]
    assert run([*words, str(data)]) == 0
    expected = [row for row in dumped(partitions(data)) if row[5]]
    assert exported(tmp_path / "out", "parquet") == expected


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("arrow", ["--to arrow does not work with --spark"]),
        ("delta", ["--to delta needs the Delta jars", "io.delta:delta-spark_4."]),
        ("iceberg", ["--to iceberg needs the Iceberg jars", "org.apache.iceberg:iceberg-spark-runtime-4."]),
    ],
)
def test_export_refuses_what_spark_cannot_write(
    form: str, words: list[str], local_spark: SparkSession, data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    assert run(["export", "--spark", "--to", form, "--output", str(tmp_path / "out"), str(data)]) == 2
    err = capfd.readouterr().err
    assert all(word in err for word in words) and err.count("\n") == 1
    assert not (tmp_path / "out").exists()
