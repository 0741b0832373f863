"""Whether logs of a partition may be missing, as far as names and sizes of its files show.

No policy restores them or loses anything with them, but both remove the indexes that show which records they had. So a result of `recover`
says what was missing before.
"""

import os

from kseg.recovery.repair.target import RecoveryTarget
from kseg.recovery.verify.segment_chain import emptied_logs, lost_logs
from kseg.segment.partition.directory import Entry, partition_of
from kseg.segment.partition.names import parse_file_name

SEGMENT_MISSING = "segment-missing"


def may_lack_logs(target: RecoveryTarget) -> bool:
    """Whether a segment has indexes, and no log or an empty one."""
    if target.is_kafka07:
        return False
    entries = (
        Entry(
            os.path.join(target.directory, file.name),
            file.size_bytes,
            file.mtime_ns // 1_000_000,
            parse_file_name(file.name),
        )
        for file in target.inputs
    )
    directory = partition_of(target.directory, entries)
    return bool(lost_logs(directory) or emptied_logs(directory))
