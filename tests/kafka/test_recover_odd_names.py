"""Files that a broker's listing does not find: names that are not UTF-8, and dangling links. The real loader is the reference."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.change.plan.inputs import inputs_of
from kseg.recovery.loading.loader import load_as_broker
from kseg.recovery.policy import BrokerState
from tests.kafka.oracle import KafkaRaised, Oracle
from tests.support.salvage_helpers import SETTINGS, needs_no_repair, plan
from tests.support.verify_helpers import NOW_MS, judge

pytestmark = pytest.mark.kafka


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    return healthy.partition(tmp_path / "metro-0")


@pytest.mark.parametrize("name", [b"\xff\xfe12.log", b"\xff.index", b"\xff.log.swap"])
def test_file_whose_name_is_not_utf_8_is_ignored_by_the_load(
    oracle: Oracle, partition: Path, name: bytes
) -> None:
    answer = oracle.partition(partition, clean=True, recovery_point=0, now=NOW_MS)
    odd = os.path.join(os.fsencode(partition), name)
    with open(odd, "wb") as stream:
        stream.write(b"0123456789")
    again = oracle.partition(partition, clean=True, recovery_point=0, now=NOW_MS)
    # it does not throw, and finds the same log
    assert again.loaded == answer.loaded
    ours = load_as_broker(
        str(partition), inputs_of(str(partition)), BrokerState(is_clean=True, recovery_point=0), SETTINGS
    )
    assert ours.load_failure is None and ours.log_end_offset == again.loaded["log_end_offset"]
    assert os.fsdecode(name) in ours.image
    assert {finding.id for finding in judge(partition).findings} >= {"unknown-file"}
    assert needs_no_repair(partition, plan(partition))


def test_snapshot_whose_name_is_not_utf_8_is_loaded_like_kafka(oracle: Oracle, partition: Path) -> None:
    """The loader looks only at the suffix of a snapshot's name."""
    with open(os.path.join(os.fsencode(partition), b"\xc3.snapshot"), "wb"):
        pass
    with pytest.raises(KafkaRaised, match="NumberFormatException"):
        oracle.partition(partition, clean=True, recovery_point=0, now=NOW_MS)
    ours = load_as_broker(str(partition), inputs_of(str(partition)), BrokerState(is_clean=True), SETTINGS)
    assert ours.load_failure is not None and ours.load_failure.kafka_exception == "NumberFormatException"


def test_dangling_link_named_like_a_log_is_ignored(oracle: Oracle, partition: Path) -> None:
    (partition / f"{700:020d}.log").symlink_to(partition / "nothing")
    answer = oracle.partition(partition, clean=True, recovery_point=0, now=NOW_MS)
    assert answer.loaded["log_end_offset"] == 330
    verdict = judge(partition)
    assert verdict.ids("error", "warning") == {"unreadable-file"}
    assert not {"offset-gap", "segment-gap"} & {finding.id for finding in verdict.findings}
    repair = plan(partition)
    assert repair.log_end_offset == 330
