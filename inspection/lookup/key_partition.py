"""Skip a partition in the search for a key because the default partitioner maps that key to another one.

    partition = (murmur2(key) & 0x7fffffff) mod partitions          (Kafka: BuiltInPartitioner.partitionForKey)

Only the user can know that this holds for a topic: librdkafka's default is another hash, a producer may choose the partition
itself, and partitions that were added later moved keys. So it is done only on request, and the answer says so.
"""

from kseg.inspection.lookup.answer import lookup_row, not_found
from kseg.inspection.query import LookupQuery
from kseg.jobs.events import Row
from kseg.segment.encoding.partitioner import partition_for_key
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.targets import FileTarget, PartitionTarget, directory_of


def other_partition(target: PartitionTarget | FileTarget, query: LookupQuery) -> Row | None:
    """The answer for a partition that need not be searched; None for every other. A partition number beyond the topic's number of
    partitions is searched, since it contradicts that number."""
    if query.kind != "key" or query.key is None or query.partition_counts is None:
        return None
    name = own_partition_name(directory_of(target))
    count = None if name is None else query.partition_counts.get(name.topic)
    if name is None or count is None or name.partition >= count:
        return None
    selected = partition_for_key(query.key, count)
    if selected == name.partition:
        return None
    reason = f"not searched: the default partitioner sends this key to partition {selected} of {count}"
    row = lookup_row(name.text, directory_of(target), query, not_found(reason), 0, [])
    return Row(row | {"searched": False})
