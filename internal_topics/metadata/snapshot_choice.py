"""Choose the snapshot with which the replay of a metadata log begins.

The current state begins with the newest usable snapshot, as a node's does. An earlier state (`metadata_place.AsOf`) begins with
the newest one that contains nothing later, and only if the log has everything between that snapshot and the requested place. A
reader that wants as much of the log as possible begins with the earliest snapshot that the log continues.
"""

from kseg.internal_topics.metadata.metadata_log_files import LogFiles, SnapshotFile
from kseg.internal_topics.metadata.metadata_place import AsOf, PlaceInLog
from kseg.internal_topics.metadata.metadata_replay import MetadataReplay
from kseg.internal_topics.metadata.metadata_snapshot import ReadSnapshot, read_snapshot
from kseg.segment.errors import UnreadableInput


class SnapshotChoice:
    """The snapshots of a metadata log. place: where `as_of` ends in the log. everything: as in `MetadataReading`. is_forecast: the newest
    snapshot counts as far as it can be read, since a node tries no other.

    After `newest`: passed_over, the newer snapshots that are damaged or incomplete; is_cut, whether one contains more than
    the requested state.
    """

    def __init__(
        self, files: LogFiles, as_of: AsOf | None, place: PlaceInLog, everything: bool, is_forecast: bool
    ) -> None:
        self.passed_over: list[ReadSnapshot] = []
        self.is_cut = False
        self._snapshots = files.snapshots
        self._log_start = files.segments[0][0] if files.segments else None
        self._as_of = as_of
        self._place = place
        self._everything = everything
        self._is_forecast = is_forecast

    def newest(self) -> ReadSnapshot | None:
        """The newest usable snapshot; for an earlier state the newest that contains nothing later; None if there is none."""
        for file in self._snapshots:
            if self._is_beyond(file.end_offset, None):
                self.is_cut = True
                continue
            snapshot = self._read(file)
            if snapshot.problem and not self._is_forecast:
                self.passed_over.append(snapshot)
            elif self._is_beyond(file.end_offset, snapshot.timestamp_ms):
                self.is_cut = True
            else:
                return snapshot
        return None

    def first(self) -> ReadSnapshot | None:
        """The earliest usable snapshot that the log continues; None if the log starts at offset 0."""
        start = self._log_start
        if start is None:
            return self.newest()
        if start == 0:
            return None
        for file in reversed(self._snapshots):
            if file.end_offset >= start and not self._is_beyond(file.end_offset, None):
                snapshot = self._read(file)
                if not snapshot.problem and not self._is_beyond(file.end_offset, snapshot.timestamp_ms):
                    return snapshot
        return self.newest()

    def check_reach(self, as_of: AsOf, snapshot: ReadSnapshot | None, path: str) -> None:
        """Raises UnreadableInput when records between the snapshot (or offset 0) and the requested place are gone."""
        begins = 0 if snapshot is None else snapshot.end_offset
        start = self._log_start
        if snapshot is not None and (start is None or start <= begins or self._place.end_offset == begins):
            return
        if snapshot is None and start == 0:
            return
        raise UnreadableInput(f"{path} does not reach back to {as_of.words}: {self._reach_words(as_of)}")

    def _read(self, file: SnapshotFile) -> ReadSnapshot:
        return read_snapshot(file.path, file.end_offset, file.epoch, MetadataReplay(self._everything))

    def _is_beyond(self, end_offset: int, timestamp_ms: int | None) -> bool:
        """Whether a snapshot that ends there contains more than the requested state."""
        if self._as_of is None:
            return False
        time_ms = self._as_of.time_ms
        if time_ms is not None and timestamp_ms is not None and timestamp_ms > time_ms:
            return True
        first = self._place.first_passed_over
        return first is not None and end_offset > first

    def _reach_words(self, as_of: AsOf) -> str:
        """The earliest state that can be requested."""
        start = self._log_start
        has = "there is no log" if start is None else f"the log starts at offset {start}"
        for file in reversed(self._snapshots):
            if start is not None and file.end_offset < start:
                continue
            snapshot = self._read(file)
            if not snapshot.problem:
                since = f"the state can be asked for from offset {file.end_offset - 1} on"
                if as_of.time_ms is not None:
                    since += f", time {snapshot.timestamp_ms}"
                return f"{has}, and the oldest usable snapshot ends before offset {file.end_offset}: {since}"
        return f"{has}, and no snapshot can be used"
