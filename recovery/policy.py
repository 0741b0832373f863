"""The interface of the recovery policies: the values that `recover` and its policies exchange.

input     which of the two policies; the settings of a broker and what it would know about the partition
output    the repaired directory, its costs, and the reasons; both policies return the same value, so that
          the command can say what either would cost and carry out the requested one
"""

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from typing import Self

from kseg.change.plan.directory_image import DirectoryImage
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.scanning.lost_offsets import UnreadBatch
from kseg.segment.scanning.preallocated_tail import PREALLOCATED
from kseg.segment.state.producer import DEFAULT_EXPIRATION_MS
from kseg.segment.values import dataclass


class Policy(StrEnum):
    """salvage: every valid batch stays. kafka: what a broker's log loading leaves."""

    SALVAGE = "salvage"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """The settings of a broker that its log loading depends on, under the names of the command's options.

    now_ms: the clock that producers expire by.
    """

    now_ms: int
    index_interval_bytes: int = L.DEFAULT_INDEX_INTERVAL_BYTES
    segment_index_bytes: int = L.DEFAULT_SEGMENT_INDEX_BYTES
    producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """What a broker knows of a partition before it opens it (Kafka: LogManager.loadLog; fact sheet §6.1).

    is_clean: the clean-shutdown marker was there. recovery_point, log_start_offset: from the checkpoints, 0 when they have no entry; first_dirty_offset: likewise, the cleaner's. high_watermark: from its checkpoint, None when it
    says nothing (the log end stands in). log_dir: the data directory they are of, None when it is not known or not to
    be asked.
    """

    is_clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int | None = None
    first_dirty_offset: int = 0
    log_dir: str | None = None

    def safe_point(self, end_offset: int) -> int:
        """What the next load of a log that ends there may skip: all after a clean shutdown, else what was known to be on
        the disk."""
        return end_offset if self.is_clean else min(self.recovery_point, end_offset)


@dataclass(frozen=True, slots=True)
class Removed:
    """Bytes that leave a log. file: the name as found; position, length: in it. first_offset, last_offset: of the
    offsets that are lost with them as far as one can know (both None: none, or it is unknown). cause: id of the
    finding. batches: how many valid batches are among them (a broker throws those away, salvage does only when
    another holds the same offsets). records: that a consumer would have seen and that no other bytes hold, by the headers
    (control records are none); None when it is unknown."""

    file: str
    position: int
    length: int
    first_offset: int | None
    last_offset: int | None
    cause: str
    batches: int = 0
    records: int | None = None


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """A broker's load of this directory fails with an exception. kafka_exception: simple name of the Java class. sentence: why."""

    kafka_exception: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The result of a policy.

    image: the files as they would be. why: a reason for every name that differs from what was found. findings: what
    is wrong, in the order met. removed: bytes that leave the logs, in offset order. last_stable_offset: with the log
    end as high watermark. recovery_point: what may be skipped by the next load. doubt: why the partition would still
    not be sound afterwards (a broker's load would fail on it, records cannot be read), empty when it would.
    misplaced: why a broker would not serve it from here although its log is sound, empty when it would.
    left: what the policy leaves damaged because a broker does not look at it, empty when nothing.
    is_in_order: every byte of the logs was checked, all of it valid batches whose offsets increase and whose leader
    epochs never decrease. unread: batches of its logs that consumers do not get whole. kept: ranges of the offsets that stay, in order, where they are known. bytes_scanned: of the logs of the
    segments that policy kafka recovers. load_failure: set when policy kafka has no result because the broker would throw; then image is the directory as found and the offsets
    are 0.
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
    bytes_scanned: int = 0
    load_failure: LoadFailure | None = None

    @classmethod
    def without_log(
        cls,
        image: DirectoryImage,
        findings: tuple[Finding, ...] = (),
        load_failure: LoadFailure | None = None,
    ) -> Self:
        """No log came of it: the directory as found. load_failure: what the broker would throw, if it is that."""
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
        """Without preallocated zeros."""
        return sum(removed.length for removed in self.removed if removed.cause != PREALLOCATED)
