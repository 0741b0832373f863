"""The cost of policy kafka, end to end: a real broker starts on a damaged data directory, a real consumer that does not give up reads
everything that is left (`kseg.oracle.Consume`), and the missing records are those that `recover` counted before (`costs.kafka.records`),
or, after `recover --apply` with policy salvage, those that `costs.salvage.records` counted.

A broker start, its readers and the partitions of four topics in each of three tests take about a minute of processor time. One start serves
every kind of damage. The kinds are distributed over topics, segments and batches at random (KSEG_CONSUMER_PRICES_SEED).
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fixtures.diseases import batch_spans, put
from kseg.cli.main import run
from tests.kafka.broker import CLIENT_LIMIT_S, Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.price_damages import KINDS, SEALED_KINDS, Kind
from tests.support.trees import copy_tree

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SEED = os.environ.get("KSEG_CONSUMER_PRICES_SEED", "1")
# per topic: every kind of damage once, and some of them twice
PARTITIONS = 16
TOPICS = ("plain", "zipped", "transactional", "compacted")
CODECS = ("zstd", "lz4", "gzip", "snappy")
# retention.ms of the topics
TIMED = {"timed": "86400000", "timed_by_default": ""}
LOGS = (*TOPICS, *TIMED)


class Record(NamedTuple):
    offset: int
    value: str


class Case(NamedTuple):
    """is_marker: whether the damaged batch is a control batch. gone: offsets of batches of which no byte remains."""

    topic: str
    partition: int
    kind: Kind
    place: str
    is_marker: bool
    gone: frozenset[int]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


class Sound(NamedTuple):
    """batches: first and last offsets. records: what the consumer receives from the undamaged partition."""

    data: Path
    batches: dict[str, list[tuple[int, int]]]
    records: dict[str, frozenset[Record]]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    """A data directory after a clean stop. In each topic, all partitions are copies of the first."""
    require_kafka()
    with Broker(tmp_path_factory.mktemp("sound")) as broker:
        _fill(broker)
    data = broker.data
    for topic in LOGS:
        for leftover in (data / f"{topic}-0").glob("*.deleted"):
            leftover.unlink()
        for partition in range(1, PARTITIONS if topic in TOPICS else 3):
            shutil.rmtree(data / f"{topic}-{partition}")
            shutil.copytree(data / f"{topic}-0", data / f"{topic}-{partition}")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        _spread(data / name)
    batches = {topic: _batches(data / f"{topic}-0") for topic in LOGS}
    with Broker(
        tmp_path_factory.mktemp("read"), copy_tree(data, tmp_path_factory.mktemp("copy") / "data")
    ) as read:
        given = _given(read, batches, [(topic, 0) for topic in LOGS])
    return Sound(data, batches, {topic: given[topic, 0] for topic in LOGS})


def _fill(broker: Broker) -> None:
    """Fill a topic. The value of each record begins with its number."""
    for topic in LOGS:
        config = {"internal_segment_bytes": "3000", "segment_ms": "9000000000"}
        if topic in TIMED:
            config["retention_ms"] = TIMED[topic]
        elif topic == "compacted":
            config |= {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
        broker.create_topic(topic, PARTITIONS if topic in TOPICS else 3, **config)
    producer = broker.producer()
    for topic in ("plain", "compacted", *TIMED):
        number = 0
        for turn in range(30):
            for _ in range(1 + turn % 4):
                key = number if topic != "compacted" or turn < 14 else number * 7 % 23
                producer.produce(topic, _value(number), b"%d" % key, 0)
                number += 1
            producer.flush(CLIENT_LIMIT_S)
    _fill_transactional(broker)
    _fill_zipped(broker)
    broker.wait_for("cleaning", lambda: broker.cleaned_up_to("compacted") > 40)


def _fill_transactional(broker: Broker) -> None:
    producers = [broker.producer(transactional_id=f"{number}") for number in range(2)]
    for producer in producers:
        producer.init_transactions(CLIENT_LIMIT_S)
    number = 0
    for turn in range(14):
        for producer in producers:
            producer.begin_transaction()
            for _ in range(1 + turn % 3):
                producer.produce("transactional", _value(number), b"key", 0)
                number += 1
            producer.flush(CLIENT_LIMIT_S)
        for which, producer in enumerate(producers):
            end = producer.abort_transaction if (turn + which) % 3 == 0 else producer.commit_transaction
            end(CLIENT_LIMIT_S)


def _fill_zipped(broker: Broker) -> None:
    number = 0
    for turn in range(24):
        producer = broker.producer(**{"compression.type": CODECS[turn % len(CODECS)]})
        for _ in range(2 + turn % 5):
            producer.produce("zipped", _value(number), b"%d" % number, 0)
            number += 1
        producer.flush(CLIENT_LIMIT_S)


def _value(number: int) -> bytes:
    return b"%d " % number * (30 - len(str(number)))


def _spread(checkpoint: Path) -> None:
    """Copy the entry of each topic's first partition to all of its partitions."""
    version, _, *lines = checkpoint.read_text().splitlines()
    entries = [line.split() for line in lines]
    ends = {topic: end for topic, number, end in entries if number == "0" and topic in LOGS}
    spread = [f"{topic} {number} {ends.get(topic, end)}" for topic, number, end in entries]
    checkpoint.write_text("\n".join([version, str(len(spread)), *spread]) + "\n")


def _batches(directory: Path) -> list[tuple[int, int]]:
    return [offsets for log in sorted(directory.glob("*.log")) for offsets, _ in _headers(log)]


def _headers(log: Path) -> Iterator[tuple[tuple[int, int], bytes]]:
    """(first, last offset) of the batches of a valid log, and the bytes of their headers that no damage with `takes_away` alters."""
    data = log.read_bytes()
    for position, _ in batch_spans(log):
        first = int.from_bytes(data[position : position + 8], "big")
        delta = int.from_bytes(data[position + 23 : position + 27], "big")
        yield (first, first + delta), data[position + 8 : position + 27]


def _given(
    broker: Broker,
    batches: dict[str, list[tuple[int, int]]],
    places: list[tuple[str, int]],
    sound: Sound | None = None,
) -> dict[tuple[str, int], frozenset[Record]]:
    """What a reader that does not give up receives. sound: the partition whose records it looks for; None for any records."""
    sought = {
        topic: [(first, last, _values(sound, topic, first, last)) for first, last in offsets]
        for topic, offsets in batches.items()
    }
    wanted = [{"topic": topic, "partition": number, "batches": sought[topic]} for topic, number in places]
    rows = broker.consume_patiently(wanted)
    return {
        (row["topic"], row["partition"]): frozenset(Record(*record) for record in row["records"])
        for row in rows
    }


def _values(sound: Sound | None, topic: str, first: int, last: int) -> list[str]:
    records = () if sound is None else sound.records[topic]
    return [record.value for record in records if first <= record.offset <= last]


def _damaged_all(sound: Sound, data: Path, seed: str) -> list[Case]:
    rng = random.Random(f"{SEED}-{seed}")
    places = [(topic, number) for topic in TOPICS for number in range(PARTITIONS)]
    rng.shuffle(places)
    kinds = [*KINDS, *rng.choices(KINDS, k=len(places) - len(KINDS))]
    return [_damaged(rng, sound, data, place, kind) for place, kind in zip(places, kinds, strict=True)]


def _damaged(rng: random.Random, sound: Sound, data: Path, place: tuple[str, int], kind: Kind) -> Case:
    topic, number = place
    directory = data / f"{topic}-{number}"
    logs = [log for log in sorted(directory.glob("*.log")) if log.stat().st_size]
    log = rng.choice([logs[0], logs[len(logs) // 2], logs[-1]])
    last = len(batch_spans(log)) - 1
    batch = rng.choice([0, rng.randint(0, last), last])
    is_marker = bool(log.read_bytes()[batch_spans(log)[batch][0] + 22] & 0x20)
    kind.damage(log, batch)
    gone = set[int]()
    if kind.takes_away:
        left = b"".join(each.read_bytes() for each in directory.glob("*.log"))
        for whole in (sound.data / directory.name).glob("*.log"):
            for (first, end), header in _headers(whole):
                gone |= set() if header in left else set(range(first, end + 1))
    return Case(topic, number, kind, f"{log.name} batch {batch} of {last + 1}", is_marker, frozenset(gone))


def _costs(capfd: pytest.CaptureFixture[str], data: Path) -> dict[str, dict[str, Any]]:
    capfd.readouterr()
    assert run(["recover", "--json", str(data)]) == 1
    rows = map(json.loads, capfd.readouterr().out.splitlines())
    return {row["partition"]: row["costs"] for row in rows if row.get("costs")}


def _unclean(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()


def _unclean_from_the_start(data: Path, *, share: int = 1) -> None:
    """As after a crash, with every `share`-th partition to be recovered from its first segment on. The others are recovered from their
    recovery points."""
    _unclean(data)
    points = data / "recovery-point-offset-checkpoint"
    version, count, *lines = points.read_text().splitlines()
    entries = [line.split() for line in lines]
    ends = ["0" if topic in LOGS and int(number) % share == 0 else end for topic, number, end in entries]
    zeroed = [f"{topic} {number} {end}" for (topic, number, _), end in zip(entries, ends, strict=True)]
    points.write_text("\n".join([version, count, *zeroed]) + "\n")


def _wrong(sound: Sound, case: Case, given: frozenset[Record], cost: dict[str, Any]) -> Iterator[object]:
    """How a cost is wrong, if it is. A record that is returned with another offset is not lost."""
    values = {record.value for record in given}
    missing = [record.offset for record in sound.records[case.topic] if record.value not in values]
    lost = [offset for offset in missing if offset not in case.gone]
    if cost["records"] is None:
        # unknown: the header is damaged, in a log in which not every offset has a record
        is_right = case.topic != "plain" and cost["offsets"] >= len(lost)
    else:
        # records lost after the log end count only if side files show that they existed
        is_right = cost["records"] in (len(lost), len(missing))
    if not is_right:
        yield case.name, case.kind.name, case.place, cost, sorted(lost)


@pytest.mark.evidence(
    "batch-invalid", "damage-believed", "missing-index-cut", "damage-offsets", "header-contradicts"
)
@pytest.mark.parametrize("stop", [None, partial(_unclean_from_the_start, share=2)], ids=["clean", "crashed"])
def test_consumers_miss_the_records_the_price_of_policy_kafka_names(
    sound: Sound,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
    stop: Callable[[Path], None] | None,
) -> None:
    data = copy_tree(sound.data, tmp_path / "data")
    cases = _damaged_all(sound, data, request.node.name)
    if stop is not None:
        stop(data)
    costs = _costs(capfd, data)
    for case in [case for case in cases if "dies_of" in costs.get(case.name, {}).get("kafka", ())]:
        # a broker does not start on it, see `test_recover_differential`
        cases.remove(case)
        shutil.rmtree(data / case.name)
        shutil.copytree(sound.data / case.name, data / case.name)
    # without the changes that only a cleaner makes
    with Broker(tmp_path / "broker", data, log_cleaner_enable="false") as broker:
        given = _given(broker, sound.batches, [(case.topic, case.partition) for case in cases], sound)
    wrong: list[object] = []
    for case in cases:
        cost = costs[case.name]["kafka"] if case.name in costs else {"records": 0}
        wrong += _wrong(sound, case, given[case.topic, case.partition], cost)
    assert not wrong


def _is_false_marker(case: Case) -> bool:
    """A broker's load reads the records of control batches only. A mistake in one under a valid checksum truncates the log or prevents the
    start."""
    return case.kind in SEALED_KINDS and (
        case.is_marker or (case.topic == "transactional" and "control" in case.kind.name)
    )


def test_consumers_miss_only_the_records_salvage_names(
    sound: Sound, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = copy_tree(sound.data, tmp_path / "data")
    cases = _damaged_all(sound, data, "salvage")
    for case in [case for case in cases if _is_false_marker(case)]:
        # a broker truncates it, and `recover` has reported that
        cases.remove(case)
        shutil.rmtree(data / case.name)
        shutil.copytree(sound.data / case.name, data / case.name)
    _unclean_from_the_start(data)
    costs = _costs(capfd, data)
    # status 1: batches remain at which consumers stop
    assert run(["recover", "--apply", str(data)]) == 1
    with Broker(tmp_path / "broker", data, log_cleaner_enable="false") as broker:
        given = _given(broker, sound.batches, [(case.topic, case.partition) for case in cases], sound)
        assert "Corruption found" not in broker.log_text()
    wrong: list[object] = []
    for case in cases:
        cost = costs[case.name]["salvage"] if case.name in costs else {"records": 0}
        wrong += _wrong(sound, case, given[case.topic, case.partition], cost)
    assert not wrong


def _zero_times(directory: Path, indexes: slice) -> None:
    for index in sorted(directory.glob("*.timeindex"))[indexes]:
        put(index, 0, bytes(index.stat().st_size))


def _is_one_log(directory: Path) -> bool:
    return len([*directory.glob("*.log")]) == 1


def _changed_with_journals_elsewhere(data: Path, journals: Path) -> list[Path]:
    """The pointers to the journal of a repair: the one in its partition, and an unfinished one in the data directory."""
    assert run(["recover", "--apply", "--journal", str(journals), str(data / "timed-2")]) == 0
    (pointer,) = (data / "timed-2").glob("kseg-journal-*-at-*.done")
    is_open = data / pointer.with_suffix(".open").name
    is_open.touch()
    return [pointer, is_open]


@pytest.mark.evidence("time-index", "kseg-journal-elsewhere")
def test_retention_deletes_the_records_the_price_names(
    sound: Sound, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Zeros in time indexes mean 1970, and an index of 0 bytes counts as missing. If the topic has no retention.ms, Kafka's default
    applies."""
    data = copy_tree(sound.data, tmp_path / "data")
    for topic in TIMED:
        _zero_times(data / f"{topic}-0", slice(0, -1))
        _zero_times(data / f"{topic}-1", slice(0, 1))
        min((data / f"{topic}-2").glob("*.timeindex")).write_bytes(b"")
    _unclean(data)
    costs = _costs(capfd, data)
    pointers = _changed_with_journals_elsewhere(data, tmp_path / "journals")
    places = [(topic, number) for topic in TIMED for number in range(3)]
    with Broker(tmp_path / "broker", data) as broker:
        for topic in TIMED:
            broker.wait_for("retention", partial(_is_one_log, data / f"{topic}-0"))
        given = _given(broker, sound.batches, places, sound)
    assert all(pointer.exists() for pointer in pointers)
    lost = {place: len(sound.records[place[0]]) - len(given[place]) for place in places}
    assert {place: costs[f"{place[0]}-{place[1]}"]["kafka"]["records"] for place in places} == lost
    assert [place[1] for place in places if not lost[place]] == [2, 2]
