"""The checkpoints of the log dir after a partition has grown.

A broker that shuts down cleanly writes the log end to two of its checkpoint files: as recovery point (everything below it is on
disk) and as high watermark (everything below it may be consumed). `append` does the same where these files exist; it
raises the recovery point only in a log dir with a clean shutdown, because only there is the whole log known to be on disk. The lines
of other partitions keep their order (Kafka writes them in the order of a hash map).
"""

from kseg.segment.partition.names import Role


def checkpoints_of_append(is_clean: bool) -> tuple[Role, ...]:
    """The checkpoint files in which the new log end stands."""
    return (Role.RECOVERY_POINTS, Role.HIGH_WATERMARKS) if is_clean else (Role.HIGH_WATERMARKS,)
