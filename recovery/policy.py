"""The interface of the recovery policies: the values that `recover` and its policies exchange.

input     which of the two policies; the broker settings, and what a broker would know about the partition
output    the repaired directory, its costs, and the reasons; both policies return the same value, so that
          the command can report the cost of either and carry out the requested one
"""

from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from typing import Any, Self

from kseg.change.plan.directory_image import DirectoryImage
from kseg.segment import layout as L
from kseg.segment.diagnosis import InvalidBytes
from kseg.segment.findings import Finding
from kseg.segment.partition.topic_settings import REMOTE_STORAGE, TopicSettings
from kseg.segment.scanning.lost_offsets import UnreadBatch
from kseg.segment.scanning.preallocated_tail import PREALLOCATED
from kseg.segment.state.producer import DEFAULT_EXPIRATION_MS
from kseg.segment.values import dataclass


class Policy(StrEnum):
    """salvage: every valid batch stays. kafka: what a broker's log loading leaves."""

    SALVAGE = "salvage"
    KAFKA = "kafka"


_OF_LOAD = ("index_interval_bytes", "segment_index_bytes", "producer_id_expiration_ms")
# the topic and broker properties that give these settings
LOAD_PROPERTIES = frozenset(
    (
        *("index.interval.bytes", "segment.index.bytes", "producer.id.expiration.ms"),
        *("log.index.interval.bytes", "log.index.size.max.bytes"),
        REMOTE_STORAGE,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """The broker settings that log loading depends on, under the names of the command's options.

    now_ms: the time by which producers expire. topic: what is known about the partition's topic.
    """

    now_ms: int
    index_interval_bytes: int = L.DEFAULT_INDEX_INTERVAL_BYTES
    segment_index_bytes: int = L.DEFAULT_SEGMENT_INDEX_BYTES
    producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS
    topic: TopicSettings = TopicSettings()

    def of_topic(self, topic: TopicSettings) -> Self:
        """The settings of the broker that loads a partition of a topic."""
        known = topic.settings
        named = {name: known[name.replace("_", ".")] for name in _OF_LOAD if name.replace("_", ".") in known}
        values = {name: int(each.value) for name, each in named.items() if each.value.isdecimal()}
        return self.with_values({**values, "topic": topic})

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """The settings with these values; the same object if nothing differs."""
        is_same = all(getattr(self, name) == value for name, value in values.items())
        return self if is_same else replace(self, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """What a broker knows of a partition before it opens it (Kafka: LogManager.loadLog; fact sheet §6.1).

    is_clean: the clean-shutdown marker existed. recovery_point, log_start_offset, first_dirty_offset: from the checkpoints, 0
    when they have no entry. high_watermark: from its checkpoint, None without an entry (the log end is used instead). log_dir:
    the data directory of these values, None when it is unknown or is not to be read.
    """

    is_clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int | None = None
    first_dirty_offset: int = 0
    log_dir: str | None = None

    def safe_point(self, end_offset: int) -> int:
        """The recovery point at the next load of a log that ends at this offset: the log end after a clean shutdown, otherwise only what
        was known to be on disk."""
        return end_offset if self.is_clean else min(self.recovery_point, end_offset)


@dataclass(frozen=True, slots=True)
class Removed:
    """Bytes that leave a log.

    file: the original name; position, length: in that file. first_offset, last_offset: the range of offsets lost with them, as far as it is
    known (both None: no offsets, or unknown). cause: id of the finding. batches: how many valid batches are among them (a broker discards
    those; salvage does so only when another batch has the same offsets). records: how many records a consumer would have received that no
    other bytes contain, according to the headers (control records do not count); None when unknown.
    """

    file: str
    position: int
    length: int
    first_offset: int | None
    last_offset: int | None
    cause: str
    batches: int = 0
    records: int | None = None


@dataclass(frozen=True, slots=True)
class Restorable:
    """Damage whose original bytes salvage knows (`salvage.restored_bytes`). file: name of the log; position: of the damage in it. finding:
    the one about the damage."""

    file: str
    position: int
    damage: InvalidBytes
    finding: Finding


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """A broker's load of this directory fails with an exception. kafka_exception: simple name of the Java class. sentence: the reason.
    logged: the class that the broker's log names, which differs where the broker wraps the exception; empty if unknown."""

    kafka_exception: str
    sentence: str
    logged: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The result of a policy.

    image: the resulting files. why: a reason for every name that differs from the original. findings: what is wrong, in
    the order met. removed: bytes that leave the logs, in offset order. last_stable_offset: with the log end as high watermark.
    recovery_point: the next load may skip everything below it. doubt: why the partition would still be unsound afterwards (a broker's load
    would fail on it, records cannot be read); empty when it would be sound. misplaced: why a broker would not serve it from here
    although its log is sound; empty when it would. left: what the policy leaves damaged because a broker does not look at it;
    empty when nothing. is_in_order: every byte of the logs was checked and belongs to a valid batch, offsets increase, and
    leader epochs never decrease. unread: batches of its logs that consumers do not receive in full. kept: ranges of the offsets
    that stay, in order, if known. restorable: damage that was removed although its original bytes are known.
    bytes_scanned: of the logs of the segments that policy kafka recovers, without preallocated zeros. is_read: whether the load looks
    up the batch of a first unstable offset, which fails in every data directory that is offline. load_failure: set when policy kafka
    has no result because the broker would throw; then image is the directory as found and the offsets are 0.
    """

    image: DirectoryImage
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    recovery_point: int
    why: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    removed: tuple[Removed, ...] = ()
    unread: tuple[UnreadBatch, ...] = ()
    doubt: str = ""
    misplaced: str = ""
    left: str = ""
    is_in_order: bool = False
    kept: tuple[tuple[int, int], ...] = ()
    restorable: tuple[Restorable, ...] = ()
    bytes_scanned: int = 0
    is_read: bool = False
    load_failure: LoadFailure | None = None

    @classmethod
    def without_log(
        cls,
        image: DirectoryImage,
        findings: tuple[Finding, ...] = (),
        load_failure: LoadFailure | None = None,
    ) -> Self:
        """A repair that produces no log: the directory as found. load_failure: what the broker would throw, if that is the reason."""
        return cls(
            image=image,
            log_start_offset=0,
            log_end_offset=0,
            last_stable_offset=0,
            recovery_point=0,
            findings=findings,
            load_failure=load_failure,
        )

    @property
    def bytes_lost(self) -> int:
        """Bytes removed, without preallocated zeros."""
        return sum(removed.length for removed in self.removed if removed.cause != PREALLOCATED)
