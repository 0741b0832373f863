"""The partition of an internal topic that a name is mapped to (Kafka: GroupCoordinatorService.partitionFor,
TransactionStateManager.partitionFor).

abs(hash(name)) % partitions, where hash is Java's String.hashCode over UTF-16 code units, and abs of the least int is 0

A broker uses the number of partitions that the topic has when it starts. If that has grown (`kafka-topics.sh --alter --partitions`), or the
directory comes from a cluster with another number, most names are mapped to another partition than the one that has their records: their
coordinator does not know them, and the one that has loaded them is not asked (observed with 4.3.1).
"""

import struct
from functools import lru_cache

DEFAULT_PARTITIONS = 50  # default of offsets.topic.num.partitions and its counterparts

_INT_RANGE, _MIN_INT = 1 << 32, 1 << 31


@lru_cache(maxsize=1 << 12)  # the rows of a group follow each other
def partition_for(name: str, partitions: int = DEFAULT_PARTITIONS) -> int:
    """The partition of a group, a transactional id, or the key of a share partition (`group:topicId:partition`)."""
    code = java_hash(name)
    return 0 if code == -_MIN_INT else abs(code) % partitions


class HomePartition:
    """A partition of an internal topic, and the names that are mapped to it. number: of the partition; partitions: how many the topic has.
    If either is None, it is unknown, and every name counts as belonging there."""

    def __init__(self, number: int | None, partitions: int | None) -> None:
        self._number = number
        self._partitions = partitions

    def has(self, name: str) -> bool:
        return (
            not self._partitions
            or self._number is None
            or partition_for(name, self._partitions) == self._number
        )


def java_hash(text: str) -> int:
    """String.hashCode of Java."""
    code = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le", "surrogatepass")):
        code = (31 * code + unit) % _INT_RANGE
    return code - _INT_RANGE if code >= _MIN_INT else code
