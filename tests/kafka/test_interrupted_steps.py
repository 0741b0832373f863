"""Steps of `doctor` that a full disk, a kill or a bad sector interrupts: what was there before stays until the step is complete, what was
made so far is not served, and the step can be given again. On copies of the directories of `test_elections`, which a replica may lead.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.kafka.electing import ORDERS, Electing, typed
from tests.support.command_rows import rows_of
from tests.support.trees import unchanged

pytestmark = pytest.mark.kafka

# writing more than 512 bytes to a file fails, as on a disk that becomes full
_FULL = "trap '' XFSZ; ulimit -f 1; "


@pytest.mark.evidence("replica-shorter")
def test_replica_stays_until_the_copy_that_replaces_it_is_complete(
    electing: Electing, capfd: pytest.CaptureFixture[str]
) -> None:
    """What `cp` had copied before the disk was full was in its place, with which the node may lead."""
    cluster = electing("killed")
    cluster.lose_end(1, batches=7)
    own = cluster.data(1) / f"{ORDERS}-0"
    (step,) = [each for each in cluster.steps() if each.endswith(f" {own}")]
    with unchanged(own):
        assert typed(step, _FULL).returncode == 1
    copying = own.with_name(f"{own.name}.kseg-copying")
    assert copying.is_dir()
    (copying / f"{7:020}.log").touch()
    assert f"rm -r {copying} && {step}" in cluster.steps()
    alone = rows_of(capfd, "doctor", cluster.data(1), status=1)
    assert f"rm -r {copying}" in [row["command"] for row in alone if row["type"] == "step"]
    cluster.follow()
    assert not copying.exists()
    assert cluster.found(ORDERS) == {}


@pytest.mark.evidence("replica-missing", "bad-directory")
def test_unfinished_copy_is_not_taken_for_the_missing_replica(electing: Electing) -> None:
    cluster = electing("killed")
    own = cluster.data(3) / f"{ORDERS}-0"
    shutil.rmtree(own)
    (step,) = cluster.steps()[:-1]
    assert typed(step, _FULL).returncode == 1
    copying = own.with_name(f"{own.name}.kseg-copying")
    assert not own.exists() and list(copying.iterdir())
    # all of the log is there, but not all files
    shutil.copy2(cluster.data(1) / f"{ORDERS}-0" / "partition.metadata", copying)
    shutil.copy2(cluster.data(1) / f"{ORDERS}-0" / f"{0:020}.log", copying)
    assert cluster.follow() == [f"rm -r {copying} && {step}"]
    assert cluster.found(ORDERS) == {} and not copying.exists()
    assert not [row for row in cluster.asked("verify") if row.get("severity") == "error"]


@pytest.mark.evidence("damaged-replica")
@pytest.mark.parametrize("how", ["gone", "killed", "damaged"])
def test_log_is_not_put_together_without_one_of_its_pieces(electing: Electing, how: str) -> None:
    """The shell goes on after a dump that fails, so that the log lacked ten records that node 1 has."""
    cluster = electing("killed")
    cluster.damage(2, 3)
    cluster.damage(1, 4)
    cluster.damage(3, 4)
    own, other = cluster.data(2) / f"{ORDERS}-0", cluster.data(1) / f"{ORDERS}-0"
    step = next(each for each in cluster.steps() if each.startswith(f"mkdir -p {cluster.data(2)}-whole"))
    whole = Path(f"{cluster.data(2)}-whole") / own.name
    log = other / f"{0:020}.log"
    before = log.read_bytes()
    now = step
    if how == "gone":
        now = step.replace(f"{other};", f"{other}-gone;")
    elif how == "killed":
        now = re.sub(rf"kseg dump [^;]* {re.escape(str(other))};", "sh -c 'kill -9 $$';", step)
    else:
        cluster.damage(1, 3)
    assert now != step or how == "damaged"
    ended = typed(now)
    assert ended.returncode == 4 and "; nothing was appended" in ended.stderr
    assert not whole.exists()
    log.write_bytes(before)
    assert typed(step).returncode == 0
    with PartitionLog(PartitionTarget(str(whole))) as made:
        assert (made.start_offset, made.end_offset) == (0, 100)
    # given again, it begins anew, and what is there may be the only whole log by now
    aside = Path(f"{whole.parent}-{whole.name}")
    assert f"mv {whole} {aside} && {step}" in cluster.steps()
    assert typed(f"mv {whole} {aside} && {step}").returncode == 0
    assert (aside / log.name).read_bytes() == (whole / log.name).read_bytes()
