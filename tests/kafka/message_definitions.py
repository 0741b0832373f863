"""The definitions of Kafka's records on disk, from the jars, in the form of `internal_topics/schemas/kafka-4.3.1.json`.

    python -m tests.kafka.message_definitions     writes that file again

The jars contain the definitions as JSON with comments (Kafka's generator module reads the same files). What a reader needs is kept: names,
types, versions, nullability, tags and defaults. What only a writer or the generator needs (ignorable, mapKey, entityType, about) is
dropped. Three conventions of the definitions are resolved: a field without `versions` gets its `taggedVersions`, a JSON null as default
means no default, and common structs are inlined where they are used.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from typing import Any

from tests.kafka import jars
from tests.support.paths import ROOT

TARGET = ROOT / "internal_topics" / "schemas" / "kafka-4.3.1.json"
TOPIC_BY_JAR = {
    "kafka-group-coordinator": "__consumer_offsets",
    "kafka-transaction-coordinator": "__transaction_state",
    "kafka-share-coordinator": "__share_group_state",
    "kafka-metadata": "__cluster_metadata",
}
_STORAGE_TOPIC = "__remote_log_metadata"
# messages that are not records of a topic
_OTHERS = {
    "LeaderChangeMessage": "kraft-control",
    "SnapshotHeaderRecord": "kraft-control",
    "SnapshotFooterRecord": "kraft-control",
    "KRaftVersionRecord": "kraft-control",
    "VotersRecord": "kraft-control",
    "ConsumerProtocolSubscription": "consumer-protocol",
    "ConsumerProtocolAssignment": "consumer-protocol",
    "ProducerSnapshot": "producer-snapshot",
    "QuorumStateData": "quorum-state",
}
_KINDS = {"coordinator-key": "key", "coordinator-value": "value", "metadata": "metadata", "data": "data"}
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def messages() -> list[dict[str, Any]]:
    """All messages, ordered by topic, type and kind."""
    jars.class_path()
    found = [_message(topic, definition) for topic, definition in _definitions()]
    return sorted(found, key=lambda each: (each["topic"], each.get("type", -1), each["kind"], each["name"]))


def as_text() -> str:
    """The content of the file, one message a line, so that a changed message is a changed line in a diff."""
    lines = ",\n".join(json.dumps(each, separators=(",", ":")) for each in messages())
    return f'{{"kafka":"4.3.1","messages":[\n{lines}\n]}}\n'


def _definitions() -> Iterator[tuple[str, dict[str, Any]]]:
    for jar in sorted((jars.TARGET / "libs").glob("kafka-*.jar")):
        module = re.sub(r"-\d.*", "", jar.stem)
        with zipfile.ZipFile(jar) as archive:
            for name in sorted(archive.namelist()):
                if re.search(r"(^|/)(message|metadata)/[^/]+\.json$", name):
                    definition = json.loads(_COMMENT.sub("", archive.read(name).decode()))
                    topic = _topic(module, definition)
                    if topic is not None:
                        yield topic, definition


def _topic(module: str, definition: dict[str, Any]) -> str | None:
    name, kind = definition["name"], definition["type"]
    if name in _OTHERS:
        return _OTHERS[name]
    if kind not in _KINDS or kind == "data":
        return None
    return TOPIC_BY_JAR.get(module, _STORAGE_TOPIC if module == "kafka-storage" else None)


def _message(topic: str, definition: dict[str, Any]) -> dict[str, Any]:
    structs = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
    message = {"name": definition["name"], "topic": topic, "kind": _KINDS[definition["type"]]}
    if "apiKey" in definition:
        message["type"] = int(definition["apiKey"])
    return message | {
        "versions": definition["validVersions"],
        "flexible": definition["flexibleVersions"],
        "fields": [_field(field, structs) for field in definition["fields"]],
    }


def _field(field: dict[str, Any], structs: dict[str, Any]) -> dict[str, Any]:
    kept = {"name": field["name"][0].lower() + field["name"][1:], "type": field["type"]}
    kept["versions"] = field.get("versions") or field["taggedVersions"]
    for name in ("nullableVersions", "taggedVersions"):
        if field.get(name, "none") != "none":
            kept[name] = field[name]
    if "tag" in field:
        kept["tag"] = int(field["tag"])
    if field.get("default") is not None:
        kept["default"] = str(field["default"]).lower() if field["type"] == "bool" else str(field["default"])
    inner = field.get("fields") or structs.get(field["type"].removeprefix("[]"))
    if inner:
        kept["fields"] = [_field(each, structs) for each in inner]
    return kept


if __name__ == "__main__":
    TARGET.write_text(as_text(), encoding="utf-8")
