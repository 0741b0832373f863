"""An image of the cluster's metadata as rows, one for each thing: the lines of `kseg metadata --json`.

Values of configurations that may be secrets, and the keys of SCRAM credentials, are left out unless they are requested.
"""

import base64
import math
from collections.abc import Iterator, Sequence

from kseg.internal_topics.metadata.access_image import ScramCredential
from kseg.internal_topics.metadata.cluster_names import (
    ACL_OPERATIONS,
    ACL_PATTERNS,
    ACL_PERMISSIONS,
    ACL_RESOURCES,
    CONFIG_RESOURCES,
    SCRAM_MECHANISMS,
    metadata_version_name,
    name_of,
)
from kseg.internal_topics.metadata.metadata_image import Broker, Listener, MetadataImage, Partition, Topic
from kseg.internal_topics.sensitive_configs import is_sensitive
from kseg.segment.redaction import REDACTED

Row = dict[str, object]


def metadata_row(
    image: MetadataImage, cluster_id: str | None, log_dirs: Sequence[str], *, is_earlier: bool
) -> Row:
    """Which state the rows describe.

    offset: its last record, None before the first. cluster_id: used if the image has none. log_dirs: those that are compared with
    it. is_earlier: the requested state is not the end of the log.
    """
    is_empty = image.end_offset == 0
    return {
        "type": "metadata",
        "offset": None if is_empty else image.end_offset - 1,
        "epoch": None if image.epoch < 0 else image.epoch,
        "timestamp": None if image.timestamp_ms < 0 else image.timestamp_ms,
        "cluster_id": image.cluster_id or cluster_id,
        "path": image.path,
        "snapshot": image.snapshot,
        "metadata_version": metadata_version_name(image.features.get("metadata.version")),
        "next_producer_id": image.next_producer_id,
        "voters": [{"voter_id": each.id, "directory_id": each.directory_id} for each in image.voters],
        "certain": image.is_certain,
        "earlier": is_earlier,
        "compared_log_dirs": log_dirs,
    }


def image_rows(image: MetadataImage, *, show_secrets: bool = False) -> Iterator[Row]:
    """All of the state, kind by kind; topics, partitions and names in order."""
    for name, level in sorted(image.features.items()):
        yield {"type": "feature", "name": name, "level": level}
    for _, broker in sorted(image.brokers.items()):
        yield _broker(broker)
    for _, controller in sorted(image.controllers.items()):
        yield {
            "type": "controller",
            "controller_id": controller.id,
            "incarnation_id": controller.incarnation_id,
            "listeners": _listeners(controller.listeners),
        }
    for topic in sorted(image.topics.values(), key=lambda each: (each.name, each.id)):
        yield {
            "type": "topic",
            "topic": topic.name,
            "topic_id": topic.id,
            "partitions": len(topic.partitions),
        }
        for _, partition in sorted(topic.partitions.items()):
            yield _partition(topic, partition)
    yield from _configs(image, show_secrets)
    yield from _access(image, show_secrets)
    for removed in sorted(image.removed.values(), key=lambda each: each.offset):
        yield {
            "type": "removed_topic",
            "topic": removed.name or None,
            "topic_id": removed.id,
            "partitions": removed.partitions,
            "offset": removed.offset,
            "timestamp": None if removed.timestamp_ms < 0 else removed.timestamp_ms,
        }


def config_value(resource_type: int, name: str, value: str | None, show_secrets: bool) -> str | None:
    """The value of a configuration, redacted if necessary."""
    return REDACTED if value is not None and not show_secrets and is_sensitive(resource_type, name) else value


def _partition(topic: Topic, partition: Partition) -> Row:
    return {
        "type": "partition",
        "topic": topic.name,
        "topic_id": topic.id,
        "partition": partition.number,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "adding_replicas": partition.adding,
        "removing_replicas": partition.removing,
        "directories": partition.directories,
        "elr": partition.elr,
        "last_known_elr": partition.last_known_elr,
        "leader_recovery_state": "RECOVERING" if partition.is_recovering else "RECOVERED",
    }


def _broker(broker: Broker) -> Row:
    return {
        "type": "broker",
        "broker_id": broker.id,
        "epoch": broker.epoch,
        "rack": broker.rack,
        "fenced": broker.is_fenced,
        "listeners": _listeners(broker.listeners),
        "log_dirs": broker.log_dirs,
        "cordoned_log_dirs": broker.cordoned,
        "in_controlled_shutdown": broker.is_shutting_down,
        "incarnation_id": broker.incarnation_id,
        "features": {name: {"min": low, "max": high} for name, low, high in broker.features},
    }


def _listeners(listeners: tuple[Listener, ...]) -> list[Row]:
    return [{"name": each.name, "host": each.host, "port": each.port} for each in listeners]


def _configs(image: MetadataImage, show_secrets: bool) -> Iterator[Row]:
    for (resource_type, resource_name), pairs in sorted(image.configs.items()):
        for name, value in sorted(pairs.items()):
            yield {
                "type": "config",
                "resource_type": name_of(CONFIG_RESOURCES, resource_type),
                "resource_name": resource_name,
                "name": name,
                "value": config_value(resource_type, name, value, show_secrets),
                "sensitive": is_sensitive(resource_type, name),
            }


def _access(image: MetadataImage, show_secrets: bool) -> Iterator[Row]:
    access = image.access
    for entity, quotas in sorted(access.quotas.items(), key=lambda each: _entity_order(each[0])):
        for key, value in sorted(quotas.items()):
            yield {"type": "quota", "entity": dict(entity), "key": key, "value": json_number(value)}
    for acl in access.acls.values():
        yield {
            "type": "acl",
            "resource_type": name_of(ACL_RESOURCES, acl.resource_type),
            "resource_name": acl.resource_name,
            "pattern_type": name_of(ACL_PATTERNS, acl.pattern_type),
            "principal": acl.principal,
            "host": acl.host,
            "operation": name_of(ACL_OPERATIONS, acl.operation),
            "permission": name_of(ACL_PERMISSIONS, acl.permission),
            "acl_id": acl.id,
        }
    for _, credential in sorted(access.scram.items()):
        yield _credential(credential, show_secrets)
    for _, token in sorted(access.tokens.items()):
        yield {
            "type": "token",
            "token_id": token.id,
            "owner": token.owner,
            "requester": token.requester,
            "renewers": token.renewers,
            "issue_timestamp": token.issue_timestamp_ms,
            "max_timestamp": token.max_timestamp_ms,
            "expiration_timestamp": token.expiration_timestamp_ms,
        }


def _credential(credential: ScramCredential, show_secrets: bool) -> Row:
    row: Row = {
        "type": "scram",
        "user": credential.user,
        "mechanism": name_of(SCRAM_MECHANISMS, credential.mechanism),
        "iterations": credential.iterations,
    }
    if show_secrets:
        row |= {
            "salt": _base64(credential.salt),
            "stored_key": _base64(credential.stored_key),
            "server_key": _base64(credential.server_key),
        }
    return row


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _entity_order(entity: tuple[tuple[str, str | None], ...]) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in entity]


def json_number(value: float) -> float | str:
    """A quota; as text if JSON has no number for it."""
    return (
        value
        if math.isfinite(value)
        else {True: "NaN"}.get(math.isnan(value), "Infinity" if value > 0 else "-Infinity")
    )
