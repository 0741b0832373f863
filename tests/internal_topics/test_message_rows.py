"""Rows of Kafka's own topics: for each record the kernel writes the same bytes as `topic_rows`, whatever the record contains; and the topic
names in the rows."""

from __future__ import annotations

import json
import os
import random
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.inspection.dump import log_json
from kseg.inspection.dump.options import DumpOptions
from kseg.internal_topics.schemas import Field, Message, messages
from kseg.internal_topics.topic_names import TOPICS
from kseg.internal_topics.topic_recognition import TopicRows
from kseg.internal_topics.topic_rows import MessageRows
from kseg.jobs.events import Text
from kseg.segment.java.uuids import uuid_text
from kseg.segment.model import Record
from kseg.segment.partition.targets import FileTarget
from tests.internal_topics.coordinator_logs import key as key_of
from tests.internal_topics.coordinator_logs import value as value_of
from tests.internal_topics.metadata_logs import encoded, record, topic, topic_id, write_log
from tests.kafka.message_cases import FRAMED, RECORDS_PER_BATCH, Pair, mutants, random_values
from tests.kafka.message_cases import write_log as write_pairs
from tests.support.kernel_variants import INTERPRETED
from tests.support.one_target import dump

MUTANTS = int(os.environ.get("KSEG_ROW_MUTANTS", "1000"))
SEED = int(os.environ.get("KSEG_ROW_SEED", "15"))
EACH = 6
LOG = "00000000000000000000.log"
# the ids in `random_values`
UNKNOWN_ID, NAMED_ID = uuid_text(bytes(16)), uuid_text(bytes(15) + b"\1")


def raw(values: Mapping[str, Any], fields: Sequence[Field]) -> dict[str, Any]:
    """The values of a converter's JSON as `encoded` takes them, with bytes decoded."""
    found = {}
    for field in fields:
        if field.name not in values:
            continue
        value = values[field.name]
        many = value if field.is_array and value is not None else [value]
        if field.type == "bytes":
            many = [None if each is None else b64decode(each) for each in many]
        elif field.fields:
            many = [None if each is None else raw(each, field.fields) for each in many]
        found[field.name] = many if field.is_array and value is not None else many[0]
    return found


def pairs(rng: random.Random, topic_name: str) -> list[Pair]:
    """Random records of every type and version."""

    def message(known: Message, version: int) -> bytes:
        return encoded(known, raw(random_values(rng, known.fields, version), known.fields), version)

    found: list[Pair] = []
    of_topic = [each for each in messages() if each.topic == topic_name and each.type is not None]
    keys = {each.type: each for each in of_topic if each.kind == "key"}
    for known in of_topic:
        if known.kind == "key":
            continue
        assert known.type is not None
        for version in range(known.versions.first, known.last_version + 1):
            for _ in range(EACH):
                data = message(known, version)
                if topic_name in FRAMED:
                    found.append((None, bytes([1, known.type, version]) + data))
                else:
                    key = known.type.to_bytes(2, "big") + message(keys[known.type], 0)
                    found.append((key, version.to_bytes(2, "big") + data))
        if topic_name not in FRAMED:
            found.append((known.type.to_bytes(2, "big") + message(keys[known.type], 0), None))
    return found


@pytest.fixture(params=TOPICS.values())
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """A log of one of the topics, beside a metadata log that contains one of the topic ids, and the number of its records that are
    unchanged."""
    name: str = request.param
    rng = random.Random(f"{SEED} {name}")
    records = pairs(rng, name)
    directory = tmp_path / f"{name}-0"
    directory.mkdir()
    if name != "__cluster_metadata":
        write_log(tmp_path / "__cluster_metadata-0", topic('nam"ed', NAMED_ID))
    yield write_pairs(directory / LOG, [*records, *mutants(rng, records, MUTANTS)]), len(records)


def text_of(path: Path) -> bytes:
    options = DumpOptions(print_data_log=True, format="json", row_decoder=TopicRows())
    return b"".join(event.data for event in dump(FileTarget(str(path)), options) if isinstance(event, Text))


def test_kernel_writes_the_same_bytes_as_topic_rows(
    log: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, intact = log
    asked: list[int] = []
    amend = MessageRows.amend

    def noted(self: MessageRows, row: Any, record: Record) -> None:
        asked.append(record.offset)
        amend(self, row, record)

    monkeypatch.setattr(MessageRows, "amend", noted)
    by_kernel = text_of(path)
    # secrets and quotas (doubles) are left to `MessageRows`
    assert sum(offset < intact for offset in asked) <= intact // 10
    monkeypatch.setattr(MessageRows, "program", lambda _: None)
    one_by_one = text_of(path).splitlines()
    for ours, theirs in zip(by_kernel.splitlines(), one_by_one, strict=True):
        assert ours == theirs


def test_interpreted_kernel_writes_the_same_bytes(
    log: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first batch, because the interpreted kernel is slow."""
    path, _ = log
    data = path.read_bytes()
    path.write_bytes(data[: 12 + int.from_bytes(data[8:12], "big")])
    compiled = text_of(path)
    assert compiled.count(b"\n") == 1 + RECORDS_PER_BATCH
    monkeypatch.setattr(log_json, "R", INTERPRETED["message_rows"])
    assert text_of(path) == compiled


# --- names


def rows(capfd: pytest.CaptureFixture[str], *words: object) -> list[dict[str, Any]]:
    capfd.readouterr()
    assert run(list(map(str, words))) == 0
    found = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return [row for row in found if row["type"] == "record"]


def test_rows_have_topic_names_beside_topic_ids(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The names come from the metadata log in the same data directory, and include deleted topics; null if unknown. `lookup` and `read`
    show the same."""
    removed = record("RemoveTopicRecord", topicId=topic_id(2))
    metadata = tmp_path / "__cluster_metadata-0"
    write_log(metadata, topic("orders", topic_id(1)), topic("gone", topic_id(2)), [removed])
    shares = tmp_path / "__share_group_state-0"
    shares.mkdir()
    made = [
        (
            key_of(shares.name[:-2], 0, groupId="g", topicId=each, partition=0),
            value_of(shares.name[:-2], 0, 0),
        )
        for each in (topic_id(1), topic_id(2), topic_id(3))
    ]
    log = write_pairs(shares / LOG, made)
    found = rows(capfd, "dump", "--json", "--print-data-log", log)
    assert [row["key"]["data"]["topicName"] for row in found] == ["orders", "gone", None]
    (read,) = rows(capfd, "read", "--json", "--offset", 1, "--max-bytes", 1, shares)[1:2]
    assert read["key"]["data"]["topicName"] == "gone"
    own = rows(capfd, "dump", "--json", "--print-data-log", metadata)
    named = [(row["value"]["name"], row["value"]["data"].get("topicName")) for row in own]
    assert named == [
        ("TopicRecord", None),
        ("PartitionRecord", "orders"),
        ("TopicRecord", None),
        ("PartitionRecord", "gone"),
        ("RemoveTopicRecord", "gone"),
    ]
    (metadata / LOG).unlink()
    found = rows(capfd, "dump", "--json", "--print-data-log", log)
    assert [row["key"]["data"]["topicName"] for row in found] == [None, None, None]


def test_commit_row_names_the_topic_of_its_id(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In this case the node's metadata log is in another log dir."""
    for name, directory in (("a", topic_id(8)), ("b", topic_id(9))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(
            f"version=1\nnode.id=1\ncluster.id=Mz9XvQe1R0mU7bTq2LkP5w\ndirectory.id={directory}\n"
        )
    write_log(tmp_path / "a" / "__cluster_metadata-0", topic("new", topic_id(1)))
    offsets = "__consumer_offsets"
    partition = tmp_path / "b" / f"{offsets}-0"
    partition.mkdir()
    key = key_of(offsets, 1, group="g", topic="old", partition=0)
    log = write_pairs(partition / LOG, [(key, value_of(offsets, 1, 4, offset=3, topicId=topic_id(1)))])
    (row,) = rows(capfd, "dump", "--json", "--print-data-log", log)
    assert row["value"]["data"]["topicName"] == "new"
