"""A partition as a log: its segments in order, its start and end, and a record of what was read to determine them.

Read-only and lazy: the directory is listed by names alone (no `stat`), and files are opened on first use. `bytes_read`
counts every byte that was read, `findings` collects the problems found, and `path` the steps taken.

    log start offset   the caller's, else that of log-start-offset-checkpoint of the log dir, else, if that file is lost,
                       its trace (`log_start_trace`); at least the first base offset (Kafka: LogLoader)
    log end offset     from the batches between the last entry of the last segment's offset index and the end of the file
                       (Kafka: LogSegment.readNextOffset); a zero tail of the index is not an entry. A log that ends below its
                       start is empty: a broker deletes its segments (Kafka: LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd)
    high watermark     replication-offset-checkpoint of the log dir within the log, else the log end
"""

import os
from collections.abc import Iterator, Sequence
from typing import Self

from kseg.segment import layout as L
from kseg.segment.errors import FormatError, UnreadableInput, cannot_read
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.model import Batch
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.log_dir_state import LogDirState, checkpointed_offsets, read_log_dir_state
from kseg.segment.partition.log_segment import LogSegment, Notes
from kseg.segment.partition.log_start_trace import log_start_trace
from kseg.segment.partition.names import (
    NAME_BY_ROLE,
    FileName,
    FileState,
    PartitionState,
    Role,
    is_kafka07_log,
    parse_file_name,
)
from kseg.segment.partition.targets import LogTarget, PartitionTarget
from kseg.segment.scanning.preallocated_tail import is_preallocated
from kseg.segment.scanning.zero_ranges import ZeroRanges
from kseg.segment.storage import places


class PartitionLog(Notes):
    """The log of a partition directory, or of a single `.log` file; a context manager.

    target: what to open; for a file only its own segment. log_start_offset: None takes that of the checkpoint.
    use_index: False ignores `.index` and `.timeindex`. is_live: a broker may be writing to it at the same time. names: of everything in
    the partition directory, if it was listed already. Raises UnreadableInput if the target cannot be listed or is not a log.

    name: of the partition, None if the directory is not named like one. segments: by base offset. snapshots:
    paths of producer snapshots by offset. is_directory: False for a single file.
    is_kafka07: it has files of Kafka 0.7, and no segment (see kafka07_log).
    """

    def __init__(
        self,
        target: LogTarget,
        *,
        log_start_offset: int | None = None,
        use_index: bool = True,
        is_live: bool = False,
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(use_index, is_live)
        self._end: int | None = None
        self._wished_start = log_start_offset
        self._start_is_known = log_start_offset is not None
        if isinstance(target, PartitionTarget):
            self.directory, self.log_dir = target.path, target.log_dir
            listed = _listed_with_plain_logs(target.path) if names is None else names
            named = {entry: parse_file_name(entry) for entry in listed}
            of_one = None
        else:
            self.directory, self.log_dir = os.path.dirname(target.path) or os.curdir, None
            of_one = parse_file_name(os.path.basename(target.path))
            if of_one.role not in (Role.LOG, Role.KAFKA07_LOG) or of_one.base_offset is None:
                raise UnreadableInput(f"{target.path} is not a segment (<offset>.log)")
            named = {entry: parse_file_name(entry) for entry in names_in(self.directory)}
        prefix = os.path.join(os.path.dirname(target.path) if of_one is not None else target.path, "")
        self.name = own_partition_name(self.directory)
        self._files = {
            name.role: prefix + entry
            for entry, name in named.items()
            if name.base_offset is None and name.is_live
        }
        found = named.values() if of_one is None else (of_one,)
        self.is_kafka07 = is_kafka07_log(name for name in found if name.base_offset is not None)
        self.segments = [] if self.is_kafka07 else self._segments_of(prefix, named, of_one)
        self.is_directory = of_one is None
        self.snapshots = self._numbered(prefix, named, Role.PRODUCER_SNAPSHOT) if of_one is None else {}
        for segment, following in zip(self.segments, self.segments[1:], strict=False):
            segment.next_base_offset = following.base_offset

    # --- what was read, found and done

    @property
    def bytes_read(self) -> int:
        """Bytes read so far, in logs, indexes and side files."""
        return self.meter.bytes_read + sum(segment.index_bytes_read for segment in self.segments)

    def read_side_file(self, role: Role) -> bytes | None:
        """A file that a partition directory has only once (leader epochs, metadata); None if it is missing."""
        path = self._files.get(role)
        return None if path is None else self.read_file(path)

    def side_file_path(self, role: Role) -> str:
        """The path of that file, whether or not it exists."""
        return self._files.get(role, os.path.join(self.directory, NAME_BY_ROLE[role]))

    def read_file(self, path: str) -> bytes:
        data = read_small(path)
        self._was_read(path, len(data))
        return data

    def _was_read(self, path: str, size_bytes: int) -> None:
        self.meter.bytes_read += size_bytes
        self.note({"step": "read", "file": path})

    # --- segments

    def floor_index(self, offset: int) -> int:
        """The position in `segments` of the one with the greatest base offset ≤ `offset`; -1 if all begin above it."""
        low, high = 0, len(self.segments)
        while low < high:
            middle = (low + high) // 2
            if self.segments[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def recovered_from(self, state: LogDirState) -> int | None:
        """The base offset of the first segment that a broker recovers at its next start, the one that contains the recovery point; None
        after a clean shutdown, when it recovers none (Kafka: LogLoader.recoverLog). state: of the data directory."""
        if state.is_clean or not self.segments:
            return None
        name = self.name
        point = None if name is None else state.offset(Role.RECOVERY_POINTS, name.topic, name.partition)
        return self.segments[max(0, self.floor_index(point or 0))].base_offset

    def from_floor(self, offset: int) -> Iterator[LogSegment]:
        """The segment that may contain `offset`, selected by name, and those after it; each is closed after use."""
        at = max(0, self.floor_index(offset))
        if at < len(self.segments):
            self.note({"step": "choose-segment", "file": self.segments[at].path, "of": len(self.segments)})
        for segment in self.segments[at:]:
            yield segment
            segment.close()

    # --- its ends

    @property
    def start_offset(self) -> int:
        """The log start offset; 0 for a partition without segments and without any evidence of it."""
        first = self.segments[0].base_offset if self.segments else 0
        known = self.known_start
        return first if known is None else max(first, known)

    @property
    def known_start(self) -> int | None:
        """The log start of the checkpoint, also if that is below the first segment; None if nothing tells."""
        if not self._start_is_known:
            self._wished_start = self._checkpointed(Role.LOG_START_OFFSETS)
            if self._wished_start is None:
                self._wished_start = self._traced_start()
            self._start_is_known = True
        return self._wished_start

    @property
    def remote_start(self) -> int | None:
        """The log start of the checkpoint if that is below the local log, as with tiered storage; another broker may have left such an
        entry when it died."""
        known = self.known_start
        return known if known is not None and known < self.start_offset else None

    def remote_words(self, offset: int) -> str:
        """Where an offset below the local log may be, in words; empty if the log does not reach down to it."""
        first = self.remote_start
        if first is None or not first <= offset < self.start_offset:
            return ""
        return (
            f"by its checkpoint the log starts at {first}, so with tiered storage offset {offset} is in remote storage "
            "(kseg list --remote)"
        )

    def report_remote(self, meaning: str) -> None:
        """Report `remote_finding`."""
        self.report(self.remote_finding(meaning))

    def remote_finding(self, meaning: str) -> Finding:
        """The finding that the log starts below the local log. meaning: the end of the sentence, what that means for the query."""
        message = f"by its checkpoint the log starts at {self.remote_start}, {meaning}"
        return Finding("checkpoint-below-log", self.directory, message)

    def _traced_start(self) -> int | None:
        """The log start according to the leader epochs; None unless the checkpoint must have been written and is lost."""
        if self.log_dir is None or self.name is None or self.name.state is not PartitionState.LIVE:
            return None
        if Role.LOG_START_OFFSETS not in read_log_dir_state(self.log_dir).lost:
            return None
        trace = log_start_trace(self.directory)
        if trace is None:
            return None
        self.note({"step": "trace-log-start", "file": self.side_file_path(Role.LEADER_EPOCHS)})
        return trace.offset

    @property
    def end_offset(self) -> int:
        """The log end offset."""
        return max(self.end_of_batches, self.start_offset)

    @property
    def is_emptied(self) -> bool:
        """Whether the log ends below its start offset, so that a broker deletes all of it when it next starts."""
        return self.end_of_batches < self.start_offset

    @property
    def end_of_batches(self) -> int:
        """The offset after the last batch, which a broker ignores if it is below the start."""
        if self._end is None:
            self._end = self._find_end()
        return self._end

    def take_end(self, offset: int) -> None:
        """Set the log end offset that the caller has determined without opening the log."""
        self._end = offset

    @property
    def high_watermark(self) -> int:
        """The checkpointed value, limited to the offsets of the log; the log end if there is none."""
        known = self._checkpointed(Role.HIGH_WATERMARKS)
        return self.end_offset if known is None else max(self.start_offset, min(known, self.end_offset))

    @property
    def last_batch(self) -> Batch | None:
        """The last batch of the last segment, None if that is empty."""
        return self._last_of(self.segments[-1]) if self.segments else None

    @property
    def newest_batch(self) -> Batch | None:
        """The last batch of the log, whichever segment has it; None in a log without batches."""
        return next((batch for segment in reversed(self.segments) if (batch := self._last_of(segment))), None)

    @property
    def unwritten_bytes(self) -> int:
        """The bytes that a broker preallocated after the last batch. They are not part of the size of a log: a broker that recovers the log
        truncates them, and a running one does not count them (Kafka: FileRecords.sizeInBytes)."""
        if not self.segments:
            return 0
        last = self.segments[-1]
        size_bytes = last.file.size_bytes
        if not size_bytes or not is_preallocated(last.path, size_bytes):
            return 0
        batch = self._last_of(last)
        end = 0 if batch is None else batch.end_position
        return size_bytes - end if ZeroRanges(last.file.view, last.file).reach(end, size_bytes) else 0

    def _find_end(self) -> int:
        if not self.segments:
            return self.start_offset
        last = self.segments[-1]
        batch = self._last_of(last)
        if batch is None:
            return last.base_offset
        # a broker finds no batch if all of them end below the base offset: those of an older segment
        is_older = batch.last_offset < last.base_offset and last.batch_reaching(last.base_offset) is None
        return last.base_offset if is_older else batch.last_offset + 1

    def _last_of(self, segment: LogSegment) -> Batch | None:
        start = 0
        if self.use_index and segment.file.size_bytes:
            index = segment.offset_index
            start = segment.start_for(segment.base_offset if index is None else index.last_entry.offset)
        last = segment.walk.last(start)
        segment.scanned(start, segment.file.size_bytes)
        return last

    def _checkpointed(self, role: Role) -> int | None:
        """The offset of this partition in a checkpoint file of the log dir."""
        if self.log_dir is None or self.name is None or self.name.state is not PartitionState.LIVE:
            return None
        path = os.path.join(self.log_dir, NAME_BY_ROLE[role])
        try:
            places.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        # any other error, such as that of a lost mount, does not mean that there is no checkpoint
        except OSError as error:
            raise cannot_read(path, error) from error
        try:
            offsets, size_bytes = checkpointed_offsets(path)
        except FormatError as error:
            self._was_read(path, 0)
            self.report(Finding("checkpoint-corrupt", path, f"the checkpoint cannot be read: {error}"))
            return None
        self._was_read(path, size_bytes)
        return offsets.get((self.name.topic, self.name.partition))

    # --- opening

    def _segments_of(
        self, prefix: str, named: dict[str, FileName], of_one: FileName | None
    ) -> list[LogSegment]:
        wanted = FileState.LIVE if of_one is None else of_one.state
        by_base: dict[int, dict[Role, str]] = {}
        for entry, name in sorted(named.items(), key=lambda item: not item[1].is_well_formed):
            base = name.base_offset
            if base is None or name.state is not wanted or name.remote_segment_id:
                continue
            if of_one is None or (base == of_one.base_offset and name.role is not Role.LOG):
                by_base.setdefault(base, {}).setdefault(name.role, prefix + entry)
        if of_one is not None and of_one.base_offset is not None:
            by_base.setdefault(of_one.base_offset, {})[Role.LOG] = prefix + of_one.name
        return [
            LogSegment(self, base, by_base[base]) for base in sorted(by_base) if Role.LOG in by_base[base]
        ]

    @staticmethod
    def _numbered(prefix: str, named: dict[str, FileName], role: Role) -> dict[int, str]:
        return {
            name.base_offset: prefix + entry
            for entry, name in named.items()
            if name.role is role and name.is_live and name.base_offset is not None
        }

    def close(self) -> None:
        for segment in self.segments:
            segment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def names_in(directory: str) -> list[str]:
    """The names in a partition directory, of files of any kind. Raises UnreadableInput."""
    try:
        return places.listdir(directory)
    except OSError as error:
        raise cannot_read(directory, error) from error


def _listed_with_plain_logs(directory: str) -> list[str]:
    """The names in a partition directory. Raises UnreadableInput also for a log that is not a regular file: a broker ignores it,
    and a reader of the rest would not notice that it is missing."""
    try:
        with places.scandir(directory) as found:
            entries = list(found)
            for entry in entries:
                if entry.name.endswith(L.LOG_SUFFIX) and not entry.is_file():
                    raise UnreadableInput(f"cannot read {entry.path}: not a regular file")
    except OSError as error:
        raise cannot_read(directory, error) from error
    return [entry.name for entry in entries]
