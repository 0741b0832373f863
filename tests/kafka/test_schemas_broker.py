"""A real broker with the topic `_schemas` and topics with Avro, protobuf and JSON Schema payloads. The registry is Confluent's in-memory
one, its records are in the published format, and serializers and deserializers are Confluent's. kseg decodes from the disk alone what a
real consumer deserializes, before and after `_schemas` is compacted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pytest
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass

from kseg.cli.main import run
from kseg.internal_topics.registry.proto_text import file_descriptor
from tests.kafka.broker import Broker, Consumed
from tests.kafka.conftest import require_kafka
from tests.support.command_rows import rows_of
from tests.support.registry_dirs import Registry, deleted_subject, schema_entry, schema_key

pytestmark = pytest.mark.kafka

SCHEMAS, ORDERS, RIDES, FARES = "_schemas", "orders", "rides", "fares"
RIDER = {"type": "record", "name": "Rider", "namespace": "com.acme", "fields": [{"name": "n", "type": "int"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "rider", "type": RIDER},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}
ORDER_2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
FARE = {
    "title": "Fare",
    "type": "object",
    "properties": {
        "amount": {"type": "number"},
        "stops": {"type": "array", "items": {"type": "string"}},
    },
}
MONEY = 'syntax = "proto3"; package acme; message Money { string currency = 1; int32 units = 2; }'
RIDE = """syntax = "proto3"; package acme; import "acme/money.proto";
message Ride { int32 id = 1; Money price = 2; repeated Leg legs = 3; message Leg { string to = 1; } }
message Cancelled { string why = 1; Ride.Leg leg = 2; }"""


class Story:
    """The data that was written. gone_id: a schema whose subject was deleted permanently. before, after: copies. read: by a real
    consumer."""

    def __init__(self, root: Path) -> None:
        self.registry = Registry()
        self.before, self.after = root / "before", root / "after"
        self.read: dict[str, list[Consumed]] = {}
        self.gone_id = 0


def _ride_classes() -> tuple[Any, Any]:
    pool = DescriptorPool()
    pool.Add(file_descriptor("acme/money.proto", MONEY))
    pool.Add(file_descriptor("acme/ride.proto", RIDE))
    ride, cancelled = (pool.FindMessageTypeByName(f"acme.{name}") for name in ("Ride", "Cancelled"))
    return GetMessageClass(ride), GetMessageClass(cancelled)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    require_kafka()
    root = tmp_path_factory.mktemp("schemas")
    reported = Story(root)
    with Broker(root / "broker") as broker:
        broker.create_topic(
            SCHEMAS, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", delete_retention_ms="0"
        )
        payloads = _payloads(reported)
        for topic, values in payloads.items():
            broker.create_topic(topic)
            _produce(broker, topic, [(b"key", value) for value in values])
        registry = reported.registry
        _produce(broker, SCHEMAS, [(b'{"keytype":"NOOP","magic":0}', None), *registry.entries])
        _delete(broker, reported)
        reported.read = {topic: broker.consume(topic) for topic in payloads}
        broker.copy_data(reported.before)
        _compact(broker)
        broker.stop()
        broker.copy_data(reported.after)
    yield reported


def _payloads(reported: Story) -> dict[str, list[bytes | None]]:
    registry = reported.registry
    ride, cancelled = _ride_classes()
    first = ride(id=7, legs=[{"to": "home"}, {}], price={"currency": "EUR", "units": -3})
    other = cancelled(why="rain", leg={"to": "nowhere"})
    gone = registry.avro("gone", '"string"', "what nobody can read")
    reported.gone_id = int.from_bytes(gone[1:5], "big")
    return {
        ORDERS: [
            registry.avro(ORDERS, ORDER, {"id": 1, "rider": {"n": 5}, "tags": {"a": "b"}}),
            registry.avro(ORDERS, ORDER_2, {"id": 2**40, "note": "late"}),
            None,
            registry.avro(ORDERS, ORDER, {"id": 3, "rider": {"n": -1}, "tags": {}}),
        ],
        RIDES: [registry.protobuf(RIDES, message) for message in (first, other, ride())],
        FARES: [registry.json_schema(FARES, FARE, {"amount": 2.5, "stops": ["x", "ü"]})],
        "gone": [gone],
    }


def _delete(broker: Broker, reported: Story) -> None:
    """Delete one version of orders softly, all of fares by its subject, and all of `gone` permanently."""
    versions = {(each["subject"], each["version"]): each for _, each in _entries(reported.registry)}
    soft = versions[f"{ORDERS}-value", 1]
    deleted = schema_entry(soft["subject"], 1, soft["id"], soft["schema"], deleted=True)
    gone = (schema_key("gone-value", 1), None)
    _produce(broker, SCHEMAS, [deleted, deleted_subject(f"{FARES}-value", 1), gone])


def _entries(registry: Registry) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for key, value in registry.entries:
        assert value is not None
        yield json.loads(key), json.loads(value)


def _compact(broker: Broker) -> None:
    """Fill the topic until the cleaner has compacted everything that matters, twice: tombstones are removed in a later round."""
    filler = (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NONE"}')
    for _ in range(2):
        _produce(broker, SCHEMAS, [filler] * 300)
        end = broker.consume(SCHEMAS)[-1].offset
        _produce(broker, SCHEMAS, [filler] * 300)
        broker.wait_for("cleaning", partial(_is_cleaned, broker, end))


def _is_cleaned(broker: Broker, end_offset: int) -> bool:
    return broker.cleaned_up_to(SCHEMAS) > end_offset


def _produce(broker: Broker, topic: str, entries: list[tuple[bytes, bytes | None]]) -> None:
    producer = broker.producer(linger_ms=5)
    for at, (key, value) in enumerate(entries):
        producer.produce(topic, value, key, partition=0)
        if at % 20 == 19:
            # several batches, and segments that end
            producer.flush()
    producer.flush()


# --- what a real consumer makes of them


def _deserialized(reported: Story, topic: str) -> list[Any]:
    ride, cancelled = _ride_classes()
    context = SerializationContext(topic, MessageField.VALUE)
    avro = AvroDeserializer(reported.registry.client)
    as_json = JSONDeserializer(json.dumps(FARE), schema_registry_client=reported.registry.client)

    found: list[Any] = []
    for at, record in enumerate(reported.read[topic]):
        if record.value is None:
            found.append(None)
        elif topic == RIDES:
            kind = cancelled if at == 1 else ride
            message = ProtobufDeserializer(kind, {}, reported.registry.client)(record.value, context)
            found.append(
                MessageToDict(
                    message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
                )
            )
        else:
            found.append((as_json if topic == FARES else avro)(record.value, context))
    return found


def _shown(capfd: pytest.CaptureFixture[str], *words: object, kind: str = "record") -> list[dict[str, Any]]:
    rows = rows_of(capfd, *words, status=0)
    return [row for row in rows if row["type"] == kind]


@pytest.mark.parametrize("topic", [ORDERS, RIDES, FARES])
@pytest.mark.parametrize("compacted", [False, True], ids=["before", "after"])
def test_payloads_are_decoded_as_by_a_consumers_deserializer(
    topic: str, compacted: bool, story: Story, capfd: pytest.CaptureFixture[str]
) -> None:
    """This includes deleted schema versions, because records written with them still exist."""
    data = story.after if compacted else story.before
    expected = _deserialized(story, topic)
    directory = data / f"{topic}-0"
    dumped = _shown(capfd, "dump", "--json", "--print-data-log", "--value-format", "auto", directory)
    assert [row["value"] for row in dumped] == expected
    assert all("value_error" not in row for row in dumped)
    read = _shown(capfd, "read", "--json", "--offset", 0, "--value-format", "auto", directory)
    assert [row["value"] for row in read] == expected
    words = ["lookup", "--json", "--key", "key", "--all", "--value-format", "auto", directory]
    looked = _shown(capfd, *words, kind="lookup")
    assert [row["record"]["value"] for row in looked] == expected


def test_schema_versions_and_subjects_are_named(story: Story, capfd: pytest.CaptureFixture[str]) -> None:
    ids = {(each["subject"], each["version"]): each["id"] for _, each in _entries(story.registry)}
    directory = story.after / f"{ORDERS}-0"
    dumped = _shown(capfd, "dump", "--json", "--print-data-log", "--value-format", "avro", directory)
    named = [row.get("value_schema") for row in dumped]
    subject = f"{ORDERS}-value"
    first = {"id": ids[subject, 1], "subject": subject, "version": 1}
    second = {"id": ids[subject, 2], "subject": subject, "version": 2}
    assert named == [first, second, None, first]


def test_permanently_deleted_schema_decodes_until_it_is_compacted_away(
    story: Story, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["dump", "--json", "--print-data-log", "--value-format", "avro"]
    (before,) = _shown(capfd, *words, story.before / "gone-0")
    assert before["value"] == "what nobody can read"
    (after,) = _shown(capfd, *words, story.after / "gone-0")
    assert after["value_error"].endswith(f"has no schema {story.gone_id}")
    assert after["value_encoding"] != "avro"


@pytest.mark.parametrize("compacted", [False, True], ids=["before", "after"])
def test_exported_columns_have_the_types_of_the_schemas(
    story: Story, compacted: bool, tmp_path: Path
) -> None:
    data = story.after if compacted else story.before
    tables = {}
    for topic in (ORDERS, RIDES, FARES):
        place = tmp_path / topic
        words = ["--to", "parquet", "--value-format", "auto", "--topic", topic, "--quiet"]
        assert run(["export", *words, "--output", str(place), str(data)]) == 0
        tables[topic] = (
            pyarrow.dataset.dataset(place, format="parquet").to_table().sort_by("offset").column("value")
        )
    orders = tables[ORDERS].type
    assert {each.name: each.type for each in orders} == {
        "id": pa.int64(),
        "rider": pa.struct([("n", pa.int32())]),
        "tags": pa.map_(pa.string(), pa.string()),
        "note": pa.string(),
    }
    reported = _deserialized(story, ORDERS)
    for found, expected in zip(tables[ORDERS].to_pylist(), reported, strict=True):
        if expected is None:
            assert found is None
            continue
        tags = None if found["tags"] is None else dict(found["tags"])
        full = dict.fromkeys(("id", "rider", "tags", "note")) | expected
        assert found | {"tags": tags} == full
    assert tables[FARES].to_pylist() == _deserialized(story, FARES)
    first, other, empty = tables[RIDES].to_pylist()
    assert first["price"] == {"currency": "EUR", "units": -3} and first["legs"] == [
        {"to": "home"},
        {"to": ""},
    ]
    assert (other["why"], other["leg"], other["id"]) == ("rain", {"to": "nowhere"}, None)
    assert (empty["id"], empty["price"], empty["legs"], empty["why"]) == (0, None, [], None)
