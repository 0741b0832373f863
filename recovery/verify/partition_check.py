"""Verify a partition directory: its segments in order, and everything that must agree with them.

1. Check names, leftovers and orphans (`names_check`), and read what the data directory says (`log_dir_state`).
2. Check each segment in order with its consumers: replay, leader epochs, both indexes, the transaction index, and at the deep level
   every record. Between segments, check the chain of offsets, and the snapshot at the next base offset.
3. Check what needs the end of the log: gaps between segments (legal once anything was compacted), the snapshot at the log end,
   snapshots without a segment, epochs, open transactions, partition.metadata, checkpoints.

The quick level checks only names, sizes and the bytes of the logs.
"""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from kseg.jobs.events import Event
from kseg.recovery.verify import names_check, partition_files
from kseg.recovery.verify.epoch_check import EpochCheck
from kseg.recovery.verify.header_plausibility import HeaderContext, PreviousBatch, SideFileEvidence, no_index
from kseg.recovery.verify.index_check import IndexContext, OffsetIndexCheck, TimeIndexCheck
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.partition_files import KnownBatchEnd
from kseg.recovery.verify.producer_check import ProducerReplay, never_expired_ms
from kseg.recovery.verify.segment_chain import SegmentChain
from kseg.recovery.verify.segment_check import Consumer, SegmentCheck, SegmentFacts, SegmentShaper
from kseg.recovery.verify.small_files import unreadable_file
from kseg.recovery.verify.snapshot_check import SnapshotCheck
from kseg.recovery.verify.totals import CheckedPartition, Totals
from kseg.recovery.verify.txn_check import TxnIndexCheck
from kseg.recovery.verify.unread_records import UnreadRecords
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import DISK, OpenFile, Reader
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import Entry, PartitionDirectory, SegmentFiles, list_partition
from kseg.segment.partition.log_dir_state import LogDirState, read_log_dir_state
from kseg.segment.partition.log_shape import ShapeTaker
from kseg.segment.partition.names import INTERNAL_TOPICS, Role
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.scanning.lost_offsets import UnreadBatch
from kseg.segment.scanning.prevalidated import skippable_spans
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.state.producer import ProducerState

if TYPE_CHECKING:
    from kseg.recovery.verify.parallel_scan import ParallelScan


class PartitionCheck:
    """The assessment of one partition directory. Iterate over `events` once.

    directory: its files by path; with a planned directory the names on disk may differ. log_dir_state: the files of the data directory,
    None if it is unknown. collector_of: returns an additional consumer for each segment. reader: opens the files. shape_taker: collects the
    shape of the log if it is requested. facts, replay, unread, unreadable_paths (logs and indexes with unreadable bytes), known_ends (where
    batches of the last segment end according to side files): the results, complete when `events` has ended.
    """

    def __init__(
        self,
        directory: PartitionDirectory,
        log_dir_state: LogDirState | None,
        options: VerifyOptions,
        totals: Totals,
        collector_of: Callable[[SegmentFiles], Consumer] | None = None,
        reader: Reader = DISK,
    ) -> None:
        self.facts: list[SegmentFacts] = []
        self.replay = ProducerReplay(None, True)
        self.unread: list[UnreadBatch] = []
        self.unreadable_paths: set[str] = set()
        self.known_ends: tuple[KnownBatchEnd, ...] = ()
        self._options = options
        self._totals = totals
        self._directory = directory
        self._log_dir_state = log_dir_state
        self._log_start = partition_files.checkpointed_start(directory, log_dir_state)
        self._collector_of = collector_of
        self._reader = reader
        self._snapshots = SnapshotCheck(directory, totals, reader)
        self._last_batch: PreviousBatch | None = None
        self._epochs: EpochCheck | None = None
        self._history: EpochHistory | None = None
        self._wants_side_files = options.level != "quick"
        topic = options.topic_of(directory.path)
        self._chain = SegmentChain(directory, log_dir_state, topic, self._log_start, reader)
        self._scan: ParallelScan | None = None
        self.shape_taker = ShapeTaker(directory.path) if options.shapes else None

    @property
    def epochs(self) -> EpochHistory | None:
        """The leader-epoch checkpoint, once `events` has read it; None if there is none or it is not trusted."""
        return self._history

    def events(self) -> Iterator[Event]:
        directory = self._directory
        if directory.problem is not None:
            raise UnreadableInput(directory.problem)
        yield from names_check.partition_names(directory, is_in_use=self._options.is_in_use)
        if directory.kafka07_files:
            from kseg.recovery.verify.check07 import check_partition07

            yield from check_partition07(directory, self._options, self._totals)
        if directory.segments:
            yield from self._prepare()
            with ExitStack() as stack:
                self._share_scan(stack)
                for at in range(len(directory.segments)):
                    yield from self._segment(at)
            yield from self._end_of_log()
        yield from self._chain.lost_logs(self.facts)
        if (
            not self._options.is_in_use
        ):  # a running broker that deletes segments writes the leader epochs later
            yield from self._chain.lost_start(self.facts, self._history)
        identity = self._options.identity_of(directory.path)
        yield from partition_files.metadata_files(
            directory, self._log_dir_state, self._totals, self._reader, identity
        )
        if directory.name is not None and directory.name.is_metadata_log:
            from kseg.recovery.verify.raft_check import raft_files

            yield from raft_files(directory, self._options, self._totals)

    # --- before the segments

    def _prepare(self) -> Iterator[Finding]:
        segments, name = self._directory.segments, self._directory.name
        entries, problem = partition_files.leader_epochs(self._directory, self._totals, self._reader)
        if problem is not None:
            yield problem
        if entries is not None:
            try:
                self._history = EpochHistory(entries)
                self._epochs = EpochCheck(self._epoch_entry_path(), entries)
            except FormatError as error:
                yield Finding("leader-epoch-file-corrupt", self._epoch_entry_path(), str(error))
        first = segments[0].base_offset
        state, is_exact = ProducerState(first), first == 0
        if first and self._wants_side_files and segments[0].snapshot is not None:
            loaded, wrong = self._snapshots.at_the_start(segments[0].snapshot, first)
            yield from wrong
            if loaded is not None:
                state, is_exact = loaded, True
        is_exact &= name is None or name.topic not in INTERNAL_TOPICS
        young_ms = never_expired_ms(self._options.topic_of(self._directory.path))
        self.replay = ProducerReplay(state, is_exact, self._log_start, young_ms)

    def _share_scan(self, stack: ExitStack) -> None:
        """If possible, start processes that scan the logs together with this one, until `stack` closes."""
        options = self._options
        if options.jobs > 1 and not options.claims and self._reader is DISK:
            from kseg.recovery.verify.parallel_scan import ParallelScan, ScannedLog

            segments = self._directory.segments
            logs = [ScannedLog(each.log.path, each.base_offset, each.log.size_bytes) for each in segments]
            self._scan = stack.enter_context(ParallelScan(logs, options))

    def _epoch_entry_path(self) -> str:
        entry = partition_files.live(self._directory, Role.LEADER_EPOCHS)
        return entry.path if entry is not None else self._directory.path

    # --- one segment

    def _segment(self, at: int) -> Iterator[Event]:
        segments = self._directory.segments
        segment, is_last = segments[at], at + 1 == len(segments)
        if self.facts:
            yield from self._join(self.facts[-1], segment)
        yield from self._presence(segment, is_last)
        with ExitStack() as stack:
            indexes = yield from self._indexes(stack, segment, is_last)
            evidence = self._evidence(indexes) if is_last else SideFileEvidence(epochs=self._history)
            file = yield from self._open(stack, segment.log)
            if file is None:
                self.facts.append(SegmentFacts.of_unread(segment))
                return
            view = file.view
            consumers: list[Consumer] = []
            if self._wants_side_files:
                yield from self._side_files(stack, segment, view, indexes, consumers)
            context = self._header_context(at, evidence, indexes)
            is_deep = self._options.level == "deep"
            skippable = skippable_spans(self._options.claims, segment.log, with_records=is_deep)
            records = None
            if is_deep:
                from kseg.recovery.verify.records_check import RecordsCheck

                records = RecordsCheck(segment.log.path, view)
                consumers.append(records)
            unread = UnreadRecords(segment.log.path, view, context.next_base, records)
            if self._wants_side_files:
                consumers.append(unread)
            if self._collector_of is not None:
                consumers.append(self._collector_of(segment))
            if self.shape_taker is not None:
                consumers.append(SegmentShaper(self.shape_taker, segment.base_offset, view))
            blocks = Scanner.blocks if self._scan is None else partial(self._scan.blocks, at)
            check = SegmentCheck(file, context, self._options, self._totals, consumers, skippable, blocks)
            yield from check.events()
            self.unread += unread.found
            if records is not None:
                self._totals.records += records.records - check.facts.records
                self._totals.sets_not_opened -= check.facts.sets_not_opened
        if any(isinstance(index, TimeIndexCheck) and index.is_of_another_log for index in indexes):
            self.known_ends = tuple(end for end in self.known_ends if end.timestamp_ms is None)
        self._last_batch = check.last_batch
        yield from self._after(segment, check.facts)

    def _header_context(
        self, at: int, evidence: SideFileEvidence, indexes: Sequence[OffsetIndexCheck | TimeIndexCheck]
    ) -> HeaderContext:
        segments = self._directory.segments
        segment, is_last = segments[at], at + 1 == len(segments)
        offset_indexes = (found for found in indexes if isinstance(found, OffsetIndexCheck))
        return HeaderContext(
            segment.log.path,
            segment.base_offset,
            None if is_last else segments[at + 1].base_offset,
            is_last,
            self.facts[-1].last_epoch if self.facts else L.NO_LEADER_EPOCH,
            self._last_batch,
            evidence,
            next((found.offset_for for found in offset_indexes), no_index),
        )

    def _after(self, segment: SegmentFiles, facts: SegmentFacts) -> Iterator[Finding]:
        self.facts.append(facts)
        has_times = facts.magics & ~1 or any(s.time_index for s in self._directory.segments)
        if segment.time_index is None and has_times and self._needs_indexes(segment):
            message = f"{segment.log.name.stem} has no .timeindex"
            yield Finding("time-index-missing", segment.log.path, message)

    def _needs_indexes(self, segment: SegmentFiles) -> bool:
        """Whether the indexes of a segment must exist: a broker creates those of a new active segment only when it appends to it again, or
        reads it (Kafka: LazyIndex)."""
        is_active = segment is self._directory.segments[-1]
        return not is_active or (segment.log.size_bytes > 0 and not self._options.is_in_use)

    def _open(self, stack: ExitStack, entry: Entry) -> Generator[Finding, None, OpenFile | None]:
        """Open a file until `stack` closes; None if it cannot be read."""
        if entry.problem is not None:
            return None  # already reported by the check of the names
        try:
            opened = stack.enter_context(self._reader.open(entry.path, self._options.drop_cache))
        except UnreadableInput as error:
            yield unreadable_file(entry.path, error)
            return None
        # after all checks, before the file is closed
        stack.callback(self._note_unreadable, entry.path, opened)
        return opened

    def _note_unreadable(self, path: str, opened: OpenFile) -> None:
        if opened.unreadable():
            self.unreadable_paths.add(path)

    def _presence(self, segment: SegmentFiles, is_last: bool) -> Iterator[Finding]:
        if segment.offset_index is None and self._needs_indexes(segment):
            message = f"{segment.log.name.stem} has no .index"
            yield Finding("index-missing", segment.log.path, message, first_offset=segment.base_offset)
        if not self._wants_side_files:
            for entry in (segment.offset_index, segment.time_index, segment.txn_index):
                if entry is not None:
                    yield from names_check.index_size(entry, None if is_last else segment.log.size_bytes)

    def _indexes(
        self, stack: ExitStack, segment: SegmentFiles, is_last: bool
    ) -> Generator[Finding, None, list[OffsetIndexCheck | TimeIndexCheck]]:
        """The checks of the entries that the indexes have now, before the log is opened: a running broker writes a batch before its
        entry."""
        checks: list[OffsetIndexCheck | TimeIndexCheck] = []
        if not self._wants_side_files:
            return checks
        is_running = is_last and self._may_be_in_use()
        for entry in (segment.offset_index, segment.time_index):
            if entry is None:
                continue
            opened = yield from self._open(stack, entry)
            if opened is None:
                continue
            context = IndexContext(entry.path, segment.base_offset, is_running, is_running, opened.unreadable)
            checker = OffsetIndexCheck if entry is segment.offset_index else TimeIndexCheck
            checks.append(checker(context, opened.view, self._totals, opened.data_end))
        return checks

    def _evidence(self, indexes: Sequence[OffsetIndexCheck | TimeIndexCheck]) -> SideFileEvidence:
        """What side files say about the last segment. indexes: those of it that are open; none at the quick level, which reads the last
        entries alone."""
        by_path = {index.context.path: index for index in indexes}

        def last_entries(entry: Entry, form: Struct) -> list[tuple[int, int]]:
            if not self._wants_side_files:
                return partition_files.read_last_entries(entry, form, self._reader)
            index = by_path.get(entry.path)
            return [] if index is None else partition_files.last_entries_in(index.view, index.used, form)

        ends = partition_files.known_batch_ends(self._directory, self._log_dir_state, last_entries)
        self.known_ends = tuple(ends)
        return partition_files.side_file_evidence(self.known_ends, self._history)

    def _side_files(
        self,
        stack: ExitStack,
        segment: SegmentFiles,
        view: memoryview,
        indexes: Sequence[Consumer],
        consumers: list[Consumer],
    ) -> Iterator[Finding]:
        if self._epochs is not None:
            consumers.append(self._epochs)
        self.replay.begin(segment.log.path, view)
        consumers += [self.replay, *indexes]
        opened = None
        if segment.txn_index is not None:
            opened = yield from self._open(stack, segment.txn_index)
        content = None if opened is None else opened.view
        log_name = os.path.join(self._directory.path, segment.log.name.name)
        path = (
            segment.txn_index.path if segment.txn_index else names_check.sibling_path(log_name, ".txnindex")
        )
        consumers.append(TxnIndexCheck(path, content, segment.base_offset, self.replay, self._totals))

    # --- between segments

    def _join(self, previous: SegmentFacts, segment: SegmentFiles) -> Iterator[Finding]:
        yield from self._chain.join(previous, segment)
        base = segment.base_offset
        if base != previous.end_offset:
            self.replay.is_exact = False
        self.replay.state.end_offset = base
        if segment.snapshot is not None and self._wants_side_files:
            yield from self._snapshots.compare(segment.snapshot, base, self.replay)

    # --- the end

    def _end_of_log(self) -> Iterator[Finding]:
        if not self.facts:
            return
        yield from self._chain.gaps(self.facts)
        last = self.facts[-1]
        is_in_use = self._options.is_in_use
        if self._wants_side_files:
            self.replay.state.end_offset = last.end_offset
            yield from self._snapshots.without_segment(self.facts[0].base_offset, last, self.replay)
            yield from self._snapshots.missing(
                self.replay, self._log_dir_state, self._log_start, last.end_offset
            )
            if self._epochs is not None:
                end_offset = last.end_offset if not last.damage else L.INT64_MAX
                yield from self._epochs.end_of_log(
                    self._log_start, end_offset, self._last_epoch(last), is_in_use=is_in_use
                )
            elif self._last_epoch(last) >= 0 and self._epoch_entry_path() == self._directory.path:
                message = "there is no leader-epoch-checkpoint"
                yield Finding("leader-epoch-file-missing", self._directory.path, message)
            yield from self.replay.open_transactions(self._directory.path)
            if self._log_dir_state is not None and self._directory.name is not None:
                first = self.facts[0].base_offset
                yield from partition_files.checkpoints(
                    self._directory, self._log_dir_state, first, last, is_in_use=is_in_use
                )
                if self._options.topic_of(self._directory.path).is_tiered:
                    path = self._epoch_entry_path()
                    yield from partition_files.remote_epochs(path, self.epochs, self._log_start, first)
                if not is_in_use:
                    yield from partition_files.log_start(self._directory, self._log_dir_state)

    def _may_be_in_use(self) -> bool:
        """Whether the indexes of the last segment may be preallocated, as those of a running broker are. Kafka 4.4 leaves those of the
        metadata log preallocated even after a clean shutdown."""
        if self._log_dir_state is None:
            return False
        name = self._directory.name
        return not self._log_dir_state.is_clean or (name is not None and name.is_metadata_log)

    @staticmethod
    def _last_epoch(last: SegmentFacts) -> int:
        """The leader epoch that appending the last batch recorded; none for an old format."""
        return last.last_epoch if last.last_magic == L.MAGIC_V2 else L.NO_LEADER_EPOCH


def verify_partition(target: PartitionTarget, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
    log_dir_state = read_log_dir_state(target.log_dir) if target.log_dir else None
    directory = list_partition(target.path)
    check = PartitionCheck(directory, log_dir_state, options, totals)
    yield from check.events()
    totals.shape = None if check.shape_taker is None else check.shape_taker.shape
    first, last = (check.facts[0], check.facts[-1]) if check.facts else (None, None)
    totals.checked = CheckedPartition(
        directory,
        log_dir_state,
        0 if first is None else first.base_offset,
        None if last is None else last.end_offset,
        0 if last is None or last.damage else last.padding_bytes,
        {each.base_offset: each.batches for each in check.facts},
        check.replay.state.greatest_id,
    )
