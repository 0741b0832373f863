"""Protobuf payloads: descriptors made from .proto text equal those of protobuf's own files, and messages decode as in protobuf."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from confluent_kafka.schema_registry.common.serde import SchemaId
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from kseg.internal_topics.registry.column_fit import fit
from kseg.internal_topics.registry.proto_text import file_descriptor
from kseg.internal_topics.registry.protobuf_decoder import ProtobufDecoder
from kseg.internal_topics.registry.schema_columns import protobuf_columns
from kseg.internal_topics.registry.schema_store import RegisteredSchema, SchemaReference, SchemaStore
from kseg.internal_topics.registry.well_known_protos import WELL_KNOWN_TEXTS
from kseg.segment.errors import FormatError
from tests.internal_topics.proto_printing import printed

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
    """The bytes after the magic byte and the schema id, as confluent-kafka writes them."""
    return SchemaId("PROTOBUF", 1, None, indexes).id_to_bytes()[5:] + data


def test_protobuf_message_with_every_field_type_is_decoded() -> None:
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
def test_message_indexes_select_nested_messages(indexes: list[int], name: str) -> None:
    made = decoder(money=MONEY)
    assert made.name(tuple(indexes)) == name
    data = b"\x0a\x02hi" if indexes == [1] else b"\x09" + (7).to_bytes(8, "little")
    value = made.decode(framed(indexes, data))
    assert value == ({"text": "hi"} if indexes == [1] else {"number": 7})
    with pytest.raises(FormatError, match="no message"):
        made.decode(framed([9], b""))


def test_enum_numbers_without_a_name_stay_numbers() -> None:
    made = decoder('syntax="proto3"; message M { E e = 1; repeated E all = 2; enum E { A = 0; } }')
    assert made.decode(b"\0\x08\x05") == {"e": 5, "all": []}


def test_proto2_groups_required_fields_and_extensions_are_decoded() -> None:
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
def test_descriptors_equal_those_of_protoc(name: str) -> None:
    """The descriptors of protobuf's own files come from protoc. Printed as text and parsed, they must give the same wire format."""
    wanted = FileDescriptorProto()
    importlib.import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.CopyToProto(wanted)
    text = printed(wanted)
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
        'syntax = "proto3"; import "schema-1.proto"; message M { Nope n = 1; }',
        'syntax = "proto3"; import "nowhere.proto"; message M { nowhere.N n = 1; }',
        'edition = "2077"; message M {}',
        "\0" * 1000,
    ],
)
def test_hostile_protobuf_schemas_give_a_reason(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FormatError):
        decoder(text).decode(b"\0")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "text",
    [
        'syntax = "proto3"; message M { int32 a = 0x1; reserved 0x10 to 0x20; enum E { Z = 00; B = -0x7; } }',
        'edition = "2023"; option features.field_presence = IMPLICIT; message M { reserved b, c; int32 a = 1; }',
        """edition = "2024"; package p; import option "buf/validate/validate.proto"; import option 'confluent/meta.proto';
        option features.default_symbol_visibility = LOCAL_ALL; option features.enforce_naming_style = STYLE_LEGACY;
        export message M { int32 a = 1; local enum E { Z = 0; } export message N { local b = 1; } E e = 2; local export = 3; }
        local message local { string option = 1; M message = 2; } local enum export { export_Z = 0; }""",
        'syntax = "proto3"; message M { optional int32 a = 1; int32 _a = 2; }',
        'syntax = "proto2"; message M { optional int32 a = 1; optional int32 a_b = 2; optional int32 aB = 3; }',
        # options that are defined in files nobody has
        """syntax = "proto3"; import "buf/validate/validate.proto"; import public "confluent/meta.proto";
        import "google/protobuf/any.proto"; message M { option (confluent.message_meta).doc = "x";
          int32 a = 1 [(buf.validate.field).int32.gt = 0]; google.protobuf.Any b = 2; }""",
    ],
)
def test_unusual_but_valid_proto_texts_are_parsed(text: str) -> None:
    value = decoder(text).decode(b"\0\x08\x05")
    value.pop("_a", None)
    assert value == {"a": 5}


def test_unresolvable_import_is_named() -> None:
    text = 'syntax = "proto3"; import "buf/validate/validate.proto"; message M { buf.validate.Rule a = 1; }'
    with pytest.raises(
        FormatError, match=r"it imports buf/validate/validate\.proto, which is not defined anywhere"
    ):
        decoder(text)


def test_extensions_have_their_names_in_brackets() -> None:
    """As in protobuf's JSON."""
    made = decoder(
        """syntax = "proto2"; package p; message M { extensions 100 to 200; optional int32 a = 1; }
        extend M { optional string text = 100; repeated int32 all = 101; }
        message S { extend M { optional int32 inner = 102; } }"""
    )
    assert made.decode(b"\0\x08\x01\xa2\x06\x01x\xb0\x06\x07") == {
        "a": 1,
        "[p.text]": "x",
        "[p.all]": [],
        "[p.S.inner]": 7,
    }
    assert made.decode(b"\0\xa8\x06\x05") == {"[p.all]": [5]}
    column = fit(protobuf_columns(made.file.message_types_by_name["M"]))
    assert column(made.decode(b"\0\xa8\x06\x05"))["[p.all]"] == [5]


@pytest.mark.parametrize("name", sorted(WELL_KNOWN_TEXTS))
def test_well_known_imports_of_a_registry_are_resolved(name: str) -> None:
    """Imports of googleapis and of Confluent's client are known."""
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if name.startswith("confluent/"):
        module = f"confluent_kafka.schema_registry.{module}"
    theirs = pytest.importorskip(module).DESCRIPTOR
    text = f'syntax = "proto3"; import "{name}"; message M {{ int32 a = 1; }}'
    (imported,) = decoder(text).file.dependencies
    assert imported.message_types_by_name.keys() == theirs.message_types_by_name.keys()
    for message in theirs.message_types_by_name.values():
        _assert_same(message, imported.message_types_by_name[message.name])
    for enum in theirs.enum_types_by_name.values():
        own = imported.enum_types_by_name[enum.name]
        assert [(each.name, each.number) for each in enum.values] == [
            (each.name, each.number) for each in own.values
        ]


def test_circular_imports_are_rejected() -> None:
    circle = 'syntax = "proto3"; import "b.proto"; message A {}'
    first = RegisteredSchema(
        schema_id=1, kind="PROTOBUF", text=circle, subject="a", version=1,
        references=(SchemaReference("b.proto", "a", 1),),
    )  # fmt: skip
    with pytest.raises(FormatError):
        ProtobufDecoder(first, SchemaStore("schemas", [first]))


def test_payloads_of_the_real_protobuf_serializer_are_decoded() -> None:
    """Payloads written by confluent-kafka's ProtobufSerializer with a message class of the same schema."""
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
