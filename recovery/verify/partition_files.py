"""Check the small files of a partition, and its entries in the data directory's checkpoints."""

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from kseg.recovery.verify.header_plausibility import SideFileEvidence
from kseg.recovery.verify.index_check import used_slots
from kseg.recovery.verify.segment_check import SegmentFacts
from kseg.recovery.verify.small_files import decoded, unreadable_file
from kseg.recovery.verify.topic_ids import missing_metadata
from kseg.recovery.verify.totals import Totals
from kseg.segment.diagnosis import DoubtfulLogStart, LogStartBeyondEnd, Numbers
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import DISK, Reader, read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import Entry, PartitionDirectory
from kseg.segment.partition.log_dir_state import LogDirState, deleted_logs
from kseg.segment.partition.log_start_trace import log_start_trace
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionName, PartitionState, Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.partition.topic_identity import UNKNOWN_IDENTITY, TopicIdentity
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochEntry, EpochHistory
from kseg.segment.sidecar.metadata_files import check_topic_id, decode_partition_metadata
from kseg.segment.terminal import shell_quoted

# Number of entries at the end of an index that count as evidence of where the last batch ends.
_ASKED_ENTRIES = 3
_OFFSET_ENTRY, _TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")

CHECKPOINT_WORDS = {
    Role.RECOVERY_POINTS: "the recovery point",
    Role.HIGH_WATERMARKS: "the high watermark",
    Role.CLEANER_OFFSETS: "the cleaner's first dirty offset",
    Role.LOG_START_OFFSETS: "the log start offset",
}
# The finding about an entry beyond the log end. That of the cleaner is no damage: without a cleaner (log.cleaner.enable=false), entries of
# deleted topics stay, and a cleaner begins at the log start again (Kafka: LogCleanerManager.cleanableOffsets).
BEYOND_LOG = {
    Role.RECOVERY_POINTS: "checkpoint-beyond-log",
    Role.HIGH_WATERMARKS: "checkpoint-beyond-log",
    Role.CLEANER_OFFSETS: "dirty-offset-reset",
    Role.LOG_START_OFFSETS: "log-start-beyond-end",
}


def live(directory: PartitionDirectory, role: Role) -> Entry | None:
    """The live file of that role."""
    found = (e for e in directory.entries if e.name.role is role and e.name.is_live and e.problem is None)
    return next(found, None)


def leader_epochs(
    directory: PartitionDirectory, totals: Totals, reader: Reader = DISK
) -> tuple[tuple[EpochEntry, ...] | None, Finding | None]:
    """The entries of leader-epoch-checkpoint, None when it is absent or cannot be read."""
    entry = live(directory, Role.LEADER_EPOCHS)
    if entry is None:
        return None, None
    try:
        data = reader.read_small(entry.path)
    except UnreadableInput as error:
        return None, unreadable_file(entry.path, error)
    found = decoded(entry.path, data, decode_leader_epochs, "leader-epoch-file-corrupt", totals)
    return (None, found) if isinstance(found, Finding) else (found, None)


def metadata_files(
    directory: PartitionDirectory,
    log_dir_state: LogDirState | None,
    totals: Totals,
    reader: Reader = DISK,
    identity: TopicIdentity = UNKNOWN_IDENTITY,
) -> Iterator[Finding]:
    """Check partition.metadata: readable, present if a broker needs it, and of a topic that the metadata log places here."""
    entry = live(directory, Role.PARTITION_METADATA)
    if entry is None:
        finding = identity.finding if directory.segments else None
        if finding is None:
            finding = missing_metadata(
                directory, None if log_dir_state is None else log_dir_state.meta_version
            )
        if finding is not None:
            yield finding
        return
    try:
        data = reader.read_small(entry.path)
    except UnreadableInput as error:
        yield unreadable_file(entry.path, error)
        return
    is_metadata_log = directory.name is not None and directory.name.is_metadata_log

    def check(data: bytes) -> None:
        check_topic_id(decode_partition_metadata(data), is_metadata_log=is_metadata_log)

    finding = decoded(entry.path, data, check, "partition-metadata-corrupt", totals) or identity.finding
    if finding is not None:
        yield finding


class KnownBatchEnd(NamedTuple):
    """An offset at which a batch ends. position: of that batch, according to an offset index. timestamp_ms: the largest timestamp up to
    there, according to a time index. Both None: the offset comes from the name of a snapshot or from a checkpoint."""

    offset: int
    position: int | None = None
    timestamp_ms: int | None = None


# (index file, format of its entries) → the last entries in use
LastEntries = Callable[[Entry, struct.Struct], Sequence[tuple[int, int]]]


def side_file_evidence(ends: Iterable[KnownBatchEnd], epochs: EpochHistory | None) -> SideFileEvidence:
    """Where batches of the last segment end according to the side files. epochs: the leader-epoch checkpoint."""
    return SideFileEvidence(frozenset(end.offset for end in ends), epochs)


def known_batch_ends(
    directory: PartitionDirectory, log_dir_state: LogDirState | None, last_entries: LastEntries | None = None
) -> Iterator[KnownBatchEnd]:
    """Offsets at which a batch of the last segment ends according to the side files. last_entries: reads its indexes if they are not to
    be opened for it."""
    segment = directory.segments[-1]
    last_entries = last_entries or read_last_entries
    for entry in directory.snapshots:
        if entry.name.base_offset is not None and entry.name.base_offset > segment.base_offset:
            yield KnownBatchEnd(entry.name.base_offset - 1)
    if segment.offset_index is not None:
        for relative, position in last_entries(segment.offset_index, _OFFSET_ENTRY):
            yield KnownBatchEnd(segment.base_offset + relative, position=position)
    if segment.time_index is not None:
        for timestamp_ms, relative in last_entries(segment.time_index, _TIME_ENTRY):
            yield KnownBatchEnd(segment.base_offset + relative, timestamp_ms=timestamp_ms)
    if log_dir_state is not None and directory.name is not None:
        for role in (Role.RECOVERY_POINTS, Role.HIGH_WATERMARKS):
            offset = log_dir_state.offset(role, directory.name.topic, directory.name.partition)
            if offset is not None and offset > segment.base_offset:
                yield KnownBatchEnd(offset - 1)


def read_last_entries(entry: Entry, form: struct.Struct, reader: Reader = DISK) -> list[tuple[int, int]]:
    """The last used entries of an index; none if it cannot be read."""
    if entry.problem is not None:
        return []
    try:
        with reader.open(entry.path) as file:
            return last_entries_in(file.view, used_slots(file.view, form.size, file.data_end), form)
    except UnreadableInput:
        return []


def last_entries_in(view: memoryview, used: int, form: struct.Struct) -> list[tuple[int, int]]:
    """The last of the `used` entries of an index."""
    first = max(0, used - _ASKED_ENTRIES)
    return list(form.iter_unpack(bytes(view[first * form.size : used * form.size])))


def checkpoints(
    directory: PartitionDirectory,
    log_dir_state: LogDirState,
    first_base: int,
    last: SegmentFacts,
    *,
    is_in_use: bool = False,
) -> Iterator[Finding]:
    """Check the checkpoints of the data directory against the ends of the log. After a damaged end the log end is unknown, so no entry is
    beyond it. is_in_use: by a broker, which writes them once a minute: they may be of a deleted topic of this name.

    A log start below the first segment is right where older segments are tiered, and without effect elsewhere.
    """
    name = directory.name
    if name is None or name.state not in (PartitionState.LIVE, PartitionState.FUTURE):
        return
    for role, words in CHECKPOINT_WORDS.items():
        offset = log_dir_state.offset(role, name.topic, name.partition)
        if offset is None:
            continue
        path = os.path.join(log_dir_state.path, NAME_BY_ROLE[role])
        numbers: Numbers = {
            "topic": name.topic,
            "partition": name.partition,
            "checkpoint": offset,
            "log_start_offset": first_base,
            "log_end_offset": last.end_offset,
        }
        if offset > last.end_offset and not last.damage and not is_in_use:
            if is_of_deleted_log(log_dir_state.path, name, role, offset):
                continue
            message = f"{words} of {name.text} is {offset}, but its log ends at {last.end_offset}"
            diagnosis = LogStartBeyondEnd(directory.path) if role is Role.LOG_START_OFFSETS else None
            yield Finding(
                BEYOND_LOG[role], path, message, first_offset=offset, numbers=numbers, diagnosis=diagnosis
            )
        elif offset < first_base and offset != 0 and role is not Role.LOG_START_OFFSETS:
            message = f"{words} of {name.text} is {offset}, but its log starts at {first_base}"
            yield Finding("checkpoint-below-log", path, message, first_offset=offset, numbers=numbers)


def is_of_deleted_log(log_dir: str, name: PartitionName, role: Role, offset: int) -> bool:
    """Whether a checkpoint entry beyond the end of a log is that of a deleted topic with the same name, whose log is marked for deletion.

    High watermarks are written every five seconds, not when a topic is deleted, and the cleaner's entries only if there is a cleaner."""
    if role not in (Role.HIGH_WATERMARKS, Role.CLEANER_OFFSETS):
        return False
    own = os.path.join(log_dir, name.text)
    for deleted in deleted_logs(log_dir).get(name.text, ()):
        with suppress(UnreadableInput), PartitionLog(PartitionTarget(deleted), log_start_offset=0) as log:
            if offset <= log.end_of_batches and not _have_one_topic_id(own, deleted):
                return True
    return False


def _have_one_topic_id(*directories: str) -> bool:
    """Whether these are logs of one topic: what an intra-broker move has deleted, for instance."""
    names = (os.path.join(directory, NAME_BY_ROLE[Role.PARTITION_METADATA]) for directory in directories)
    return len({read_small(name) for name in names}) == 1


def checkpointed_start(directory: PartitionDirectory, log_dir_state: LogDirState | None) -> int:
    """The log start offset of a partition in the checkpoint, 0 if it is not there."""
    name = directory.name
    if log_dir_state is None or name is None:
        return 0
    return log_dir_state.offset(Role.LOG_START_OFFSETS, name.topic, name.partition) or 0


def log_start(directory: PartitionDirectory, log_dir_state: LogDirState) -> Iterator[Finding]:
    """Report a missing log start checkpoint entry for a log whose leader epochs start as if its records had been deleted."""
    name = directory.name
    if name is None or name.state not in (PartitionState.LIVE, PartitionState.FUTURE) or name.is_metadata_log:
        return
    if log_dir_state.offset(Role.LOG_START_OFFSETS, name.topic, name.partition) is not None:
        return
    trace = log_start_trace(directory.path)
    if trace is None:
        return
    doubtful = DoubtfulLogStart(trace.offset)
    begin = f"the leader-epoch checkpoint starts at offset {trace.offset}, within epoch {trace.epoch} of the batches"
    if Role.LOG_START_OFFSETS in log_dir_state.lost:
        message = (
            f"{begin}: the log started there, {NAME_BY_ROLE[Role.LOG_START_OFFSETS]} is lost, and earlier records come "
            "back when a broker starts"
        )
        yield Finding(
            "log-start-lost",
            directory.path,
            message,
            last_offset=trace.offset - 1,
            numbers=doubtful.numbers(),
        )
    elif trace.is_certain:
        message = (
            f"{begin}, as if the log started there, but {NAME_BY_ROLE[Role.LOG_START_OFFSETS]} has no entry; if records "
            f"before it were deleted: kseg recover --log-start-offset {trace.offset} {shell_quoted(directory.path)}"
        )
        yield Finding.about("log-start-doubtful", directory.path, message, doubtful)


def remote_epochs(
    path: str, epochs: EpochHistory | None, log_start_offset: int, first_base: int
) -> Iterator[Finding]:
    """Report that a log with tiered storage lacks the leader epochs below its first segment. A broker deletes the remote segments whose
    epochs are all below the first one that it knows, and reads none whose epoch it does not know (Kafka: RemoteLogManager). path: of the
    checkpoint, or of the partition."""
    if log_start_offset >= first_base or (epochs is not None and epochs.begins_below(first_base)):
        return
    message = (
        f"the log begins at offset {log_start_offset} in remote storage, but the leader epochs below "
        f"{first_base} are lost: a broker that leads the partition deletes remote segments because of "
        "that (the leader-epoch-checkpoint of another replica has them, and so does __remote_log_metadata, "
        "from which kseg recover takes them)"
    )
    numbers = {"log_start_offset": log_start_offset}
    yield Finding(
        "remote-epochs-lost",
        path,
        message,
        first_offset=log_start_offset,
        last_offset=first_base - 1,
        numbers=numbers,
    )
