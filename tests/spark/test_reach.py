"""Masters that do not answer, and nodes that see other files: one sentence, before any work is done."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.segment.errors import UnreadableInput
from kseg.spark import session, visibility
from kseg.spark.session import NoCluster
from tests.spark.conftest import require_spark


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which nothing listens and nothing can begin to listen."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


@pytest.mark.spark
def test_master_that_does_not_answer_is_reported(port: int, tmp_path: Path) -> None:
    """Java is only looked up, not started. Each command runs in a separate process, because an existing session would be reused."""
    require_spark()
    directory = healthy.partition(tmp_path / "metro-0")
    for command in ("verify", "dump", "recover"):
        words = [command, "--spark", "--master", f"spark://127.0.0.1:{port}", str(directory)]
        done = subprocess.run(
            [sys.executable, "-m", "kseg", *words], capture_output=True, text=True, check=False
        )
        assert done.returncode == 3
        assert done.stderr == (
            f"kseg: no Spark master answers at 127.0.0.1:{port} (Connection refused): is it running, and is --master its "
            "address?\n"
        )
        assert done.stdout == ""


@pytest.mark.parametrize(
    ("master", "why"),
    [
        ("spark://{0},127.0.0.1:{0}", r"127.0.0.1:\d+ \(Connection refused\)"),
        ("spark://no-such-host.invalid:7077", r"no-such-host.invalid:7077 \(unknown host"),
        ("spark://head", r"head \(not HOST:PORT\)"),
        ("spark://head:x", r"head:x \(not HOST:PORT\)"),
    ],
)
def test_unreachable_master_is_reported_with_the_reason(master: str, why: str, port: int) -> None:
    with pytest.raises(NoCluster, match=why) as reported:
        session._check_master_reachable(master.format(port))
    assert "\n" not in str(reported.value)


def test_one_reachable_master_of_several_is_enough(port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        session._check_master_reachable(f"spark://127.0.0.1:{port},127.0.0.1:{listening.getsockname()[1]}")


@pytest.mark.parametrize("master", ["local[2]", "k8s://https://127.0.0.1:1", "yarn"])
def test_other_master_urls_are_left_to_spark(master: str) -> None:
    session._check_master_reachable(master)


# --- what a node sees


def test_different_directory_on_a_node_is_reported(tmp_path: Path) -> None:
    home = healthy.log_dir(tmp_path / "data")
    seen = visibility.directory_sample(str(home))
    visibility.check_directory_sample(seen)
    (home / "later-0").mkdir()
    shutil.rmtree(home / "metro-0")
    # as while a broker is running
    visibility.check_directory_sample(seen)
    home.rename(tmp_path / "elsewhere")
    with pytest.raises(
        UnreadableInput, match=f"the node .* does not see {home}: every node must see the same"
    ):
        visibility.check_directory_sample(seen)
    home.mkdir()
    with pytest.raises(UnreadableInput, match=f"the node .* does not see {home}/"):
        visibility.check_directory_sample(seen)


def test_sample_of_a_directory_to_be_created_is_its_parent(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / ".kseg").mkdir()
    seen = visibility.directory_sample(str(tmp_path / "shared" / "new" / "data"))
    assert seen == visibility.DirectorySample(str(tmp_path / "shared"), ())
    visibility.check_directory_sample(seen)
    shutil.rmtree(tmp_path / "shared")
    with pytest.raises(UnreadableInput, match="does not see"):
        visibility.check_directory_sample(seen)


def test_different_file_under_the_same_name_is_reported(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(b"one" * 100)
    mark = visibility.file_sample(str(log))
    log.write_bytes(b"one" * 200)
    # accepted if it has grown
    visibility.check_file_sample(mark)
    log.write_bytes(b"two" * 200)
    with pytest.raises(UnreadableInput, match=r"the node .* has another"):
        visibility.check_file_sample(mark)
    log.unlink()
    # accepted if retention has deleted it
    visibility.check_file_sample(mark)


def test_overwrite_names_the_partitions_that_it_leaves_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pa = pytest.importorskip("pyarrow")
    types = pytest.importorskip("pyspark.sql.types")
    from kseg.spark.source.write.writer import KafkaLogWriter

    schema = types.StructType(
        [types.StructField("value", types.StringType()), types.StructField("partition", types.IntegerType())]
    )

    def write(partitions: int, replaces: bool) -> None:
        given = {"path": str(tmp_path / "data"), "topic": "orders", "partitions": str(partitions)}
        writer = KafkaLogWriter(schema, given, replaces)
        rows = pa.record_batch(
            {"value": ["x"] * partitions, "partition": pa.array(range(partitions), pa.int32())}
        )
        writer.commit([writer.write(iter([rows]))])

    write(4, False)
    assert not caplog.messages
    write(2, True)
    (output,) = caplog.messages
    assert output.startswith("overwrite has no records for orders-2, orders-3: left empty")
    assert (tmp_path / "data" / "orders-3").is_dir()
