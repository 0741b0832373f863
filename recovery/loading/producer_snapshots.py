"""Producer state and its snapshots during a load (Kafka: ProducerStateManager, UnifiedLog.rebuildProducerState).

A broker creates a new state manager for every segment that it recovers, and one for the loaded log. To rebuild the state up to an offset:

1. A clean start without any snapshot: nothing is replayed; empty snapshots are written at the bases of the last two segments and at the
   offset.
2. Otherwise snapshots above the offset, and at or below the log start, are deleted. Unless the state is there already, the newest one is
   loaded, without expired producers (an unreadable one is deleted, and the next older one tried).
3. The segments from there to the offset are replayed, together (see `producer_replay`), each from the batch that the offset index leads to.
   At the bases of the last two segments a snapshot is taken on the way.
4. A snapshot is taken at the offset.

A snapshot is taken only if the state has advanced since the last one.
"""

from bisect import bisect_left, bisect_right, insort

from kseg.recovery.loading.kafka_exceptions import FILE_SYSTEM, ILLEGAL_ARGUMENT, BrokerException
from kseg.recovery.loading.load_state import LoadState, numbered
from kseg.recovery.loading.producer_replay import SegmentReplay
from kseg.recovery.loading.segment import LoadedSegment, LoadedSegments, LogRange
from kseg.recovery.policy import LoadSettings
from kseg.segment import layout as L
from kseg.segment.scanning.decode import Decoder
from kseg.segment.sidecar.snapshot import SnapshotCorrupt, decode_snapshot, encode_snapshot
from kseg.segment.state.producer import ProducerState


class _Snapshots:
    """The names of snapshots by their offset. A log may have thousands, and a load asks for the newest and the outermost ones at each of
    its segments.

    offsets: in order.
    """

    def __init__(self, names: dict[int, str]) -> None:
        self._names = names
        self.offsets = sorted(names)

    @property
    def newest(self) -> tuple[int, str]:
        return self.offsets[-1], self._names[self.offsets[-1]]

    def outside(self, first: int, last: int) -> list[int]:
        """The offsets at or below `first` or above `last`, in order."""
        low, high = bisect_right(self.offsets, first), bisect_right(self.offsets, last)
        return [*self.offsets[:low], *self.offsets[max(low, high) :]]

    def add(self, offset: int, name: str) -> None:
        if offset not in self._names:
            insort(self.offsets, offset)
        self._names[offset] = name

    def pop(self, offset: int) -> str | None:
        """Remove a snapshot; returns its name, None if there was none."""
        name = self._names.pop(offset, None)
        if name is not None:
            del self.offsets[bisect_left(self.offsets, offset)]
        return name


class LoadedProducers:
    """One producer state manager. state: the producers; its end offset is the map end offset.

    unreplicated: first offset → marker's offset of transactions that ended while segments were replayed together. lost: first
    offsets of transactions that are open for their producer but missing from the list of open ones.
    """

    def __init__(self, load_state: LoadState, settings: LoadSettings) -> None:
        self._load_state = load_state
        self._settings = settings
        self._snapshots = _Snapshots(load_state.list_snapshots())
        self._last_snapshot_offset = 0
        self.state = ProducerState(0)
        self.unreplicated: dict[int, int] = {}
        self.lost: set[int] = set()

    # --- snapshots

    def take_snapshot(self) -> None:
        """Write the state if it has advanced since the last snapshot."""
        offset = self.state.end_offset
        if offset <= self._last_snapshot_offset:
            return
        name = numbered(offset, L.SNAPSHOT_SUFFIX)
        if name in self._load_state.folders:
            raise BrokerException(FILE_SYSTEM, f"{self._load_state.path(name)} (Is a directory)")
        self._load_state.write(
            name, encode_snapshot(self.state.snapshot()), f"the producers up to offset {offset}"
        )
        self._snapshots.add(offset, name)
        self._last_snapshot_offset = offset

    def remove_stray_snapshots(self, bases: list[int]) -> None:
        """Keep only snapshots at base offsets of segments, and the largest other one unless it is below the last base offset."""
        self._snapshots = _Snapshots(self._load_state.list_snapshots())
        known = set(bases)
        stray = [offset for offset in self._snapshots.offsets if offset not in known]
        if stray and bases and stray[-1] >= bases[-1]:
            stray.pop()
        elif not bases:
            del stray[-1:]
        for offset in stray:
            self._delete(offset, "snapshot-stray", "belongs to no segment")

    def forget_snapshot_at(self, offset: int, why: str) -> None:
        """Delete the snapshot of a removed segment, if it existed when the load began."""
        name = self._snapshots.pop(offset)
        if name is not None and name in self._load_state.image:
            self._load_state.remove(name, why)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Start over for an empty log that begins at `offset` (Kafka: truncateFullyAndStartAt)."""
        for known in [*self._snapshots.offsets]:
            self._delete(known, None, "the log is empty")
        self._last_snapshot_offset = 0
        self.state = ProducerState(offset)

    def _delete(self, offset: int, finding: str | None, why: str) -> None:
        name = self._snapshots.pop(offset)
        if name is not None and name in self._load_state.image:
            if finding is not None and name in self._load_state.found:
                self._load_state.note(finding, name, f"the producer snapshot at offset {offset} {why}")
            self._load_state.remove(name, f"the snapshot at offset {offset}: {why}")

    # --- rebuilding

    def rebuild(
        self, segments: LoadedSegments, log_start_offset: int, last_offset: int, *, is_clean: bool
    ) -> None:
        """The state up to `last_offset`, by the plan above. Raises BrokerException."""
        bases = segments.newest_bases(2)
        if not self._snapshots.offsets and is_clean:
            for offset in (*bases, last_offset):
                self.state.end_offset = offset
                self.take_snapshot()
            return
        was_there = self.state.end_offset >= last_offset
        self._truncate_and_reload(log_start_offset, last_offset)
        if last_offset > self.state.end_offset and not was_there:
            last_segment = segments.floor(last_offset)
            for segment in segments.between(self.state.end_offset, last_offset):
                start = max(segment.base_offset, self.state.end_offset, log_start_offset)
                self.state.end_offset = start
                if segment.base_offset in bases:
                    self.take_snapshot()
                self._replay(segment, start, last_offset if segment is last_segment else None)
        self.state.end_offset = last_offset
        self.take_snapshot()

    def _truncate_and_reload(self, log_start_offset: int, log_end_offset: int) -> None:
        for offset in self._snapshots.outside(log_start_offset, log_end_offset):
            if offset > log_end_offset:
                self._delete(offset, None, f"is above {log_end_offset}, the end of the log loaded so far")
            else:
                self._delete(offset, None, f"is not above the log start {log_start_offset}")
        if log_end_offset != self.state.end_offset:
            self._load_newest(log_start_offset)
            return
        self.state.end_offset = max(self.state.end_offset, log_start_offset)
        offsets = self._snapshots.offsets
        self._last_snapshot_offset = offsets[-1] if offsets else log_start_offset

    def _load_newest(self, log_start_offset: int) -> None:
        while self._snapshots.offsets:
            offset, name = self._snapshots.newest
            try:
                entries = decode_snapshot(self._load_state.view(name))
            except SnapshotCorrupt as error:
                self._delete(offset, "snapshot-corrupt", f"cannot be read: {error}")
                continue
            settings = self._settings
            self.state = ProducerState.load(
                entries, offset, settings.now_ms, settings.producer_id_expiration_ms
            )
            self._last_snapshot_offset = offset
            return
        self.state = ProducerState(log_start_offset)
        self._last_snapshot_offset = log_start_offset

    def _replay(self, segment: LoadedSegment, start: int, end_offset: int | None) -> None:
        """Replay a segment from the batch that contains `start` to the one with `end_offset`, None for all."""
        end = segment.size_bytes
        if end_offset is not None:
            found = segment.find(end_offset)
            end = end if found is None else found.position
        span = segment.read(start, L.INT32_MAX, end)
        if span is not None:
            self._replay_range(segment, span)

    def _replay_range(self, segment: LoadedSegment, span: LogRange) -> None:
        replay = SegmentReplay(self.state)
        decoder = Decoder(segment.view, capacity=16)
        for table in segment.walk.with_headers(span.position, span.end):
            replay.take(decoder, table)
        end_offset = self.state.end_offset
        owners = {one.first_offset: one.producer_id for one in self.state.open_transactions}
        still_open = owners.keys() - self.lost
        still_open.update(first_offset for first_offset, _ in replay.started)
        for first_offset, marker_offset in replay.completed:
            if first_offset not in still_open:
                raise BrokerException(
                    ILLEGAL_ARGUMENT, f"the transaction from offset {first_offset} ends twice in one segment"
                )
            still_open.remove(first_offset)
            self.unreplicated[first_offset] = marker_offset
        self.state = ProducerState.load(replay.merged(), end_offset, are_replayed=True)
        in_entries = {one.first_offset for one in self.state.open_transactions}
        self.lost = in_entries - still_open
        for first_offset in still_open - in_entries:  # replaced by a later entry of the same producer
            self.state.keep_open(first_offset, owners[first_offset])
