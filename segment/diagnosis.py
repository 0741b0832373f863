"""The conclusion of a check as a value, for code that acts on a finding.

A `Finding` is output: its message and its `numbers` are for people and JSON. Code that repairs damage or answers queries reads
`Finding.diagnosis`, and otherwise only the byte and offset ranges.
"""

from collections.abc import Mapping
from enum import StrEnum

from kseg.segment.values import dataclass

Numbers = Mapping[str, int | str | bool | None]


@dataclass(frozen=True, slots=True)
class FlippedBit:
    """A bit of a file that is inverted. position: of its byte; bit: 0 is the lowest one."""

    position: int
    bit: int


@dataclass(frozen=True, slots=True)
class InvalidBytes:
    """Bytes that are not a valid batch. records: how many are lost with them, None if unknown. resumed_offset: where reading
    continues, None if it does not. claimed_offset, intact_length_bytes, flipped: see `segment.scanning.damage`."""

    records: int | None
    resumed_offset: int | None
    claimed_offset: int | None
    intact_length_bytes: int | None
    flipped: tuple[FlippedBit, ...] = ()

    def numbers(self) -> Numbers:
        numbers = {
            "records": self.records,
            "resumed_offset": self.resumed_offset,
            "claimed_offset": self.claimed_offset,
            "intact_length_bytes": self.intact_length_bytes,
        }
        if self.flipped:
            first = self.flipped[0]
            numbers |= {
                "flipped_bits": len(self.flipped),
                "flipped_position": first.position,
                "flipped_bit": first.bit,
            }
        return numbers


@dataclass(frozen=True, slots=True)
class UnreadableBytes:
    """Bytes that the disk does not return. error: the system's message. errno: 0 if unknown. file_bytes: size of the file."""

    error: str
    errno: int
    read_errors: int
    file_bytes: int

    def numbers(self) -> Numbers:
        return {
            "error": self.error,
            "errno": self.errno or None,
            "read_errors": self.read_errors,
            "file_bytes": self.file_bytes,
        }


@dataclass(frozen=True, slots=True)
class AlteredBaseOffset:
    """A batch with a wrong base offset. found: in its header. probable: the original, None if several values fit.
    flipped_bit: the one in which they differ, None if they differ in more."""

    found: int
    probable: int | None
    flipped_bit: int | None

    def numbers(self) -> Numbers:
        return {
            "found_base_offset": self.found,
            "probable_base_offset": self.probable,
            "flipped_bit": self.flipped_bit,
        }


@dataclass(frozen=True, slots=True)
class AlteredLeaderEpoch:
    """A batch with a wrong leader epoch; the fields are those of `AlteredBaseOffset`."""

    found: int
    probable: int | None
    flipped_bit: int | None

    def numbers(self) -> Numbers:
        return {
            "found_epoch": self.found,
            "probable_epoch": self.probable,
            "flipped_bit": self.flipped_bit,
        }


@dataclass(frozen=True, slots=True)
class ReplicaCopy:
    """A replica of a partition on another node. directory: the one that contains it, possibly marked `-delete`. end_offset: of its log."""

    directory: str
    node: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class MissingReplica:
    """A partition that is missing from the log directory in which the metadata log places it. set_aside: a directory of the node whose
    log has the same topic id but another name: stray, renamed by hand, or left from a move between log dirs. others: the other nodes with
    a replica. copy: the most complete replica on the nodes of the run. is_rival: whether the node may lead as well as others that have
    the records. is_tiered: whether the topic has segments in remote storage."""

    topic: str
    partition: int
    topic_id: str
    checkpointed_offset: int | None
    set_aside: str | None = None
    others: tuple[int, ...] = ()
    copy: ReplicaCopy | None = None
    is_rival: bool = False
    is_tiered: bool = False

    def numbers(self) -> Numbers:
        numbers: dict[str, int | str | None] = {
            "topic": self.topic,
            "partition": self.partition,
            "topic_id": self.topic_id,
            "checkpointed_offset": self.checkpointed_offset,
        }
        if self.copy is not None:
            numbers |= {"other": self.copy.directory, "other_end_offset": self.copy.end_offset}
        return numbers


class Lack(StrEnum):
    """What it means that a replica lacks records."""

    COMMITTED = "committed"  # it may lead, and they are known to be committed
    DOUBTFUL = "doubtful"  # it may lead, and they may be committed
    OUT_OF_SYNC = "out-of-sync"  # it leads only in an unclean election, if its node starts first


@dataclass(frozen=True, slots=True)
class ReplicaBehind:
    """A replica that may become leader although it lacks records. other, node: a replica that has them, and its node; of OUT_OF_SYNC, one
    that may lead without an unclean election. end_offset: of the log that lacks them, 0 without a directory. other_end_offset: of the log
    that has them. own_node: the node of this one if it is OUT_OF_SYNC and can wait until the others run; -1 if it cannot, because it is a
    voter of the quorum, without which there may be no controller."""

    other: str
    node: int
    end_offset: int
    other_end_offset: int
    lack: Lack = Lack.COMMITTED
    own_node: int = -1

    def numbers(self) -> Numbers:
        return {
            "other": self.other,
            "node": self.node,
            "end_offset": self.end_offset,
            "other_end_offset": self.other_end_offset,
        }


@dataclass(frozen=True, slots=True)
class RemoteAhead:
    """A log that ends before what remote storage has of it. log_start_offset: of the partition. last_remote_offset: the last one there."""

    log_start_offset: int
    end_offset: int
    last_remote_offset: int

    def numbers(self) -> Numbers:
        return {"log_start_offset": self.log_start_offset, "end_offset": self.end_offset}


@dataclass(frozen=True, slots=True)
class MovedLogBehind:
    """A log that takes the place of a longer one, or has taken it, or whose copy is longer. former: the longer one, which a broker deletes
    or truncates. end_offset, former_end_offset: after the last records."""

    former: str
    end_offset: int
    former_end_offset: int

    def numbers(self) -> Numbers:
        return {
            "other": self.former,
            "end_offset": self.end_offset,
            "other_end_offset": self.former_end_offset,
        }


@dataclass(frozen=True, slots=True)
class ReplicaDiverged:
    """A replica with committed records that the one of the leader does not have. leader, node: that replica, and its node. offset: to which
    this one is truncated. end_offset: of this one."""

    leader: str
    node: int
    offset: int
    end_offset: int

    def numbers(self) -> Numbers:
        return {
            "other": self.leader,
            "node": self.node,
            "truncation_offset": self.offset,
            "end_offset": self.end_offset,
        }


@dataclass(frozen=True, slots=True)
class ReplacedVoter:
    """A log dir whose node is a voter of a dynamic quorum under another directory id. voter: the node. directory_id: that of the voter.
    is_quorum_lost: whether too few voters are left to elect a leader. foreign_log: the metadata log in the log dir, if it belongs to
    another quorum."""

    log_dir: str
    voter: int
    directory_id: str
    is_quorum_lost: bool
    foreign_log: str | None = None

    def numbers(self) -> Numbers:
        return {"voter": self.voter, "voter_directory_id": self.directory_id}


@dataclass(frozen=True, slots=True)
class WrongIdentity:
    """A log dir whose meta.properties has a wrong id. key: the name of the property. stored: its value. right: the one that it should have,
    None if unknown. is_certain: whether it is not the node.id that is wrong."""

    log_dir: str
    key: str
    stored: str
    right: str | None
    is_certain: bool

    def numbers(self) -> Numbers:
        return {"stored": self.stored} | (
            {} if self.right is None or not self.is_certain else {"expected": self.right}
        )


@dataclass(frozen=True, slots=True)
class PartitionTwice:
    """A partition that exists in another directory of the same node as well. other: that directory."""

    other: str

    def numbers(self) -> Numbers:
        return {"other": self.other}


@dataclass(frozen=True, slots=True)
class MetadataGap:
    """Offsets that are missing within the metadata log, and in no snapshot. directory: of the log. is_loadable: whether the node is the
    only voter of its quorum, and no other record refers to one of the missing ones."""

    directory: str
    is_loadable: bool = False


@dataclass(frozen=True, slots=True)
class ReissuedProducerIds:
    """A metadata log whose controller will assign producer ids that are already in use in the logs. next_id: the one that it assigns
    next. greatest_id: the greatest in the logs. newest: the longest metadata log of a voter, this one or another. epoch: of its last
    record. node_id: of the voter."""

    next_id: int
    greatest_id: int
    epoch: int
    node_id: int
    newest: str

    def numbers(self) -> Numbers:
        return {"next_producer_id": self.next_id, "greatest_producer_id": self.greatest_id}


@dataclass(frozen=True, slots=True)
class TransactionalIdsBehind:
    """A partition in which producers have later epochs than the transaction coordinator has recorded for their transactional ids."""

    ids: tuple[str, ...]

    def numbers(self) -> Numbers:
        return {"transactional_ids": len(self.ids)}


@dataclass(frozen=True, slots=True)
class UnusableTransactionalIds:
    """Transactional ids that no producer can use at the level that transaction.version has."""

    ids: tuple[str, ...]

    def numbers(self) -> Numbers:
        return {"transactional_ids": len(self.ids)}


@dataclass(frozen=True, slots=True)
class UnusableGroups:
    """Groups of a protocol that is disabled. protocol: as the type of a group. setting: the feature that has level 0, or the property that
    lacks the protocol."""

    protocol: str
    setting: str
    groups: tuple[str, ...]

    def numbers(self) -> Numbers:
        return {"groups": len(self.groups)}


@dataclass(frozen=True, slots=True)
class LostTransactions:
    """A partition that lacks transactions which were committed to it. count: of those that are known. last_commit_ms: of the last one.
    is_continued: whether a broker has appended to the log since then."""

    count: int
    last_commit_ms: int
    is_continued: bool

    def numbers(self) -> Numbers:
        return {
            "lost_transactions": self.count,
            "last_commit_timestamp": self.last_commit_ms,
            "continued": int(self.is_continued),
        }


@dataclass(frozen=True, slots=True)
class WrongTopicId:
    """A partition whose partition.metadata has a different id from that of the topic it is named after. topic_id: of that topic."""

    topic_id: str


@dataclass(frozen=True, slots=True)
class LogStartBeyondEnd:
    """A log that a broker deletes because its checkpointed start is beyond its end. directory: of the partition."""

    directory: str


@dataclass(frozen=True, slots=True)
class DoubtfulLogStart:
    """A log that may begin at this offset, within its first segment, although no checkpoint has it."""

    offset: int

    def numbers(self) -> Numbers:
        return {"log_start_offset": self.offset}


@dataclass(frozen=True, slots=True)
class FutureTimestamps:
    """Batches with timestamps in the future. timestamp_ms: of the first one."""

    batches: int
    timestamp_ms: int

    def numbers(self) -> Numbers:
        return {"batches": self.batches, "timestamp": self.timestamp_ms}


@dataclass(frozen=True, slots=True)
class UnwritableFile:
    """A file or directory to which a broker cannot write when it starts. exception: the class that it throws. flag: immutable or
    append-only; empty if the file belongs to another user."""

    exception: str
    flag: str = ""


NumberedDiagnosis = (
    InvalidBytes
    | UnreadableBytes
    | AlteredBaseOffset
    | AlteredLeaderEpoch
    | MissingReplica
    | ReplicaBehind
    | ReplicaDiverged
    | MovedLogBehind
    | RemoteAhead
    | ReplacedVoter
    | WrongIdentity
    | PartitionTwice
    | ReissuedProducerIds
    | TransactionalIdsBehind
    | UnusableTransactionalIds
    | UnusableGroups
    | LostTransactions
    | DoubtfulLogStart
    | FutureTimestamps
)
Diagnosis = NumberedDiagnosis | MetadataGap | WrongTopicId | LogStartBeyondEnd | UnwritableFile
