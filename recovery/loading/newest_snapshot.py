"""The newest snapshot of a metadata log, and whether a node that starts deletes the log because of it.

A follower stores a snapshot before it empties its log. If it dies in between, or if its log has only older epochs, the log is emptied at
the next start and continues at the end of the snapshot (Kafka: KafkaRaftLog.createLog, truncateToLatestSnapshot). The latest epoch is that
of the leader epoch cache, and 0 for a log without epochs.
"""

from collections.abc import Iterable

from kseg.segment.partition.names import FileName, Role


def newest_snapshot(names: Iterable[FileName]) -> FileName | None:
    """The snapshot with the greatest epoch, and among those with the greatest end offset."""
    found = (
        name for name in names if name.role is Role.METADATA_SNAPSHOT and name.is_live and name.is_well_formed
    )
    return max(found, key=_epoch_and_end, default=None)


def empties_log(snapshot: FileName, latest_epoch: int, end_offset: int) -> bool:
    """Whether the snapshot is newer than a log. latest_epoch: of the log, negative if it has none."""
    return _epoch_and_end(snapshot) > (max(latest_epoch, 0), end_offset)


def _epoch_and_end(snapshot: FileName) -> tuple[int, int]:
    return snapshot.epoch or 0, snapshot.base_offset or 0
