"""The chain of segments: where one ends, the next begins, and no log is missing.

A broker closes a segment at the offset where it starts the next one. If a segment starts before the end of the previous one, offsets are
there twice. If it starts later, records are missing, unless a cleaner removed them: it leaves gaps, and empties whole segments.

Two traces remain of a log that is gone:

- Its indexes. A broker deletes the files of a segment once all have the suffix `.deleted`, which it gives to the log first (Kafka:
  LocalLog.deleteSegmentFiles); a cleaner does the same. So an index without any log of its number is what is left of a segment. After a
  power loss the log may be there with 0 bytes: the name and size of a file reach the disk at other times than its contents. A cleaner
  leaves empty logs as well, but then it trims the indexes, which have no entry, to 0 bytes (Kafka: Cleaner.cleanSegments).
- The leader epochs. When a broker deletes the first segments, it moves the first epoch to the new log start (Kafka:
  LeaderEpochFileCache.truncateFromStartAsyncFlush). Only with tiered storage do epochs begin below the first segment.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

from kseg.recovery.verify.index_check import used_slots
from kseg.recovery.verify.names_check import SLOT_BYTES
from kseg.recovery.verify.segment_check import SegmentFacts
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import offsets_words
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import DISK, Reader
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import Entry, PartitionDirectory, SegmentFiles
from kseg.segment.partition.log_dir_state import LogDirState
from kseg.segment.partition.names import INDEX_ROLES, INTERNAL_TOPICS, FileState, Role
from kseg.segment.partition.topic_settings import CLEANUP_POLICY, REMOTE_STORAGE, TopicSettings
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.leader_epochs import EpochHistory


class SegmentChain:
    """directory: the partition. log_dir_state: the files of its data directory, None if it is unknown. topic: the settings of its topic.
    log_start: the first offset that a broker serves, 0 if that is unknown. reader: opens the files."""

    def __init__(
        self,
        directory: PartitionDirectory,
        log_dir_state: LogDirState | None,
        topic: TopicSettings,
        log_start: int,
        reader: Reader,
    ) -> None:
        self._directory = directory
        self._log_dir_state = log_dir_state
        self._topic = topic
        self._log_start = log_start
        self._reader = reader
        self._gaps: list[tuple[str, int, int]] = []
        self._ends: list[int] = []

    def join(self, previous: SegmentFacts, segment: SegmentFiles) -> Iterator[Finding]:
        """Compare the start of a segment with the end of the previous one. Gaps are reported by `gaps`."""
        end, base = previous.end_offset, segment.base_offset
        self._ends.append(end)
        if previous.last_offset is not None and base < end:
            message = (
                f"the segment starts at offset {base}, but the previous one ends at {previous.last_offset}"
            )
            yield Finding(
                "segment-overlap", segment.log.path, message, first_offset=base, last_offset=end - 1
            )
        elif base > end and not previous.damage:
            # the previous segment may contain the batches of an earlier one
            reached = max(each for each in self._ends if each <= base)
            if reached < base:
                self._gaps.append((segment.log.path, reached, base - 1))

    def gaps(self, facts: Sequence[SegmentFacts]) -> Iterator[Finding]:
        """The findings about gaps between segments. facts: of all segments, which tell whether the log was cleaned."""
        lost = sorted({*self._lost_logs, *self._emptied_logs, *_replaced_logs(facts)})
        kind = "offset-gap" if self._gaps and self._is_compacted(facts) else "segment-gap"
        for path, first, last in self._gaps:
            at = bisect_left(lost, first)
            until = min(last, lost[at] - 1) if at < len(lost) else last
            if until >= first:
                it_is = "is" if first == until else "are"
                message = f"{offsets_words(first, until)} before this segment {it_is} missing"
                yield Finding(kind, path, message, first_offset=first, last_offset=until)

    def lost_logs(self, facts: Sequence[SegmentFacts]) -> Iterator[Finding]:
        """The findings about segments of which only indexes are left, or whose log is that of another one. facts: of all segments."""
        replaced = _replaced_logs(facts)
        lost = {base: index.path for base, index in (self._lost_logs | self._emptied_logs).items()} | replaced
        bases = [each.base_offset for each in facts]
        reached = [*accumulate((each.end_offset for each in facts), max, initial=0)]
        following = dict(pairwise([*sorted({*lost, *bases}), None]))
        for base, path in sorted(lost.items()):
            if base < reached[bisect_left(bases, base)]:
                continue  # the cleaner has merged it into an earlier segment
            first, end = max(base, self._log_start), following[base]
            what = f"the log of this segment is {'empty' if base in self._emptied_logs else 'missing'}"
            if base in replaced:
                what = "the log of this segment is that of another one, and its own is missing"
            if end is None and self._has_entries(base):
                message = f"{what}, with the records from offset {first} on"
                yield Finding("segment-missing", path, message, first_offset=first)
            elif end is not None and first < end:
                message = f"{what}, with {offsets_words(first, end - 1)}"
                yield Finding("segment-missing", path, message, first_offset=first, last_offset=end - 1)

    def lost_start(self, facts: Sequence[SegmentFacts], epochs: EpochHistory | None) -> Iterator[Finding]:
        """The finding about the part of a log before the first segment of which nothing but leader epochs is left. facts: of all
        segments."""
        name = self._directory.name
        if not facts or self._topic.is_tiered or (name is not None and name.is_metadata_log):
            return
        begin = facts[0].base_offset
        if epochs is None or not epochs.begins_below(begin) or self._log_start >= begin:
            return
        if any(base < begin for base in (*self._lost_logs, *_logs(self._directory))):
            return  # reported as a missing segment, or being deleted
        first = max(self._log_start, epochs.entries[0].start_offset)
        unless = "" if REMOTE_STORAGE in self._topic.settings else ", unless the topic has tiered storage"
        message = (
            f"{offsets_words(first, begin - 1)} before the first segment {'is' if first == begin - 1 else 'are'} missing{unless}: a broker that "
            "deletes segments removes their leader epochs as well, which are still here"
        )
        yield Finding("log-start-gap", facts[0].path, message, first_offset=first, last_offset=begin - 1)

    @cached_property
    def _lost_logs(self) -> dict[int, Entry]:
        return lost_logs(self._directory, self._reader)

    @cached_property
    def _emptied_logs(self) -> dict[int, Entry]:
        return emptied_logs(self._directory)

    def _has_entries(self, base: int) -> bool:
        """Whether an index at the end of a log is one of a segment that had records: those of a new one are empty, or preallocated."""
        for entry in _orphaned_indexes(self._directory):
            if entry.name.base_offset == base:
                try:
                    with self._reader.open(entry.path) as file:
                        if used_slots(file.view, SLOT_BYTES[entry.name.role], file.data_end):
                            return True
                except UnreadableInput:
                    continue
        return False

    def _is_compacted(self, facts: Sequence[SegmentFacts]) -> bool:
        """Whether the topic is cleaned, or its log has traces of cleaning. Internal topics always are."""
        name, checkpoints = self._directory.name, self._log_dir_state
        if name is not None and name.topic in INTERNAL_TOPICS:
            return True
        if "compact" in self._topic.policies or any(each.cleaned for each in facts):
            return True
        cleaned_to = None  # a broker keeps the entry if the policy changes
        if name is not None and checkpoints is not None:
            cleaned_to = checkpoints.offset(Role.CLEANER_OFFSETS, name.topic, name.partition)
        if cleaned_to or CLEANUP_POLICY in self._topic.settings:
            return bool(cleaned_to)
        empty = (each.base_offset for each in facts[:-1] if not each.size_bytes and not each.damage)
        return any(each.gaps for each in facts) or any(base not in self._emptied_logs for base in empty)


def lost_logs(directory: PartitionDirectory, reader: Reader = DISK) -> dict[int, Entry]:
    """One index of each segment that lacks its log, by base offset. What a cleaner has put into a file with the suffix `.swap` may
    include the records of later segments. A broker then deletes the files of these: in their order while it runs (Kafka:
    LocalLog.replaceSegments), and those with a number up to the end of the `.swap` when it starts (LogLoader.load). So an index counts if
    it is below the `.swap`, or if another log lies between the two. A log marked as deleted explains only the indexes that are marked after
    it: beside a marked index, one without the mark is of the segment that a cleaner put in its place. reader: opens the files."""
    if not directory.orphans:
        return {}
    marked = {*_logs(directory, FileState.DELETED)}
    present = {*_logs(directory, *(state for state in FileState if state is not FileState.DELETED))}
    replaced = {
        (entry.name.role, entry.name.base_offset)
        for entry in directory.entries
        if entry.name.state is FileState.DELETED
    }
    swapped = min(_logs(directory, FileState.SWAP), default=L.INT64_MAX)
    following = L.INT64_MAX
    lost: dict[int, Entry] = {}
    if swapped < L.INT64_MAX:
        end = _end_of_swaps(directory, reader)
        following = min((base for base in _logs(directory, FileState.LIVE) if base >= end), default=following)
    for entry in _orphaned_indexes(directory):
        base = entry.name.base_offset
        is_being_deleted = base in marked and (entry.name.role, base) not in replaced
        if (
            base is not None
            and not is_being_deleted
            and base not in present
            and not swapped <= base <= following
        ):
            lost.setdefault(base, entry)
    return dict(sorted(lost.items()))


def _end_of_swaps(directory: PartitionDirectory, reader: Reader) -> int:
    """The end offset of the logs with the suffix `.swap`, the largest offset if one cannot be read."""
    end = 0
    for entry in directory.entries:
        if entry.name.role is Role.LOG and entry.name.state is FileState.SWAP:
            try:
                with reader.open(entry.path) as file:
                    for block in Scanner.over(file, entry.name.base_offset or 0).blocks():
                        if not isinstance(block, Damage) and block.count:
                            end = max(end, block.at(C.LAST_OFFSET, block.count - 1) + 1)
            except UnreadableInput:
                return L.INT64_MAX
    return end


def emptied_logs(directory: PartitionDirectory) -> dict[int, Entry]:
    """One index of each closed segment that had records, as its indexes show, and whose log has 0 bytes, by base offset."""
    emptied: dict[int, Entry] = {}
    for segment in directory.segments[:-1]:
        if not segment.log.size_bytes and segment.log.problem is None:
            for index in (segment.offset_index, segment.time_index):
                if index is not None and index.size_bytes:
                    emptied.setdefault(segment.base_offset, index)
    return emptied


def _replaced_logs(facts: Sequence[SegmentFacts]) -> dict[int, str]:
    """The closed segments all of whose batches have offsets of other segments, by base offset: a segment was copied over them. If two were
    swapped, the other one has their offsets."""
    ranges = sorted(
        (each.first_offset, each.last_offset)
        for each in facts
        if each.first_offset is not None and each.last_offset is not None
    )
    firsts = [first for first, _ in ranges]
    reached = [*accumulate((last for _, last in ranges), max, initial=-1)]
    return {
        each.base_offset: each.path
        for each, following in pairwise(facts)
        if each.first_offset is not None
        and each.last_offset is not None
        and not each.damage
        and (each.last_offset < each.base_offset or each.first_offset >= following.base_offset)
        and reached[bisect_left(firsts, following.base_offset)] < each.base_offset
    }


def _logs(directory: PartitionDirectory, *states: FileState) -> Iterator[int]:
    """The base offsets of all logs with these states (default: any), also of those that cannot be read or have an odd name."""
    for entry in directory.entries:
        base = entry.name.base_offset
        if entry.name.role is Role.LOG and base is not None and (not states or entry.name.state in states):
            yield base


def _orphaned_indexes(directory: PartitionDirectory) -> Iterator[Entry]:
    return (
        entry for entry in directory.orphans if entry.name.role in INDEX_ROLES and entry.name.is_well_formed
    )
