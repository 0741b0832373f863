"""Appending to an existing log: kseg leaves the same files as UnifiedLog after each shutdown."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures import healthy
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.change.append.reopen import reopen_partition
from kseg.change.append.topic_rules import roll_rules
from kseg.cli.main import run
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.partition.topic_settings import Setting, Source, TopicSettings
from tests.internal_topics.coordinator_logs import batch
from tests.kafka.appending import ROLL_RULES, batches_up_to, differing, kafka_appends
from tests.kafka.conftest import require_client, require_kafka
from tests.kafka.oracle import Oracle
from tests.support.trees import content_of, unchanged

if TYPE_CHECKING:
    from tests.kafka.scenario import Written

pytestmark = pytest.mark.kafka


def names_of(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.log"))


def kseg_appends(directory: Path, batches: Sequence[bytes], rules: RollRules) -> None:
    """Append the batches with kseg."""
    with PartitionLog(PartitionTarget(str(directory))) as log:
        partition = reopen_partition(log, rules, healthy.T0)
    existing = [path.name for path in directory.iterdir()]
    with PartitionWriter(directory, partition=partition, existing=existing) as writer:
        for data in batches:
            writer.append(data, healthy.T0)


def in_several_lives(
    oracle: Oracle, place: Path, lives: Sequence[Sequence[bytes]], rules: RollRules
) -> list[list[str]]:
    """The names of the files that differ after each load, append and close."""
    theirs, ours = place / "theirs" / "metro-0", place / "ours" / "metro-0"
    theirs.mkdir(parents=True)
    ours.mkdir(parents=True)
    differ = []
    for batches in lives:
        kafka_appends(oracle, theirs, batches, rules)
        kseg_appends(ours, batches, rules)
        left, right = content_of(theirs), content_of(ours)
        # a load deletes snapshots of former log ends; kseg leaves that to the next broker
        right = {name: data for name, data in right.items() if name in left or ".snapshot" not in name}
        differ.append(differing(left, right))
    return differ


def parts_of(encoded: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    return [encoded[start : start + size] for start in range(0, len(encoded), size)]


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete"])
@pytest.mark.parametrize("segment_ms", [3000, 9000])
def test_rolls_with_max_compaction_lag_equal_unified_log(
    oracle: Oracle, tmp_path: Path, policy: str, segment_ms: int
) -> None:
    """Only in a compacted topic does it end segments before segment.ms."""
    config = {"cleanup.policy": policy, "max.compaction.lag.ms": "5000", "segment.ms": str(segment_ms)}
    settings = {name: Setting(value, Source.TOPIC) for name, value in config.items()}
    batches = [batch(at, (b"k", b"v"), at_ms=healthy.T0 + 2000 * at) for at in range(9)]
    theirs, ours = (tmp_path / side / "metro-0" for side in ("theirs", "ours"))
    for directory in (theirs, ours):
        directory.mkdir(parents=True)
    steps = [{"what": "append", "batches": data, "follower": True, "leader_epoch": 0} for data in batches]
    oracle.partition(theirs, steps, in_place=True, clean=True, now=healthy.T0, config=config)
    unset = dict.fromkeys(("segment_bytes", "segment_ms", "segment_index_bytes", "index_interval_bytes"))
    kseg_appends(ours, batches, roll_rules(TopicSettings(settings), unset))
    assert names_of(ours) == names_of(theirs)
    assert len(names_of(ours)) == {3000: 5, 9000: 2 if policy == "delete" else 3}[segment_ms]


@pytest.mark.behaviour("P16", "P20", "I21", "F53")
@pytest.mark.parametrize(("interval", "size"), [(0, 9), (600, 5), (4096, 50)])
def test_appends_across_restarts_equal_unified_log_for_every_kind_of_batch(
    oracle: Oracle, tmp_path: Path, interval: int, size: int
) -> None:
    encoded = [encode_batch(new) for new in healthy.batches()]
    rules = RollRules(segment_bytes=5000, index_interval_bytes=interval)
    differ = in_several_lives(oracle, tmp_path, parts_of(encoded, size), rules)
    assert not any(differ), differ


def test_appends_across_restarts_equal_unified_log_for_formats_0_1_and_2(
    oracle: Oracle, tmp_path: Path
) -> None:
    encoded = [encode_batch(new) for new in healthy.old_batches()]
    differ = in_several_lives(oracle, tmp_path, parts_of(encoded, 7), healthy.RULES)
    assert not any(differ), differ


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    batches=batches_up_to(20, least_timestamp_ms=0),
    size=st.integers(min_value=1, max_value=6),
    rules=ROLL_RULES,
)
def test_segment_rolls_after_a_restart_equal_unified_log(
    oracle: Oracle,
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[NewBatch],
    size: int,
    rules: RollRules,
) -> None:
    encoded = [*map(encode_batch, batches)]
    place = tmp_path_factory.mktemp("lives")
    differ = in_several_lives(oracle, place, parts_of(encoded, size), rules)
    assert not any(differ), differ


def lines_of(directory: Path, file: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Path:
    """Write the rows of `dump --json --deep-iteration` for a partition to a file."""
    assert run(["dump", "--json", "--deep-iteration", str(directory)]) == 0
    file.write_bytes(capfdbinary.readouterr().out)
    return file


@pytest.fixture
def stopped_broker(tmp_path: Path) -> Any:
    """A cleanly stopped broker with two empty topics and one with records."""
    require_kafka()
    require_client()
    from tests.kafka.broker import Broker

    broker = Broker(tmp_path / "broker")
    with broker:
        for topic in ("copied", "new"):
            broker.create_topic(topic)
        broker.create_topic("grown")
        producer = broker.producer(enable_idempotence=True, compression_type="lz4")
        for n in range(40):
            producer.produce("grown", b"from the broker %d" % n, b"k%d" % n, 0, timestamp=healthy.T0 + n)
            if n % 9 == 8:
                producer.flush()
        producer.flush()
    return broker


def test_broker_opens_an_appended_log_and_consumers_read_it(
    stopped_broker: Any,
    everything: Written,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    data = stopped_broker.data
    source = everything.stopped / "transactions-0"
    copied = lines_of(source, tmp_path / "transactions.jsonl", capfdbinary)
    own = tmp_path / "own.jsonl"
    rows: list[dict[str, Any]] = [
        {"key": f"k{n}", "value": None if n == 7 else f"value {n}" * 9, "timestamp": healthy.T0 + n,
         "headers": [["n", str(n)], ["none", None]]}
        for n in range(300)
    ]  # fmt: skip
    own.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rolls = ["--segment-bytes", "6000", "--index-interval-bytes", "1024", "--batch-records", "7"]
    for name, file, words in (
        ("copied-0", copied, []),
        ("new-0", own, ["--codec", "zstd"]),
        ("grown-0", own, ["--producer-id", "77", "--transactional", "--end", "abort"]),
        ("grown-0", own, ["--producer-id", "77", "--transactional", "--codec", "gzip"]),
    ):
        assert run(["append", "--apply", "--from", str(file), *rolls, *words, str(data / name)]) == 0
    assert len(list((data / "grown-0").glob("*.log"))) > 4

    with stopped_broker:
        output = stopped_broker.log_text().splitlines()
        # the metadata log is always recovered
        assert not [line for line in output if "ecovering" in line and "__cluster_metadata" not in line]
        assert [line for line in output if "Skipping recovery of" in line]
        assert stopped_broker.consume("copied") == everything.uncommitted["transactions", 0]
        assert stopped_broker.consume("copied", committed=True) == everything.committed["transactions", 0]
        expected = [
            (row["key"].encode(), None if row["value"] is None else row["value"].encode(), row["timestamp"])
            for row in rows
        ]
        new = stopped_broker.consume("new")
        assert [(record.key, record.value, record.timestamp) for record in new] == expected
        # after a consumer has read, the broker writes no more leader epochs, so only append could change the directory
        with unchanged(data / "new-0"):
            assert run(["append", "--apply", "--from", str(own), str(data / "new-0")]) == 4
        assert new[3].headers == (("n", b"3"), ("none", None))
        everywhere = stopped_broker.consume("grown")
        committed = stopped_broker.consume("grown", committed=True)
        assert [len(everywhere), len(committed)] == [640, 340]
        assert [(r.key, r.value, r.timestamp) for r in committed[40:]] == expected
        producer = stopped_broker.producer(enable_idempotence=True)
        producer.produce("grown", b"goes on", b"k", 0)
        producer.flush()
        assert stopped_broker.consume("grown", committed=True)[-1].value == b"goes on"


def test_broker_recovers_the_log_after_a_killed_append(
    stopped_broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the clean-shutdown marker, the broker scans the whole log and truncates a torn batch; in `copied` it does so in an older
    segment, and what was appended after it is gone."""
    data = stopped_broker.data
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"value": f"value {n}" * 9}) + "\n" for n in range(300)))
    words = ["append", "--apply", "--from", str(lines), "--segment-bytes", "6000", "--batch-records", "7"]
    assert run([*words, str(data / "copied-0")]) == 0
    _invert_a_byte(min((data / "copied-0").glob("*.log")))
    assert run([*words, str(data / "copied-0")]) == 0
    pid = os.fork()
    if pid == 0:
        ways_to_close = iter((PartitionWriter.close, lambda _: os.kill(os.getpid(), signal.SIGKILL)))
        monkeypatch.setattr(
            PartitionWriter, "close", lambda writer: next(ways_to_close)(writer)
        )  # the rehearsal closes, the append is killed
        os._exit(run([*words, str(data / "grown-0")]))
    assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
    assert not (data / ".kafka_cleanshutdown").exists()
    with max((data / "grown-0").glob("*.log")).open("r+b") as log:
        log.truncate(log.seek(0, os.SEEK_END) - 100)
    # nothing had been flushed
    (data / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    with unchanged(data / "copied-0"):
        assert run([*words, str(data / "copied-0")]) == 4
    with stopped_broker:
        assert len(stopped_broker.consume("copied")) == 7
        consumed = stopped_broker.consume("grown")
        assert [record.offset for record in consumed] == list(range(len(consumed)))
        assert 300 <= len(consumed) < 340
        assert consumed[-1].value == f"value {len(consumed) - 41}".encode() * 9


def _invert_a_byte(log: Path) -> None:
    """In the second batch."""
    content = bytearray(log.read_bytes())
    second = 12 + int.from_bytes(content[8:12], "big")
    content[second + 80] ^= 0xFF
    log.write_bytes(content)


def test_jafka_reads_an_appended_0_7_log(oracle: Oracle, tmp_path: Path) -> None:
    """Jafka reads all messages, and rolls where kseg rolls when both append the same sets."""
    payloads = [b"reading %d of the meter " % n * (1 + n % 9) for n in range(60)]
    ours, theirs = tmp_path / "ours" / "taps-0", tmp_path / "theirs" / "taps-0"
    ours.parent.mkdir()
    theirs.mkdir(parents=True)
    lines = tmp_path / "lines.jsonl"
    steps: list[dict[str, Any]] = []
    for turn, codec in enumerate(("none", "gzip", "none")):
        part = payloads[turn * 20 : turn * 20 + 20]
        lines.write_text("".join(json.dumps({"value": payload.decode()}) + "\n" for payload in part))
        words = ["--format", "0.7", "--segment-bytes", "1500", "--codec", codec, "--batch-records", "5"]
        assert run(["append", "--apply", "--from", str(lines), *words, str(ours)]) == 0
        sets = [part[n : n + 5] for n in range(0, 20, 5)] if codec == "gzip" else [[p] for p in part]
        steps += [{"what": "append", "payloads": each, "codec": codec} for each in sets]
    answer = oracle.ancient(theirs, steps, roll_bytes=1500)
    assert [payload for _, _, _, payload in _messages(oracle, answer.directory)] == payloads
    found = _messages(oracle, ours)
    assert [payload for _, _, _, payload in found] == payloads and all(valid for _, valid, _, _ in found)
    read = oracle.ancient(ours, [{"what": "read", "offset": 0, "max_bytes": 1 << 20}], roll_bytes=1500)
    assert read.end_offset == found[-1][0]
    plain = [path.name for path in sorted(answer.directory.glob("*.kafka"))][:3]
    # up to the first compressed set, which the two compressors write differently
    for name in plain:
        if (answer.directory / name).read_bytes() != (ours / name).read_bytes():
            assert name != plain[0]
            break


def _messages(oracle: Oracle, directory: Path) -> list[tuple[int, bool, int, bytes]]:
    found = []
    for file in sorted(directory.glob("*.kafka")):
        messages, ended = oracle.messages07(file)
        assert ended is None
        found += messages
    return found
