"""The log dir's checkpoints after a partition has grown.

A broker that was stopped cleanly notes the log end in two of its checkpoint files: as recovery point (everything
below is on the disk) and as high watermark (everything below may be consumed). So does `append` where these files
exist; the recovery point only in a log dir that was stopped cleanly, because only there is all of the log known to
be on the disk. Lines of other partitions keep their order (Kafka's order is that of a hash map, it means nothing).
"""

from kseg.segment.partition.names import Role


def checkpoints_of_append(is_clean: bool) -> tuple[Role, ...]:
    """The checkpoint files in which the new log end stands."""
    return (Role.RECOVERY_POINTS, Role.HIGH_WATERMARKS) if is_clean else (Role.HIGH_WATERMARKS,)
