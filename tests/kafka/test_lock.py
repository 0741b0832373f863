"""A broker and kseg lock each other out of a data directory, and a broker accepts what kseg leaves there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kseg.change.apply.executor import Applied, apply_plan
from kseg.change.apply.lock import locked
from kseg.change.apply.unfinished import half_done
from kseg.change.plan.content import Fresh
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan, Remove, Step, Write
from kseg.cli.main import run
from kseg.segment.errors import Refused
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, BrokerFailed
from tests.kafka.conftest import require_kafka
from tests.support.failing_disks import QuickDisk, Stopped, StoppingDisk
from tests.support.lock_holders import attempt, child
from tests.support.lock_holders import run as run_of
from tests.support.trees import differences, tree_state

pytestmark = pytest.mark.kafka

TOPIC = "trains"
INDEX, TIMES = f"{0:020}.index", f"{0:020}.timeindex"
MARKER = ".kafka_cleanshutdown"
ID = "20260101T000000Z-00000001"
RECORDS = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Broker:
    """A cleanly stopped broker that has one topic with a few records."""
    require_kafka()
    broker = Broker(tmp_path_factory.mktemp("broker"), log_segment_delete_delay_ms="500")
    with broker:
        broker.create_topic(TOPIC)
        producer = broker.producer()
        for number in range(RECORDS):
            producer.produce(TOPIC, b"train %d" % number)
        assert producer.flush(CLIENT_LIMIT_S) == 0
    return broker


def plan(directory: Path, *steps: Step) -> Plan:
    return Plan(command="recover", directory=str(directory), inputs=inputs_of(str(directory)), steps=steps)


def changed(broker: Broker) -> tuple[Applied, Applied]:
    """A completed change of the partition and one of the data directory, whose journals still exist."""
    partition = broker.data / f"{TOPIC}-0"
    index = (partition / INDEX).read_bytes()
    inside = plan(
        partition, Write(INDEX, (Fresh(index),), "anew", INDEX), Remove(TIMES, "rebuilt by the broker")
    )
    first = apply_plan(inside, journal_id=ID)
    around = plan(broker.data, Remove(MARKER, "not clean any more"))
    return first, apply_plan(around, journal_id=ID, partitions=[partition.name])


def assert_locked_out(broker: Broker) -> None:
    """The broker does not start. It tries in a process of its own: a process loses its lock on a file as soon as it closes any descriptor
    of it, and a node that failed to start closes its own some time later."""
    apart = Broker(broker.root, broker.data, **broker.properties).apart()
    with pytest.raises(BrokerFailed):
        apart.start(attempts=1)
    assert "Failed to acquire lock on file .lock" in broker.log_text()


def values(broker: Broker) -> list[bytes | None]:
    return [record.value for record in broker.consume(TOPIC)]


@pytest.mark.evidence("lock", "kseg-journal")
def test_kseg_and_a_broker_lock_each_other_out(broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    before = tree_state(broker.data)
    with locked([str(broker.data)]):
        assert_locked_out(broker)
    touched = {line.split()[1].split("/")[0] for line in differences(before, tree_state(broker.data))}
    # a KRaft node opens its metadata log before it acquires the lock of the data directory
    assert touched <= {".", "__cluster_metadata-0"}

    first, second = changed(broker)
    # it starts although there are journals and a quarantine
    with broker:
        log = broker.log_text()
        assert values(broker) == [b"train %d" % number for number in range(RECORDS)]
        for journal in (first.journal, second.journal):
            assert run(["undo", journal]) == 4
            assert run(["undo", "--finish", journal]) == 4
        partition = str(broker.data / f"{TOPIC}-0")
        assert run(["recover", "--apply", partition]) == 4
        assert run(["recover", "--apply", str(broker.data)]) == 4
        output = capfd.readouterr().err
        assert output.count("in use by a broker or another kseg") == 6
        with pytest.raises(Refused, match="in use by a broker"), locked([str(broker.data)]):
            pass
        assert Path(first.journal).exists() and Path(second.journal).exists()
    assert "kseg" not in log, "the broker says nothing of files that are not its own"

    assert run(["undo", second.journal]) == 4
    assert "changed since recover was here" in capfd.readouterr().err


def test_broker_does_not_start_while_an_attempt_of_a_run_holds_the_lock(broker: Broker) -> None:
    """The lock holds even if the command's own process has ended and only an attempt on a cluster continues."""
    with child(run_of(broker.data)) as called:
        assert called.output() == "in"
        with child(attempt(broker.data, name=f"{TOPIC}-0")) as at_work:
            assert at_work.output() == "in"
            assert_locked_out(broker)
            called.kill()
            assert_locked_out(broker)
            at_work.leave()
            assert at_work.output() == "out"
    with broker, child(run_of(broker.data)) as refused:
        assert "in use by a broker or another kseg" in refused.output()
        with child(attempt(broker.data)) as late:
            assert "in use by a broker or another kseg" in late.output()


@pytest.mark.evidence("kseg-journal")
def test_broker_opens_a_partition_with_an_unfinished_change(
    broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    partition = broker.data / f"{TOPIC}-0"
    steps = plan(partition, Remove(INDEX, "anew"), Remove(TIMES, "anew"), Write(INDEX, (), "anew"))

    class HalfWay(StoppingDisk):
        def unlink(self, path: str) -> None:
            QuickDisk.unlink(self, path)
            self.is_stopped = True

    with pytest.raises(Stopped):
        apply_plan(steps, journal_id="20260101T000001Z-00000001", disk=HalfWay(1 << 60))
    (journal,) = half_done(str(partition))
    assert not (partition / INDEX).exists()
    with broker:
        assert values(broker) == [b"train %d" % number for number in range(RECORDS)]
    for words in (["undo"], ["undo", "--finish"]):
        assert run([*words, journal.path]) == 4
        output = capfd.readouterr().err
        assert "can be neither finished nor undone" in output, "the broker rebuilt the indexes meanwhile"
    os.rename(os.path.dirname(journal.path), broker.root / "moved away")
    assert run(["recover", str(partition)]) == 0


def test_broker_deletes_a_topic_with_kseg_files_in_it(broker: Broker) -> None:
    partition = broker.data / f"{TOPIC}-0"
    assert (partition / ".kseg").is_dir()
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for future in admin.delete_topics([TOPIC]).values():
            future.result(CLIENT_LIMIT_S)
        broker.wait_for("the directory goes", lambda: not list(broker.data.glob(f"{TOPIC}-0*")))
