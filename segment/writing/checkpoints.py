"""The log dir's checkpoints after a partition has grown.

A broker that was stopped cleanly notes the log end in two of its checkpoint files: as recovery point (everything
below is on the disk) and as high watermark (everything below may be consumed). So does `append` where these files
exist; the recovery point only in a log dir that was stopped cleanly, because only there is all of the log known to
be on the disk. Lines of other partitions keep their order (Kafka's order is that of a hash map, it means nothing).
"""

from kseg.segment.partition.names import PartitionName, Role
from kseg.segment.sidecar.checkpoint import (
    CheckpointEntry,
    decode_offset_checkpoint,
    encode_offset_checkpoint,
)


def checkpoints_of_append(is_clean: bool) -> tuple[Role, ...]:
    """The checkpoint files in which the new log end stands."""
    return (Role.RECOVERY_POINTS, Role.HIGH_WATERMARKS) if is_clean else (Role.HIGH_WATERMARKS,)


def with_offset(data: bytes, name: PartitionName, offset: int) -> bytes:
    """The checkpoint file `data` with `offset` for one partition. Raises FormatError when it cannot be read."""
    entries = list(decode_offset_checkpoint(data))
    ours = CheckpointEntry(name.topic, name.partition, offset)
    for place, entry in enumerate(entries):
        if (entry.topic, entry.partition) == (name.topic, name.partition):
            entries[place] = ours
    if ours not in entries:
        entries.append(ours)
    return encode_offset_checkpoint(entries)


def without_offset(data: bytes, name: PartitionName) -> bytes:
    """The checkpoint file `data` without one partition. Raises FormatError when it cannot be read."""
    entries = [
        entry
        for entry in decode_offset_checkpoint(data)
        if (entry.topic, entry.partition) != (name.topic, name.partition)
    ]
    return encode_offset_checkpoint(entries)
