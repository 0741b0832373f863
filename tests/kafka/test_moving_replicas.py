"""Some of a broker's log dirs were formatted anew. Their replicas are created again, empty, and elected if the broker was the last one in
sync. `doctor` on all nodes names these replicas, even if the broker's own metadata log was lost as well. After its steps, a real cluster
has every record that any node had, including those of a replica that was being copied to another log dir. The directories are those of the
capture `moving-small`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.partition.names import METADATA_DIRECTORY
from tests.kafka.two_replicas import BROKERS, CONTROLLER, TwoReplicas
from tests.support.command_rows import rows_of
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

DATA, MORE = "data", "more"  # the log dirs of a broker
# the broker that was last in sync
LAST = 2
NEW_IDS = {DATA: "KdataKdataKdataKdataKw", MORE: "KmoreKmoreKmoreKmoreKw"}


def errors(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The error rows of a run, by partition."""
    found = [row for row in rows if row["type"] == "finding" and row["severity"] == "error"]
    return {Path(row["path"]).name: row for row in found}


class Cluster(TwoReplicas):
    """The capture, whose brokers have two log dirs each."""

    def __init__(self, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
        super().__init__(root)
        self._capfd = capfd
        for node_id in BROKERS:
            self.nodes[node_id].properties["log.dirs"] = ",".join(map(str, self.log_dirs(node_id)))

    def log_dirs(self, node_id: int) -> list[Path]:
        names = [DATA] if node_id == CONTROLLER else [DATA, MORE]
        return [self.nodes[node_id].root / name for name in names]

    def format_anew(self, name: str) -> None:
        """Replace a log dir of the last broker by an empty disk formatted by kafka-storage.sh."""
        log_dir = self.nodes[LAST].root / name
        meta = re.sub(
            r"(?m)^directory\.id=.*$",
            f"directory.id={NEW_IDS[name]}",
            (log_dir / "meta.properties").read_text(),
        )
        bootstrap = (log_dir / "bootstrap.checkpoint").read_bytes()
        shutil.rmtree(log_dir)
        log_dir.mkdir()
        (log_dir / "meta.properties").write_text(meta)
        (log_dir / "bootstrap.checkpoint").write_bytes(bootstrap)

    def told(self, *words: str) -> list[str]:
        """The output of `doctor` for all nodes."""
        paths = [str(path) for node_id in self.nodes for path in self.log_dirs(node_id)]
        self._capfd.readouterr()
        assert run(["doctor", *words, *paths]) in (0, 1)
        return self._capfd.readouterr().out.splitlines()

    def examined(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.told("--json")]

    def found(self) -> dict[str, str]:
        """The ids of the errors, by partition."""
        return {name: row["id"] for name, row in errors(self.examined()).items()}

    def forecast(self) -> dict[str, Any]:
        """The forecast of the last broker."""
        (row,) = [row for row in self.examined() if row["type"] == "broker-start" and row["node_id"] == LAST]
        return row

    def created_empty(self) -> list[str]:
        return sorted(self.forecast()["partitions_missing"])

    def follow(self) -> None:
        """Run the steps exactly as they are printed."""
        for row in self.examined():
            if row["type"] == "step" and row["command"].split()[0] in ("cp", "mv"):
                subprocess.run(row["command"], shell=True, check=True)


@pytest.fixture
def cluster(moving_small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Cluster:
    return Cluster(copy_tree(moving_small, tmp_path / "cluster"), capfd)


@pytest.mark.evidence("replica-behind")
def test_doctor_after_all_log_dirs_were_formatted_anew(cluster: Cluster) -> None:
    assert cluster.found() == {}
    cluster.format_anew(DATA)
    cluster.format_anew(MORE)
    assert cluster.found() == {
        **dict.fromkeys(("old-0", "old-1"), "replica-behind"),
        **dict.fromkeys(("alone-0", "moved-0"), "replica-missing"),
    }
    assert cluster.created_empty() == ["alone-0", "moved-0", "old-0", "old-1"]
    cluster.follow()
    assert cluster.found() == dict.fromkeys(("alone-0", "moved-0"), "replica-missing")


@pytest.mark.evidence("replica-behind")
def test_doctor_after_the_metadata_logs_disk_was_formatted_anew(cluster: Cluster) -> None:
    """A `-future` log in the log dir to which the replica is already assigned is not missing. Observed with 4.3.1 after the steps: all
    records of `alone`, `moved` and `old-1`, and the 60 records of `old-0` that node 1 has."""
    cluster.format_anew(DATA)
    assert cluster.found() == {"old-0": "replica-behind"}
    assert cluster.created_empty() == ["old-0"]
    cluster.follow()
    assert cluster.found() == {}


@pytest.mark.evidence("replica-missing")
def test_doctor_after_the_loss_of_the_disk_a_replica_was_moving_from(cluster: Cluster) -> None:
    """All of the replica's records had been copied. Observed with 4.3.1: without the step the broker empties the copy as well; after the
    step it serves every record."""
    node = cluster.nodes[LAST].root
    (moving,) = (node / DATA).glob("alone-0.*-future")
    for file in (node / MORE / "alone-0").iterdir():
        shutil.copy2(file, moving)
    cluster.format_anew(MORE)
    for loses_metadata_log in (False, True):
        if loses_metadata_log:
            (node / DATA / METADATA_DIRECTORY).rename(cluster.nodes[LAST].root.parent / "aside")
        assert cluster.found()["alone-0"] == "replica-missing"
        (row,) = [row for row in cluster.examined() if str(row.get("path")).endswith("/alone-0")]
        assert f"and then empties {moving}, to which it was being copied (up to offset 40)" in row["message"]
    cluster.follow()
    assert "alone-0" not in cluster.found()


@pytest.mark.evidence("replica-missing")
def test_doctor_after_one_of_the_disks_was_replaced(cluster: Cluster) -> None:
    """The metadata log of the broker is complete. Observed with 4.3.1: without the steps the broker creates both logs empty, truncates the
    `-future` log accordingly and makes it the current one; after the steps it has the 60 records of `old-1` that node 1 has."""
    copy = cluster.nodes[1].root / DATA / "old-1"
    cluster.format_anew(MORE)
    assert cluster.told()[0] == "DAMAGED: 2 errors in 2 partitions that are missing; a broker starts"
    rows = cluster.examined()
    found = errors(rows)
    assert {name: row["id"] for name, row in found.items()} == dict.fromkeys(
        ("alone-0", "old-1"), "replica-missing"
    )
    assert (found["old-1"]["other"], found["old-1"]["other_end_offset"]) == (str(copy), 60)
    (start,) = [row for row in rows if row["type"] == "broker-start" and row["node_id"] == LAST]
    assert sorted(start["partitions_missing"]) == ["alone-0", "old-1"] and start["partitions_future"] == []
    (step,) = [row for row in rows if row.get("command", "").startswith("find ")]
    assert "alone-0" in step["command"] and "old-1" not in step["command"]
    # all nodes are given, and none has it
    assert "stop node" not in step["why"]
    cluster.follow()
    assert cluster.found() == {"alone-0": "replica-missing"}
    assert (cluster.nodes[LAST].root / MORE / "old-1" / f"{0:020d}.log").stat().st_size > 0


@pytest.mark.evidence("replica-missing")
def test_doctor_after_the_loss_of_the_disk_a_replica_was_moved_to(cluster: Cluster) -> None:
    """The replica's former log is marked for deletion. Observed with 4.3.1: without the step the broker deletes it a minute after its
    start; after the step it serves all of its records."""
    node = cluster.nodes[LAST].root
    (moving,) = (node / DATA).glob("alone-0.*-future")
    shutil.rmtree(moving)
    left = moving.with_name(moving.name.replace("-future", "-delete"))
    (node / MORE / "alone-0").rename(left)
    cluster.format_anew(MORE)
    row = errors(cluster.examined())["alone-0"]
    assert row["id"] == "replica-missing"
    assert f"a minute later it deletes {left}, which has a log of it up to offset 40" in row["message"]
    cluster.follow()
    assert cluster.found() == {} and (node / DATA / "alone-0").is_dir()


@pytest.mark.evidence("replica-missing")
def test_doctor_after_the_loss_of_the_node_a_partition_was_reassigned_to(cluster: Cluster) -> None:
    """The partition's former node has marked its log for deletion. That is the last copy, whether or not the metadata log still exists."""
    there, lost = cluster.nodes[1].root / DATA, cluster.nodes[LAST].root / MORE / "alone-0"
    left = there / f"alone-0.{'0' * 32}-delete"
    shutil.copytree(lost, left)
    cluster.format_anew(MORE)
    for loses_metadata_log in (False, True):
        if loses_metadata_log:
            cluster.format_anew(DATA)
        row = errors(cluster.examined())["alone-0"]
        assert (row["id"], row["other"], row["other_end_offset"]) == ("replica-missing", str(left), 40)
    cluster.follow()
    assert cluster.found() == {"moved-0": "replica-missing"}


@pytest.mark.evidence("damaged-replica")
def test_damaged_replica_that_no_broker_serves_is_not_replaced(cluster: Cluster) -> None:
    """As after a reassignment that was cancelled while the node was down, with a part of the log there. Observed with 4.3.1: the broker
    renames it as stray."""
    for name in ("alone-0", f"alone-0.{'c' * 32}-stray"):
        there = shutil.copytree(
            cluster.nodes[LAST].root / MORE / "alone-0", cluster.nodes[1].root / DATA / name
        )
        data = bytearray((there / f"{0:020d}.log").read_bytes())
        data[100] ^= 1
        (there / f"{0:020d}.log").write_bytes(data)
    assert cluster.found()["alone-0"] == "becomes-stray"
    assert not any("kseg-copying" in row.get("command", "") for row in cluster.examined())


def test_volume_of_another_node_prevents_the_start(
    cluster: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """Observed with 4.3.1: neither broker starts, and each logs this exception."""
    first, last = (cluster.nodes[node_id].root / MORE for node_id in BROKERS)
    first.rename(aside := first.with_name("aside"))
    last.rename(first)
    aside.rename(last)
    rows = cluster.examined()
    starts = {row["node_id"]: row for row in rows if row["type"] == "broker-start"}
    assert starts[CONTROLLER]["outcome"] == "starts"
    for own, other in (BROKERS, BROKERS[::-1]):
        assert (starts[own]["outcome"], starts[own]["exception"]) == ("does-not-start", "RuntimeException")
        file = cluster.nodes[own].root / MORE / "meta.properties"
        message = f"Stored node id {other} doesn't match previous node id {own} in {file}."
        assert starts[own]["message"] == message
    steps = [row["why"] for row in rows if row["type"] == "step"]
    assert sum("it is mounted on the wrong machine" in why for why in steps) == 2
    # if they are collected in one place where several have a metadata log, each is taken for what it is
    paths = [path for node_id in BROKERS for path in cluster.log_dirs(node_id)]
    moved = [path.rename(first.parent.parent / f"disk-{number}") for number, path in enumerate(paths)]
    rows = rows_of(capfd, "doctor", *moved, status=0)
    assert {row["outcome"] for row in rows if row["type"] == "broker-start"} == {"starts"}


OWN = {"1a": (1, DATA), "1b": (1, MORE), "2a": (2, DATA), "2b": (2, MORE), "9": (CONTROLLER, DATA)}
STORED = "Stored node id {} doesn't match previous node id {} in "


@pytest.mark.parametrize(
    ("places", "foreign"),
    [
        # the metadata log of another node is in place of the second volume (exceptions as observed with 4.3.1)
        (
            {"n1/d": "1a", "n1/m": "2a", "n2/d": "1b", "n2/m": "2b", "n9/d": "9"},
            {1: (2, "n1/m"), 2: (1, "n2/d")},
        ),
        ({"n1/d": "1a", "n1/m": "2a"}, {1: (2, "n1/m"), 2: (1, "n1/d")}),
        # each volume is mounted at its own directory
        (
            {"n1/1/k": "1a", "n1/2/k": "2b", "n2/1/k": "2a", "n2/2/k": "1b", "n9/1/k": "9"},
            {1: (2, "n1/2/k"), 2: (1, "n2/2/k")},
        ),
        # nothing is swapped: one directory for each node, all volumes in one place, grouped by disk, or one volume for each node
        ({"n1/1/k": "1a", "n1/2/k": "1b", "n2/1/k": "2a", "n2/2/k": "2b", "n9/1/k": "9"}, {}),
        ({"d1": "1a", "d2": "2a", "d3": "1b", "d4": "2b", "d5": "9"}, {}),
        ({"d/1": "1a", "d/2": "2a", "d/9": "9", "m/1": "1b", "m/2": "2b"}, {}),
        ({"n1/d": "1a", "n2/d": "2a", "n9/d": "9"}, {}),
    ],
)
def test_volumes_of_several_nodes_beside_each_other_are_reported(
    cluster: Cluster,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    places: dict[str, str],
    foreign: dict[int, tuple[int, str]],
) -> None:
    """foreign: by node, the other node's volume among its own. No file tells whether the volumes were only collected there."""
    for place, which in places.items():
        (tmp_path / "all" / place).parent.mkdir(parents=True, exist_ok=True)
        node_id, name = OWN[which]
        (cluster.nodes[node_id].root / name).rename(tmp_path / "all" / place)
    rows = rows_of(capfd, "verify", "--quick", *(tmp_path / "all" / place for place in places), status=0)
    starts = {row["node_id"]: row for row in rows if row["type"] == "broker-start"}
    assert {*starts} == {OWN[which][0] for which in places.values()}
    for node_id, start in starts.items():
        own = {str(tmp_path / "all" / place) for place, which in places.items() if OWN[which][0] == node_id}
        if node_id in foreign:
            other, place = foreign[node_id]
            file = tmp_path / "all" / place / "meta.properties"
            assert start["message"] == f"{STORED.format(other, node_id)}{file}."
            start = start["once_apart"]
        assert start["outcome"] == "starts" and {*start["log_dirs"]} == own and start["once_apart"] is None


def test_volume_of_another_node_in_log_dirs_of_the_properties_is_reported(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """server.properties tells which node the machine belongs to and that the volume is in its log.dirs, so there is only one
    interpretation."""
    own = cluster.nodes[1].root / DATA
    other = (cluster.nodes[2].root / DATA).rename(cluster.nodes[1].root / "other")
    properties = tmp_path / "server.properties"
    for log_dirs, outcome in ((f"{own},{other}", "does-not-start"), (own, "starts")):
        properties.write_text(f"process.roles=broker\nnode.id=1\nlog.dirs={log_dirs}\n")
        words = ("verify", "--quick", "--json", "--server-properties", properties, own, other)
        (start,) = [row for row in rows_of(capfd, *words, status=0) if row["type"] == "broker-start"]
        assert (start["node_id"], start["outcome"], start["once_apart"]) == (1, outcome, None)


def test_volume_of_another_cluster_prevents_the_start(cluster: Cluster) -> None:
    """Observed with 4.3.1: the broker does not start, and logs this exception."""
    file = cluster.nodes[LAST].root / MORE / "meta.properties"
    (own,) = re.findall(r"(?m)^cluster\.id=(.*)$", file.read_text())
    file.write_text(file.read_text().replace(own, "KotherKotherKotherKotA"))
    start = cluster.forecast()
    assert (start["outcome"], start["exception"]) == ("does-not-start", "RuntimeException")
    assert (
        start["message"] == f"Invalid cluster.id in: {file}. Expected {own}, but read KotherKotherKotherKotA"
    )
