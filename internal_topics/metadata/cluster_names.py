"""Kafka's names for the numbers in records of the metadata log (ConfigResource.Type, ResourceType, PatternType, AclOperation, …)."""

from collections.abc import Mapping

CONFIG_RESOURCES = {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"}
ACL_RESOURCES = {
    0: "UNKNOWN",
    1: "ANY",
    2: "TOPIC",
    3: "GROUP",
    4: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
ACL_PATTERNS = {0: "UNKNOWN", 1: "ANY", 2: "MATCH", 3: "LITERAL", 4: "PREFIXED"}
ACL_PERMISSIONS = {0: "UNKNOWN", 1: "ANY", 2: "DENY", 3: "ALLOW"}
ACL_OPERATIONS = {
    0: "UNKNOWN",
    1: "ANY",
    2: "ALL",
    3: "READ",
    4: "WRITE",
    5: "CREATE",
    6: "DELETE",
    7: "ALTER",
    8: "DESCRIBE",
    9: "CLUSTER_ACTION",
    10: "DESCRIBE_CONFIGS",
    11: "ALTER_CONFIGS",
    12: "IDEMPOTENT_WRITE",
    13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS",
    15: "TWO_PHASE_COMMIT",
}
SCRAM_MECHANISMS = {0: "UNKNOWN", 1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}

# Levels of metadata.version (Kafka: MetadataVersion); the first ones are of clusters older than 3.3.
_METADATA_VERSIONS = (
    *("3.0-IV1", "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3"),
    *("3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
    *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1"),
    *("4.3-IV0", "4.4-IV0"),
)


def name_of(names: Mapping[int, str], number: int) -> str:
    """The name of a number; `UNKNOWN(9)` for one that 4.3.1 does not have."""
    return names.get(number, f"UNKNOWN({number})")


def metadata_version_name(level: int | None) -> str | None:
    """`4.3-IV0` for 30, `UNKNOWN(99)` for a level without a name; None for none."""
    return None if level is None else name_of(dict(enumerate(_METADATA_VERSIONS, 1)), level)
