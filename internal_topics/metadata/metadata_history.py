"""The history of a cluster from the records of its metadata log: leaders, creations, deletions and settings, with offset and time.

1. The records come in offset order with the state before each (`MetadataReplay.watch`), so that an event can name what it
   replaces. Below the snapshot with which the state begins there is no state: then the record itself is the only source.
2. Partitions of one topic that are created in sequence are one event.
3. A log tells which controller wrote a record (the leader of its epoch) and when, but not on whose behalf: principals are only in the
   controller's authorizer and request logs.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from kseg.internal_topics.metadata.access_replay import quota_entity
from kseg.internal_topics.metadata.cluster_names import (
    ACL_OPERATIONS,
    ACL_PERMISSIONS,
    ACL_RESOURCES,
    CONFIG_RESOURCES,
    SCRAM_MECHANISMS,
    name_of,
)
from kseg.internal_topics.metadata.metadata_image import Partition, Resource
from kseg.internal_topics.metadata.metadata_replay import MetadataRecord, MetadataReplay
from kseg.internal_topics.metadata.metadata_rows import config_value, json_number

Event = dict[str, Any]
_Details = Mapping[str, Any]

_SAME_LEADER = -2
_KEPT_AS_THEY_ARE = 256  # newest events: the creation of a topic is amended as its partitions follow


class MetadataHistory:
    """Collects events while a log is replayed: pass `watch` to the reader, then take `events`. show_secrets: also show values of
    configurations that may be secrets.

    A log of a hundred megabytes has a million events; all but the last ones are kept as bytes.
    """

    def __init__(self, show_secrets: bool = False) -> None:
        self._last: list[Event] = []
        self._packed: list[bytes] = []
        self._show_secrets = show_secrets
        self._names: dict[str, str] = {}

    def watch(self, record: MetadataRecord, state: MetadataReplay | None) -> None:
        """One record that counts, and the state before it; None if there is none."""
        describe = _EVENTS.get(record.type)
        if describe is not None:
            describe(self, record, state)

    def events(self, names: Mapping[str, str], leaders: Mapping[int, int]) -> Iterator[Event]:
        """All events, with the names of topics that were still unnamed at the time of the event, and with the controller that wrote each.
        names: by id; leaders: by epoch."""
        for event in chain(map(json.loads, self._packed), self._last):
            event["controller_id"] = leaders.get(event["epoch"])
            if event["topic_id"] is not None and event["topic"] is None:
                event["topic"] = names.get(event["topic_id"])
            yield event

    def _add(
        self,
        record: MetadataRecord,
        event: str,
        *,
        topic_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        broker_id: int | None = None,
        nodes: Sequence[int] = (),
        **details: Any,
    ) -> None:
        if len(self._last) > 2 * _KEPT_AS_THEY_ARE:
            self._packed += (json.dumps(each).encode() for each in self._last[:-_KEPT_AS_THEY_ARE])
            del self._last[:-_KEPT_AS_THEY_ARE]
        self._last.append(
            {
                "type": "event",
                "offset": record.offset,
                "epoch": record.epoch,
                "controller_id": None,
                "timestamp": record.timestamp_ms,
                "event": event,
                "topic": topic if topic_id is None else self._names.get(topic_id, topic),
                "topic_id": topic_id,
                "partition": partition,
                "broker_id": broker_id,
                "nodes": sorted(set(nodes)) if broker_id is None else [broker_id],
                "details": details,
            }
        )

    # --- topics and partitions

    def _topic(self, record: MetadataRecord, _state: MetadataReplay | None) -> None:
        values = record.values
        self._names[values["topicId"]] = values["name"]
        self._add(record, "topic-created", topic_id=values["topicId"], partitions=0)

    def _partition(self, record: MetadataRecord, state: MetadataReplay | None) -> None:
        values = record.values
        self._learn(values["topicId"], state)
        last = self._creation_of(values["topicId"])
        if last is None:
            self._add(record, "partitions-created", topic_id=values["topicId"], partitions=0)
            last = self._last[-1]
        last["details"]["partitions"] += 1
        last["nodes"] = sorted({*last["nodes"], *values["replicas"]})

    def _creation_of(self, topic_id: str) -> Event | None:
        """The last event, if it created this topic or partitions of it; configurations of the topic may come in between."""
        for event in reversed(self._last):
            if event["event"] in ("topic-created", "partitions-created"):
                return event if event["topic_id"] == topic_id else None
            if event["event"] != "config-set" or event["topic"] != self._names.get(topic_id):
                return None
        return None

    def _partition_change(self, record: MetadataRecord, state: MetadataReplay | None) -> None:
        values = record.values
        topic_id, number = values["topicId"], values["partitionId"]
        self._learn(topic_id, state)
        old = None if state is None else (state.partitions(topic_id) or {}).get(number)
        now = {"leader": values["leader"]} if values["leader"] != _SAME_LEADER else {}
        now |= {name: values[field] for name, (field, _) in _FIELDS.items() if values.get(field) is not None}
        before: dict[str, Any] = {name: None if old is None else _before(old, name) for name in now}
        nodes: set[Any] = {*(now.get("replicas") or ()), *(old.replicas if old is not None else ())}
        nodes |= {
            node for node in (now.get("leader"), before.get("leader")) if node is not None and node >= 0
        }
        self._add(
            record,
            _kind(now, values, old),
            topic_id=topic_id,
            partition=number,
            nodes=[*nodes, *(now.get("isr") or ())],
            now=now,
            before=before,
            unclean=values["leaderRecoveryState"] == 1,
        )

    def _remove_topic(self, record: MetadataRecord, state: MetadataReplay | None) -> None:
        topic_id = record.values["topicId"]
        self._learn(topic_id, state)
        partitions = None if state is None else state.partitions(topic_id)
        nodes = {node for each in (partitions or {}).values() for node in each.replicas}
        number = None if partitions is None else len(partitions)
        self._add(record, "topic-deleted", topic_id=topic_id, nodes=[*nodes], partitions=number)

    def _learn(self, topic_id: str, state: MetadataReplay | None) -> None:
        if state is not None and topic_id in state.names:
            self._names.setdefault(topic_id, state.names[topic_id])

    # --- settings

    def _config(self, record: MetadataRecord, state: MetadataReplay | None) -> None:
        values = record.values
        kind, resource, name = values["resourceType"], values["resourceName"], values["name"]
        old = None if state is None else state.configs.get((kind, resource), {}).get(name)
        broker_id = int(resource) if kind == Resource.BROKER and resource.isdecimal() else None
        self._add(
            record,
            "config-removed" if values["value"] is None else "config-set",
            topic=resource if kind == Resource.TOPIC else None,
            broker_id=broker_id,
            resource_type=name_of(CONFIG_RESOURCES, kind),
            resource_name=resource,
            name=name,
            value=config_value(kind, name, values["value"], self._show_secrets),
            former_value=config_value(kind, name, old, self._show_secrets),
        )

    def _feature(self, record: MetadataRecord, state: MetadataReplay | None) -> None:
        name = record.values["name"]
        old = None if state is None else state.features.get(name)
        self._add(record, "feature-set", name=name, level=record.values["featureLevel"], former_level=old)

    def _quota(self, record: MetadataRecord, _state: MetadataReplay | None) -> None:
        values = record.values
        entity = dict(quota_entity(values))
        event = "quota-removed" if values["remove"] else "quota-set"
        self._add(
            record,
            event,
            entity=entity,
            key=values["key"],
            value=json_number(values["value"]),
        )

    # --- brokers

    def _register(self, record: MetadataRecord, state: MetadataReplay | None) -> None:
        broker_id = record.values["brokerId"]
        is_known = state is not None and broker_id in state.brokers
        self._add(
            record,
            "broker-registered",
            broker_id=broker_id,
            again=is_known,
            fenced=record.values["fenced"],
            log_dirs=record.values.get("logDirs") or (),
        )

    def _unregister(self, record: MetadataRecord, _state: MetadataReplay | None) -> None:
        self._add(record, "broker-unregistered", broker_id=record.values["brokerId"])

    def _fence(self, record: MetadataRecord, _state: MetadataReplay | None) -> None:
        event = "broker-fenced" if record.type == 7 else "broker-unfenced"
        self._add(record, event, broker_id=record.values["id"])

    def _broker_change(self, record: MetadataRecord, _state: MetadataReplay | None) -> None:
        values = record.values
        broker_id = values["brokerId"]
        if values["fenced"]:
            event = "broker-fenced" if values["fenced"] > 0 else "broker-unfenced"
            self._add(record, event, broker_id=broker_id)
        if values.get("inControlledShutdown") == 1:
            self._add(record, "broker-shutting-down", broker_id=broker_id)
        if values.get("logDirs") or values.get("cordonedLogDirs") is not None:
            self._add(
                record,
                "broker-directories",
                broker_id=broker_id,
                log_dirs=values.get("logDirs") or None,
                cordoned=values.get("cordonedLogDirs"),
            )

    # --- access

    def _acl(self, record: MetadataRecord, _state: MetadataReplay | None) -> None:
        self._add(record, "acl-created", **_acl_details(record.values))

    def _remove_acl(self, record: MetadataRecord, state: MetadataReplay | None) -> None:
        acl = None if state is None else state.access.image().acls.get(record.values["id"])
        details: dict[str, Any] = (
            {}
            if acl is None
            else {
                "resource_type": name_of(ACL_RESOURCES, acl.resource_type),
                "resource_name": acl.resource_name,
                "principal": acl.principal,
                "operation": name_of(ACL_OPERATIONS, acl.operation),
                "permission": name_of(ACL_PERMISSIONS, acl.permission),
            }
        )
        self._add(record, "acl-removed", acl_id=record.values["id"], **details)

    def _credential(self, record: MetadataRecord, _state: MetadataReplay | None) -> None:
        values = record.values
        event = "scram-set" if record.type == 11 else "scram-removed"
        mechanism = name_of(SCRAM_MECHANISMS, values["mechanism"])
        self._add(record, event, user=values["name"], mechanism=mechanism)

    def _token(self, record: MetadataRecord, _state: MetadataReplay | None) -> None:
        values = record.values
        event = "token-set" if record.type == 10 else "token-removed"
        self._add(record, event, token_id=values["tokenId"], owner=values.get("owner"))


# name in an event → field of a PartitionChangeRecord, attribute of a Partition
_FIELDS = {
    "isr": ("isr", "isr"),
    "replicas": ("replicas", "replicas"),
    "adding_replicas": ("addingReplicas", "adding"),
    "removing_replicas": ("removingReplicas", "removing"),
    "directories": ("directories", "directories"),
    "elr": ("eligibleLeaderReplicas", "elr"),
    "last_known_elr": ("lastKnownElr", "last_known_elr"),
}


def _before(old: Partition, name: str) -> Any:
    return old.leader if name == "leader" else getattr(old, _FIELDS[name][1])


def _kind(now: _Details, values: _Details, old: Partition | None) -> str:
    """The name of a partition change, after its most significant field."""
    if "leader" in now and (old is None or old.leader != now["leader"]):
        return "leader-changed"
    if "replicas" in now or "adding_replicas" in now or "removing_replicas" in now:
        return "replicas-changed"
    if "directories" in now:
        return "directories-changed"
    if "isr" in now:
        return "isr-changed"
    return "leader-epoch-bumped" if values["leader"] != _SAME_LEADER else "partition-changed"


def _acl_details(values: _Details) -> _Details:
    return {
        "acl_id": values["id"],
        "resource_type": name_of(ACL_RESOURCES, values["resourceType"]),
        "resource_name": values["resourceName"],
        "principal": values["principal"],
        "host": values["host"],
        "operation": name_of(ACL_OPERATIONS, values["operation"]),
        "permission": name_of(ACL_PERMISSIONS, values["permissionType"]),
    }


_EVENTS: Mapping[int, Callable[[MetadataHistory, MetadataRecord, MetadataReplay | None], None]] = {
    0: MetadataHistory._register,
    1: MetadataHistory._unregister,
    2: MetadataHistory._topic,
    3: MetadataHistory._partition,
    4: MetadataHistory._config,
    5: MetadataHistory._partition_change,
    7: MetadataHistory._fence,
    8: MetadataHistory._fence,
    9: MetadataHistory._remove_topic,
    10: MetadataHistory._token,
    11: MetadataHistory._credential,
    12: MetadataHistory._feature,
    14: MetadataHistory._quota,
    17: MetadataHistory._broker_change,
    18: MetadataHistory._acl,
    19: MetadataHistory._remove_acl,
    22: MetadataHistory._credential,
    26: MetadataHistory._token,
}
