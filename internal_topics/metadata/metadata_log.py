"""Read a metadata log into an image: the newest usable snapshot, and the log after it.

1. Snapshots, newest first, ordered by epoch and end offset as on a node (Kafka: KafkaRaftLog). A damaged snapshot, or one
   without header or footer, is skipped: an older one and more of the log give the same state.
2. The log from the snapshot's end on, or from offset 0 without a snapshot. Earlier records are read only for the names of
   deleted topics. If the snapshot ends after the log, only the snapshot counts, as on a node.
3. Doubts: damage, missing offsets, records that cannot be decoded, files beside the log that refer to offsets after its end.
   The replay continues after them and gives the best possible image; `MetadataImage.doubts` records that it is uncertain.
4. With several voters the records after the newest snapshot may be uncommitted: the high watermark is only in memory, and a
   restarted quorum may roll them back. They count, with a note.

An earlier state (`metadata_place.AsOf`) begins with the newest snapshot that is not beyond it, even one that is marked as
deleted, and ends with its last record. The log must have all records in between, from the snapshot's end or from offset 0. As of
a time, later batches are skipped wherever they occur, and a note names those that are followed by batches that count.

Never raises for damage in the files; raises UnreadableInput for a directory that cannot be listed, and for an earlier state that
cannot be reconstructed from them.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import suppress

from kseg.internal_topics.metadata.metadata_image import MetadataImage, Voter
from kseg.internal_topics.metadata.metadata_log_files import cluster_id_around, furthest_known, log_files
from kseg.internal_topics.metadata.metadata_place import AsOf, PlaceInLog, find_place
from kseg.internal_topics.metadata.metadata_replay import MetadataReplay, Watch
from kseg.internal_topics.metadata.metadata_snapshot import ReadSnapshot, take_kraft_version, voters_after
from kseg.internal_topics.metadata.quorum_voters import quorum_state
from kseg.internal_topics.metadata.snapshot_choice import SnapshotChoice
from kseg.jobs.events import Advance
from kseg.segment import header_tables as C
from kseg.segment.counted import offsets_words
from kseg.segment.diagnosis import MetadataGap
from kseg.segment.errors import FormatError, UnreadableInput, cannot_read
from kseg.segment.files import MappedFile, is_directory
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.partition.names import FileName, Role, parse_file_name
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Chunk, Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.state.control import parse_control_record
from kseg.segment.state.kraft_messages import LEADER_CHANGE
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_NO_OP = b"\x14"  # the api key of a NoOpRecord, its second byte
_DOUBT, _NOTE = "metadata-log-doubtful", "metadata-log-note"
_MAX_REPORTED = 10  # doubts and notes of one kind
METADATA_LOG_ROLES = (Role.METADATA_SNAPSHOT, Role.LOG, Role.BOOTSTRAP_SNAPSHOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataReading:
    """What to read.

    end_offset: the state with which a broker starts that has truncated the log there; data after it then raises no doubt, and the newest
    snapshot counts even if it is damaged. as_of: an earlier state. everything: also controllers and access. watch: receives
    each record that counts, from the earliest one in the files on.
    """

    end_offset: int | None = None
    as_of: AsOf | None = None
    everything: bool = False
    watch: Watch | None = None


_WHOLE_LOG = MetadataReading()


def read_metadata_log(directory: str, reading: MetadataReading = _WHOLE_LOG) -> MetadataImage:
    """The image of a `__cluster_metadata-0` directory. Raises UnreadableInput if it cannot be listed, or does not reach back to the
    requested state."""
    return _finished(_reader_of_log(directory, reading).steps())


def read_metadata_file(path: str, reading: MetadataReading = _WHOLE_LOG) -> MetadataImage:
    """The image of a single snapshot, or of a single segment of the log. Raises UnreadableInput, and FormatError for a file that
    is neither."""
    return _finished(_reader_of_file(path, reading).steps())


def metadata_log_steps(path: str, reading: MetadataReading) -> Generator[Advance, None, MetadataImage]:
    """The same for either, with the progress."""
    reader = _reader_of_log if is_directory(path) else _reader_of_file
    return reader(path, reading).steps()


def _finished(steps: Generator[Advance, None, MetadataImage]) -> MetadataImage:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            image: MetadataImage = end.value
            return image


def _reader_of_log(directory: str, reading: MetadataReading) -> "_LogReader":
    try:
        names = [parse_file_name(name) for name in sorted(places.listdir(directory))]
    except OSError as error:
        raise cannot_read(directory, error) from error
    return _LogReader(directory, names, reading)


def _reader_of_file(path: str, reading: MetadataReading) -> "_LogReader":
    name = parse_file_name(os.path.basename(path))
    if name.role not in METADATA_LOG_ROLES:
        raise FormatError(f"{path} is neither a snapshot nor a segment of a metadata log")
    with MappedFile(path):
        pass  # the caller named the file: raise now if it cannot be read
    return _LogReader(os.path.dirname(path) or os.curdir, [name], reading, path)


class _LogReader:
    def __init__(
        self, directory: str, names: list[FileName], reading: MetadataReading, path: str | None = None
    ) -> None:
        self._reading = reading
        self._directory = directory
        self._path = directory if path is None else path
        self._is_alone = path is not None
        is_history = reading.as_of is not None or reading.watch is not None
        self._files = log_files(directory, names, is_alone=self._is_alone, with_deleted=is_history)
        self._segments = self._files.segments
        self._place = PlaceInLog(reading.end_offset, reading.end_offset)
        self._passed_over: list[tuple[int, int]] = []  # batches after the requested time, amid earlier ones
        self._end_offset, self._epoch, self._timestamp_ms = 0, -1, -1
        self._lost_reach = 0
        self._voters: tuple[Voter, ...] = ()
        self._is_cut = False
        self._is_tail_said = False  # whether the log has records after the newest snapshot
        self._doubts: list[Finding] = []
        self._notes: list[Finding] = []

    def steps(self) -> Generator[Advance, None, MetadataImage]:
        """Read it, and return the image."""
        as_of = self._reading.as_of
        if as_of is not None:
            self._place = find_place(self._segments, as_of)
        is_forecast = self._reading.end_offset is not None
        choice = SnapshotChoice(self._files, as_of, self._place, self._reading.everything, is_forecast)
        snapshot = choice.first() if self._reading.watch is not None else choice.newest()
        self._is_cut = choice.is_cut
        self._lost_reach = max((each.end_offset for each in choice.passed_over), default=0)
        for each in choice.passed_over:
            words = f"the snapshot cannot be used: {each.problem}"
            self._notes.append(Finding(_NOTE, each.path, words))
        replay = MetadataReplay(self._reading.everything) if snapshot is None else snapshot.replay
        if snapshot is not None:
            self._end_offset, self._epoch = snapshot.end_offset, snapshot.epoch
            self._timestamp_ms, self._voters = snapshot.timestamp_ms, snapshot.voters
        if as_of is not None:
            choice.check_reach(as_of, snapshot, self._path)
        replay.watch = self._reading.watch
        yield from self._read_log(replay, snapshot)
        stop = self._place.end_offset
        if stop is None or (as_of is not None and stop > self._end_offset):
            self._compare_with_files()
        self._note_tail(0 if snapshot is None else snapshot.end_offset)
        self._note_passed_over()
        if as_of is not None and self._end_offset and not self._is_cut:
            words = as_of.words_behind(self._end_offset - 1, self._timestamp_ms)
            if words:
                self._notes.append(Finding(_NOTE, self._path, words, first_offset=self._end_offset - 1))
        replay.finish()
        for offset, words in replay.problems[:_MAX_REPORTED]:
            self._doubt(f"the record at offset {offset} cannot be read: {words}", offset=offset)
        for offset, words in replay.oddities[:_MAX_REPORTED]:
            self._notes.append(Finding(_NOTE, self._path, words, first_offset=offset))
        return MetadataImage(
            path=self._path,
            end_offset=self._end_offset,
            epoch=self._epoch,
            timestamp_ms=self._timestamp_ms,
            cluster_id=cluster_id_around(self._directory),
            snapshot=None if snapshot is None else snapshot.path,
            names=replay.names,
            topics=replay.topics(),
            configs=replay.configs,
            brokers=replay.brokers,
            features=replay.features,
            feature_levels=tuple(replay.feature_levels),
            removed=replay.removed,
            controllers=replay.controllers,
            access=replay.access.image(),
            next_producer_id=replay.next_producer_id,
            leaders=replay.leaders,
            voters=self._voters,
            is_cut=self._is_cut,
            doubts=tuple(self._doubts[:_MAX_REPORTED]),
            notes=tuple(self._notes[:_MAX_REPORTED]),
            contradictions=tuple(sorted((*replay.contradictions, *replay.problems))),
            unparsed=tuple(replay.unparsed),
            is_in_transaction=replay.ends_in_transaction,
        )

    def _doubt(
        self,
        message: str,
        path: str | None = None,
        offset: int | None = None,
        position: int | None = None,
        diagnosis: MetadataGap | None = None,
    ) -> None:
        finding = Finding(_DOUBT, path or self._path, message, position, None, offset, diagnosis=diagnosis)
        self._doubts.append(finding)

    # --- the log

    def _read_log(self, replay: MetadataReplay, snapshot: ReadSnapshot | None) -> Iterator[Advance]:
        if not self._segments:
            if snapshot is None:
                self._doubt("there is neither a snapshot that can be used nor a segment of the log")
            return
        if self._is_behind(self._end_offset) and self._reading.as_of is None:
            return
        start = self._segments[0][0]
        if start > self._end_offset:
            what = (
                "no snapshot can be used" if snapshot is None else f"the snapshot ends at {self._end_offset}"
            )
            if not self._is_behind(self._end_offset):
                self._doubt(f"the log starts at offset {start} and {what}", offset=self._end_offset)
        expected: int | None = None
        for base_offset, path in self._segments:
            if self._is_behind(base_offset) and self._reading.as_of is None:
                return
            if expected is not None and base_offset > expected:
                self._missing(path, expected, base_offset)
            try:
                with MappedFile(path) as file:
                    expected = yield from self._read_segment(path, file.view, base_offset, replay, snapshot)
            except UnreadableInput as error:
                if not self._is_behind(base_offset):
                    self._doubt(str(error), path, base_offset)
                expected = None

    def _missing(self, path: str, first: int, next_offset: int) -> None:
        if next_offset > self._end_offset and not self._is_behind(first):
            words = f"{offsets_words(first, next_offset - 1)} of the metadata log {'is' if next_offset == first + 1 else 'are'} missing"
            self._doubt(words, path, first, diagnosis=MetadataGap(os.path.dirname(path)))

    def _read_segment(
        self,
        path: str,
        view: memoryview,
        base_offset: int,
        replay: MetadataReplay,
        snapshot: ReadSnapshot | None,
    ) -> Generator[Advance, None, int]:
        """Returns the offset after the segment's last batch."""
        state_end = 0 if snapshot is None else snapshot.end_offset
        expected = base_offset
        decoder = Decoder(view)
        for block in Scanner(view, base_offset).blocks():
            is_behind = self._is_behind(expected)
            if is_behind and self._reading.as_of is None:
                return expected
            if isinstance(block, Damage):
                if not is_behind:
                    words = f"no valid batch in {block.length} bytes of the metadata log ({block.kind})"
                    self._doubt(words, path, expected, block.position)
                continue
            for row in range(block.count):
                expected = self._note_batch(path, block, row, expected, snapshot)
            for chunk in decoder.chunks(block):
                self._take(path, block, chunk, replay, state_end)
                yield Advance(path, chunk.size_in(block))
        return expected

    def _note_batch(
        self, path: str, block: Columns, row: int, expected: int, snapshot: ReadSnapshot | None
    ) -> int:
        """Returns the offset after the batch."""
        first, last = block.at(C.BASE_OFFSET, row), block.at(C.LAST_OFFSET, row)
        if first > expected:
            self._missing(path, expected, first)
        epoch = block.at(C.LEADER_EPOCH, row)
        if snapshot is not None and first < snapshot.end_offset <= last + 1 and epoch != snapshot.epoch:
            at = snapshot.end_offset - 1
            words = f"offset {at} has epoch {epoch} in the log and {snapshot.epoch} in the snapshot"
            self._doubt(f"snapshot and log are of different histories: {words}", path, first)
        if last + 1 > self._end_offset and not self._is_behind(first):
            stop = self._place.end_offset
            if self._is_later(block, row):
                self._passed_over.append((first, last))
            else:
                self._end_offset = last + 1 if stop is None else min(last + 1, stop)
                self._epoch, self._timestamp_ms = epoch, block.at(C.MAX_TIMESTAMP, row)
        return max(expected, last + 1)

    def _is_behind(self, offset: int) -> bool:
        stop = self._place.end_offset
        return stop is not None and offset >= stop

    def _is_later(self, block: Columns, row: int) -> bool:
        """Whether a batch was appended after the requested time."""
        as_of = self._reading.as_of
        return (
            as_of is not None and as_of.time_ms is not None and block.at(C.MAX_TIMESTAMP, row) > as_of.time_ms
        )

    def _take(self, path: str, block: Columns, chunk: Chunk, replay: MetadataReplay, state_end: int) -> None:
        body, records = memoryview(chunk.body), chunk.records
        epochs = block.column(C.LEADER_EPOCH)
        if chunk.control:
            self._take_control(block, chunk, replay, state_end)
        else:
            columns = (C.R_BATCH, C.R_OFFSET, C.R_TIMESTAMP, C.R_VALUE_START, C.R_VALUE_LENGTH)
            for batch, offset, timestamp_ms, start, length in zip(*map(records.column, columns), strict=True):
                value = None if length < 0 or start < 0 else bytes(body[start : start + length])
                if self._is_behind(offset) or self._is_later(block, batch):
                    replay.pass_over(offset, value)
                    self._is_cut = True
                    continue
                epoch = epochs[batch]
                if offset >= state_end:
                    replay.take(offset, value, timestamp_ms, epoch)
                    self._is_tail_said = self._is_tail_said or (value or b"")[1:2] != _NO_OP
                else:
                    replay.note_history(offset, value, timestamp_ms, epoch)
        if chunk.problem is not None:
            position = block.at(C.POSITION, chunk.last_row)
            offset = block.at(C.BASE_OFFSET, chunk.last_row)
            if offset >= state_end and not self._is_behind(offset):
                self._doubt(f"a batch cannot be decoded: {chunk.problem.sentence}", path, offset, position)

    def _take_control(self, block: Columns, chunk: Chunk, replay: MetadataReplay, state_end: int) -> None:
        for at in range(chunk.records.count):
            record = record_at(chunk, at)
            batch = chunk.records.at(C.R_BATCH, at)
            if self._is_behind(record.offset) or self._is_later(block, batch):
                continue
            with suppress(FormatError):
                control = parse_control_record(record.key, record.value)
                self._voters = voters_after(self._voters, control)
                leader = control.fields.get("leaderId") if control.kind == LEADER_CHANGE else None
                if isinstance(leader, int):
                    replay.leaders[block.at(C.LEADER_EPOCH, batch)] = leader
                if record.offset >= state_end:
                    take_kraft_version(control, replay)

    def _note_tail(self, committed_end: int) -> None:
        """Record which records may be rolled back."""
        if not self._voters and not self._is_alone:
            state = quorum_state(self._directory)
            self._voters = () if state is None else tuple(map(Voter, state.current_voters or ()))
        if self._is_tail_said and len(self._voters) > 1:
            words = (
                f"the quorum has {len(self._voters)} voters, and the disk does not show which records are committed: what the log says from "
                f"offset {committed_end} up to {self._end_offset - 1}, including topic configurations, may be rolled back"
            )
            self._notes.insert(0, Finding(_NOTE, self._path, words, first_offset=committed_end))

    def _note_passed_over(self) -> None:
        """Note batches with a later time that precede batches that count: a clock was set back."""
        as_of = self._reading.as_of
        for first, last in self._passed_over if as_of is not None else ():
            words = (
                f"the clock went back: {offsets_words(first, last)} of the metadata log {'is' if first == last else 'are'} of a later "
                f"time and not part of the state, although the records that follow count; --offset {self._end_offset - 1} includes all of them"
            )
            self._notes.append(Finding(_NOTE, self._path, words, first_offset=first))

    def _compare_with_files(self) -> None:
        """Report files beside the log that refer to offsets beyond its end: those records are lost."""
        if self._is_alone:
            return
        reach = furthest_known(self._directory, self._files)
        if reach[0] > self._end_offset:
            words = f"the log ends at offset {self._end_offset}, and {reach[1]} knows offset {reach[0]}"
            self._doubt(words, offset=self._end_offset)
        if self._lost_reach > self._end_offset:
            words = f"the log ends at offset {self._end_offset}; a snapshot that cannot be used ends at {self._lost_reach}"
            self._doubt(words, offset=self._end_offset)
