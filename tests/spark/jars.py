"""The published jars of Delta and Iceberg, fetched once with Maven when first needed."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from pathlib import Path

from tests.kafka.jars import MAVEN_LIMITS, run_build, tool

PROJECT = Path(__file__).resolve().parent / "tables"
TARGET = PROJECT / "target"
# Spark contains everything else that they need
GROUPS = "io.delta,org.apache.iceberg"


def table_jars() -> list[Path]:
    """The jars of both formats. Raises MissingTool without Maven, BuildFailed if Maven cannot fetch them."""
    maven = tool("mvn")
    TARGET.mkdir(exist_ok=True)
    # parallel test workers wait for the one that fetches
    with (TARGET / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = hashlib.sha256((PROJECT / "pom.xml").read_bytes()).hexdigest()
        fetched = TARGET / "libs" / ".pom"
        if not fetched.exists() or fetched.read_text() != stamp:
            shutil.rmtree(TARGET / "libs", ignore_errors=True)
            _fetch(maven)
            fetched.write_text(stamp)
    return sorted((TARGET / "libs").glob("*.jar"))


def _fetch(maven: str) -> None:
    command = [
        maven,
        "-q",
        "-B",
        *MAVEN_LIMITS,
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
        f"-DincludeGroupIds={GROUPS}",
        f"-DoutputDirectory={TARGET / 'libs'}",
    ]
    run_build(command, PROJECT)
