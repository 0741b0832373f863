"""Read a snapshot of the metadata log (`<end offset>-<epoch>.checkpoint`) into a state.

Header first, footer last; between them the records of the state, whose offsets have no meaning outside of the file. A snapshot without a
footer is incomplete, and one that is damaged anywhere is not used at all: an older one and more of the log give the same state.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kseg.internal_topics.metadata.metadata_image import Voter
from kseg.internal_topics.metadata.metadata_replay import KRAFT_VERSION_FEATURE, MetadataReplay
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Chunk, Decoder, record_at
from kseg.segment.scanning.scan import Scanner
from kseg.segment.state.control import ControlRecord, parse_control_record
from kseg.segment.state.kraft_messages import (
    KRAFT_VERSION,
    KRAFT_VOTERS,
    LEADER_CHANGE,
    SNAPSHOT_FOOTER,
    SNAPSHOT_HEADER,
)
from kseg.segment.values import dataclass


@dataclass(slots=True)
class ReadSnapshot:
    """The result of reading a snapshot. timestamp_ms: of the last record before its end. problem: why it cannot be used, in
    words. voters: those in the snapshot."""

    path: str
    end_offset: int
    epoch: int
    replay: MetadataReplay
    timestamp_ms: int = -1
    problem: str = ""
    voters: tuple[Voter, ...] = ()


def read_snapshot(path: str, end_offset: int, epoch: int, replay: MetadataReplay) -> ReadSnapshot:
    """Replay a snapshot into `replay`, which is empty. Never raises: `problem` has the reason."""
    snapshot = ReadSnapshot(path, end_offset, epoch, replay)
    frame = _Frame(snapshot)
    try:
        with MappedFile(path) as file:
            decoder = Decoder(file.view)
            for block in Scanner(file.view, 0).blocks():
                if isinstance(block, Damage):
                    snapshot.problem = f"no valid batch from position {block.position} on ({block.kind})"
                    return snapshot
                for chunk in decoder.chunks(block):
                    frame.take(chunk)
    except UnreadableInput as error:
        snapshot.problem = str(error)
        return snapshot
    snapshot.problem = snapshot.problem or frame.lacks()
    if not snapshot.problem and replay.problems:
        offset, words = replay.problems[0]
        snapshot.problem = f"its record {offset} cannot be read: {words}"
    return snapshot


class _Frame:
    def __init__(self, snapshot: ReadSnapshot) -> None:
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
                self._snapshot.replay.take(record.offset, record.value, record.timestamp_ms)
            if self._first is None:
                self._first = self._last

    def _control(self, key: bytes | None, value: bytes | None) -> None:
        with suppress(FormatError):
            control = parse_control_record(key, value)
            self._last = control.kind
            if control.kind == SNAPSHOT_HEADER:
                stamp = control.fields.get("lastContainedLogTimestamp")
                self._snapshot.timestamp_ms = stamp if isinstance(stamp, int) else -1
            self._snapshot.voters = voters_after(self._snapshot.voters, control)
            take_kraft_version(control, self._snapshot.replay)

    def lacks(self) -> str:
        if self._first != SNAPSHOT_HEADER:
            return "it has no header at its start"
        return "" if self._last == SNAPSHOT_FOOTER else "it has no footer at its end"


def voters_after(voters: tuple[Voter, ...], control: ControlRecord) -> tuple[Voter, ...]:
    """The voters of the quorum after a control record. The message of a new leader does not have everything: the rest is kept."""
    listed = control.fields.get("voters") if control.kind in (KRAFT_VOTERS, LEADER_CHANGE) else None
    if not isinstance(listed, list) or not listed:
        return voters
    known = {voter.id: voter for voter in voters} if control.kind == LEADER_CHANGE else {}
    return tuple(_voter(each, known.get(each["voterId"])) for each in listed)


def _voter(fields: Mapping[str, Any], known: Voter | None) -> Voter:
    endpoints = tuple(f"{each['host']}:{each['port']}" for each in fields.get("endpoints", ()))
    before = known or Voter(fields["voterId"])
    directory_id = fields.get("voterDirectoryId", before.directory_id)
    return Voter(before.id, directory_id, endpoints or before.endpoints)


def take_kraft_version(control: ControlRecord, replay: MetadataReplay) -> None:
    """The feature kraft.version, which no metadata record sets."""
    level = control.fields.get("kRaftVersion") if control.kind == KRAFT_VERSION else None
    if isinstance(level, int):
        replay.set_feature(KRAFT_VERSION_FEATURE, level)
