"""`--spark` on the command line: missing requirements are reported in one sentence, Ctrl-C ends the command, and nodes without kseg receive
it."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest

from kseg import __version__
from kseg.cli.main import run
from kseg.spark import cluster_fanout, package_shipping, session
from kseg.spark.options import ClusterOptions
from kseg.spark.session import NoCluster
from tests.spark.conftest import LOCAL, require_spark
from tests.spark.standalone import SPARK_HOME, Standalone
from tests.support.command_lines import Capfd

pytestmark = pytest.mark.spark
KSEG = [sys.executable, "-m", "kseg"]


def kseg(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KSEG, *words],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=1200,
        check=False,
    )


@pytest.fixture
def partition(capture_small: Path) -> str:
    return str(capture_small / "data" / "metro-zstd-0")


def test_cluster_options_require_spark(capfd: Capfd) -> None:
    for words in (["--master", LOCAL], ["--spark-conf", "a=b"], ["--py-files", "a.py"], ["--jars", "a.jar"]):
        assert run(["verify", *words, "somewhere"]) == 2
        assert capfd.readouterr().err == f"kseg: {words[0]} requires --spark\n"


def test_missing_java_is_reported(partition: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    output = kseg("verify", "--spark", partition, PATH=str(tmp_path / "bin"), JAVA_HOME="")
    assert (output.returncode, output.stdout) == (2, "")
    assert output.stderr == (
        "kseg: --spark needs Java 17 or newer, but java is not in PATH (set JAVA_HOME if it is installed elsewhere)\n"
    )


def test_too_old_java_is_reported(partition: str, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    for environment in (
        {"JAVA_HOME": str(tmp_path)},
        {"JAVA_HOME": "", "PATH": f"{java.parent}:{os.environ['PATH']}"},
    ):
        output = kseg("verify", "--spark", partition, **environment)
        assert (output.returncode, output.stdout) == (2, "")
        assert output.stderr == (
            f"kseg: --spark needs Java 17 or newer, but {java} is Java 11 (set JAVA_HOME to another one)\n"
        )


def test_java_that_does_not_run_is_reported(tmp_path: Path, partition: str) -> None:
    output = kseg("verify", "--spark", partition, JAVA_HOME=str(tmp_path))
    assert output.returncode == 2
    assert output.stderr == (
        f"kseg: --spark needs Java 17 or newer, but {tmp_path}/bin/java cannot be used: No such file or directory\n"
    )


def test_missing_pyspark_is_reported(partition: str, monkeypatch: pytest.MonkeyPatch, capfd: Capfd) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "pyspark" else found(name, *rest)
    )
    assert run(["verify", "--spark", partition]) == 2
    assert capfd.readouterr().err == (
        "kseg: --spark needs pyspark, which is not installed: pip install 'kseg[spark]'\n"
    )


def test_failed_spark_session_is_reported_in_one_sentence(partition: str) -> None:
    require_spark()
    output = kseg("verify", "--spark", "--master", "nonsense://x", partition)
    assert output.returncode == 3
    assert output.stderr.startswith("kseg: no Spark session on nonsense://x: ")
    assert output.stderr.count("\n") == 1


def test_own_spark_session_prints_nothing_of_sparks(partition: str) -> None:
    require_spark()
    alone = kseg("verify", partition)
    output = kseg("verify", "--spark", "--master", LOCAL, partition)
    assert (output.returncode, output.stdout, output.stderr) == (alone.returncode, alone.stdout, "")


@pytest.mark.parametrize("after_s", [0, 0.3, 0.6, 0.9, 1.4, 2])
def test_ctrl_c_ends_spark_jobs_and_java_with_status_130(capture_small: Path, after_s: float) -> None:
    require_spark()
    command = [*KSEG, "verify", "--spark", "--master", LOCAL, str(capture_small / "data")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None and not _has_java(children):
        time.sleep(0.05)
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    # returns only when Java, which has inherited the pipes, has ended too
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "interrupted" in err and "Traceback" not in err


def test_failed_jvm_call_after_ctrl_c_counts_as_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM does not answer on a connection that the interrupt closed, which says nothing about the nodes."""
    require_spark()

    def fail(*_: object) -> None:
        raise ConnectionError("Answer from Java side is empty")

    context = SimpleNamespace(master="local[2]")
    monkeypatch.setattr(session, "get", lambda _: SimpleNamespace(sparkContext=context))
    monkeypatch.setattr(cluster_fanout, "ship_where_missing", fail)
    with pytest.raises(NoCluster, match="cannot run tasks: Answer from Java side is empty"):
        cluster_fanout.ready(ClusterOptions())
    monkeypatch.setattr(session, "was_interrupted", lambda: True)
    with pytest.raises(KeyboardInterrupt):
        cluster_fanout.ready(ClusterOptions())


def _has_java(children: Path) -> bool:
    try:
        return any(
            b"java" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children.read_text().split()
        )
    except OSError:
        return False


# --- nodes without kseg


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with everything that kseg needs, but without kseg."""
    home = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    packages = Path(next(home.glob("lib/python*/site-packages")))
    for name in ("crc32c", "crcmod", "cramjam", "lz4", "zstandard", "isal", "deflate"):
        for found in SPARK_HOME.parent.glob(f"{name}*"):
            (packages / found.name).symlink_to(found)
    return home / "bin" / "python"


def test_package_is_shipped_to_nodes_without_it(bare_python: Path, partition: str, tmp_path: Path) -> None:
    require_spark()
    alone = kseg("verify", "--deep", partition)
    with Standalone(tmp_path / "cluster", workers=1, environment=_without_kseg()) as cluster:
        output = kseg(
            "verify", "--deep", "--spark", "--master", cluster.url, "--spark-conf", "spark.executor.memory=512m", partition,
            PYSPARK_PYTHON=str(bare_python),
        )  # fmt: skip
    assert (output.returncode, output.stdout) == (alone.returncode, alone.stdout)
    lines = _beside_waiting(output.stderr)
    assert len(lines) == 1
    assert lines[0].startswith(f"kseg verify: kseg {__version__} is not installed on ")
    assert lines[0].endswith("it is shipped there as plain Python, which is many times slower than compiled")


def _beside_waiting(stderr: str) -> list[str]:
    """The lines without the one that appears on a busy machine, whose executors take more than half a minute to start."""
    return [line for line in stderr.splitlines() if "it has not provided any executors yet" not in line]


def _without_kseg() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_shipped_zip_contains_the_whole_package(tmp_path: Path) -> None:
    path = tmp_path / "kseg.zip"
    package_shipping.write_zip(str(path))
    script = (
        "import sys, kseg, kseg.segment.kernel.batch_walk as walk, kseg.recovery.verify.verify, kseg.spark.scheduling\n"
        "assert kseg.__file__.startswith(sys.argv[1]), kseg.__file__\n"
        "assert walk.__file__.endswith('.py')\n"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(path)},
        check=True,
    )
    assert path.stat().st_size < 2_000_000


def test_task_that_changes_its_directory_still_imports_the_shipped_package(tmp_path: Path) -> None:
    """Spark puts shipped zips under `.`, and a task may import from them later. Workers are reused, and the working directory of one may no
    longer exist by then."""
    package_shipping.write_zip(str(tmp_path / "kseg.zip"))
    (tmp_path / "elsewhere").mkdir()
    script = (
        "import os, sys\n"
        "sys.path.insert(0, 'kseg.zip')\n"
        "from kseg.spark.shuffle.task_messages import enter_directory\n"
        "enter_directory(os.path.abspath('elsewhere'))\n"
        "import kseg.recovery.verify.verify as late\n"
        "assert os.path.basename(os.getcwd()) == 'elsewhere' and 'kseg.zip' in late.__file__, late.__file__\n"
        "enter_directory(os.path.abspath('nowhere'))\n"
        "around = os.path.dirname(os.getcwd())\n"
        "os.rmdir(os.getcwd())\n"
        "sys.path.insert(1, '.')  # as Spark does before each task\n"
        "enter_directory(around)\n"
        "assert os.getcwd() == around\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


# --- nodes that see something else


# run in one process, and therefore in one session: status, stdout and stderr of command lines, then the messages of the data source
BLIND = """
import json, os, sys, tempfile
from kseg.cli.main import run
from kseg.spark import session
from kseg.spark.options import ClusterOptions
from kseg.spark.source import register
from kseg.spark.task_errors import reason
master, data, checkpoint, out = sys.argv[1:]
conf = {
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
    "spark.task.maxFailures": "1",  # a second attempt finds no more
    "spark.python.daemon.module": "tests.spark.worker_daemon",
}
spark = session.get(ClusterOptions(master=master, conf=tuple(conf.items())))

def outcome(*words):
    streams, before = [tempfile.TemporaryFile() for _ in range(2)], [os.dup(1), os.dup(2)]
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), number)
    status = run([*words, "--spark", "--master", master, data])
    for number, descriptor in enumerate(before, 1):
        os.dup2(descriptor, number)
    outputs = []
    for stream in streams:
        stream.seek(0)
        outputs.append(stream.read().decode())
    return [status, *outputs]

print(json.dumps([outcome("verify"), outcome("export", "--to", "json", "--output", out)]), flush=True)
register(spark)
source = spark.read.format("kafka-log")
rows = spark.createDataFrame([("k", "v")], "key string, value string")

def stream():
    query = spark.readStream.format("kafka-log").option("startingOffsets", "earliest").load(data).writeStream.format(
        "noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()

for ask in (
    lambda: source.load(data).count(),
    lambda: source.option("failOnDataLoss", "false").load(data).count(),
    lambda: source.option("table", "findings").load(data).count(),
    lambda: rows.write.format("kafka-log").mode("append").option("topic", "new").save(data),
    stream,
):
    try:
        print("no error", ask())
    except Exception as error:
        print(reason(error))
"""


def test_node_that_does_not_see_the_files_is_named(capture_small: Path, tmp_path: Path) -> None:
    """The worker runs in a mount namespace in which the directory is empty."""
    require_spark()
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("no unshare, or not root: nodes cannot be given another view of the files")
    data = tmp_path / "data"
    out = tmp_path / "out"
    shutil.copytree(capture_small / "data", data)
    with Standalone(tmp_path / "cluster", workers=1, hidden=data) as cluster:
        source = subprocess.run(
            [sys.executable, "-c", BLIND, cluster.url, *map(str, (data, tmp_path / "checkpoint", out))],
            capture_output=True,
            text=True,
            timeout=1200,
            check=True,
        )
    commands, *answers = source.stdout.splitlines()
    for status, stdout, stderr in json.loads(commands):
        assert (status, stdout) == (3, "")
        (line,) = _beside_waiting(stderr)
        assert line.startswith("kseg: the node ")
        assert f" does not see {data}/" in line and "failOnDataLoss" not in line
    assert not list(out.glob("_SUCCESS"))
    assert len(answers) == 5
    for answer in answers:
        assert f" does not see {data}/" in answer and "every node must see the same files" in answer, answer
        assert "failOnDataLoss" not in answer, answer
    assert not list(data.glob("new-*")) and not list(data.glob("kseg-*"))
