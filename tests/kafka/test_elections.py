"""Which of three replicas is elected after power failures and kills, and what the others lose: `verify` and `doctor` say so if they are
given the data directories of all nodes. The directories are those of the capture `electing-small`; one test starts the cluster, after the
steps of `doctor`. Every outcome was observed with 4.3.1, also of the tests that start none.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from kseg.segment.partition.names import METADATA_DIRECTORY
from tests.internal_topics.metadata_logs import write_snapshot
from tests.kafka.conftest import require_kafka
from tests.kafka.electing import BROKERS, CLICKS, ORDERS, Electing
from tests.kafka.two_replicas import CONTROLLER
from tests.support.command_rows import rows_of
from tests.support.compact_helpers import records

pytestmark = pytest.mark.kafka

MARKER = ".kafka_cleanshutdown"


@pytest.mark.evidence("replica-shorter", "damaged-replica")
def test_steps_after_a_power_failure_of_all_nodes_keep_what_any_replica_has(electing: Electing) -> None:
    """All records were acknowledged. The checkpoints have no high watermark yet, so only the lengths of the logs tell. Without the steps, a
    start in this order keeps 80 records of one topic and 70 of the other; if the longest replica, which is damaged, is copied as it is, 70
    of both. Takes eleven seconds of processor time: four nodes are started."""
    require_kafka()
    cluster = electing("killed")
    assert cluster.found(ORDERS) == cluster.found(CLICKS) == {}
    cluster.lose_end(1, batches=7)
    cluster.lose_end(3, batches=8)
    shorter = {1: ("replica-shorter", 70, 2, 100), 3: ("replica-shorter", 80, 2, 100)}
    assert cluster.found(ORDERS) == cluster.found(CLICKS) == shorter
    cluster.damage(2, 7)
    # put together first, then copied
    assert len(cluster.follow()) == 2
    assert cluster.found(ORDERS) == cluster.found(CLICKS) == shorter
    assert len(cluster.follow()) == 4
    assert cluster.found(ORDERS) == cluster.found(CLICKS) == {}
    cluster.prepare()
    try:
        for node_id in (CONTROLLER, *BROKERS):
            cluster.begin(node_id)
        cluster.await_in_sync(ORDERS, CLICKS)
        assert [cluster.consume(topic) for topic in (ORDERS, CLICKS)] == [100, 100]
    finally:
        cluster.abandon()


@pytest.mark.evidence("replica-missing")
def test_missing_replica_that_may_lead_is_copied_although_others_are_in_sync(
    electing: Electing, capfd: pytest.CaptureFixture[str]
) -> None:
    """Node 1 leads according to the metadata. All were killed, so each leaves the ISR when it registers, and node 3, started last, is
    elected with an empty log: without the step, no replica had a record."""
    cluster = electing("killed")
    gone = cluster.data(3) / f"{ORDERS}-0"
    shutil.rmtree(gone)
    alone = rows_of(capfd, "doctor", cluster.data(3), status=0)
    (finding,) = [row for row in alone if row.get("path") == str(gone)]
    (step,) = [row for row in alone if row["type"] == "step"]
    assert finding["id"] == "replica-fetched-anew"
    assert step["why"].startswith(f"Start the broker only while another node leads {ORDERS}-0: ")
    (missing,) = [row for row in cluster.asked("verify") if row.get("path") == str(gone)]
    assert (missing["id"], missing["other_end_offset"]) == ("replica-missing", 100)
    cluster.follow()
    assert not [row for row in cluster.asked("verify") if row.get("severity") == "error"]
    assert cluster.found(ORDERS) == {}


@pytest.mark.evidence("replica-missing")
def test_replica_that_all_nodes_in_sync_have_lost_is_not_fetched(electing: Electing) -> None:
    """Each of them used to be said to fetch it from the others. Observed with two replicas: an empty log led."""
    cluster = electing("killed")
    for node_id in BROKERS:
        shutil.rmtree(cluster.data(node_id) / f"{CLICKS}-0")
    missing = [row for row in cluster.asked("verify") if "checkpointed_offset" in row]
    assert [row["id"] for row in missing] == ["replica-missing"] * len(BROKERS)
    assert "node 1, 2 lacks it too, so its records are gone" in missing[-1]["message"]
    assert cluster.steps()[0].startswith("find ")


@pytest.mark.evidence("broker-start")
@pytest.mark.parametrize("killed", [(2, 3), BROKERS])
def test_partition_whose_leaders_have_all_lost_their_log_dirs_is_elected_a_leader(
    electing: Electing, killed: tuple[int, ...]
) -> None:
    """Nodes 2 and 3 were in the ELR: node 3 led once node 2 was started after it. Of three that were in sync, none led once all were
    started, until the step. Nothing used to be said, since several nodes may lead."""
    cluster = electing("killed" if killed == BROKERS else "stopped")

    def leaderless() -> dict[int, list[str]]:
        starts = [row for row in cluster.asked("doctor") if row["type"] == "broker-start"]
        return {row["node_id"]: found for row in starts if (found := row["partitions_leaderless"])}

    for node_id in killed:
        assert not leaderless()
        (cluster.data(node_id) / MARKER).unlink(missing_ok=True)
        file = cluster.data(node_id) / "meta.properties"
        text = re.sub(
            r"(?m)^directory\.id=.*$", f"directory.id=K{node_id}8HQ8GRbe4gPg7H008PCA", file.read_text()
        )
        file.write_text(text)
    # where unclean elections are allowed, one that was killed and starts again leads
    names = ["orders-0"] if killed == BROKERS else ["clicks-0", "orders-0"]
    assert leaderless() == dict.fromkeys(BROKERS if killed == BROKERS else (3,), names)
    *in_order, step = [row for row in cluster.asked("doctor") if "-election-type" in row.get("command", "")]
    assert f"elect a leader for {', '.join(names)}. " in step["why"]
    # started alone, node 3 led only after the election
    begin = "Start node 3 before node 1, node 2, elect leaders, and wait until it leads: "
    assert [row["why"][: len(begin)] for row in in_order] == [begin][: "clicks-0" in names]


@pytest.mark.evidence("damaged-replica")
def test_damaged_replica_is_replaced_by_an_undamaged_one(electing: Electing) -> None:
    cluster = electing("killed")
    cluster.damage(2, 3)
    cluster.damage(3, 5)
    own, whole = cluster.data(2) / f"{ORDERS}-0", cluster.data(1) / f"{ORDERS}-0"
    copying, aside = f"{own}.kseg-copying", f"{cluster.data(2)}-{own.name}"
    commands = (
        f"cp -a -T {whole} {copying}",
        f"sync -f {copying}",
        f"mv {own} {aside}",
        f"mv -T {copying} {own}",
    )
    assert cluster.steps()[0] == " && ".join(commands)
    # each of two damaged ones has what the other one lacks
    cluster.damage(1, 4)
    assert [step.split(" && ")[0] for step in cluster.steps()[::2]][:3] == [
        f"mkdir -p {cluster.data(node_id)}-whole" for node_id in BROKERS
    ]
    # no replica has the records of one batch, and one of them has all others
    for node_id in (1, 3):
        cluster.damage(node_id, 3)
    made = [step for step in cluster.steps() if step.startswith("mkdir")]
    assert [step.split(" && ")[0] for step in made] == [
        f"mkdir -p {cluster.data(node_id)}-whole" for node_id in (1, 3)
    ]
    assert all(" --lost 30-39 " in step for step in made)


@pytest.mark.evidence("damaged-replica")
def test_records_before_a_torn_end_replace_damaged_ones(electing: Electing) -> None:
    """Observed with 4.3.1 when the damaged replica was copied over the torn one: the records of the damaged batch were lost."""
    cluster = electing("killed")
    for node_id in (2, 3):
        cluster.damage(node_id, 4)
    log, ends = cluster.batches_of(1, ORDERS)
    os.truncate(log, ends[7] - 20)
    # both logs are put together, then the torn one is replaced
    assert len(cluster.follow()) == 4
    assert cluster.found(ORDERS) == {1: ("replica-shorter", 70, 2, 100)}
    assert len(cluster.follow()) == 1
    assert [len(records(cluster.data(node_id) / "orders-0")) for node_id in BROKERS] == [100, 100, 100]


@pytest.mark.evidence("damaged-replica")
def test_records_of_another_leader_epoch_do_not_replace_damaged_ones(electing: Electing) -> None:
    """As after an unclean election: node 2 has other records with these offsets."""
    cluster = electing("stopped")
    cluster.damage(3, 10)
    assert cluster.steps()[0].startswith("mkdir -p ")
    file = cluster.data(2) / f"{ORDERS}-0" / "leader-epoch-checkpoint"
    file.write_text("0\n1\n0 0\n")
    assert not any(step.startswith("mkdir -p ") for step in cluster.steps())


@pytest.mark.evidence("replica-shorter")
def test_killed_node_is_not_elected_while_one_was_stopped_cleanly(electing: Electing) -> None:
    """Nodes 2 and 3 are in the ELR. Node 2 leaves it when it registers, and node 3 leads with every record, in any order of starts."""
    cluster = electing("stopped")
    cluster.lose_end(2, batches=9)
    assert cluster.found(ORDERS) == {}
    # with the epoch of its registration in the marker, node 2 stays in the ELR, and node 3 leaves it without
    epochs = {row["broker_id"]: row["epoch"] for row in cluster.asked("metadata") if row["type"] == "broker"}
    (cluster.data(2) / MARKER).write_text(json.dumps({"version": 0, "brokerEpoch": epochs[2]}))
    behind = {2: ("replica-behind", 90, 3, 120)}
    assert cluster.found(ORDERS) == behind
    (cluster.data(3) / MARKER).write_text(json.dumps({"version": 0, "brokerEpoch": epochs[3] - 1}))
    assert cluster.found(ORDERS) == behind
    # if none of them has it, the last known leader leads
    (cluster.data(2) / MARKER).unlink()
    assert cluster.found(ORDERS) == {}
    cluster.lose_end(3, batches=7)
    assert cluster.found(ORDERS)[3] == ("replica-behind", 70, 1, 100)


@pytest.mark.evidence("unclean-election-ahead")
def test_doctor_says_which_node_to_start_before_an_unclean_election(electing: Electing) -> None:
    """Node 1 or 2, started first, leads, and the others are truncated to its end; after node 3, every record stays."""
    cluster = electing("stopped")
    assert cluster.found(CLICKS) == {
        1: ("unclean-election-ahead", 100, 3, 120),
        2: ("unclean-election-ahead", 110, 3, 120),
    }
    assert cluster.order() == ["Start node 3 before node 1, node 2, and wait until it leads"]
    assert cluster.found(ORDERS) == {}


@pytest.mark.evidence("replica-missing")
def test_missing_replica_that_an_unclean_election_makes_the_leader_is_copied(electing: Electing) -> None:
    """Node 1, whose metadata log knows that it is not in sync. Observed in a like cluster: such a node, started first, led with an empty
    log. It was said to fetch the records, as it does where unclean elections are not allowed."""
    cluster = electing("stopped")
    gone, fetched = (cluster.data(1) / f"{topic}-0" for topic in (CLICKS, ORDERS))
    known = cluster.data(1) / METADATA_DIRECTORY
    for directory in (gone, fetched, known):
        shutil.rmtree(directory)
    shutil.copytree(cluster.data(CONTROLLER) / METADATA_DIRECTORY, known)
    assert cluster.steps()[0].startswith(f"cp -a -T {cluster.data(3) / gone.name} {gone}.kseg-copying")
    missing = {row["path"]: row["id"] for row in cluster.asked("verify") if "checkpointed_offset" in row}
    assert missing == {str(gone): "replica-missing", str(fetched): "replica-fetched-anew"}


@pytest.mark.evidence("unclean-election-ahead")
def test_unclean_elections_may_be_allowed_in_the_properties_of_the_controllers(
    electing: Electing, tmp_path: Path
) -> None:
    """Observed: node 1, started alone, led ORDERS with this line in the properties of the controller; without it, ORDERS had no leader."""
    cluster = electing("stopped")
    file = tmp_path / "server.properties"
    option = ("--server-properties", str(file))
    allowed = f"log.dirs={cluster.data(CONTROLLER)}\nunclean.leader.election.enable=true\n"
    file.write_text(f"{allowed}process.roles=controller\nnode.id={CONTROLLER}\n")
    assert cluster.found(ORDERS, *option) == cluster.found(CLICKS)
    # that of a broker has no effect
    file.write_text(f"{allowed}process.roles=broker\nnode.id=1\n")
    assert cluster.found(ORDERS, *option) == {}


def test_properties_of_one_node_concern_no_other(electing: Electing, tmp_path: Path) -> None:
    """The data directories of the others used to be added to its log.dirs, with which its broker did not start."""
    cluster = electing("stopped")
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={cluster.data(2)}\nprocess.roles=broker\nnode.id=2\n")
    rows = cluster.asked("doctor", "--server-properties", str(file))
    steps = [row["command"] for row in rows if row["type"] == "step"]
    assert [step for step in steps if str(file) in step] == [
        f"kseg doctor --server-properties {file} {cluster.data(2)}"
    ]
    assert not any(step.startswith("sed ") for step in steps)
    starts = [row for row in rows if row["type"] == "broker-start"]
    assert [row["log_dirs_left_out"] for row in starts] == [[]] * len(cluster.nodes)


@pytest.mark.evidence("controller-quorum")
def test_controller_that_lacks_a_topic_of_the_brokers_is_behind(electing: Electing) -> None:
    """Its metadata log ends after the registrations of the brokers. Without the step, all of them set aside the partitions of CLICKS as
    stray."""
    cluster = electing("killed")
    (log,) = (cluster.data(CONTROLLER) / METADATA_DIRECTORY).glob("*.log")
    os.truncate(log, _end_before(log, CLICKS))
    (finding,) = [row for row in cluster.asked("verify") if row.get("severity") == "error"]
    assert (finding["id"], finding["path"]) == ("replica-behind", str(log.parent))
    assert f"committed because brokers have applied changes of {CLICKS}. " in finding["message"]
    cluster.follow()
    assert not [row for row in cluster.asked("verify") if row.get("severity") == "error"]


@pytest.mark.evidence("controller-quorum")
def test_broker_whose_metadata_log_begins_above_the_end_of_its_controller_does_not_start(
    electing: Electing,
) -> None:
    """Observed with these directories: "Attempt to truncate to offset 22, which is below the current high watermark 28". Where the
    controller had the epoch of the last record, its log grew before the node fetched (34 to 43, below 77), and the node ended too. With a
    log from offset 0 beside the snapshot it was truncated. One that knew epoch 4 waited for the controller, in epoch 2."""
    cluster = electing("killed")
    ahead = cluster.data(1) / METADATA_DIRECTORY
    (log,) = (cluster.data(CONTROLLER) / METADATA_DIRECTORY).glob("*.log")
    before_orders, before_clicks = _end_before(log, ORDERS), _end_before(log, CLICKS)
    _begin_at(ahead, before_clicks, start_offset=28)

    def told() -> tuple[str, str, str | None]:
        """What the error says about other nodes, and what happens to node 1."""
        rows = cluster.asked("verify")
        (message,) = [row["message"] for row in rows if row.get("severity") == "error"]
        (start,) = [row for row in rows if row["type"] == "broker-start" and row["node_id"] == 1]
        return message.partition("what was created since")[2], start["outcome"], start["message"]

    os.truncate(log, before_clicks)
    assert told() == ("", "starts", None)
    os.truncate(log, before_orders)
    cannot = (
        "A metadata log that begins above that end cannot be truncated, and its node does not start: node 1"
    )
    thrown = (
        "Attempt to truncate to the end of the controllers' metadata log (offset 22, and what they append until then), which is below the "
        "current high watermark 28"
    )
    assert told() == (f". {cannot}", "does-not-start", thrown)
    quorum_state = ahead / "quorum-state"
    quorum_state.write_text(quorum_state.read_text().replace('"leaderEpoch":1', '"leaderEpoch":4'))
    waits = (
        "A node that knows a later leader epoch waits until elections reach it, and does not serve: node 1"
    )
    assert told() == (f". {waits}", "starts", None)
    cluster.follow()
    assert not [row for row in cluster.asked("verify") if row.get("severity") == "error"]


def _end_before(log: Path, topic: str) -> int:
    """The position of the batch in which a topic was created."""
    data, end = log.read_bytes(), 0
    while topic.encode() not in data[end : (after := end + 12 + int.from_bytes(data[end + 8 : end + 12]))]:
        end = after
    return end


def _begin_at(metadata_log: Path, position: int, start_offset: int) -> None:
    """Replace what a metadata log has below a position, and below the offset there, by a snapshot."""
    made = [each.value for each in records(metadata_log) if each.offset < start_offset and each.key is None]
    write_snapshot(metadata_log, start_offset, [each for each in made if each is not None])
    (log,) = metadata_log.glob("*.log")
    (metadata_log / f"{start_offset:020}.log").write_bytes(log.read_bytes()[position:])
    for path in metadata_log.glob(f"{0:020}.*"):
        path.unlink()
    (metadata_log / "leader-epoch-checkpoint").write_text(f"0\n1\n1 {start_offset}\n")
