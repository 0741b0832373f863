"""The partition of an internal topic that a name is mapped to (Kafka: GroupCoordinatorService.partitionFor,
TransactionStateManager.partitionFor).

abs(hash(name)) % partitions, where hash is Java's String.hashCode over UTF-16 code units, and abs of the least int is 0
"""

import struct

DEFAULT_PARTITIONS = 50  # default of offsets.topic.num.partitions and its counterparts

_INT_RANGE, _MIN_INT = 1 << 32, 1 << 31


def partition_for(name: str, partitions: int = DEFAULT_PARTITIONS) -> int:
    """The partition of a group, a transactional id, or the key of a share partition (`group:topicId:partition`)."""
    code = java_hash(name)
    return 0 if code == -_MIN_INT else abs(code) % partitions


def java_hash(text: str) -> int:
    """String.hashCode of Java."""
    code = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")):
        code = (31 * code + unit) % _INT_RANGE
    return code - _INT_RANGE if code >= _MIN_INT else code
