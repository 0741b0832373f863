"""Reopens an existing partition: builds the state that a broker has after loading it without recovery.

After a clean shutdown a broker reads almost nothing (Kafka: LogLoader, LogSegment; fact sheet §4.4, §6.2): it trusts the index files, takes
the greatest timestamp from the last time index entry and the age of the active segment from its first batch, loads the newest producer
snapshot, replays the log after it, and counts the bytes between index entries from the end of the log. This module does the same:

1. Refuse a directory that would not load as it is: renamed as stray or deleted, left in the middle of a cleaning, a segment
   without indexes, snapshots or a log start beyond the log end.
2. Refuse an active segment that is not valid to the last byte, because appending would bury the damage:
   damage, offsets that do not increase, an index with a zero tail (the broker died), an index of other bytes.
3. The same for older segments that a broker will recover: after an unclean shutdown it checks those from the recovery point on (the
   metadata log always, and all of it), and deletes everything after the first damage, also what was appended meanwhile (observed with
   4.3.1). Other older segments are trusted, as by a broker.
4. Use the indexes as they are, producers from the newest snapshot, leader epochs from the checkpoint. A broker's load drops the epochs
   before the log start; where that is with tiered storage, only it knows.

Other cleanup of a load (snapshots of former log ends, files marked for deletion) is left to the next broker.
Every refusal names the file and the command that repairs it.
"""

import os
from collections.abc import Sequence
from itertools import chain
from operator import le
from typing import TypeVar

from kseg.change.append.partition_writer import OpenPartition, OpenSegment, RollRules
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.errors import Refused
from kseg.segment.files import read_small
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.derived_state import epoch_history, latest_known_epoch, producer_state
from kseg.segment.partition.directory import list_partition
from kseg.segment.partition.format_evidence import findings_against_v2
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.names import NAME_BY_ROLE, FileState, PartitionState, Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex
from kseg.segment.sidecar.index_writer import can_index_offset
from kseg.segment.sidecar.txn_index import AbortedTxn, TxnIndex
from kseg.segment.terminal import shell_quoted
from kseg.segment.values import dataclass

_OLDER_FORMATS = " (--magic 1 or 0 writes an older format; 0.8 and 0.9 read v0 only)"
_UNFINISHED = (FileState.CLEANED, FileState.SWAP)

I = TypeVar("I", OffsetIndex, TimeIndex)


@dataclass(frozen=True, slots=True)
class _Content:
    """Result of scanning the active segment. first_timestamp_ms: None while it is empty. end_offset: the log end offset."""

    size_bytes: int
    first_timestamp_ms: int | None
    end_offset: int


@dataclass(frozen=True, slots=True)
class TakenUp:
    """A partition to append to. existing: the names of its files. grows, replaces: the files that the next batch extends, and
    those that are rewritten (side files of the active segment, leader epochs). against_v2: the findings to report if batches of magic 2 are
    appended."""

    partition: OpenPartition
    log_start_offset: int = 0
    existing: frozenset[str] = frozenset()
    grows: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    against_v2: tuple[Finding, ...] = ()


def take_up(
    target: PartitionTarget, rules: RollRules, start_offset: int = 0, now_ms: int | None = None
) -> TakenUp:
    """Reopen a partition directory (see `reopen_partition`). start_offset: the lowest start offset if it has no segment yet.
    Nothing is written. Raises as `reopen_partition`."""
    with PartitionLog(target) as log:
        partition = reopen_partition(log, rules, now_ms)
        log_start_offset = log.start_offset
        against_v2 = findings_against_v2(log, target.path, _OLDER_FORMATS)
        active = dict(log.segments[-1].paths) if log.segments else {}
        if not log.segments:
            log_start_offset = max(start_offset, log_start_offset)
            partition = OpenPartition(log_start_offset, rules, now_ms=now_ms)
    existing = frozenset(os.listdir(target.path))
    names = {role: os.path.basename(path) for role, path in active.items()}
    grown = names.pop(Role.LOG, None)
    return TakenUp(
        partition,
        log_start_offset,
        existing,
        grows=() if grown is None else (grown,),
        replaces=(*names.values(), *({NAME_BY_ROLE[Role.LEADER_EPOCHS]} & existing)),
        against_v2=against_v2,
    )


def reopen_partition(log: PartitionLog, rules: RollRules, now_ms: int | None = None) -> OpenPartition:
    """The state from which batches can be added to `log`; nothing is written.

    now_ms: the wall clock, by which the age of a segment without timestamps is measured. Raises Refused when the directory
    would not load cleanly or its active segment is not sound, UnreadableInput when a file cannot be read.
    """
    _refuse_unfinished(log)
    if not log.segments:
        return OpenPartition(log.start_offset, rules, now_ms=now_ms)
    segment = log.segments[-1]
    content = _content_of(segment)
    _refuse_beyond_end(log, content.end_offset)
    for older in _recovered_later(log):
        _content_of(older)
    active = OpenSegment(segment.base_offset, rules, now_ms)
    active.size_bytes = content.size_bytes
    active.first_timestamp_ms = content.first_timestamp_ms
    # a node recovers its metadata log at every start, and 4.4 leaves its indexes preallocated when it stops
    ignores_tail = log.name is not None and log.name.is_metadata_log
    active.indexes.resume(
        _offset_index(segment, content, ignores_tail=ignores_tail),
        _time_index(segment, content, ignores_tail=ignores_tail),
        content.size_bytes,
    )
    active.aborted = _aborted(segment)
    producers = producer_state(log)
    producers.end_offset = content.end_offset
    # epochs below the first segment are those of segments in remote storage, which a broker deletes if they are gone
    epochs = epoch_history(log, 0)
    for finding in log.findings:
        if finding.severity == ERROR:
            raise _refused(finding.path, finding.message)
    return OpenPartition(
        rules=rules,
        active=active,
        producers=producers,
        epochs=epochs,
        last_epoch=latest_known_epoch(log),
        last_snapshot_offset=max(log.snapshots, default=log.start_offset),
    )


def _refused(path: str, why: str, directory: str | None = None) -> Refused:
    place = directory or (path if os.path.isdir(path) else os.path.dirname(path))
    return Refused(
        f"{path}: {why}; nothing was appended (kseg recover {shell_quoted(place)} says what to do)"
    )


def _refuse_unfinished(log: PartitionLog) -> None:
    if log.name is not None and log.name.state is not PartitionState.LIVE:
        raise Refused(f"{log.directory} is set aside as {log.name.state}; nothing is appended to it")
    for entry in list_partition(log.directory).entries:
        if entry.name.state in _UNFINISHED:
            raise _refused(entry.path, "a cleaning or split was not finished", log.directory)
    for segment in log.segments:
        # the active segment gets its index with its first batch
        is_new = segment is log.segments[-1] and not segment.file.size_bytes
        if Role.OFFSET_INDEX not in segment.paths and not is_new:
            raise _refused(segment.path, "the segment has no offset index", log.directory)


def _refuse_beyond_end(log: PartitionLog, end_offset: int) -> None:
    if log.start_offset > end_offset:
        why = f"the log ends at offset {end_offset}, below its log start offset {log.start_offset}"
        raise _refused(log.directory, why)
    newest = max(log.snapshots, default=0)
    if newest > end_offset:
        raise _refused(log.snapshots[newest], f"the log ends at offset {end_offset}", log.directory)


def _recovered_later(log: PartitionLog) -> Sequence[LogSegment]:
    """The segments before the active one that the next broker checks (Kafka: LogLoader.recoverLog)."""
    if log.log_dir is None or log.name is None:
        return ()
    older = log.segments[:-1]
    if log.name.is_metadata_log:
        return older
    first = log.recovered_from(read_log_dir_state(log.log_dir))
    return [] if first is None else [segment for segment in older if segment.base_offset >= first]


def _content_of(segment: LogSegment) -> _Content:
    """Scan the segment with every checksum; raises Refused for damage and for offsets that do not increase."""
    first_timestamp_ms, end_offset = None, segment.base_offset
    for block in Scanner.over(segment.file, segment.base_offset).blocks():
        if isinstance(block, Damage):
            finding = damage_finding(segment.path, block)
            raise _refused(finding.path, finding.message)
        bases, lasts = block.column(C.BASE_OFFSET), block.column(C.LAST_OFFSET)
        rises = all(map(le, chain((end_offset - 1,), lasts), (base - 1 for base in bases)))
        if not rises or not all(map(le, bases, lasts)):
            raise _refused(segment.path, "the offsets of its batches do not increase")
        if first_timestamp_ms is None:
            first_timestamp_ms = block.at(C.MAX_TIMESTAMP, 0)
        end_offset = lasts[-1] + 1
    if not can_index_offset(max(end_offset - 1, segment.base_offset), segment.base_offset):
        raise _refused(segment.path, f"offset {end_offset - 1} does not fit the segment")
    return _Content(segment.file.size_bytes, first_timestamp_ms, end_offset)


def _offset_index(segment: LogSegment, content: _Content, *, ignores_tail: bool) -> bytes:
    data, index = _index(segment, Role.OFFSET_INDEX, OffsetIndex, L.OFFSET_INDEX_ENTRY, ignores_tail)
    problem = index.sanity_problem() or _tail_problem(index)
    if problem is None and index.entries:
        entry = index.last_entry
        if entry.position >= content.size_bytes or entry.offset >= content.end_offset:
            problem = f"its last entry is offset {entry.offset} at position {entry.position}, beyond the log"
    if problem is not None:
        raise _refused(segment.paths[Role.OFFSET_INDEX], problem)
    return data


def _time_index(segment: LogSegment, content: _Content, *, ignores_tail: bool) -> bytes:
    data, index = _index(segment, Role.TIME_INDEX, TimeIndex, L.TIME_INDEX_ENTRY, ignores_tail)
    problem = _tail_problem(index) or index.sanity_problem()
    if problem is None and index.entries and index.last_entry.offset >= content.end_offset:
        problem = f"its last entry is offset {index.last_entry.offset}, beyond the log"
    if problem is not None:
        raise _refused(segment.paths[Role.TIME_INDEX], problem)
    return data


def _index(
    segment: LogSegment, role: Role, kind: type[I], entry_bytes: int, ignores_tail: bool
) -> tuple[bytes, I]:
    """An index as stored and as read. A missing one is empty: brokers before 0.10 wrote no time index, and later ones take it for that."""
    path = segment.paths.get(role)
    data = b"" if path is None else read_small(path)
    index = kind(data, segment.base_offset)
    if ignores_tail and index.zero_tail_slots:
        data = data[: len(index) * entry_bytes]
        index = kind(data, segment.base_offset)
    return data, index


def _tail_problem(index: OffsetIndex | TimeIndex) -> str | None:
    if index.zero_tail_slots:
        return "it has a zero tail: the broker was not stopped cleanly"
    return None


def _aborted(segment: LogSegment) -> list[AbortedTxn]:
    path = segment.paths.get(Role.TXN_INDEX)
    if path is None:
        return []
    index = TxnIndex(read_small(path), segment.base_offset)
    problem = index.sanity_problem()
    if problem is None and index.trailing_bytes:
        problem = f"its length is not a multiple of {L.TXN_INDEX_ENTRY}"
    if problem is not None:
        raise _refused(path, problem)
    return list(index)
