"""Fetch the jars of the real Kafka, and compile the few classes around them, once, when first needed.

`java/target/libs` gets the jars (Maven), `java/target/kseg.jar` the classes (plain javac), `java/target/stamp` records their sources;
a change of the pom or of a source rebuilds them. A file lock lets parallel test workers wait for the one that builds.

A Java process of the tests lives for seconds and spends most of them on loading and compiling classes. So it uses only the fast compiler,
and maps the loaded classes of an earlier process: `java/target/broker.jsa`, an archive that the first process of nodes writes when it exits
(`shared_java.py`). That reduces the processor time of a broker's start to a third.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TextIO

JAVA_PROJECT = Path(__file__).resolve().parent / "java"
TARGET = JAVA_PROJECT / "target"
ARCHIVE = TARGET / "broker.jsa"
LEAST_JAVA = 17
# of a download by Maven, whose own limit is half an hour: fails before the time limit of the test
FETCH_LIMIT_S = 480
MAVEN_LIMITS = (
    "-Daether.connector.connectTimeout=20000",
    "-Daether.connector.requestTimeout=60000",
    "-Dmaven.wagon.rto=60000",
)
# failed downloads: the other tests of the process do not wait for another attempt
_failures: list[BuildFailed] = []
_JAR = TARGET / "kseg.jar"
_BRIEF = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable")


class MissingTool(Exception):
    """Java or Maven is missing; the message names it in one line."""


class BuildFailed(Exception):
    """Maven or javac failed; the message contains its output."""


def tool(name: str) -> str:
    """Path of `java` or `javac`, from JAVA_HOME when set, else from PATH; of `mvn` from PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and name != "mvn" and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    found = shutil.which(name)
    if found is None:
        raise MissingTool(f"the real Kafka is not asked: {name} is not installed")
    return found


def check_tools() -> None:
    """Raise MissingTool unless Java >= 17, its compiler and Maven are available."""
    if _version(tool("java")) < LEAST_JAVA:
        raise MissingTool(f"the real Kafka is not asked: java is older than {LEAST_JAVA}")
    tool("javac")
    tool("mvn")


@cache
def _version(java: str) -> int:
    """0 if the output contains no version."""
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    return int(version[1]) if version else 0


def class_path() -> str:
    """The class path of the oracle, the broker and the corpus maker. Builds what is missing or stale."""
    check_tools()
    if _failures:
        raise _failures[0]
    with _build_lock():
        if not _is_built():
            try:
                _fetch_jars()
            except BuildFailed as failed:
                _failures.append(failed)
                raise
            _compile()
            _stamp_file().write_text(_stamp())
    return os.pathsep.join([str(_JAR), f"{TARGET}/libs/*"])


def java_command(*arguments: str, heap: str = "512m") -> list[str]:
    """A command line that runs a class of the class path, which itself is passed in the environment."""
    return [tool("java"), f"-Xmx{heap}", "-Dfile.encoding=UTF-8", *arguments]


def brief_java_command(*arguments: str) -> list[str]:
    """The same for a process that lives for seconds. Not for measuring speed: benchmarks use `java_command`."""
    shared = [f"-XX:SharedArchiveFile={ARCHIVE}"] if ARCHIVE.exists() else []
    return java_command(*_BRIEF, *shared, *arguments)


def java_environment() -> dict[str, str]:
    """The environment for `java_command`: CLASSPATH, and a locale in which file names are UTF-8."""
    return {**os.environ, "CLASSPATH": class_path(), "LC_ALL": "C.UTF-8"}


def claim_archive() -> TextIO | None:
    """The right to write the archive, held until the file is closed. None if there is an archive, or another process is about to write it,
    which takes 10 to 20 s of processor time."""
    if ARCHIVE.exists():
        return None
    TARGET.mkdir(exist_ok=True)
    claim = (TARGET / "archive.lock").open("w")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claim.close()
        return None
    return claim


@contextmanager
def _build_lock() -> Iterator[None]:
    TARGET.mkdir(exist_ok=True)
    with (TARGET / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sources() -> list[Path]:
    return sorted((JAVA_PROJECT / "src/main/java").rglob("*.java"))


def _resources() -> list[Path]:
    return sorted(path for path in (JAVA_PROJECT / "src/main/resources").rglob("*") if path.is_file())


def _stamp() -> str:
    digest = hashlib.sha256()
    for path in [Path(__file__), JAVA_PROJECT / "pom.xml", *_sources(), *_resources()]:
        digest.update(str(path.relative_to(JAVA_PROJECT.parent)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _stamp_file() -> Path:
    return TARGET / "stamp"


def _is_built() -> bool:
    return _stamp_file().exists() and _stamp_file().read_text() == _stamp()


def _fetch_jars() -> None:
    pom_stamp = hashlib.sha256((JAVA_PROJECT / "pom.xml").read_bytes()).hexdigest()
    fetched = TARGET / "libs" / ".pom"
    if fetched.exists() and fetched.read_text() == pom_stamp:
        return
    shutil.rmtree(TARGET / "libs", ignore_errors=True)
    maven = [tool("mvn"), "-q", "-B", *MAVEN_LIMITS]
    run_build([*maven, "dependency:copy-dependencies", f"-DoutputDirectory={TARGET / 'libs'}"], JAVA_PROJECT)
    for jar in (TARGET / "libs").glob("*-test.jar"):
        _keep_classes(jar)
    fetched.write_text(pom_stamp)


def _keep_classes(jar: Path) -> None:
    """Keep only the classes. Kafka's test jar contains a logging configuration that would take precedence over ours."""
    whole = jar.rename(jar.with_suffix(".whole"))
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(jar, "w") as target:
        for entry in source.infolist():
            if entry.filename.endswith(".class"):
                target.writestr(entry, source.read(entry))
    whole.unlink()


def _compile() -> None:
    classes = TARGET / "classes"
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir()
    flags = ["--release", str(LEAST_JAVA), "-encoding", "UTF-8", "-proc:none", "-Xlint:all,-classfile,-path"]
    paths = ["-cp", f"{TARGET}/libs/*", "-d", str(classes)]
    run_build([tool("javac"), *flags, *paths, *map(str, _sources())], JAVA_PROJECT)
    # the archive is valid for one jar only
    ARCHIVE.unlink(missing_ok=True)
    # Java does not archive classes from directories
    with zipfile.ZipFile(_JAR, "w") as jar:
        for top, paths_below in (
            (classes, classes.rglob("*.class")),
            (JAVA_PROJECT / "src/main/resources", _resources()),
        ):
            for path in paths_below:
                jar.write(path, path.relative_to(top))


def run_build(command: list[str], directory: Path) -> None:
    """Run Maven or javac. Raises BuildFailed with the output on failure, or if it takes longer than FETCH_LIMIT_S."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, check=False, timeout=FETCH_LIMIT_S
        )
    except subprocess.TimeoutExpired as late:
        raise BuildFailed(
            f"{name} has not ended within {FETCH_LIMIT_S} s: is the repository reachable?"
        ) from late
    if done.returncode:
        raise BuildFailed(f"{name} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
