"""Look up the ends of a log: earliest, latest and those of tiered storage as ListOffsets answers, and the end offset of a leader epoch.

The epoch of the earliest offset is that of the first entry of the leader epoch cache, if that covers the log start; the epoch of the
latest is the newest (Kafka: UnifiedLog.fetchOffsetByTimestamp). Neither has a timestamp (-1). An epoch's end offset is the start
offset of the next one; the newest ends at the log end (Kafka: LeaderEpochFileCache.endOffsetFor).
"""

from collections.abc import Iterator
from dataclasses import replace

from kseg.inspection.lookup.answer import Answer, not_found
from kseg.inspection.query import LookupQuery
from kseg.segment import layout as L
from kseg.segment.partition.derived_state import epoch_history, last_stable_offset
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.sidecar.leader_epochs import UNDEFINED_EPOCH_OFFSET


def earliest(log: PartitionLog, query: LookupQuery) -> Iterator[Answer]:
    """The log start offset; of the local log, unless something is known to be in remote storage."""
    remote_start = _remote_start(log, query)
    offset = log.start_offset if remote_start is None else remote_start
    if remote_start is None and log.remote_start is not None:
        log.report_remote("which is its earliest offset with tiered storage")
    entries = epoch_history(log).entries
    epoch = entries[0].epoch if entries and entries[0].start_offset <= offset else None
    yield Answer(
        offset=offset,
        timestamp_ms=L.NO_TIMESTAMP,
        leader_epoch=epoch,
        segment=None if remote_start is not None else log.segments[max(0, log.floor_index(offset))].path,
    )


def earliest_local(log: PartitionLog, query: LookupQuery) -> Iterator[Answer]:
    """The first offset of the local log."""
    if log.directory not in query.remote_ends:
        yield from earliest(log, replace(query, remote={}))
    else:
        yield _with_epoch(log, query, log.start_offset)


def latest_tiered(log: PartitionLog, query: LookupQuery) -> Iterator[Answer]:
    """The last offset in remote storage (Kafka: UnifiedLog.highestOffsetInRemoteStorage)."""
    end = query.remote_ends.get(log.directory)
    yield _with_epoch(log, query, end - 1) if end else not_found(_nothing_remote(log, query))


def earliest_pending_upload(log: PartitionLog, query: LookupQuery) -> Iterator[Answer]:
    """The first offset that is not in remote storage (Kafka: UnifiedLog.fetchEarliestPendingUploadOffset)."""
    end, start = query.remote_ends.get(log.directory), log.remote_start
    if end:
        yield _with_epoch(log, query, max(end, log.start_offset if start is None else start))
    elif end is None or start is not None:
        yield not_found(_nothing_remote(log, query))
    else:
        yield from earliest(log, query)


def _nothing_remote(log: PartitionLog, query: LookupQuery) -> str:
    """Why nothing is found."""
    if log.directory not in query.remote_ends:
        return "the topic has no tiered storage, as far as its metadata log is here"
    if query.remote_ends[log.directory] is None:
        return "what is in remote storage is not known without the records of __remote_log_metadata"
    return "nothing is in remote storage"


def _with_epoch(log: PartitionLog, query: LookupQuery, offset: int) -> Answer:
    """An offset of a log with tiered storage, with the leader epoch that it has."""
    is_local = offset >= log.start_offset
    return Answer(
        offset=offset,
        timestamp_ms=L.NO_TIMESTAMP,
        leader_epoch=epoch_history(log).epoch_for_offset(offset),
        segment=log.segments[max(0, log.floor_index(offset))].path if is_local else None,
    )


def _remote_start(log: PartitionLog, query: LookupQuery) -> int | None:
    """The log start if that is known to be in remote storage."""
    return log.remote_start if query.remote.get(log.directory) else None


def latest(log: PartitionLog, query: LookupQuery) -> Iterator[Answer]:
    """The log end offset, or the last stable offset."""
    offset = last_stable_offset(log) if query.read_committed else log.end_offset
    newest = epoch_history(log).latest
    yield Answer(
        offset=offset,
        timestamp_ms=L.NO_TIMESTAMP,
        leader_epoch=None if newest is None else newest.epoch,
        segment=log.segments[max(0, log.floor_index(offset))].path,
    )


def by_leader_epoch(log: PartitionLog, query: LookupQuery) -> Iterator[Answer]:
    """The largest epoch ≤ the requested one, and its end offset."""
    assert query.leader_epoch is not None
    history = epoch_history(log)
    epoch, end_offset = history.end_offset_for(query.leader_epoch, log.end_offset)
    if end_offset == UNDEFINED_EPOCH_OFFSET:
        newest = history.latest
        known = "no leader epoch is known" if newest is None else f"the newest known epoch is {newest.epoch}"
        yield not_found(f"epoch {query.leader_epoch} is not known: {known}")
        return
    yield Answer(offset=end_offset, leader_epoch=epoch)
