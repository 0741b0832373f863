"""Verify a data directory as a whole: its own files, the names in it, and the values on which its partitions must agree.

The partitions are targets of their own and are not read here, except for a clean-shutdown marker: a broker trusts it
and then reads no log, so the end of the last segment of each partition is checked. The marker is false
if that segment lacks an index, has preallocated ones, or does not end with a complete batch.
"""

import os
from collections.abc import Iterator, Sequence

from kseg.jobs.events import Event
from kseg.recovery.verify import names_check
from kseg.recovery.verify.clean_stop import marker_contradictions
from kseg.recovery.verify.identity_evidence import identity_missing, why_identity_is_missing
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.small_files import clean_shutdown, readable, small_file
from kseg.recovery.verify.topic_ids import METADATA_FILE, topic_ids
from kseg.recovery.verify.totals import Totals
from kseg.segment.diagnosis import Numbers
from kseg.segment.findings import Finding, no_partitions
from kseg.segment.mounts import mounts
from kseg.segment.partition.directory import LogDirectory
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import (
    METADATA_DIRECTORY,
    NAME_BY_ROLE,
    OFFSET_CHECKPOINT_ROLES,
    PartitionState,
    Role,
)
from kseg.segment.partition.recognition import list_log_directory
from kseg.segment.partition.targets import LogDirTarget
from kseg.segment.partition.topic_identity import WithIdentities
from kseg.segment.storage import places
from kseg.segment.terminal import shown_path

_SHOWN_REASONS = 3
_SMALL_ROLES = (*OFFSET_CHECKPOINT_ROLES, Role.META_PROPERTIES)


def verify_log_dir(target: LogDirTarget, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
    """Verify a data directory's own files. Raises UnreadableInput."""
    directory = totals.listed = list_log_directory(target.path, target.nested)
    yield from names_check.log_dir_names(directory.entries)
    for child in (*directory.partitions, *directory.other_directories):
        yield from names_check.sub_directory(child)
    yield from names_check.nested_directories(directory)
    yield from _mounted(directory)
    if not (directory.partitions or directory.nested):
        yield no_partitions(target.path)
    yield from _files(directory, options, totals)
    if options.level != "quick":
        yield from _orphans(directory)
        yield from _topic_ids(directory, options)
    yield from _shutdown(directory)
    from kseg.recovery.verify.side_by_side import against_others, within

    yield from within(directory.partitions, options)
    if target.before:
        yield from against_others(target.path, target.before, options)


def beyond_repair(
    log_dir: str, others: Sequence[str], options: WithIdentities, now_ms: int
) -> Iterator[Finding]:
    """What `verify_log_dir` finds that no repair changes, except what is found in partitions. others: the data directories of the run that
    come before this one. Raises UnreadableInput."""
    from kseg.recovery.verify.raft_check import snapshot_file
    from kseg.recovery.verify.side_by_side import against_others, within

    directory = list_log_directory(log_dir)
    for child in directory.other_directories:
        yield from names_check.sub_directory(child)
    yield from names_check.nested_directories(directory)
    bootstrap = directory.entry(Role.BOOTSTRAP_SNAPSHOT)
    if bootstrap is not None and bootstrap.problem is None:
        checked = snapshot_file(bootstrap.path, VerifyOptions(now_ms=now_ms), Totals())
        yield from (event for event in readable(bootstrap.path, checked) if isinstance(event, Finding))
    yield from within(directory.partitions, options)
    yield from against_others(log_dir, others, options)


def _mounted(directory: LogDirectory) -> Iterator[Finding]:
    """Observed with 4.3.1: the replica is not moved or deleted, and its data directory goes offline."""
    points = {mount.point for mount in mounts()}
    around = places.realpath(directory.path)
    for child in directory.partitions:
        if child.name != METADATA_DIRECTORY and os.path.join(around, child.name) in points:
            message = (
                "it is a mount point, which a broker can neither rename nor delete (FileSystemException: Device or resource busy): if "
                "its topic is deleted, or the replica moves or becomes stray, the whole data directory goes offline"
            )
            yield Finding("mounted-directory", child.path, message)


def _files(directory: LogDirectory, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
    for entry in directory.entries:
        if not entry.name.is_live or entry.problem is not None:
            continue
        path, role = entry.path, entry.name.role
        if role in _SMALL_ROLES:
            yield from readable(path, small_file(path, role, totals))
        elif role is Role.CLEAN_SHUTDOWN:
            yield from readable(path, clean_shutdown(path, totals))
        elif role is Role.BOOTSTRAP_SNAPSHOT:
            from kseg.recovery.verify.raft_check import snapshot_file

            yield from readable(path, snapshot_file(path, options, totals))
    yield from _lost_checkpoints(directory)
    if directory.lacks(Role.META_PROPERTIES):
        why = why_identity_is_missing(directory.path, (child.path for child in directory.partitions))
        if why:
            yield identity_missing(directory.path, why)


def _lost_checkpoints(directory: LogDirectory) -> Iterator[Finding]:
    """Report missing checkpoints that a clean shutdown must have written. Unreadable ones are reported elsewhere."""
    log_dir_state = read_log_dir_state(directory.path)
    partitions = (child.partition for child in directory.partitions if child.partition is not None)
    lost = log_dir_state.lost_among(partitions) if log_dir_state.is_clean else ()
    for role in OFFSET_CHECKPOINT_ROLES:
        entry = directory.entry(role)
        if role in lost and (entry is None or not entry.size_bytes):
            state = "missing" if entry is None else "empty"
            name = NAME_BY_ROLE[role]
            message = f"{name} is {state}, although a clean shutdown writes it; a broker assumes 0 for all partitions"
            yield Finding("checkpoint-lost", os.path.join(directory.path, name), message)


def _orphans(directory: LogDirectory) -> Iterator[Finding]:
    """Report checkpoint entries for partitions that are not here."""
    present = {
        (child.partition.topic, child.partition.partition)
        for child in directory.partitions
        if child.partition is not None
        and child.partition.state in (PartitionState.LIVE, PartitionState.FUTURE)
    }
    log_dir_state = read_log_dir_state(directory.path)
    for role, offsets in log_dir_state.checkpoints.items():
        path = os.path.join(directory.path, NAME_BY_ROLE[role])
        for (topic, partition), offset in offsets.items():
            if (topic, partition) not in present:
                numbers: Numbers = {"topic": topic, "partition": partition}
                message = f"{topic}-{partition} has an entry (offset {offset}), but no directory here"
                yield Finding("checkpoint-orphan", path, message, first_offset=offset, numbers=numbers)


def _topic_ids(directory: LogDirectory, options: VerifyOptions) -> Iterator[Finding]:
    """Report topic ids that two topics share, and topics with two ids. Stray or deleted partitions may belong to an older topic
    of the same name. If the metadata log knows the right id, the check of each partition reports it."""
    if directory.path in (options.identities or {}):
        return
    topic_of: dict[str, str] = {}
    id_of: dict[str, str] = {}
    for name, topic_id in topic_ids(directory.path):
        other_topic, other_id = (
            topic_of.setdefault(topic_id, name.topic),
            id_of.setdefault(name.topic, topic_id),
        )
        path = os.path.join(directory.path, name.text, METADATA_FILE)
        if other_topic != name.topic:
            message = f"the topic id {topic_id} of {shown_path(name.topic)} is also that of {shown_path(other_topic)}"
            yield Finding("topic-id-conflict", path, message, numbers={"topic_id": topic_id})
        elif other_id != topic_id:
            message = f"the topic id {topic_id} of {name.text} differs from {other_id} of other partitions"
            yield Finding("topic-id-conflict", path, message, numbers={"topic_id": topic_id})


# --- the clean-shutdown marker


def _shutdown(directory: LogDirectory) -> Iterator[Finding]:
    marker = directory.entry(Role.CLEAN_SHUTDOWN)
    if marker is None:
        # a controller writes neither a marker nor offset checkpoints; a broker creates these when it starts
        has_checkpoints = any(directory.entry(role) is not None for role in OFFSET_CHECKPOINT_ROLES)
        has_logs = any(child.name != METADATA_DIRECTORY for child in directory.partitions)
        if has_checkpoints or (has_logs and directory.entry(Role.META_PROPERTIES) is not None):
            message = "there is no clean-shutdown marker: the broker is running or crashed, or the directory was copied while it ran"
            yield Finding("unclean-shutdown", directory.path, message)
        return
    contradictions = [
        reason
        for child in directory.partitions
        for reason in marker_contradictions(child.path, child.partition)
    ]
    if contradictions:
        more = (
            f" and {len(contradictions) - _SHOWN_REASONS} more"
            if len(contradictions) > _SHOWN_REASONS
            else ""
        )
        message = (
            f"the marker says the shutdown was clean, but {'; '.join(contradictions[:_SHOWN_REASONS])}{more}"
        )
        yield Finding("false-clean-shutdown", marker.path, message, numbers={"reasons": len(contradictions)})
