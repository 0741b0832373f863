"""A replica that was being moved to another log dir of its broker when its log, or the copy of it, was damaged. `doctor` keeps what either
has: a broker would complete the move with the damaged copy, and delete the whole log, or truncate the whole copy to the damaged log. The
directories are those of the capture `moving-small`, and the real nodes are started on them before and after the steps.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.segment.kernel import bad_pages
from tests.kafka.conftest import require_kafka
from tests.kafka.two_replicas import CONTROLLER, TwoReplicas
from tests.support.command_rows import rows_of
from tests.support.sector_faults import BadSectors, bad_sectors
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

NODE = 2
# MOVED is assigned to the log dir of the copy, ALONE still to that of its log
MOVED, ALONE = "moved", "alone"
RECORDS = {MOVED: 20, ALONE: 40}


class Moving(TwoReplicas):
    """The cluster of the capture after a kill."""

    def __init__(self, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
        super().__init__(root)
        self._capfd = capfd
        self.log_dirs = [self.nodes[NODE].root / name for name in ("data", "more")]
        self.nodes[NODE].properties["log.dirs"] = ",".join(map(str, self.log_dirs))
        for log_dir in self.log_dirs:
            (log_dir / ".kafka_cleanshutdown").unlink()

    def directory(self, pattern: str) -> Path:
        (found,) = (path for log_dir in self.log_dirs for path in log_dir.glob(pattern))
        return found

    def log_of(self, topic: str) -> Path:
        return self.directory(f"{topic}-0") / f"{0:020d}.log"

    def copy_of(self, topic: str) -> Path:
        return self.directory(f"{topic}-0.*-future") / f"{0:020d}.log"

    def copy_all(self, topic: str) -> None:
        """As if the whole log had been copied."""
        for file in self.log_of(topic).parent.iterdir():
            shutil.copy2(file, self.copy_of(topic).parent)

    def take_place(self, topic: str) -> None:
        """As if the move had been completed a moment ago."""
        log, copy = self.log_of(topic).parent, self.copy_of(topic).parent
        log.rename(log.with_name(f"{log.name}.{'a' * 32}-delete"))
        copy.rename(copy.with_name(log.name))

    def change_places(self, topic: str) -> None:
        """As if the controller had assigned the replica to the log dir of its copy."""
        log, copy = self.log_of(topic).parent, self.copy_of(topic).parent
        aside = log.rename(log.parent.parent / "aside")
        copy.rename(log.parent / copy.name)
        aside.rename(copy.parent / log.name)

    def asked(self, command: str) -> list[dict[str, Any]]:
        return rows_of(self._capfd, command, *self.log_dirs)

    def found(self) -> dict[str, str]:
        """The ids of the errors, by partition directory without its random part."""
        rows = [row for row in self.asked("verify") if row.get("severity") == "error"]
        return {re.sub(r"\.\w+-future.*", "-future", Path(row["path"]).name): row["id"] for row in rows}

    def follow(self) -> int:
        """Run the steps exactly as they are printed, up to the one that checks again; returns their number."""
        steps = [row["command"] for row in self.asked("doctor") if row["type"] == "step"]
        first = [step for step in steps if not step.startswith("kseg doctor")]
        assert not any(step.startswith("kseg recover --apply") for step in first)
        for step in first:
            _type(step)
        return len(first)

    def follow_to_the_end(self) -> None:
        """Run the steps that are due, except those that only show something, until none is left."""
        for _ in range(5):
            steps = [row["command"] for row in self.asked("doctor") if row["type"] == "step" and row["due"]]
            changing = [
                step for step in steps if not re.match(r"kseg (doctor|diff|recover (?!--apply))", step)
            ]
            if not changing:
                return
            for step in changing:
                _type(step)
        raise AssertionError("the steps have no end")

    def served(self, topic: str) -> int:
        """The number of records that a consumer receives once the nodes run."""
        self.prepare()
        self.begin(CONTROLLER, NODE)
        return len(self.nodes[NODE].consume(topic))


@pytest.fixture
def cluster(moving_small: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Moving]:
    require_kafka()
    cluster = Moving(copy_tree(moving_small, tmp_path / "cluster"), capfd)
    try:
        yield cluster
    finally:
        cluster.abandon()


def _type(step: str) -> None:
    typed = re.sub(r"\bkseg (?=dump|append|recover)", f"{sys.executable} -m kseg ", step)
    subprocess.run(typed, shell=True, check=True, stdout=subprocess.DEVNULL)


def _spoil_batch(log: Path, number: int) -> None:
    """Damage the batch of a record of ALONE."""
    first = log.stat().st_size // RECORDS[ALONE] * number + 80
    _spoil(log, first, first + 10)


def _spoil(log: Path, first: int, end: int) -> None:
    """Damage bytes."""
    data = bytearray(log.read_bytes())
    data[first:end] = b"\xff" * (end - first)
    log.write_bytes(data)


def _split(log: Path, *offsets: int) -> None:
    """Put the records from each of these offsets on, which begin batches, into a segment of their own."""
    data, ends = log.read_bytes(), [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + 12 + int.from_bytes(data[ends[-1] + 8 : ends[-1] + 12]))
    begins = {int.from_bytes(data[end : end + 8]): end for end in ends[:-1]}
    cuts = [begins[offset] for offset in offsets]
    for offset, begin, end in zip((0, *offsets), (0, *cuts), (*cuts, len(data)), strict=True):
        segment = log.with_name(f"{offset:020d}.log")
        segment.write_bytes(data[begin:end])
        segment.with_suffix(".index").write_bytes(b"")
        segment.with_suffix(".timeindex").write_bytes(b"")


@pytest.mark.evidence("moved-log")
@pytest.mark.parametrize("is_followed", [False, True])
@pytest.mark.parametrize("is_in_place", [False, True])
def test_completed_move_to_a_log_that_lost_its_records(
    cluster: Moving, is_in_place: bool, is_followed: bool
) -> None:
    """As after a power failure: nothing syncs what was copied a moment ago. is_in_place: the log has taken the place of the former one,
    which is marked for deletion, and which a broker deletes a minute after its start."""
    if is_in_place:
        cluster.take_place(MOVED)
    log = cluster.log_of(MOVED) if is_in_place else cluster.copy_of(MOVED)
    for file in (log, *log.parent.glob("*index")):
        os.truncate(file, 0)
    assert cluster.found()[f"{MOVED}-0" if is_in_place else f"{MOVED}-0-future"] == "moved-log-behind"
    if is_followed:
        assert cluster.follow() == 1
        assert "moved-log-behind" not in cluster.found().values()
    assert cluster.served(MOVED) == (RECORDS[MOVED] if is_followed else 0)


@pytest.mark.evidence("moved-log")
def test_completed_move_to_a_damaged_log(cluster: Moving) -> None:
    log = cluster.copy_of(MOVED)
    _spoil(log, log.stat().st_size - 20, log.stat().st_size)
    assert cluster.found()[f"{MOVED}-0-future"] == "moved-log-behind"
    assert cluster.follow() == 1
    assert cluster.served(MOVED) == RECORDS[MOVED]


@pytest.mark.evidence("moved-log")
def test_reassigned_replica_that_lost_its_records(cluster: Moving) -> None:
    """The node that it came from has marked its log for deletion."""
    former, log = cluster.nodes[1].root / "data" / f"{ALONE}-0.{'a' * 32}-delete", cluster.log_of(ALONE)
    shutil.copytree(log.parent, former)
    shutil.rmtree(cluster.copy_of(ALONE).parent)
    for file in (log, *log.parent.glob("*index")):
        os.truncate(file, 0)
    assert "moved-log-behind" not in cluster.found().values()
    cluster.log_dirs += [
        cluster.nodes[1].root / "data",
        cluster.nodes[1].root / "more",
        cluster.data(CONTROLLER),
    ]
    assert cluster.found()[f"{ALONE}-0"] == "moved-log-behind"
    assert cluster.follow() == 1
    assert "moved-log-behind" not in cluster.found().values()
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("damaged-replica")
def test_damaged_log_that_took_the_place_of_a_whole_one(cluster: Moving) -> None:
    cluster.copy_all(ALONE)
    cluster.take_place(ALONE)
    _spoil_batch(cluster.log_of(ALONE), 1)
    assert cluster.follow() == 1
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("damaged-replica")
@pytest.mark.parametrize("share", [1, 2])
def test_damaged_log_whose_copy_has_the_records(cluster: Moving, share: int) -> None:
    """Without the steps a broker truncates both to the damage. share: 1 for a whole copy, 2 for half of one."""
    cluster.copy_all(ALONE)
    log, copy = cluster.log_of(ALONE), cluster.copy_of(ALONE)
    os.truncate(copy, log.stat().st_size // share)
    _spoil_batch(log, 1)
    assert cluster.follow() == share
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("damaged-replica")
def test_log_that_is_cut_off_in_a_batch_is_continued_from_its_copy(cluster: Moving) -> None:
    """The dump of what precedes the cut names the offset there, and append refused the pieces because none had it."""
    cluster.copy_all(ALONE)
    log = cluster.log_of(ALONE)
    os.truncate(log, log.stat().st_size * 69 // 80)
    _spoil_batch(log, 10)
    _spoil_batch(cluster.copy_of(ALONE), 33)
    assert cluster.follow() == 2
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("damaged-replica")
def test_copy_that_is_cut_off_in_a_header_has_what_the_log_lacks(cluster: Moving) -> None:
    """Nothing tells how many records are cut off, and each dump of the copy names the place."""
    cluster.copy_all(ALONE)
    log, copy = cluster.log_of(ALONE), cluster.copy_of(ALONE)
    os.truncate(copy, log.stat().st_size // RECORDS[ALONE] * 34 + 13)
    _spoil_batch(copy, 15)
    for number in (25, 32):
        _spoil_batch(log, number)
    assert cluster.follow() == 2
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("moved-log")
@pytest.mark.parametrize(("spoilt", "is_followed"), [((), False), ((), True), ((1, 35), True)])
def test_log_that_is_cut_off_between_batches_is_continued_from_its_copy(
    cluster: Moving, spoilt: tuple[int, ...], is_followed: bool
) -> None:
    """Observed with 4.3.1 without the steps: the copy is truncated to the end of the log. spoilt: batches of the copy."""
    cluster.copy_all(ALONE)
    log = cluster.log_of(ALONE)
    os.truncate(log, log.stat().st_size * 30 // RECORDS[ALONE])
    for number in spoilt:
        _spoil_batch(cluster.copy_of(ALONE), number)
    assert cluster.found()["alone-0"] == "moved-log-behind"
    if is_followed:
        assert cluster.follow() == (2 if spoilt else 1)
        assert "moved-log-behind" not in cluster.found().values()
    lost = len([number for number in spoilt if number >= 30])
    assert cluster.served(ALONE) == (RECORDS[ALONE] - lost if is_followed else 30)


@pytest.mark.evidence("damaged-replica")
@pytest.mark.parametrize("is_in_copy", [False, True])
def test_records_that_only_a_repair_of_one_bit_restores(cluster: Moving, is_in_copy: bool) -> None:
    """Both logs lack something else of each other, so kseg used to advise a repair of each, which removes what the other one has."""
    cluster.copy_all(ALONE)
    log, copy = cluster.log_of(ALONE), cluster.copy_of(ALONE)
    flipped, spoilt = (copy, log) if is_in_copy else (log, copy)
    data = bytearray(flipped.read_bytes())
    data[len(data) // RECORDS[ALONE] + 80] ^= 4
    flipped.write_bytes(data)
    _spoil_batch(spoilt, 1)
    _spoil_batch(log, 3)
    _spoil_batch(copy, 5)
    assert cluster.follow() == 3
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("damaged-replica")
@pytest.mark.parametrize("is_index_left", [True, False])
def test_lost_segment_that_the_copy_has(cluster: Moving, is_index_left: bool) -> None:
    """The copy has lost the last segment, so that neither is whole."""
    _split(cluster.log_of(ALONE), 14, 28)
    cluster.copy_all(ALONE)
    for lost in (
        cluster.log_of(ALONE).with_name(f"{14:020d}"),
        cluster.copy_of(ALONE).with_name(f"{28:020d}"),
    ):
        lost.with_suffix(".log").unlink()
        if not is_index_left:
            lost.with_suffix(".index").unlink()
    assert cluster.follow() == 2
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("damaged-replica")
@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("is_moved", [True, False])
def test_lost_first_segment_that_the_copy_has(cluster: Moving, is_moved: bool, is_whole: bool) -> None:
    """Its leader epochs are still there. Observed with 4.3.1 without the steps: the log begins with the second segment."""
    _split(cluster.log_of(ALONE), 14, 28)
    cluster.copy_all(ALONE)
    if is_moved:
        cluster.take_place(ALONE)
    log = cluster.log_of(ALONE)
    copy = cluster.directory("alone-0.*-*") / f"{28:020d}.log"
    if not is_whole:
        copy.unlink()
    log.unlink()
    assert cluster.follow() == (1 if is_whole else 2)
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("damaged-replica")
def test_bad_sectors_where_the_copy_has_the_records(cluster: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy has half of the log. Only doctor finds bad sectors; the pieces that its steps take are beside them."""
    cluster.copy_all(ALONE)
    os.truncate(cluster.copy_of(ALONE), cluster.copy_of(ALONE).stat().st_size // 2)
    bad_sectors(monkeypatch, BadSectors()).spoil(cluster.log_of(ALONE), [5, 6, 12])
    try:
        steps = [row["command"] for row in cluster.asked("doctor") if row["type"] == "step"]
        assert cluster.follow() == 2
    finally:
        monkeypatch.undo()
        bad_pages.forget()
    pieces = re.findall(
        r"(?:--from-offset (\d+) )?(?:--to-offset (\d+) )?\S*alone-0(\.\w+-future)?;", steps[0]
    )
    batch = cluster.log_of(ALONE).stat().st_size // RECORDS[ALONE]
    lost = {at // batch for sector in (5, 6, 12) for at in (sector * 512, sector * 512 + 511)}
    assert {int(first) for first, _, is_copy in pieces if is_copy} <= lost
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("damaged-replica")
def test_damaged_copy_of_a_whole_log(cluster: Moving) -> None:
    cluster.copy_all(ALONE)
    _spoil_batch(cluster.copy_of(ALONE), 1)
    assert cluster.follow() == 1
    assert cluster.found() == {}
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("partition-twice", "damaged-replica")
@pytest.mark.parametrize(
    ("of_log", "of_copy"), [((1,), ()), ((), (1,)), ((39,), ()), ((1,), (2,)), ((1, 3), (2, 39))]
)
def test_damaged_log_whose_copy_has_its_name_already(
    cluster: Moving, of_log: tuple[int, ...], of_copy: tuple[int, ...]
) -> None:
    """A broker gives the copy the name of the log before it marks the log for deletion, and does not start if it ended in between. of_log,
    of_copy: their damaged batches."""
    cluster.copy_all(ALONE)
    log, copy = cluster.log_of(ALONE), cluster.copy_of(ALONE)
    for number in of_log:
        _spoil_batch(log, number)
    for number in of_copy:
        _spoil_batch(copy, number)
    copy.parent.rename(copy.parent.with_name(log.parent.name))
    cluster.follow_to_the_end()
    assert cluster.found() == {}
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("moved-log", "damaged-replica")
@pytest.mark.parametrize("is_torn", [False, True])
def test_damaged_log_whose_copy_lacks_the_last_records(cluster: Moving, is_torn: bool) -> None:
    """A broker would complete the move. Nothing is moved out of the way before the log is put together."""
    cluster.copy_all(ALONE)
    cluster.change_places(ALONE)
    log, copy = cluster.log_of(ALONE), cluster.copy_of(ALONE)
    os.truncate(copy, copy.stat().st_size // 2 - 20 * is_torn)
    _spoil_batch(log, 1)
    assert cluster.found()["alone-0-future"] == "moved-log-behind"
    cluster.follow_to_the_end()
    assert cluster.found() == {}
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("moved-log", "damaged-replica")
def test_damaged_log_that_is_longer_than_the_one_that_took_its_place(cluster: Moving) -> None:
    cluster.copy_all(ALONE)
    cluster.take_place(ALONE)
    log, former = cluster.log_of(ALONE), cluster.directory("alone-0.*-delete") / f"{0:020d}.log"
    os.truncate(log, log.stat().st_size // 2)
    _spoil_batch(former, 1)
    cluster.follow_to_the_end()
    assert cluster.found() == {}
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("moved-log", "damaged-replica")
@pytest.mark.parametrize("damage", ["shorter", "torn", "inside"])
def test_log_marked_for_deletion_that_a_broker_has_loaded_before(cluster: Moving, damage: str) -> None:
    """The load removes the leader epochs from its checkpoint."""
    cluster.nodes[NODE].properties["log.segment.delete.delay.ms"] = "86400000"
    cluster.copy_all(ALONE)
    cluster.take_place(ALONE)
    assert cluster.served(ALONE) == RECORDS[ALONE]
    cluster.nodes[NODE].crash()
    cluster.nodes[CONTROLLER].stop()
    checkpoint = cluster.directory("alone-0.*-delete") / "leader-epoch-checkpoint"
    assert checkpoint.read_text() == "0\n0\n"
    log = cluster.log_of(ALONE)
    if damage == "inside":
        _spoil_batch(log, 1)
    else:
        os.truncate(log, log.stat().st_size // 2 - 20 * (damage == "torn"))
    cluster.follow_to_the_end()
    assert "moved-log-behind" not in cluster.found().values()
    assert cluster.served(ALONE) == RECORDS[ALONE]


@pytest.mark.evidence("moved-log")
def test_step_that_stops_a_move_is_due_where_nothing_else_is_wrong(cluster: Moving) -> None:
    for file in cluster.copy_of(MOVED).parent.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    assert cluster.found() == {f"{MOVED}-0-future": "moved-log-behind"}
    cluster.follow_to_the_end()
    assert cluster.found() == {}
    assert cluster.served(MOVED) == RECORDS[MOVED]


@pytest.mark.evidence("moved-log", "linked-directory")
def test_copy_of_a_linked_partition_is_no_link(cluster: Moving, tmp_path: Path) -> None:
    """A broker that deletes the linked log deletes the files that the link refers to. A relative link is moved as well."""
    cluster.nodes[NODE].properties["log.segment.delete.delay.ms"] = "0"
    cluster.copy_all(ALONE)
    cluster.take_place(ALONE)
    log, former = cluster.log_of(ALONE), cluster.directory("alone-0.*-delete")
    os.truncate(log, log.stat().st_size // 2)
    for number, linked in enumerate((former, log.parent)):
        linked.rename(tmp_path / f"disk-{number}")
        linked.symlink_to(os.path.relpath(tmp_path / f"disk-{number}", linked.parent))
    assert cluster.follow() == 1
    assert cluster.served(ALONE) == RECORDS[ALONE]
    cluster.nodes[NODE].wait_for("the deletion", lambda: not (tmp_path / "disk-0" / log.name).exists())
    assert log.stat().st_size and not log.parent.is_symlink()
    (moved,) = log.parent.parent.parent.glob("*-alone-0")
    assert (moved / log.name).stat().st_size
