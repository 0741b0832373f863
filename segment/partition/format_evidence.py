"""Which message format can the brokers that use a log be trusted to read? They do not record their version, so it is inferred from their
files.

Kafka 0.11 and later, which read v2, create a log-start-offset-checkpoint with the other checkpoints of a data directory. Where only a
partition is known, its producer snapshots and leader-epoch-checkpoint show that such a broker has used it; in a whole data directory these
files may also come from a repair. An older broker reads the format of the last batch of the log: 0.8 and 0.9 know v0 only, and one of 0.10
may be configured to write it.
"""

import os

from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.storage import places


def newest_readable_magic(log: PartitionLog) -> int:
    """The newest message format that a log may get; 2 for a log without batches, about which nothing is known.

    Reads the headers of one segment at most. Raises UnreadableInput."""
    last = log.newest_batch
    if last is None or last.magic >= L.MAGIC_V2 or _has_trace_of_v2(log):
        return L.MAGIC_V2
    return last.magic


def findings_against_v2(log: PartitionLog, path: str, more: str) -> tuple[Finding, ...]:
    """The findings to report when batches of v2 are written to a log. path: of its directory. more: the end of the sentence.
    Raises UnreadableInput."""
    if newest_readable_magic(log) >= L.MAGIC_V2:
        return ()
    message = (
        "nothing shows that a broker since 0.11 has used this log: an older one cannot read message format v2"
    )
    return (Finding("format-too-new", path, f"{message}{more}"),)


def _has_trace_of_v2(log: PartitionLog) -> bool:
    if places.lexists(log.side_file_path(Role.PARTITION_METADATA)):
        return True
    if log.log_dir is not None and _is_beside(log.log_dir, Role.RECOVERY_POINTS):
        return _is_beside(log.log_dir, Role.LOG_START_OFFSETS)
    return bool(log.snapshots) or places.lexists(log.side_file_path(Role.LEADER_EPOCHS))


def _is_beside(log_dir: str, role: Role) -> bool:
    return places.lexists(os.path.join(log_dir, NAME_BY_ROLE[role]))
