"""The `_schemas` topic: schemas that are registered, deleted, referred to or compacted away; folders of schemas; GUIDs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from uuid import UUID

import pytest

from kseg.internal_topics.registry.decoder_choice import read_schemas
from kseg.internal_topics.registry.schema_store import RegisteredSchema, SchemaReference, SchemaStore
from kseg.internal_topics.registry.schema_topic import read_schema_topic
from kseg.segment.errors import FormatError, UsageError
from tests.support.registry_dirs import LOG, deleted_subject, partition, schema_entry, schema_key


def read(tmp_path: Path, *entries: tuple[bytes | None, bytes | None]) -> SchemaStore:
    store, problems = read_schema_topic(str(partition(tmp_path / "_schemas-0", entries)))
    assert problems == ()
    return store


def test_schemas_are_read_with_versions_ids_and_types(tmp_path: Path) -> None:
    store = read(
        tmp_path,
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NONE"}'),
        schema_entry("a-value", 1, 7, '"string"'),
        schema_entry("a-value", 2, 9, "syntax", "PROTOBUF", [("b.proto", "b", 3)]),
        (b'{"keytype":"NOOP","magic":0}', None),
    )
    assert [(each.schema_id, each.kind, each.version) for each in store.schemas] == [
        (7, "AVRO", 1),
        (9, "PROTOBUF", 2),
    ]
    assert store.by_id(9).references == (SchemaReference("b.proto", "b", 3),)
    with pytest.raises(FormatError, match="has no schema 8"):
        store.by_id(8)


def test_deleted_schema_is_still_known(tmp_path: Path) -> None:
    """A deleted schema is still used, because records written with it still exist."""
    store = read(
        tmp_path,
        schema_entry("soft", 1, 1, '"int"'),
        schema_entry("soft", 1, 1, '"int"', deleted=True),
        schema_entry("hard", 1, 2, '"long"'),
        (schema_key("hard", 1), None),
        schema_entry("subject", 1, 3, '"float"'),
        schema_entry("subject", 2, 4, '"double"'),
        deleted_subject("subject", 1),
    )
    assert {each.schema_id: each.is_deleted for each in store.schemas} == {
        1: True,
        2: True,
        3: True,
        4: False,
    }
    assert store.by_id(2).text == '"long"'


def test_schemas_of_a_compacted_topic_with_gaps_are_read(tmp_path: Path) -> None:
    """The cleaner keeps the newest record of each key, so a registration may be in any segment."""
    directory = partition(tmp_path / "_schemas-0", [schema_entry("a", 1, 1, '"int"')])
    second = partition(tmp_path / "later", [schema_entry("a", 2, 2, '"long"')])
    (directory / "00000000000000000500.log").write_bytes((second / LOG).read_bytes())
    store, _ = read_schema_topic(str(directory))
    assert [each.schema_id for each in store.schemas] == [1, 2]


def test_unknown_schema_records_and_damage_are_reported(tmp_path: Path) -> None:
    entries = [
        schema_entry("a", 1, 1, '"int"'),
        (b"no json", b"{}"),
        (
            b'{"keytype":"SCHEMA","subject":"x","version":1}',
            b'{"subject":"x","version":1,"id":"no","schema":""}',
        ),
        (b"[" * 100_000, b"{}"),
        schema_entry("a", 2, 2, '"long"'),
        schema_entry("a", 3, 3, '"string"'),
    ]
    directory = partition(tmp_path / "_schemas-0", entries, batch_records=4)
    data = bytearray((directory / LOG).read_bytes())
    data[-1] ^= 1
    (directory / LOG).write_bytes(data)
    store, problems = read_schema_topic(str(directory))
    assert [each.schema_id for each in store.schemas] == [1]
    assert "bytes are damaged" in problems[0] and "3 records" in problems[1]


def test_schema_contexts_have_separate_ids(tmp_path: Path) -> None:
    store = read(
        tmp_path,
        schema_entry(":.left:a-value", 1, 1, '"int"'),
        schema_entry(":.right:b-value", 1, 1, '"long"'),
        schema_entry(":.right:c", 1, 2, '"double"', references=[("x", "b-value", 1)]),
        schema_entry("d", 1, 3, '"string"'),
        schema_entry(":.left:e", 1, 3, '"bytes"'),
    )
    assert store.by_id(1, "b").text == '"long"'
    assert store.by_id(3).text == '"string"'
    referring = store.by_id(2)
    assert store.referenced(referring.references[0], referring).text == '"long"'
    with pytest.raises(FormatError, match="contexts"):
        store.by_id(1, "z")


def test_schema_guids_equal_those_of_the_registry() -> None:
    """The texts and their MD5 are from Confluent's own SchemaValuesTest."""
    avro = '{"type":"record","name":"myrecord","fields":[{"type":"string","default":null,"name":"f"}]}'
    pinned = [29, 32, -53, -71, -27, -29, 94, -105, 84, -25, -38, 23, 11, 110, 93, -37]
    expected = UUID(bytes=bytes(each & 0xFF for each in pinned))
    schema = RegisteredSchema(schema_id=1, kind="AVRO", text=avro)
    assert schema.guid == expected
    assert SchemaStore("x", [schema]).by_guid(expected) is schema
    proto = (
        'syntax = "proto3";\n\nmessage Complex {\n  int32 int32 = 1;\n  int64 int64 = 2;\n  float float32 = 3;\n'
        "  double float64 = 4;\n  bool boolean = 5;\n  string string = 6;\n  bytes bytes = 7;\n"
        "  repeated string array = 8;\n  repeated ComplexEntry map = 9;\n\n  message ComplexEntry {\n"
        "    string key = 1;\n    int32 value = 2;\n  }\n}\n"
    )
    guid = RegisteredSchema(schema_id=2, kind="PROTOBUF", text=proto).guid
    assert str(guid) == "d49cbf63-d35b-ba54-e1f7-0bdd51528a37"


def test_schema_store_can_be_pickled(tmp_path: Path) -> None:
    store = read(tmp_path, schema_entry("a", 1, 1, '"int"'))
    assert pickle.loads(pickle.dumps(store)).by_id(1) == store.by_id(1)


def test_schemas_are_read_from_a_folder_of_files(tmp_path: Path) -> None:
    folder = tmp_path / "schemas"
    (folder / "common").mkdir(parents=True)
    (folder / "17.avsc").write_text('"string"')
    (folder / "18.proto").write_text('syntax = "proto3"; import "common/a.proto"; message M { A a = 1; }')
    (folder / "common" / "a.proto").write_text('syntax = "proto3"; message A {}')
    (folder / "19.json").write_text(json.dumps({"type": "object"}))
    (folder / "README.md").write_text("no schema")
    store, _ = read_schemas(str(folder))
    assert {each.schema_id: each.kind for each in store.schemas} == {17: "AVRO", 18: "PROTOBUF", 19: "JSON"}
    assert "common/a.proto" in store.files
    with pytest.raises(UsageError, match="has no schemas"):
        read_schemas(str(folder / "common"))
