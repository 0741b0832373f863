"""Find what retention could free in a partition directory, as input for a choice over all of them (`freeing`)."""

import os
import stat
from collections.abc import Iterable

from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import FileIdentity
from kseg.compaction.retention.freeing import Freeable, Hold, Survey
from kseg.compaction.retention.options import RetainOptions
from kseg.compaction.retention.retain07 import decide_kafka07, gather_kafka07
from kseg.compaction.retention.retention_evidence import gather, open_log
from kseg.compaction.retention.rules import LogToRetain, decide, is_deletable, thresholds
from kseg.compaction.retention.topic_limits import configured, exempted, is_kafka07, known_for
from kseg.segment import layout as L
from kseg.segment.errors import KsegError, UnreadableInput, cannot_read
from kseg.segment.partition.deletion_marks import marks_in
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import INTERNAL_TOPICS, KSEG_DIRECTORY, PartitionState
from kseg.segment.partition.targets import PartitionTarget


def survey(target: PartitionTarget, options: RetainOptions) -> Survey:
    """Survey one partition. If it cannot be read, or retention skips it, all of its bytes are held. Raises only UnreadableInput for a
    missing directory."""
    name = own_partition_name(target.path)
    topic = target.path if name is None else name.topic
    log_dir = target.log_dir or os.path.dirname(os.path.abspath(target.path))
    try:
        device = os.stat(target.path).st_dev
    except OSError as error:
        raise cannot_read(target.path, error) from error
    pieces: tuple[Freeable, ...] = ()
    marked_bytes = 0
    held: dict[Hold, int] = {}
    try:
        inputs = inputs_of(target.path)
        hold = _hold(target, topic, inputs, options)
        marks: frozenset[str] = frozenset()
        if hold not in (Hold.SET_ASIDE, Hold.DELETED):
            marks = frozenset(mark.name.name for mark in marks_in(target.path))
            marked_bytes = _occupied(target.path, marks)
        if hold is None:
            pieces, held = _pieces(target, inputs, options)
            unfinished = [file.name for file in inputs if file.name.endswith(L.CLEANED_SUFFIX)]
            _add(held, Hold.UNFINISHED, _occupied(target.path, unfinished))
        else:
            _add(held, hold, _occupied(target.path, (file.name for file in inputs if file.name not in marks)))
        for directory, _, names in os.walk(os.path.join(target.path, KSEG_DIRECTORY)):
            _add(held, Hold.QUARANTINE, _occupied(directory, names))
    except UnreadableInput:
        held = {Hold.UNREADABLE: 0}
    except KsegError:
        held = {Hold.REFUSED: 0}
    return Survey(target.path, log_dir, topic, device, pieces, marked_bytes, held)


def _hold(
    target: PartitionTarget, topic: str, inputs: tuple[FileIdentity, ...], options: RetainOptions
) -> Hold | None:
    """Why no segment of the partition may be deleted, whatever its age."""
    name = own_partition_name(target.path)
    if name is not None and name.state is PartitionState.DELETE:
        return Hold.DELETED
    if exempted(target) is not None:
        return Hold.SET_ASIDE
    if topic in INTERNAL_TOPICS:
        return Hold.INTERNAL
    limits, unknown = configured(target, known_for(target, inputs, options), options)
    if unknown is not None:
        return Hold.POLICY_UNKNOWN
    return None if limits.limits.deletes else Hold.POLICY


def _pieces(
    target: PartitionTarget, inputs: tuple[FileIdentity, ...], options: RetainOptions
) -> tuple[tuple[Freeable, ...], dict[Hold, int]]:
    """The segments that may be deleted, oldest first, and what holds the rest of the partition."""
    options, _ = configured(target, known_for(target, inputs, options), options)
    if is_kafka07(inputs):
        kafka07 = gather_kafka07(target.path, inputs, options)
        due = len(decide_kafka07(kafka07.log_to_retain, options.limits).rules)
        return _freeable_pieces(target.path, kafka07.log_to_retain, [(name,) for name in kafka07.names], due)
    log, dir_state = open_log(target)
    with log:
        evidence = gather(log, dir_state, inputs, options)
        due = len(decide(evidence.log_to_retain, options.limits).rules)
        return _freeable_pieces(
            target.path, evidence.log_to_retain, [segment.names for segment in evidence.segments], due
        )


def _freeable_pieces(
    directory: str, log_to_retain: LogToRetain, names: list[tuple[str, ...]], due: int
) -> tuple[tuple[Freeable, ...], dict[Hold, int]]:
    pieces: list[Freeable] = []
    held: dict[Hold, int] = {}
    limits = thresholds(log_to_retain)
    stamp_ms = log_to_retain.candidates[0].stamp_ms if log_to_retain.candidates else 0
    last = len(log_to_retain.candidates) - 1
    for index, candidate in enumerate(log_to_retain.candidates):
        occupied = _occupied(directory, names[index])
        if index == last:
            _add(held, Hold.ACTIVE, occupied)
        elif not log_to_retain.is_below_high_watermark(index):
            _add(held, Hold.HIGH_WATERMARK, occupied)
        elif len(pieces) < index or not is_deletable(log_to_retain, index):
            _add(held, Hold.NOT_COPIED, occupied)
        else:
            stamp_ms = max(stamp_ms, candidate.stamp_ms)
            upper_bound = log_to_retain.upper_bound(index)
            pieces.append(Freeable(upper_bound, occupied, stamp_ms, index < due, limits[index]))
            _add(held, Hold.HARD_LINK, _linked(directory, names[index]))
    return tuple(pieces), held


def _add(held: dict[Hold, int], hold: Hold, size_bytes: int) -> None:
    if size_bytes:
        held[hold] = held.get(hold, 0) + size_bytes


def _occupied(directory: str, names: Iterable[str]) -> int:
    """Bytes that the file system gets back when these names are deleted."""
    return sum(size_bytes for size_bytes, is_linked in _sizes(directory, names) if not is_linked)


def _linked(directory: str, names: Iterable[str]) -> int:
    """Bytes that stay occupied because the files have other hard links."""
    return sum(size_bytes for size_bytes, is_linked in _sizes(directory, names) if is_linked)


def _sizes(directory: str, names: Iterable[str]) -> Iterable[tuple[int, bool]]:
    for name in names:
        try:
            status = os.lstat(os.path.join(directory, name))
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            # blocks are of 512 bytes; a hole occupies nothing
            yield min(status.st_size, status.st_blocks * 512), status.st_nlink > 1
