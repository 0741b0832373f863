"""Protobuf payloads: descriptors made from .proto text are those that protobuf's own files have, and messages decode as theirs do."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from confluent_kafka.schema_registry.common.serde import SchemaId
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from kseg.internal_topics.registry.proto_text import file_descriptor
from kseg.internal_topics.registry.protobuf_decoder import ProtobufDecoder
from kseg.internal_topics.registry.schema_store import RegisteredSchema, SchemaReference, SchemaStore
from kseg.segment.errors import FormatError

SHOP = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "money.proto";
option java_package = "com.acme";
// a comment
message Order {
  int64 id = 1;
  optional string customer = 2;
  repeated sint32 amounts = 3 [packed = false];
  map<string, Line> lines = 4;
  oneof payment { string card = 5; Cash cash = 6; }
  Status status = 7;
  google.protobuf.Timestamp at = 8;
  shop.money.Money total = 9;
  bytes blob = 10;
  double weight = 11;
  Order parent = 12;
  map<bool, Status> flags = 13;
  reserved 20 to 30, 40; reserved "old";
  message Line { uint32 count = 1; }
  message Cash { message Note { fixed64 number = 1; } Note note = 1; }
  enum Status { option allow_alias = true; NEW = 0; PAID = 1; SETTLED = 1; }
}
message Other { string text = 1; }
service Shop { rpc Get(Order) returns (stream Order); }
"""
MONEY = 'syntax = "proto3"; package shop.money; message Money { string currency = 1; int64 units = 2; }'


def decoder(text: str = SHOP, **others: str) -> ProtobufDecoder:
    references = tuple(SchemaReference(f"{name}.proto", name, 1) for name in others)
    schemas = [
        RegisteredSchema(schema_id=10 + at, kind="PROTOBUF", text=content, subject=name, version=1)
        for at, (name, content) in enumerate(others.items())
    ]
    own = RegisteredSchema(schema_id=1, kind="PROTOBUF", text=text, references=references)
    return ProtobufDecoder(own, SchemaStore("schemas", [own, *schemas]))


def order(file: Any) -> Any:
    message = GetMessageClass(file.message_types_by_name["Order"])()
    message.id = 2**62
    message.customer = "Ada"
    message.amounts.extend([1, -2])
    message.lines["a"].count = 3
    message.cash.note.number = 7
    message.status = 1
    message.at.seconds = 5
    message.total.units = -4
    message.blob = b"\0\xff"
    message.parent.id = 9
    message.flags[True] = 1
    return message


def framed(indexes: list[int], data: bytes) -> bytes:
    """The frame behind the magic byte and the id, as confluent-kafka writes it."""
    return SchemaId("PROTOBUF", 1, None, indexes).id_to_bytes()[5:] + data


def test_a_message_with_everything() -> None:
    made = decoder(money=MONEY)
    value = made.decode(framed([0], order(made.file).SerializeToString()))
    assert value.pop("parent")["id"] == 9
    assert value == {
        "id": 2**62,
        "customer": "Ada",
        "amounts": [1, -2],
        "lines": {"a": {"count": 3}},
        "cash": {"note": {"number": 7}},
        "status": "PAID",
        "at": {"seconds": 5, "nanos": 0},
        "total": {"currency": "", "units": -4},
        "blob": b"\0\xff",
        "weight": 0.0,
        "flags": {"true": "PAID"},
    }


@pytest.mark.parametrize(
    ("indexes", "name"), [([1], "shop.v1.Other"), ([0, 1, 0], "shop.v1.Order.Cash.Note")]
)
def test_message_indexes_lead_to_nested_messages(indexes: list[int], name: str) -> None:
    made = decoder(money=MONEY)
    assert made.name(tuple(indexes)) == name
    data = b"\x0a\x02hi" if indexes == [1] else b"\x09" + (7).to_bytes(8, "little")
    value = made.decode(framed(indexes, data))
    assert value == ({"text": "hi"} if indexes == [1] else {"number": 7})
    with pytest.raises(FormatError, match="no message"):
        made.decode(framed([9], b""))


def test_numbers_without_a_name_stay_numbers() -> None:
    made = decoder('syntax="proto3"; message M { E e = 1; repeated E all = 2; enum E { A = 0; } }')
    assert made.decode(b"\0\x08\x05") == {"e": 5, "all": []}


def test_proto2_with_groups_required_fields_and_extensions() -> None:
    made = decoder(
        """syntax = "proto2";
        message M { required int32 a = 1; optional group Inner = 2 { optional string s = 1; } extensions 100 to max;
          optional E e = 3 [default = B]; enum E { A = 0; B = 1; } }
        extend M { optional string more = 100; }"""
    )
    assert made.decode(b"\0\x08\x01\x13\x0a\x01x\x14") == {"a": 1, "inner": {"s": "x"}}
    with pytest.raises(FormatError, match="it is not a message of type M"):
        made.decode(b"\0\x08")


@pytest.mark.parametrize("name", ["descriptor", "struct", "any", "type", "api", "wrappers", "timestamp"])
def test_descriptors_are_those_of_protoc(name: str) -> None:
    """protobuf's own files: their descriptors come from protoc. Printed as text they must parse to the same wire format."""
    wanted = FileDescriptorProto()
    importlib.import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.CopyToProto(wanted)
    text = _printed(wanted)
    made = file_descriptor(wanted.name, text)
    pool = DescriptorPool()
    for each in wanted.dependency:
        stem = each.removeprefix("google/protobuf/").removesuffix(".proto")
        other = FileDescriptorProto()
        importlib.import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(other)
        for inner in other.dependency:
            more = FileDescriptorProto()
            stem = inner.removeprefix("google/protobuf/").removesuffix(".proto")
            importlib.import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.CopyToProto(more)
            pool.Add(more)
        pool.Add(other)
    pool.Add(made)
    found = pool.FindFileByName(wanted.name)
    own = importlib.import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR
    for message in own.message_types_by_name.values():
        _assert_same(message, found.message_types_by_name[message.name])


def _assert_same(wanted: Any, made: Any) -> None:
    assert wanted.full_name == made.full_name
    for field in wanted.fields:
        other = made.fields_by_name[field.name]
        assert (field.number, field.type, field.is_repeated, field.is_packed, field.has_presence) == (
            other.number,
            other.type,
            other.is_repeated,
            other.is_packed,
            other.has_presence,
        ), field.full_name
        if field.message_type is not None:
            assert field.message_type.full_name == other.message_type.full_name
        if field.enum_type is not None:
            assert field.enum_type.values_by_name.keys() == other.enum_type.values_by_name.keys()
    for nested in wanted.nested_types:
        _assert_same(nested, made.nested_types_by_name[nested.name])


_TYPES = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}


def _printed(file: FileDescriptorProto) -> str:
    lines = [f'syntax = "{file.syntax or "proto2"}";', f"package {file.package};"]
    lines += [f'import "{each}";' for each in file.dependency]
    lines += [_enum_text(each) for each in file.enum_type]
    lines += [_message_text(each, file.syntax == "proto3") for each in file.message_type]
    return "\n".join(lines)


def _enum_text(enum: Any) -> str:
    alias = "option allow_alias = true;" if enum.options.allow_alias else ""
    return f"enum {enum.name} {{ {alias} " + " ".join(f"{v.name} = {v.number};" for v in enum.value) + " }"


def _message_text(message: Any, is_proto3: bool) -> str:
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    parts = [_enum_text(each) for each in message.enum_type]
    parts += [_message_text(each, is_proto3) for each in message.nested_type if each.name not in entries]
    for index, oneof in enumerate(message.oneof_decl):
        fields = [f for f in message.field if f.HasField("oneof_index") and f.oneof_index == index]
        if not all(f.proto3_optional for f in fields):
            parts.append(f"oneof {oneof.name} {{ " + " ".join(_field_text(f, "") for f in fields) + " }")
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            continue
        entry = entries.get(field.type_name.rpartition(".")[2])
        if entry is not None:
            key, value = entry.field
            value_type = _TYPES.get(value.type, value.type_name)
            parts.append(f"map<{_TYPES[key.type]}, {value_type}> {field.name} = {field.number};")
            continue
        label = {
            1: "" if is_proto3 and not field.proto3_optional else "optional ",
            2: "required ",
            3: "repeated ",
        }
        parts.append(_field_text(field, label[field.label]))
    parts += [f"extensions {each.start} to {each.end - 1};" for each in message.extension_range]
    return f"message {message.name} {{ " + " ".join(parts) + " }"


def _field_text(field: Any, label: str) -> str:
    packed = f" [packed = {str(field.options.packed).lower()}]" if field.options.HasField("packed") else ""
    return f"{label}{_TYPES.get(field.type, field.type_name)} {field.name} = {field.number}{packed};"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "message {",
        'syntax = "proto3"; message M { string s = ; }',
        "message M { " * 600 + "}" * 600,
        'syntax = "proto3"; message M { Nope n = 1; }',
        'syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }',
        'syntax = "proto3"; message M { int32 a = 99999999999999999999; }',
        'syntax = "proto3"; import "schema-1.proto"; message M {}',
        'syntax = "proto3"; import "nowhere.proto"; message M {}',
        'edition = "2077"; message M {}',
        "\0" * 1000,
    ],
)
def test_hostile_schemas_are_a_reason(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FormatError):
        decoder(text).decode(b"\0")
    assert capfd.readouterr() == ("", "")


def test_imports_in_a_circle() -> None:
    circle = 'syntax = "proto3"; import "b.proto"; message A {}'
    first = RegisteredSchema(
        schema_id=1, kind="PROTOBUF", text=circle, subject="a", version=1,
        references=(SchemaReference("b.proto", "a", 1),),
    )  # fmt: skip
    with pytest.raises(FormatError):
        ProtobufDecoder(first, SchemaStore("schemas", [first]))


def test_real_serializers_payloads() -> None:
    """confluent-kafka's ProtobufSerializer, with a message class of the same schema."""
    from confluent_kafka.schema_registry._sync.mock_schema_registry_client import MockSchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    made = decoder('syntax = "proto3"; package p; message A { int64 n = 1; } message B { A a = 1; }')
    kind = GetMessageClass(made.file.message_types_by_name["B"])
    message = kind()
    message.a.n = 5
    serializer = ProtobufSerializer(kind, MockSchemaRegistryClient({"url": "mock://"}))
    payload = serializer(message, SerializationContext("t", MessageField.VALUE))
    assert payload is not None and payload[:1] == b"\0"
    assert made.decode(payload[5:]) == {"a": {"n": 5}}
