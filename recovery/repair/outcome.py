"""What a policy makes of one partition: the directory as it would be, what that costs, and why.

Both policies answer with the same value, so that the command can say what either would cost and carry out the one
that was asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from kseg.segment.findings import Finding
from kseg.segment.plan.image import DirectoryImage


@dataclass(frozen=True, slots=True)
class Removed:
    """Bytes that leave a log. file: the name as found; position, length: in it. first_offset, last_offset: of the
    offsets that are lost with them as far as one can know (both None: none, or nobody can tell). cause: id of the
    finding. batches: how many valid batches are among them (a broker throws those away, salvage does only when
    another holds the same offsets)."""

    file: str
    position: int
    length: int
    first_offset: int | None
    last_offset: int | None
    cause: str
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Death:
    """A broker's load of this directory throws. kafka_exception: simple name of the Java class. sentence: why."""

    kafka_exception: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The answer of a policy.

    image: the files as they would be. why: a reason for every name that differs from what was found. findings: what
    is wrong, in the order met. removed: bytes that leave the logs, in offset order. last_stable_offset: with the log
    end as high watermark. recovery_point: what may be skipped by the next load. doubt: why the partition would still
    not be sound afterwards (a broker's load would fail on it, records cannot be read), empty when it would.
    is_orderly: every byte of the logs was looked at, all of it valid batches whose offsets increase. death: set when policy kafka has no
    result because the broker would throw; then image is the directory as found and the offsets are 0.
    """

    image: DirectoryImage
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    recovery_point: int
    why: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    removed: tuple[Removed, ...] = ()
    doubt: str = ""
    is_orderly: bool = False
    death: Death | None = None

    @classmethod
    def without_log(
        cls, image: DirectoryImage, findings: tuple[Finding, ...] = (), death: Death | None = None
    ) -> Self:
        """No log came of it: the directory as found. death: what the broker would throw, if it is that."""
        return cls(
            image=image,
            log_start_offset=0,
            log_end_offset=0,
            last_stable_offset=0,
            recovery_point=0,
            findings=findings,
            death=death,
        )

    @property
    def bytes_lost(self) -> int:
        return sum(removed.length for removed in self.removed)
