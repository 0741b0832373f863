"""Policy `kafka`: a broker's load of one partition directory, then a clean shutdown (fact sheet §6; Kafka: LogLoader).

The load is simulated on an image of the directory, with the broker's own objects in its own order, because the result depends on details:
which snapshot is loaded when, whether an index is trusted, whether a file is created only on first use. The steps:

1. Read the leader epochs, list the producer snapshots.
2. Complete interrupted cleanings, splits and deletions (`swap_files`).
3. In the order of names: an index without its log is deleted; a log whose offset index is missing, or whose transaction index has an entry
   below it, is recovered at once. A truncation here does not remove later segments.
4. Unless the shutdown was clean: recover each segment from the recovery point on; truncate one with offsets out of order to 0 bytes; delete
   all segments after the first that loses bytes.
5. Delete a log that ends below its log start; a log without segments gets an empty one.
6. Truncate the leader epochs to the ends of the log.
7. Delete stray snapshots; rebuild the producer state to the log end.
8. Empty a metadata log that is older than its newest snapshot (`newest_snapshot`).
9. Close the log: trim indexes to their entries.

Steps 3 and 4 start again whenever a segment overflows, which is split (`overflow`). An exception that a broker does not catch ends the
load: the result is then the directory as found, and the exception.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.steps import FileIdentity
from kseg.recovery.loading.epoch_cache import FILE_NAME as EPOCHS_FILE
from kseg.recovery.loading.epoch_cache import LoadedEpochs
from kseg.recovery.loading.kafka_exceptions import FILE_SYSTEM, OUT_OF_ORDER, OVERFLOW, BrokerException
from kseg.recovery.loading.load_state import LoadState, numbered, offset_in_name
from kseg.recovery.loading.loss_report import kept_ranges, report_removed_log, report_truncation, without_kept
from kseg.recovery.loading.newest_snapshot import empties_log, newest_snapshot
from kseg.recovery.loading.overflow import split_overflowed
from kseg.recovery.loading.partition_metadata_check import check_partition_metadata
from kseg.recovery.loading.producer_snapshots import LoadedProducers
from kseg.recovery.loading.segment import LoadedSegment, LoadedSegments
from kseg.recovery.loading.segment_recovery import recover
from kseg.recovery.loading.swap_files import resolve_leftovers
from kseg.recovery.policy import BrokerState, LoadFailure, LoadSettings, Repair
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import PartitionState, parse_file_name
from kseg.segment.scanning.preallocated_tail import PREALLOCATED
from kseg.segment.state.producer import last_stable_offset

T = TypeVar("T")

_EMPTY_SEGMENT = (OUT_OF_ORDER, FILE_SYSTEM)
_SIDE_SUFFIXES = (L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX, L.TXN_INDEX_SUFFIX)


def load_as_broker(
    directory: str,
    inputs: tuple[FileIdentity, ...],
    broker_state: BrokerState,
    settings: LoadSettings,
    *,
    rebuild: bool = False,
    folders: Collection[str] = (),
) -> Repair:
    """The directory after a broker's load and a clean shutdown. inputs: its files (`plan.inputs.inputs_of`). folders: its subdirectories;
    one in the place of an index counts as an existing index until the broker opens it.

    rebuild: as if all side files were missing and the shutdown had not been clean, with recovery point 0. If the load would
    throw, `load_failure` of the result says so. Raises UnreadableInput when a file cannot be read.
    """
    with LoadState(directory, inputs, folders) as load_state:
        if rebuild:
            broker_state = _forget_side_files(load_state, broker_state, keeps_epochs=settings.topic.is_tiered)
        try:
            load = _Load(load_state, broker_state, settings, is_rebuild=rebuild)
            load.run()
        except BrokerException as thrown:
            load_failure = LoadFailure(thrown.kafka_exception, thrown.sentence, thrown.logged)
            return Repair.without_log(DirectoryImage.of(inputs), tuple(load_state.findings), load_failure)
        kept = tuple(kept_ranges(load_state)) if load_state.removed else ()
        removed = without_kept(load_state.removed, kept)
        return Repair(
            image=load_state.image,
            log_start_offset=load.log_start_offset,
            log_end_offset=load.log_end_offset,
            last_stable_offset=load.last_stable_offset,
            recovery_point=load.recovery_point,
            why=load_state.changes(),
            findings=tuple(load_state.findings),
            removed=tuple(sorted(removed, key=lambda each: (offset_in_name(each.file), each.position))),
            is_in_order=not load_state.removed and load.is_in_order(),
            kept=kept,
            bytes_scanned=load.bytes_scanned,
            is_read=load.is_read,
        )


def _forget_side_files(
    load_state: LoadState, broker_state: BrokerState, *, keeps_epochs: bool
) -> BrokerState:
    """Drop the side files. keeps_epochs: keep the leader epochs, since with tiered storage the log does not contain all of them."""
    for name in load_state.listing():
        is_epochs = name == EPOCHS_FILE and not keeps_epochs
        if name.endswith((*_SIDE_SUFFIXES, L.SNAPSHOT_SUFFIX)) or is_epochs:
            load_state.remove(name, "to be rebuilt from the log")
    return replace(broker_state, is_clean=False, recovery_point=0)


class _Load:
    """One load. After `run`: the offsets of the log, and the directory as the load and a clean shutdown leave it.

    is_rebuild: missing indexes are no finding, since they were removed on purpose.
    """

    def __init__(
        self, load_state: LoadState, broker_state: BrokerState, settings: LoadSettings, *, is_rebuild: bool
    ) -> None:
        self._load_state = load_state
        self._broker_state = broker_state
        self._settings = settings
        self._is_rebuild = is_rebuild
        self._segments = LoadedSegments()
        self._is_deleted = load_state.directory_name.endswith(f"-{PartitionState.DELETE}")
        self._epochs = LoadedEpochs(load_state)
        self._producers = LoadedProducers(load_state, settings)
        self.log_start_offset = self.log_end_offset = self.last_stable_offset = self.recovery_point = 0
        self.bytes_scanned = 0
        self.is_read = False

    def run(self) -> None:
        """All steps of the plan. Raises BrokerException."""
        broker_state, segments = self._broker_state, self._segments
        resolve_leftovers(self._load_state, self._settings)
        self._splitting(self._load_files)
        if self._is_deleted:
            if not len(segments):
                segments.add(self._new_segment(0))
        else:
            self.log_end_offset = self._splitting(self._recover_log)
            segments.last.offset_index.resize_to_full()
            segments.last.time_index.resize_to_full()
        self._epochs.truncate_from_end(self.log_end_offset)
        self.log_start_offset = self._settings.topic.log_start(
            broker_state.log_start_offset, segments.first.base_offset
        )
        self._epochs.truncate_from_start(broker_state.log_start_offset)
        self._producers.remove_stray_snapshots(segments.bases)
        self._producers.rebuild(
            segments, self.log_start_offset, self.log_end_offset, is_clean=broker_state.is_clean
        )
        self.recovery_point = max(self.recovery_point, self.log_start_offset, segments.first.base_offset)
        self.last_stable_offset = self._last_stable_offset()
        check_partition_metadata(self._load_state)
        self._truncate_to_newest_snapshot()
        self._close()

    def is_in_order(self) -> bool:
        """Whether every segment was recovered, offsets increase throughout the log, and leader epochs never decrease."""
        end = epoch = -1
        for segment in self._segments:
            ordered_range = segment.ordered_range
            if (
                ordered_range is None
                or ordered_range.first_offset <= end
                or 0 <= ordered_range.first_epoch < epoch
            ):
                return False
            end, epoch = max(end, ordered_range.last_offset), max(epoch, ordered_range.last_epoch)
        return True

    def _splitting(self, work: Callable[[], T]) -> T:
        """Run `work` again after each split of a segment that overflows."""
        while True:
            try:
                return work()
            except _Overflow as overflow:
                for base_offset in split_overflowed(overflow.segment, self._segments):
                    self._producers.forget_snapshot_at(base_offset, "its segment was split")

    # --- the files

    def _load_files(self) -> None:
        load_state, segments = self._load_state, self._segments
        segments.close_all()
        segments.clear()
        for name in sorted(load_state.listing(), key=_java_order):
            if name.endswith(_SIDE_SUFFIXES):
                if numbered(offset_in_name(name), L.LOG_SUFFIX) not in load_state.image:
                    load_state.note("orphan-index", name, "the index has no log and is deleted")
                    load_state.remove(name, "an index without its log")
            elif name.endswith(L.LOG_SUFFIX):
                segment = LoadedSegment(load_state, offset_in_name(name), self._settings)
                if not self._has_sound_indexes(segment):
                    self._recover_segment(segment)
                segments.add(segment)

    def _has_sound_indexes(self, segment: LoadedSegment) -> bool:
        """The index checks of a load: whether the offset index exists, and whether the transaction index is sane."""
        load_state = self._load_state
        if not segment.offset_index.exists:
            if not self._is_rebuild:
                message = "the segment has no offset index, so it is recovered"
                load_state.note("index-missing", segment.log_name, message)
            return False
        if not segment.time_index.exists:
            message = "the segment has no time index; a broker creates an empty one and trusts it"
            load_state.note("time-index-missing", segment.log_name, message)
            segment.time_index.resize_to_nothing()
        if not segment.txn_index.is_sane():
            message = "the transaction index has an abort below the base offset, so the segment is recovered"
            load_state.note("txn-index-below-base", segment.txn_index.name, message)
            return False
        return True

    def _recover_segment(self, segment: LoadedSegment) -> int:
        """Recover one segment, starting from the producer state before it; returns the number of bytes truncated."""
        self.bytes_scanned += segment.size_bytes
        producers = LoadedProducers(self._load_state, self._settings)
        start = self._broker_state.log_start_offset
        producers.rebuild(self._segments, start, segment.base_offset, is_clean=False)
        try:
            removed = recover(segment, producers, self._epochs)
        except BrokerException as thrown:
            if thrown.kafka_exception == OVERFLOW:
                raise _Overflow(segment, thrown.sentence) from thrown
            raise
        if removed and self._load_state.removed[-1].cause == PREALLOCATED:
            self.bytes_scanned -= removed
        producers.take_snapshot()
        return removed

    # --- the log

    def _recover_log(self) -> int:
        """Steps 4 and 5; returns the log end offset."""
        broker_state, segments = self._broker_state, self._segments
        if not broker_state.is_clean:
            self._recover_unflushed()
        if len(segments):
            end = segments.last.next_offset()
            if end >= broker_state.log_start_offset:
                self.recovery_point = end if broker_state.is_clean else min(broker_state.recovery_point, end)
                return end
            self._delete_all(end)
        else:
            self._load_state.note(
                "no-segments", "", "the directory has no segment; a broker creates an empty one"
            )
        segments.add(self._new_segment(broker_state.log_start_offset))
        end = segments.last.next_offset()
        self.recovery_point = min(broker_state.recovery_point, end)
        return end

    def _new_segment(self, base_offset: int) -> LoadedSegment:
        name = numbered(base_offset, L.LOG_SUFFIX)
        if name in self._load_state.folders:
            raise BrokerException(FILE_SYSTEM, f"{self._load_state.path(name)}: Is a directory")
        return LoadedSegment(self._load_state, base_offset, self._settings)

    def _recover_unflushed(self) -> None:
        unflushed = self._segments.between(self._broker_state.recovery_point, L.INT64_MAX)
        for segment in unflushed:
            try:
                removed = self._recover_segment(segment)
            except BrokerException as thrown:
                if thrown.kafka_exception not in _EMPTY_SEGMENT:
                    raise
                removed = self._empty(segment, thrown)
            if removed:
                segment.next_offset()  # a broker computes this for a warning, and may fail doing so
                self._delete_after(segment, unflushed)
                return

    def _empty(self, segment: LoadedSegment, thrown: BrokerException) -> int:
        """Truncate a segment with offsets out of order, or whose snapshot cannot be written, to 0 bytes; returns the number of bytes
        truncated."""
        found = segment.find(segment.base_offset)
        if found is not None and found.position < segment.size_bytes:
            path = self._load_state.path(segment.log_name)
            kind = "offset-not-monotonic" if thrown.kafka_exception == OUT_OF_ORDER else "unknown-file"
            cause = Finding(kind, path, f"{thrown.sentence}; a broker truncates the segment to 0 bytes")
            report_truncation(
                self._load_state,
                segment.log_name,
                segment.base_offset,
                found.position,
                segment.base_offset,
                cause,
            )
        why = "its offsets are out of order" if thrown.kafka_exception == OUT_OF_ORDER else thrown.sentence
        return segment.truncate_to(segment.base_offset, why)

    def _delete_after(self, damaged: LoadedSegment, unflushed: Sequence[LoadedSegment]) -> None:
        cause = self._load_state.removed[-1].cause
        for segment in unflushed:
            if segment.base_offset > damaged.base_offset:
                why = f"after the damage in {damaged.log_name}"
                self._delete(segment, cause, why)
                self._producers.forget_snapshot_at(segment.base_offset, why)

    def _delete_all(self, log_end_offset: int) -> None:
        start = self._broker_state.log_start_offset
        why = f"the log ends at offset {log_end_offset}, below its log start {start}"
        self._load_state.note("log-start-beyond-end", "", f"{why}: a broker deletes the whole log")
        for segment in list(self._segments):
            self._delete(segment, "log-start-beyond-end", why)
        self._epochs.clear()
        self._producers.truncate_fully_and_start_at(start)

    def _truncate_to_newest_snapshot(self) -> None:
        """The removed bytes do not count as lost: the snapshot contains the state that they recorded."""
        name = own_partition_name(self._load_state.directory)
        if name is None or not name.is_metadata_log:
            return
        snapshot = newest_snapshot(map(parse_file_name, self._load_state.listing()))
        if snapshot is None or not empties_log(snapshot, self._epochs.latest_epoch, self.log_end_offset):
            return
        start = snapshot.base_offset or 0
        for segment in list(self._segments):
            self._segments.remove(segment.base_offset)
            segment.delete(f"{snapshot.name} is newer than the log, which continues at its end")
        self._epochs.clear()
        self._producers.truncate_fully_and_start_at(start)
        self._segments.add(self._new_segment(start))
        self.log_start_offset = self.log_end_offset = self.last_stable_offset = self.recovery_point = start

    def _delete(self, segment: LoadedSegment, cause: str, why: str) -> None:
        report_removed_log(self._load_state, segment.log_name, segment.base_offset, cause)
        self._segments.remove(segment.base_offset)
        segment.delete(why)

    # --- the end

    def _last_stable_offset(self) -> int:
        """The last stable offset, with the log end as high watermark. A broker reads the batch where the first open transaction begins,
        before and after it learns the high watermark, and thereby opens that segment's offset index."""
        high_watermark = max(self.log_end_offset, self.log_start_offset)
        self.is_read = self._unstable(self.log_start_offset - 1) is not None
        for known in (self.log_start_offset - 1, high_watermark):
            offset = last_stable_offset(
                self._unstable(known), self.log_start_offset, high_watermark, self._batch_position
            )
        return offset

    def _unstable(self, high_watermark: int) -> int | None:
        """The first undecided offset below a high watermark; None if all are decided."""
        producers = self._producers
        offsets = [one.first_offset for one in producers.state.open_transactions]
        offsets = [offset for offset in offsets if offset not in producers.lost]
        offsets += [first for first, marker in producers.unreplicated.items() if marker >= high_watermark]
        return min(offsets, default=None)

    def _batch_position(self, offset: int) -> int:
        """Position of the batch that contains an offset or follows it; the log end if there is none (Kafka:
        convertToOffsetMetadataOrThrow)."""
        segment = self._segments.floor(offset)
        if offset > self.log_end_offset or segment is None:
            return offset
        if offset == self.log_end_offset:
            return self.log_end_offset
        while segment is not None:
            found = segment.read(offset, 1, segment.size_bytes)
            if found is not None:
                return found.base_offset
            segment = self._segments.above(segment.base_offset)
        return self.log_end_offset

    def _close(self) -> None:
        for segment in self._segments:
            segment.time_index.open_if_visible()  # a lookup by timestamp in the log opens all time indexes
        self._producers.take_snapshot()
        self._segments.close_all()


class _Overflow(Exception):
    """A segment overflows and must be split."""

    def __init__(self, segment: LoadedSegment, sentence: str) -> None:
        super().__init__(sentence)
        self.segment = segment


def _java_order(name: str) -> bytes:
    """Sort key: Java compares names by their UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")
