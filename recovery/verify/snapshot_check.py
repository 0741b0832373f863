"""Check the producer snapshots of a partition against a replay of its log: at base offsets, at the log end, and all others."""

from collections.abc import Iterator, Sequence

from kseg.recovery.verify.producer_check import ProducerReplay, above_their_snapshot
from kseg.recovery.verify.segment_check import SegmentFacts
from kseg.recovery.verify.small_files import unreadable_file
from kseg.recovery.verify.totals import Totals
from kseg.segment.counted import log_range_words
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import Reader
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import Entry, PartitionDirectory
from kseg.segment.partition.log_dir_state import LogDirState
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, SnapshotCorrupt, decode_snapshot
from kseg.segment.state.producer import ProducerState


class SnapshotCheck:
    """The snapshots of one partition directory; the bytes read are added to the totals."""

    def __init__(self, directory: PartitionDirectory, totals: Totals, reader: Reader) -> None:
        self._directory = directory
        self._totals = totals
        self._reader = reader

    def compare(self, entry: Entry, offset: int, replay: ProducerReplay) -> Iterator[Finding]:
        """Compare the snapshot at an offset with the replay up to there."""
        loaded, finding = self.load(entry)
        if finding is not None:
            yield finding
        if loaded is not None:
            yield from replay.compare(entry.path, offset, loaded, entry.mtime_ms)

    def at_the_start(self, entry: Entry, offset: int) -> tuple[ProducerState | None, Sequence[Finding]]:
        """The producers with which a replay begins at the first segment, and findings. There is no earlier log to compare that segment's
        snapshot with; None, with the findings that say so, if the snapshot cannot be read or contradicts itself."""
        loaded, finding = self.load(entry)
        if loaded is None:
            return None, () if finding is None else (finding,)
        wrong = tuple(above_their_snapshot(entry.path, offset, loaded))
        return None if wrong else ProducerState.load(loaded, offset), wrong

    def load(self, entry: Entry) -> tuple[tuple[ProducerSnapshotEntry, ...] | None, Finding | None]:
        """The entries of a snapshot; None, and a finding with the reason, if it cannot be read."""
        try:
            data = self._reader.read_small(entry.path)
        except UnreadableInput as error:
            return None, unreadable_file(entry.path, error)
        try:
            loaded = decode_snapshot(data)
        except SnapshotCorrupt as error:
            self._totals.account(entry.path, len(data), len(data))
            return None, Finding(
                "snapshot-corrupt", entry.path, str(error), 0, len(data), entry.name.base_offset
            )
        self._totals.account(entry.path, len(data))
        return loaded, None

    def without_segment(
        self, log_start: int, last: SegmentFacts, replay: ProducerReplay
    ) -> Iterator[Finding]:
        """Check snapshots without a segment of the same base offset: at the log end, before it, and beyond it."""
        bases = {segment.base_offset for segment in self._directory.segments}
        others = [entry for entry in self._directory.snapshots if entry.name.base_offset not in bases]
        for entry in others:
            offset = entry.name.base_offset
            assert offset is not None
            if offset == last.end_offset:
                yield from self.compare(entry, offset, replay)
                continue
            _, finding = self.load(entry)
            if finding is not None:
                yield finding
            elif offset > last.end_offset and last.damage:
                continue  # its segment was lost with the damage
            elif offset > last.end_offset:
                message = f"offset {offset} is not in the log ({log_range_words(log_start, last.end_offset)})"
                yield Finding("snapshot-stray", entry.path, message, first_offset=offset)
            elif offset < log_start:  # a broker that deletes segments leaves it
                message = f"offset {offset} is below the log ({log_range_words(log_start, last.end_offset)})"
                yield Finding("snapshot-leftover", entry.path, message, first_offset=offset)
            else:
                message = f"offset {offset} is neither the base offset of a segment nor the log end offset"
                yield Finding("snapshot-leftover", entry.path, message, first_offset=offset)

    def missing(
        self, replay: ProducerReplay, log_dir_state: LogDirState | None, log_start: int, end_offset: int
    ) -> Iterator[Finding]:
        """Without any snapshot, a broker that starts after a clean shutdown does not read the log (UnifiedLog.rebuildProducerState). A
        broker that stops writes none where all records were deleted: its newest offset is that of the log start
        (ProducerStateManager.takeSnapshot)."""
        producers = replay.state.snapshot()
        if not producers or self._directory.snapshots or log_start >= end_offset:
            return
        opened = len(replay.state.open_transactions)
        has_open = f", {opened} of them with an open transaction" if opened else ""
        known = f"{len(producers)} producer{'s' if len(producers) > 1 else ''}{has_open}"
        numbers = {
            "producers": len(producers),
            "open_transactions": opened,
        }
        if log_dir_state is not None and log_dir_state.is_clean:
            message = f"there is no producer snapshot, but the log has {known}: a broker forgets them on a clean start"
            yield Finding("snapshot-missing", self._directory.path, message, numbers=numbers)
        else:
            message = f"there is no producer snapshot yet; the log has {known}"
            yield Finding("snapshot-unwritten", self._directory.path, message, numbers=numbers)
