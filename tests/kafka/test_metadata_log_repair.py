"""`recover --policy kafka` leaves the metadata log as a real node does that starts with it after a clean stop. Policy salvage repairs only
metadata logs with which a real node starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.internal_topics.metadata.metadata_log import MetadataReading, read_metadata_log
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.cli.test_recover_metadata_log import LOG, METADATA, PARTITION_CHANGES, TOPIC, flip, without
from tests.internal_topics.metadata_logs import record, topic_id
from tests.kafka.conftest import require_kafka
from tests.kafka.start_cases import CASES
from tests.kafka.starting import assert_as_foretold, foretold, observed, observed_until_killed
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka


def test_policy_kafka_repairs_a_metadata_log_like_a_real_node(capture_small: Path, tmp_path: Path) -> None:
    require_kafka()
    data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
    flip(data, 100)
    repaired = copy_tree(data, tmp_path / "repaired")
    assert run(["recover", "--policy", "kafka", "--apply", "--quiet", str(repaired)]) == 0

    assert observed_until_killed(tmp_path, [data]).outcome == "starts"

    ours, real = repaired / "__cluster_metadata-0", data / "__cluster_metadata-0"
    # the node has appended to it
    assert (real / LOG).read_bytes().startswith((ours / LOG).read_bytes())
    for suffix in (".index", ".timeindex"):
        entries = (ours / LOG).with_suffix(suffix).read_bytes()
        assert entries and (real / LOG).with_suffix(suffix).read_bytes().startswith(entries)
    snapshots = {path.name: path.read_bytes() for path in ours.glob("*.snapshot")}
    assert snapshots == {path.name: path.read_bytes() for path in real.glob("*.snapshot")}


@pytest.mark.evidence("metadata-log")
def test_metadata_log_older_than_its_snapshot_is_emptied_as_by_a_node(
    capture_small: Path, tmp_path: Path
) -> None:
    """A node empties such a log, even if the snapshot ends below its end. Policy kafka used to leave it as it was."""
    require_kafka()
    data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
    CASES["metadata_snapshot_of_a_newer_epoch"](data)
    repaired = copy_tree(data, tmp_path / "repaired")
    assert run(["recover", "--policy", "kafka", "--apply", "--quiet", str(repaired)]) == 0

    assert observed_until_killed(tmp_path, [data]).outcome == "starts"

    ours, real = repaired / METADATA, data / METADATA
    (log,) = ours.glob("*.log")
    assert (log.name, log.read_bytes()) == (f"{69:020d}.log", b"")
    assert [path.name for path in real.glob("*.log")] == [log.name]
    assert (ours / "leader-epoch-checkpoint").read_text() == "0\n0\n"


@pytest.mark.evidence("metadata-log")
@pytest.mark.parametrize("has_snapshot", [True, False])
def test_node_loads_a_repaired_metadata_log(has_snapshot: bool, capture_small: Path, tmp_path: Path) -> None:
    """The repair removes the partition changes at a stop, or the registration of producer ids."""
    require_kafka()
    data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
    if not has_snapshot:
        for path in (data / METADATA).glob("*.checkpoint"):
            path.unlink()
    flip(data, PARTITION_CHANGES if has_snapshot else 52)
    assert run(["recover", "--apply", "--quiet", str(data)]) == 0
    forecast = foretold([data])
    assert (forecast.node["outcome"], forecast.node["metadata"]) == ("starts", "whole")
    assert_as_foretold(forecast, observed(tmp_path, [data]))


@pytest.mark.evidence("metadata-log")
def test_node_fails_on_a_metadata_log_that_kseg_does_not_repair(capture_small: Path, tmp_path: Path) -> None:
    require_kafka()
    data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
    without(data, TOPIC)
    forecast = foretold([data])
    seen = observed(tmp_path, [data])
    assert forecast.node["outcome"] == seen.outcome == "does-not-start"
    # the broker or the controller throws, whichever reads the record first
    assert "offset 96 " in seen.log and "offset 96:" in forecast.node["message"]
    assert "Encountered fatal fault" in seen.log and forecast.node["exception"] == "FaultHandlerException"


# Records after the end of the capture's log that contradict its state, and some that do not.
# metro-none
_TOPIC_ID = "DYdWjM_STOC2Df1v4YUA-A"
_RECORDS = {
    "unregister": record("UnregisterBrokerRecord", brokerId=7, brokerEpoch=3),
    "unregister-epoch": record("UnregisterBrokerRecord", brokerId=1, brokerEpoch=3),
    "fence-epoch": record("FenceBrokerRecord", id=1, epoch=3),
    "clear-elr": record("ClearElrRecord", topicName="nothing"),
    "topic-name": record("TopicRecord", name="metro-none", topicId=topic_id(9)),
    "quota": record(
        "ClientQuotaRecord",
        entity=[{"entityType": "user", "entityName": "x"}],
        key="producer_byte_rate",
        value=1.0,
        remove=True,
    ),
    "scram": record("RemoveUserScramCredentialRecord", name="x", mechanism=1),
    "token": record("RemoveDelegationTokenRecord", tokenId="x"),
    "acl": record("RemoveAccessControlEntryRecord", id=topic_id(5)),
    "partition-again": record(
        "PartitionRecord", partitionId=0, topicId=_TOPIC_ID, replicas=[1], isr=[1], leader=1
    ),
    "partition-change": record("PartitionChangeRecord", partitionId=5, topicId=_TOPIC_ID, leader=1),
    "remove-topic": record("RemoveTopicRecord", topicId=topic_id(5)),
    "end": record("EndTransactionRecord"),
    "config": record("ConfigRecord", resourceType=2, resourceName="nothing", name="retention.ms", value=None),
    # as a later release may write it
    "unknown-type": bytes((1, 60, 0, 0)),
    "producer-ids": record("ProducerIdsRecord", brokerId=1, brokerEpoch=12, nextProducerId=5),
}
_IN_THE_GATE = ("clear-elr", "producer-ids", "token", "unknown-type")


@pytest.mark.parametrize("name", _RECORDS if os.environ.get("KSEG_BROKER_STARTS") == "all" else _IN_THE_GATE)
def test_node_fails_exactly_on_the_contradicting_records_kseg_names(
    name: str, capture_small: Path, tmp_path: Path
) -> None:
    """A record ends the node if and only if kseg names it."""
    require_kafka()
    data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
    image = read_metadata_log(str(data / METADATA))
    added = Record(image.end_offset, image.timestamp_ms, None, _RECORDS[name])
    with (data / METADATA / LOG).open("ab") as log:
        log.write(encode_batch(NewBatch(records=(added,), leader_epoch=image.epoch)))
    after = read_metadata_log(str(data / METADATA), MetadataReading(everything=True))
    outcome = "does-not-start" if after.contradictions else "starts"
    forecast, seen = foretold([data]), observed(tmp_path, [data], 0.5)
    assert seen.outcome == outcome
    # the node used to be said to start
    if after.unparsed:
        assert forecast.node["exception"] in seen.log and "Unknown metadata id 60" in seen.log
