"""An archive of the classes of Spark's Java processes, written by one of them: the others map the file instead of loading the classes
again.

A session of the tests lives for seconds, and so do its executors, and both spend half of their processor time on loading classes. The file
is created once, by a session that does a little of everything, and again when Java or the jars change. Java accepts it only with the class
path with which it was created, whose first entry is the directory of Spark's configuration. Therefore that is always the same empty
directory.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.spark.standalone import SPARK_HOME
from tests.support.paths import ROOT

TARGET = Path(__file__).resolve().parent / "target"
CONFIGURATION = TARGET / "conf"
LIMIT_S = 480
# for short-lived JVMs: use the fast compiler only, and collect garbage with one thread
_BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SESSION = """
import sys
from pathlib import Path
from pyspark import SparkContext
from pyspark.sql import SparkSession

place = Path(sys.argv[1])
settings = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
assert spark.sparkContext.parallelize(range(10), 4).map(lambda number: number * number).sum() == 285
numbers = spark.range(100).selectExpr("id % 7 AS seventh", "cast(id AS string) AS text")
for form in ("parquet", "json"):
    numbers.write.format(form).save(str(place / form))
assert len(spark.read.parquet(str(place / "parquet")).groupBy("seventh").count().orderBy("seventh").collect()) == 7
gateway = SparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""


def environment(place: Path) -> dict[str, str]:
    """An environment in which every Java process of Spark starts quickly, whoever starts it. place: an empty directory to create the
    archive in."""
    CONFIGURATION.mkdir(parents=True, exist_ok=True)
    archive = TARGET / f"spark-{_stamp()}.jsa"
    if not archive.exists():
        _make(archive, place)
    return _environment(f"-XX:SharedArchiveFile={archive}")


def _environment(option: str) -> dict[str, str]:
    """Suppresses Java's messages about an archive that it cannot use, which would appear in the output of kseg."""
    options = f'{_BRIEF} -Xlog:disable "{option}"'
    return {
        "SPARK_CONF_DIR": str(CONFIGURATION),
        "SPARK_LAUNCHER_OPTS": _BRIEF,
        "SPARK_DAEMON_JAVA_OPTS": options,
        "SPARK_SUBMIT_OPTS": f"{options} '-Dspark.executor.extraJavaOptions={options}'",
    }


def _stamp() -> str:
    """A digest of Java and the jars, for which alone an archive is valid."""
    home = os.environ.get("JAVA_HOME")
    java = Path(home, "bin", "java") if home else Path("java")
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update(subprocess.run([java, "-version"], capture_output=True, check=True).stderr)
    for jar in sorted((SPARK_HOME / "jars").glob("*.jar")):
        status = jar.stat()
        digest.update(f"{jar} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _make(archive: Path, place: Path) -> None:
    for old in TARGET.glob("spark-*.jsa"):
        old.unlink(missing_ok=True)
    made = TARGET / f"{archive.stem}-{os.getpid()}.made"
    subprocess.run(
        [sys.executable, "-c", _SESSION, str(place)],
        cwd=ROOT,
        env={**os.environ, **_environment(f"-XX:ArchiveClassesAtExit={made}")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=LIMIT_S,
    )
    made.replace(archive)
