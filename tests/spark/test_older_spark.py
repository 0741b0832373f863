"""`kafka-log` on an older Spark: supported features work, and others are refused with one sentence.

Verified by hand with pyspark 4.0.1 and 4.1.1: reading and `kseg export --spark` work with both, writing with 4.1.1.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pyspark = pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructField, StructType

from kseg.segment.errors import UsageError
from kseg.spark.source.source import KafkaLog

SCHEMA = StructType([StructField("offset", LongType())])
# names that pyspark.sql.datasource of 4.0 does not have
LATER = """
import pyspark.sql.datasource as S
gone = [name for name, each in vars(S).items() if isinstance(each, type) and issubclass(each, S.Filter)]
for name in [*gone, "DataSourceArrowWriter", "DataSourceStreamArrowWriter"]:
    delattr(S, name)
print(len(gone))
"""


@pytest.mark.parametrize(
    ("version", "write", "stream"),
    [("4.0.1", False, False), ("4.1.4", True, False), ("4.2.0", True, True), ("5.0.0.dev1", True, True)],
)
def test_feature_missing_in_an_older_spark_is_reported(
    version: str, write: bool, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    source = KafkaLog({"path": "/nowhere"})
    source.reader(SCHEMA)
    for make, is_there, words in (
        (
            lambda: source.streamReader(SCHEMA),
            stream,
            "reading a stream of kafka-log needs Spark 4.2 or newer",
        ),
        (lambda: source.writer(SCHEMA, False), write, "writing kafka-log needs Spark 4.1 or newer"),
        (lambda: source.streamWriter(SCHEMA, False), write, "writing kafka-log needs Spark 4.1 or newer"),
    ):
        try:
            make()
        except UsageError as refused:
            assert (f"{words}, and this is {version}" == str(refused)) != is_there
        else:
            assert is_there


def test_reading_works_without_later_spark_features() -> None:
    program = LATER + "import kseg.spark.source.reader, kseg.spark.export.run, kseg.spark.source.source\n"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (output.returncode, output.stderr) == (0, "")
    assert int(output.stdout) > 10
