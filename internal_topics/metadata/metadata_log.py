"""A metadata log read into an image: the newest whole snapshot, and the log behind it.

1. Snapshots, the newest first, by epoch and end offset as a node picks them (Kafka: KafkaRaftLog). One that is damaged or
   lacks its header or footer is passed over: an older one and more of the log say the same.
2. The log from the snapshot's end on, without one from offset 0. What lies below is only looked through for the names of topics
   that are gone. A snapshot behind the end of the log counts alone, as for a node.
3. Doubts: damage, missing offsets, records that cannot be decoded, files beside the log that know offsets behind its end.
   The replay goes on behind them, so that the image is the best there is; `MetadataImage.doubts` says that it is not certain.

Never raises for what lies in the files; a directory that cannot be listed is UnreadableInput.
"""

import os
from contextlib import suppress

from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.metadata_replay import MetadataReplay
from kseg.segment import header_tables as C
from kseg.segment.errors import FormatError, KsegError, UnreadableInput, cannot_read
from kseg.segment.files import MappedFile, read_small
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.partition.names import NAME_BY_ROLE, FileName, Role, parse_file_name
from kseg.segment.scanning.decode import Chunk, Decoder, record_at
from kseg.segment.scanning.scan import Damage, Scanner
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.metadata_files import decode_meta_properties
from kseg.segment.state.control import parse_control_record
from kseg.segment.state.kraft_messages import SNAPSHOT_FOOTER, SNAPSHOT_HEADER
from kseg.segment.values import dataclass

_DOUBT, _NOTE = "metadata-log-doubtful", "metadata-log-note"
_MOST_TOLD = 10  # doubts and notes of one kind


def read_metadata_log(directory: str) -> MetadataImage:
    """The image of a `__cluster_metadata-0` directory. Raises UnreadableInput when it cannot be listed."""
    try:
        names = [parse_file_name(name) for name in sorted(os.listdir(directory))]
    except OSError as error:
        raise cannot_read(directory, error) from error
    return _Reading(directory, names).image()


def read_metadata_file(path: str) -> MetadataImage:
    """The image that one snapshot, or one segment of the log, gives by itself. Raises UnreadableInput, and for a file that
    is neither FormatError."""
    name = parse_file_name(os.path.basename(path))
    if name.role not in (Role.METADATA_SNAPSHOT, Role.LOG, Role.BOOTSTRAP_SNAPSHOT):
        raise FormatError(f"{path} is no snapshot and no segment of a metadata log")
    with MappedFile(path):
        pass  # whether it can be read at all: the caller named it
    return _Reading(os.path.dirname(path) or os.curdir, [name], path).image()


@dataclass(slots=True)
class _Snapshot:
    """What a snapshot turned out to be. problem: why it cannot be used, in words."""

    path: str
    end_offset: int
    epoch: int
    replay: MetadataReplay
    timestamp_ms: int
    problem: str = ""


class _Reading:
    def __init__(self, directory: str, names: list[FileName], path: str | None = None) -> None:
        self._directory = directory
        self._path = directory if path is None else path
        self._is_alone = path is not None
        live = [name for name in names if name.is_live and name.is_well_formed]
        self._segments = sorted(
            (name.base_offset, name.name)
            for name in live
            if name.role is Role.LOG and name.base_offset is not None
        )
        self._snapshots = sorted(
            (
                (name.epoch, name.base_offset, name.name)
                for name in live
                if name.role is Role.METADATA_SNAPSHOT
                and name.epoch is not None
                and name.base_offset is not None
            ),
            reverse=True,
        )
        self._known_offsets = [
            (name.base_offset, name.name)
            for name in live
            if name.role is Role.PRODUCER_SNAPSHOT and name.base_offset is not None
        ]
        self._doubts: list[Finding] = []
        self._notes: list[Finding] = []

    def image(self) -> MetadataImage:
        snapshot = self._newest_snapshot()
        replay = MetadataReplay() if snapshot is None else snapshot.replay
        self._end_offset = 0 if snapshot is None else snapshot.end_offset
        self._epoch = -1 if snapshot is None else snapshot.epoch
        self._timestamp_ms = -1 if snapshot is None else snapshot.timestamp_ms
        self._read_log(replay, None if snapshot is None else snapshot)
        self._compare_with_files()
        replay.finish()
        for offset, words in replay.problems[:_MOST_TOLD]:
            self._doubt(f"the record at offset {offset} cannot be read: {words}", offset=offset)
        for offset, words in replay.oddities[:_MOST_TOLD]:
            self._notes.append(Finding(_NOTE, self._path, words, first_offset=offset))
        return MetadataImage(
            path=self._path,
            end_offset=self._end_offset,
            epoch=self._epoch,
            timestamp_ms=self._timestamp_ms,
            cluster_id=_cluster_id(self._directory),
            snapshot=None if snapshot is None else snapshot.path,
            topics=replay.topics(),
            configs=replay.configs,
            brokers=replay.brokers,
            features=replay.features,
            removed=replay.removed,
            doubts=tuple(self._doubts[:_MOST_TOLD]),
            notes=tuple(self._notes[:_MOST_TOLD]),
        )

    def _doubt(
        self, message: str, path: str | None = None, offset: int | None = None, position: int | None = None
    ) -> None:
        self._doubts.append(Finding(_DOUBT, path or self._path, message, position, None, offset))

    # --- snapshots

    def _newest_snapshot(self) -> _Snapshot | None:
        passed_over: list[_Snapshot] = []
        for epoch, end_offset, name in self._snapshots:
            snapshot = _read_snapshot(os.path.join(self._directory, name), end_offset, epoch)
            if not snapshot.problem:
                self._tell_passed_over(passed_over)
                return snapshot
            passed_over.append(snapshot)
        self._tell_passed_over(passed_over)
        return None

    def _tell_passed_over(self, snapshots: list[_Snapshot]) -> None:
        for snapshot in snapshots:
            words = f"the snapshot cannot be used: {snapshot.problem}"
            self._notes.append(Finding(_NOTE, snapshot.path, words))
        self._lost_reach = max((each.end_offset for each in snapshots), default=0)

    # --- the log

    def _read_log(self, replay: MetadataReplay, snapshot: _Snapshot | None) -> None:
        if not self._segments:
            if snapshot is None:
                self._doubt("there is neither a snapshot that can be used nor a segment of the log")
            return
        start = self._segments[0][0]
        if start > self._end_offset:
            what = (
                "no snapshot can be used" if snapshot is None else f"the snapshot ends at {self._end_offset}"
            )
            self._doubt(f"the log starts at offset {start} and {what}", offset=self._end_offset)
        expected: int | None = None
        for base_offset, name in self._segments:
            path = os.path.join(self._directory, name)
            if expected is not None and base_offset > expected:
                self._missing(path, expected, base_offset)
            try:
                with MappedFile(path) as file:
                    expected = self._read_segment(path, file.view, base_offset, replay, snapshot)
            except UnreadableInput as error:
                self._doubt(str(error), path, base_offset)
                expected = None

    def _missing(self, path: str, first: int, next_offset: int) -> None:
        if next_offset > self._end_offset:
            words = f"the offsets {first} to {next_offset - 1} of the metadata log are missing"
            self._doubt(words, path, first)

    def _read_segment(
        self,
        path: str,
        view: memoryview,
        base_offset: int,
        replay: MetadataReplay,
        snapshot: _Snapshot | None,
    ) -> int:
        """Gives the offset behind the segment's last batch."""
        state_end = 0 if snapshot is None else snapshot.end_offset
        expected = base_offset
        decoder = Decoder(view)
        for block in Scanner(view, base_offset).blocks():
            if isinstance(block, Damage):
                words = f"{block.length} bytes of the metadata log are no valid batch ({block.kind})"
                self._doubt(words, path, expected, block.position)
                continue
            for row in range(block.count):
                first, last = block.at(C.BASE_OFFSET, row), block.at(C.LAST_OFFSET, row)
                if first > expected:
                    self._missing(path, expected, first)
                expected = max(expected, last + 1)
                epoch = block.at(C.LEADER_EPOCH, row)
                if snapshot is not None and first < state_end <= last + 1 and epoch != snapshot.epoch:
                    words = f"offset {state_end - 1} has epoch {epoch} in the log and {snapshot.epoch} in the snapshot"
                    self._doubt(f"snapshot and log are of different histories: {words}", path, first)
                if last + 1 > self._end_offset:
                    self._end_offset, self._epoch = last + 1, epoch
                    self._timestamp_ms = block.at(C.MAX_TIMESTAMP, row)
            for chunk in decoder.chunks(block):
                self._take(path, block, chunk, replay, state_end)
        return expected

    def _take(self, path: str, block: Columns, chunk: Chunk, replay: MetadataReplay, state_end: int) -> None:
        body, records = memoryview(chunk.body), chunk.records
        if not chunk.control:
            for at in range(records.count):
                offset = records.at(C.R_OFFSET, at)
                start, length = records.at(C.R_VALUE_START, at), records.at(C.R_VALUE_LENGTH, at)
                value = None if length < 0 or start < 0 else bytes(body[start : start + length])
                if offset >= state_end:
                    replay.take(offset, value)
                else:
                    replay.note_history(offset, value)
        if chunk.problem is not None:
            position = block.at(C.POSITION, chunk.last_row)
            offset = block.at(C.BASE_OFFSET, chunk.last_row)
            if offset >= state_end:
                self._doubt(f"a batch cannot be decoded: {chunk.problem.sentence}", path, offset, position)

    def _compare_with_files(self) -> None:
        """Files beside the log that know offsets behind its end, which nobody can read any more."""
        if self._is_alone:
            return
        known = [(offset, name) for offset, name in self._known_offsets if offset > self._end_offset]
        path = os.path.join(self._directory, NAME_BY_ROLE[Role.LEADER_EPOCHS])
        with suppress(KsegError):
            entries = decode_leader_epochs(read_small(path))
            known += [(entry.start_offset, os.path.basename(path)) for entry in entries]
        reach = max(known, default=(0, ""))
        if reach[0] > self._end_offset:
            words = f"the log ends at offset {self._end_offset}, and {reach[1]} knows offset {reach[0]}"
            self._doubt(words, offset=self._end_offset)
        if self._lost_reach > self._end_offset:
            words = f"the log ends at offset {self._end_offset}; a snapshot that cannot be used ends at {self._lost_reach}"
            self._doubt(words, offset=self._end_offset)


def _read_snapshot(path: str, end_offset: int, epoch: int) -> _Snapshot:
    snapshot = _Snapshot(path, end_offset, epoch, MetadataReplay(), -1)
    frame = _Frame(snapshot)
    try:
        with MappedFile(path) as file:
            decoder = Decoder(file.view)
            for block in Scanner(file.view, 0).blocks():
                if isinstance(block, Damage):
                    snapshot.problem = f"bytes from {block.position} on are no valid batch ({block.kind})"
                    return snapshot
                for chunk in decoder.chunks(block):
                    frame.take(chunk)
    except UnreadableInput as error:
        snapshot.problem = str(error)
        return snapshot
    snapshot.problem = snapshot.problem or frame.lacks()
    if not snapshot.problem and snapshot.replay.problems:
        offset, words = snapshot.replay.problems[0]
        snapshot.problem = f"its record {offset} cannot be read: {words}"
    return snapshot


class _Frame:
    """Header first, footer last; between them the records of the state. A snapshot without its footer was not finished."""

    def __init__(self, snapshot: _Snapshot) -> None:
        self._snapshot = snapshot
        self._first: str | None = None
        self._last = ""

    def take(self, chunk: Chunk) -> None:
        if chunk.problem is not None:
            self._snapshot.problem = f"a batch cannot be decoded: {chunk.problem.sentence}"
        for at in range(chunk.records.count):
            record = record_at(chunk, at)
            self._last = ""
            if chunk.control:
                self._control(record.key, record.value)
            else:
                self._snapshot.replay.take(record.offset, record.value)
            if self._first is None:
                self._first = self._last

    def _control(self, key: bytes | None, value: bytes | None) -> None:
        with suppress(FormatError):
            control = parse_control_record(key, value)
            self._last = control.kind
            if control.kind == SNAPSHOT_HEADER:
                stamp = control.fields.get("lastContainedLogTimestamp")
                self._snapshot.timestamp_ms = stamp if isinstance(stamp, int) else -1

    def lacks(self) -> str:
        if self._first != SNAPSHOT_HEADER:
            return "it has no header at its start"
        return "" if self._last == SNAPSHOT_FOOTER else "it has no footer at its end"


def _cluster_id(directory: str) -> str | None:
    """Of the log dir around a metadata log."""
    path = os.path.join(directory, os.pardir, NAME_BY_ROLE[Role.META_PROPERTIES])
    try:
        return decode_meta_properties(read_small(path)).cluster_id
    except KsegError:
        return None
