"""The costs that `recover` reports for each policy, compared with a manual count for the damage that was done."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from fixtures import healthy
from fixtures.diseases import batch_spans, put
from kseg.change.plan.inputs import inputs_of
from kseg.cli.main import run
from kseg.recovery.loading.loader import load_as_broker
from kseg.recovery.policy import BrokerState, LoadSettings
from tests.support.command_lines import Capfd
from tests.support.salvage_cases import LAST, MIDDLE, NEXT, log
from tests.support.salvage_helpers import batches, offsets
from tests.support.verify_helpers import NOW_MS


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cleanly stopped data directory. metro-0 has segments 0, 102, 198 and 297, and ends at 330."""
    return healthy.log_dir(tmp_path_factory.mktemp("healthy") / "data")


@pytest.fixture
def partition(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "data")) / "metro-0"


def costs(capfd: Capfd, *words: str | Path) -> dict[str, Any]:
    run(["recover", "--json", *map(str, words)])
    (result,) = [
        row
        for row in map(json.loads, capfd.readouterr().out.splitlines())
        if row["type"] == "result" and "partition" in row
    ]
    return dict(result["costs"])


FIRST = f"{0:020d}"
UNCLEAN = ("--unclean-shutdown", "--recovery-point", "0")


def parts(file: Path) -> dict[int, bytes]:
    """The batches of a log by their base offset."""
    return {offsets(batch)[0]: batch for _, batch in batches(file)}


def width(batch: bytes) -> int:
    first, last = offsets(batch)
    return last - first + 1


@pytest.mark.parametrize("policy", ["salvage", "kafka"])
def test_cost_of_batches_out_of_order_after_a_truncation(partition: Path, capfd: Capfd, policy: str) -> None:
    """A damaged batch is followed by a copy of an earlier one, a later one, and one that belongs in between; another one is missing."""
    file = log(partition, NEXT)
    content = parts(file)
    firsts = sorted(content)
    damaged, inside, gone, later = firsts[4:8]
    broken = bytearray(content[damaged])
    broken[-1] ^= 1
    content[damaged] = bytes(broken)
    order = [*firsts[:4], damaged, firsts[1], later, inside, *firsts[8:]]
    file.write_bytes(b"".join(content[at] for at in order))
    found = costs(capfd, partition, "--policy", policy, *UNCLEAN)
    # the header of the damaged batch has its count; a batch that left no trace does not count as a cost of a policy
    assert found["salvage"]["offsets"] == width(content[damaged])
    # the copy
    assert found["salvage"]["batches"] == 1
    behind = len(order) - 5 + len(batch_spans(log(partition, LAST)))
    assert found["kafka"]["batches"] == behind
    assert found["kafka"]["offsets"] == 330 - damaged - width(content[gone])
    sizes = sum(len(content[at]) for at in firsts[:4])
    assert found["kafka"]["bytes"] == file.stat().st_size - sizes + log(partition, LAST).stat().st_size


def test_cost_of_a_torn_tail_under_a_clean_marker(partition: Path, capfd: Capfd) -> None:
    """A broker keeps the torn bytes in the log, but their offsets are lost, because nobody can read them."""
    file = log(partition, LAST)
    position, size = batch_spans(file)[-1]
    lost = width(file.read_bytes()[position:])
    with file.open("r+b") as stream:
        stream.truncate(position + size - 10)
    (records,) = struct.unpack_from(">i", file.read_bytes(), position + 57)
    found = costs(capfd, partition)
    both = {"batches": 0, "offsets": lost, "records": records, "records_at_most": records}
    assert found["salvage"] == {**both, "bytes": size - 10, "damaged_bytes_left": 0}
    assert found["kafka"] == {**both, "bytes": 0, "damaged_bytes_left": size - 10, "expired_segments": 0}
    # the marker is known as well if only the segment is given
    assert costs(capfd, file) == found
    assert costs(capfd, file, *UNCLEAN)["kafka"]["bytes"] == size - 10


def test_cost_of_a_segment_depends_on_the_recovery_point(partition: Path, capfd: Capfd) -> None:
    """A broker that was killed scans the segment of the recovery point and those behind it."""
    (partition.parent / ".kafka_cleanshutdown").unlink()
    checkpoint = partition.parent / "recovery-point-offset-checkpoint"
    checkpoint.write_text(checkpoint.read_text().replace("metro 0 330", "metro 0 300"))
    for segment in (MIDDLE, LAST):
        file = log(partition, segment)
        position, size = batch_spans(file)[-1]
        content = bytearray(file.read_bytes())
        content[position + size - 1] ^= 1
        file.write_bytes(content)
    assert costs(capfd, log(partition, MIDDLE))["kafka"]["bytes"] == 0
    assert costs(capfd, log(partition, LAST))["kafka"]["bytes"] == batch_spans(log(partition, LAST))[-1][1]
    whole = costs(capfd, partition)["kafka"]
    assert whole["bytes"] == batch_spans(log(partition, LAST))[-1][1]


def test_cost_of_salvage_does_not_depend_on_whether_a_broker_loads_the_log(
    partition: Path, capfd: Capfd
) -> None:
    """The end of each segment is cut off. Records between the cut batch and the next segment used to count only if the log could be
    loaded."""
    for base in (FIRST, MIDDLE, NEXT):
        file = log(partition, base)
        os.truncate(file, file.stat().st_size // 2)
    loaded = costs(capfd, partition)
    (partition / "leader-epoch-checkpoint").write_bytes(b"0\n1\n")
    failing = costs(capfd, partition)
    assert failing["kafka"] == {"dies_of": "KafkaStorageException"} and "dies_of" not in loaded["kafka"]
    assert failing["salvage"] == loaded["salvage"] and loaded["salvage"]["offsets"] > 100


def test_states_after_a_crash_cost_nothing_with_either_policy(partition: Path, capfd: Capfd) -> None:
    """Policy kafka loads the log and compares the records; policy salvage knows without a load."""
    for suffix in (".index", ".timeindex"):
        index = log(partition, LAST).with_suffix(suffix)
        put(index, index.stat().st_size, bytes(480))
    max(partition.glob("*.snapshot")).unlink()
    counted = costs(capfd, partition, "--policy", "kafka", *UNCLEAN)
    known = costs(capfd, partition, "--policy", "salvage", *UNCLEAN)
    assert known == {"salvage": counted["salvage"], "kafka": {**counted["kafka"], "expired_segments": 0}}
    assert not any(counted["salvage"].values()) and not any(counted["kafka"].values())


def test_duplicate_batch_that_a_broker_keeps_costs_nothing(partition: Path, capfd: Capfd) -> None:
    """Consumers have read these offsets before and skip the copy (Kafka: CompletedFetch.nextFetchedRecord)."""
    file = log(partition, NEXT)
    content = parts(file)
    first, second, *_ = sorted(content)
    file.write_bytes(content[first] + content[second] + b"".join(content[at] for at in sorted(content)[1:]))
    found = costs(capfd, partition)
    assert found["salvage"]["bytes"] == len(content[second]) and found["salvage"]["records"] == 0
    assert found["kafka"]["records"] == found["kafka"]["bytes"] == found["kafka"]["damaged_bytes_left"] == 0


@pytest.mark.parametrize(("number", "is_in_order"), [(None, True), (6, False), (0, False)])
def test_cost_of_a_decreasing_leader_epoch_is_known_only_to_salvage(
    partition: Path, number: int | None, is_in_order: bool
) -> None:
    """A broker's load ignores the epoch and salvage corrects it, so only salvage knows the cost."""
    if number is not None:
        file = log(partition, NEXT)
        put(file, batch_spans(file)[number][0] + 12, struct.pack(">i", 0))
    around = BrokerState(is_clean=False)
    repair = load_as_broker(str(partition), inputs_of(str(partition)), around, LoadSettings(now_ms=NOW_MS))
    assert repair.is_in_order is is_in_order


@pytest.mark.parametrize(
    ("properties", "segments", "source"),
    [
        ("", 1, "built-in-default"),
        ("log.retention.hours=-1\n", 0, "server-properties"),
        ("log.retention.minutes=60\n", 1, "server-properties"),
    ],
)
def test_cost_of_retention_by_zeroed_time_indexes_uses_the_brokers_limit(
    partition: Path, tmp_path: Path, capfd: Capfd, properties: str, segments: int, source: str
) -> None:
    """Zeros in a time index mean 1970, which exceeds any limit. Without a metadata log the topic's settings are unknown."""
    index = min(partition.glob("*.timeindex"))
    put(index, 0, bytes(index.stat().st_size))
    file = tmp_path / "server.properties"
    file.write_text(properties)
    known = ("--server-properties", file) if properties else ()
    run(["recover", "--json", "--now", str(healthy.T0 + 600_000), *map(str, known), str(partition)])
    rows = map(json.loads, capfd.readouterr().out.splitlines())
    (result,) = (row for row in rows if row["type"] == "result" and "partition" in row)
    assert result["costs"]["kafka"]["expired_segments"] == segments
    assert bool(result["costs"]["kafka"]["records"]) == bool(segments)
    assert result["settings"]["retention.ms"]["source"] == source


def test_batch_with_zeroed_attributes_does_not_count_as_a_control_batch(
    partition: Path, capfd: Capfd
) -> None:
    """A batch with a producer id but without a sequence number used to count as a control batch."""
    file = log(partition, NEXT)
    data = file.read_bytes()
    position = next(start for start, _ in batch_spans(file) if data[start + 22] & 0x20)
    put(file, position + 21, b"\0\0")
    found = costs(capfd, partition)["salvage"]
    assert (found["offsets"], found["records"]) == (1, 0)


def test_uncounted_losses_have_an_upper_limit_and_count_once(partition: Path, capfd: Capfd) -> None:
    """The log has transactions, so not every offset has a record: at most as many records are lost as offsets. After a repair that was
    killed before it wrote the checkpoints, the loss is not reported again as a new one."""
    data, file = partition.parent, max(partition.glob("*.log"))
    last_batch, _ = batch_spans(file)[-1]
    file.write_bytes(file.read_bytes()[: last_batch + 30])
    first, last = 327, 329
    before = (data / "recovery-point-offset-checkpoint").read_bytes()
    found = costs(capfd, partition)
    for policy in ("salvage", "kafka"):
        assert (found[policy]["records"], found[policy]["records_at_most"]) == (None, last - first + 1)
    assert run(["recover", "--apply", str(data)]) == 0
    out = capfd.readouterr().out
    assert "at most 3 records lost" in out and "unknown" not in out
    (data / "recovery-point-offset-checkpoint").write_bytes(before)
    assert run(["recover", str(data)]) == 1
    out = capfd.readouterr().out
    assert "its end was lost earlier (offsets 327 to 329): at most 3 records" in out and "policy" not in out
    (beyond,) = [
        line for line in out.splitlines() if "checkpoint-beyond-log" in line and "recovery-point" in line
    ]
    assert "the recovery point of metro-0 is 330, but its log ends at 327" in beyond
