"""The data source returns no secrets unless its options request them. Readers run in this process, as in Spark's tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyarrow import RecordBatch
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from kseg.spark.source.options import read_options
from kseg.spark.source.reader import LogReader
from tests.cli.test_connect_topics import CONFIGS, encoded
from tests.cli.test_internal_topic_rows import PASSWORD, config, log_of, scram
from tests.spark.test_source_judgement import findings, rows
from tests.support.registry_dirs import partition


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    records = [scram(), config(4, "ssl.key.password", PASSWORD), config(2, "retention.ms", "77")]
    return log_of(tmp_path / "data" / "__cluster_metadata-0", [(None, value) for value in records])


def test_values_with_secrets_are_redacted(metadata: Path) -> None:
    last = config(2, "retention.ms", "77")
    assert [value for _, value, _ in rows(metadata)] == [b"(redacted)", b"(redacted)", last]
    assert rows(metadata, showSecrets="true")[0][1] == scram()
    (finding,) = findings(metadata)
    assert finding["id"] == "secrets-redacted" and finding["severity"] == "info"
    assert not findings(metadata, showSecrets="true")


VALUE, OFFSET = StructField("value", BinaryType()), StructField("offset", LongType())
CRC = StructField("_meta", StructType([StructField("crc", LongType(), False)]), False)


@pytest.mark.parametrize("fields", [[VALUE], [CRC, VALUE], [OFFSET]])
def test_redacted_read_has_only_the_requested_columns(metadata: Path, fields: list[StructField]) -> None:
    asked = StructType(fields)
    reader = LogReader(read_options({"path": str(metadata)}), asked)
    (task,) = reader.partitions()
    (table,) = reader.read(task)
    assert isinstance(table, RecordBatch)
    assert table.schema.names == asked.names
    if "value" in asked.names:
        assert table.column("value").to_pylist()[:2] == [b"(redacted)"] * 2
    if "_meta" in asked.names:
        assert [field.name for field in table.schema.field("_meta").type] == ["crc"]


def test_connect_topics_are_redacted_by_name_and_by_option(tmp_path: Path) -> None:
    by_name = partition(tmp_path / "mm2-configs.eu.internal-0", encoded(CONFIGS))
    assert not any(b"hunter2" in (value or b"") for _, value, _ in rows(by_name))
    other = partition(tmp_path / "platform-7-0", encoded(CONFIGS))
    assert any(b"hunter2" in (value or b"") for _, value, _ in rows(other))
    assert not any(b"hunter2" in (value or b"") for _, value, _ in rows(other, connectTopics="x, platform-*"))
