"""Names beside the numbers and topic ids in messages of Kafka's own topics (fact sheet internal topics §4, §9.2)."""

from base64 import b64encode
from collections.abc import Collection, Mapping
from typing import Any, Final

from kseg.internal_topics.metadata.cluster_names import (
    ACL_OPERATIONS,
    ACL_PATTERNS,
    ACL_PERMISSIONS,
    ACL_RESOURCES,
    CONFIG_RESOURCES,
    SCRAM_MECHANISMS,
)
from kseg.internal_topics.remote_log_text import PARTITION_STATES, SEGMENT_STATES
from kseg.internal_topics.transactions.transaction_log import STATES

_MEMBER_STATES = {0: "STABLE", 1: "UNREVOKED_PARTITIONS", 2: "UNRELEASED_PARTITIONS", 127: "UNKNOWN"}
_STREAMS_STATES = {1: "STABLE", 2: "UNREVOKED_TASKS", 3: "UNRELEASED_TASKS", 127: "UNKNOWN"}
_DELIVERY_STATES = {0: "AVAILABLE", 1: "ACQUIRED", 2: "ACKNOWLEDGED", 3: "ARCHIVING", 4: "ARCHIVED"}
_SECURITY_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
_RECOVERY_STATES = {-1: "UNCHANGED", 0: "RECOVERED", 1: "RECOVERING"}
_NAMES: Final[Mapping[tuple[str, str], Mapping[int, str]]] = {
    ("TransactionLogValue", "transactionStatus"): dict(enumerate(STATES)),
    ("ConsumerGroupCurrentMemberAssignmentValue", "state"): _MEMBER_STATES,
    ("ShareGroupCurrentMemberAssignmentValue", "state"): _MEMBER_STATES,
    ("StreamsGroupCurrentMemberAssignmentValue", "state"): _STREAMS_STATES,
    ("ShareSnapshotValue", "deliveryState"): _DELIVERY_STATES,
    ("ShareUpdateValue", "deliveryState"): _DELIVERY_STATES,
    ("RegisterBrokerRecord", "securityProtocol"): _SECURITY_PROTOCOLS,
    ("RegisterControllerRecord", "securityProtocol"): _SECURITY_PROTOCOLS,
    ("PartitionRecord", "leaderRecoveryState"): _RECOVERY_STATES,
    ("PartitionChangeRecord", "leaderRecoveryState"): _RECOVERY_STATES,
    ("ConfigRecord", "resourceType"): CONFIG_RESOURCES,
    ("UserScramCredentialRecord", "mechanism"): SCRAM_MECHANISMS,
    ("RemoveUserScramCredentialRecord", "mechanism"): SCRAM_MECHANISMS,
    ("BrokerRegistrationChangeRecord", "fenced"): {-1: "UNFENCE", 0: "NONE", 1: "FENCE"},
    ("BrokerRegistrationChangeRecord", "inControlledShutdown"): {0: "NONE", 1: "IN_CONTROLLED_SHUTDOWN"},
    ("AccessControlEntryRecord", "resourceType"): ACL_RESOURCES,
    ("AccessControlEntryRecord", "patternType"): ACL_PATTERNS,
    ("AccessControlEntryRecord", "operation"): ACL_OPERATIONS,
    ("AccessControlEntryRecord", "permissionType"): ACL_PERMISSIONS,
    ("ZkMigrationStateRecord", "zkMigrationState"): {
        0: "NONE",
        1: "MIGRATION",
        2: "PRE_MIGRATION",
        3: "POST_MIGRATION",
    },
    ("RemoteLogSegmentMetadataRecord", "remoteLogSegmentState"): dict(enumerate(SEGMENT_STATES)),
    ("RemoteLogSegmentMetadataUpdateRecord", "remoteLogSegmentState"): dict(enumerate(SEGMENT_STATES)),
    ("RemoteLogSegmentMetadataSnapshotRecord", "remoteLogSegmentState"): dict(enumerate(SEGMENT_STATES)),
    ("RemotePartitionDeleteMetadataRecord", "remotePartitionDeleteState"): dict(enumerate(PARTITION_STATES)),
}


def names_of(message: str, field: str) -> Mapping[int, str] | None:
    """The names of a field's numbers; None for a field that is a plain number."""
    return _NAMES.get((message, field))


def topic_label(field: str, siblings: Collection[str]) -> str | None:
    """The field for the topic's name beside its id; None for other fields, and if the message itself has the topic's name.
    siblings: the fields of the same struct."""
    return "topicName" if field == "topicId" and not {"name", "topicName"} & set(siblings) else None


def with_names(message: str, values: Any, topics: Mapping[str, str]) -> Any:
    """Values in JSON types: a number with a name is followed by the name (`state` by `stateName`), a topic id by the topic's name.
    topics: names by id."""
    if isinstance(values, Mapping):
        shown: dict[str, Any] = {}
        for name, value in values.items():
            shown[name] = with_names(message, value, topics)
            label = topic_label(name, values)
            names = names_of(message, name)
            if label is not None:
                shown[label] = topics.get(value)
            elif names is not None:
                shown[f"{name}Name"] = names.get(value)
        return shown
    if isinstance(values, tuple):
        return [with_names(message, each, topics) for each in values]
    if isinstance(values, bytes):
        return b64encode(values).decode("ascii")
    if isinstance(values, float) and not -float("inf") < values < float("inf"):
        return "NaN" if values != values else "Infinity" if values > 0 else "-Infinity"  # noqa: PLR0124
    return values
