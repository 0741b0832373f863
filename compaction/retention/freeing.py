"""Choose the segments to delete so that a file system gets back a number of bytes (`retain --free`).

1. Survey each partition: the segments that may be deleted are a prefix of its log. The active segment and segments that extend above the
   high watermark may not be deleted, nor may any segment of a topic that brokers create themselves or whose cleanup.policy is not known to
   contain `delete`.
2. Files that are already marked count first: a purge frees them.
3. On each file system the oldest are deleted until the bytes are reached: first what the topics' own limits delete anyway, then by the
   greatest timestamp up to and including each segment, over all partitions. So the choice for a topic equals what a single retention.ms
   would delete, and that limit is reported.

A segment counts as the space that its files occupy, except files that have another hard link, which keeps the space in use. Nothing here
changes a file: the choice is an offset for each partition, below which `retain` marks what may still be deleted when it runs.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum

from kseg.change.apply.room import file_system_of
from kseg.compaction.retention.rules import Threshold
from kseg.segment.errors import Refused
from kseg.segment.values import dataclass


class Hold(StrEnum):
    """Why bytes cannot be freed by retention; the value appears in the rows."""

    ACTIVE = "active"
    HIGH_WATERMARK = "high-watermark"
    NOT_COPIED = "not-copied"
    POLICY = "cleanup.policy"
    POLICY_UNKNOWN = "policy-unknown"
    INTERNAL = "internal-topic"
    SET_ASIDE = "set-aside"
    DELETED = "deleted-directory"
    UNFINISHED = "unfinished-files"
    QUARANTINE = "quarantine"
    HARD_LINK = "hard-link"
    UNREADABLE = "unreadable"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Freeable:
    """One segment that may be deleted after those before it. upper_bound: the offset after it. stamp_ms: the greatest timestamp up to
    its end. is_due: the topic's own limits delete it."""

    upper_bound: int
    size_bytes: int
    stamp_ms: int
    is_due: bool
    threshold: Threshold


@dataclass(frozen=True, slots=True)
class Survey:
    """One partition directory. device: of its file system. marked_bytes: freed by a purge. held: bytes by the reason that they
    cannot be freed."""

    path: str
    log_dir: str
    topic: str
    device: int
    pieces: tuple[Freeable, ...] = ()
    marked_bytes: int = 0
    held: Mapping[Hold, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicShare:
    """What is deleted from one topic, and the equivalent limits: the largest ones that delete all of it."""

    topic: str
    partitions: int
    segments: int
    size_bytes: int
    retention_ms: int | None
    retention_bytes: int | None


@dataclass(frozen=True, slots=True)
class FileSystemChoice:
    """What is freed on one file system. available_bytes: free space for an ordinary user before. freeable_bytes: the most that
    could be freed, including marked files. held: the rest, by reason."""

    log_dirs: tuple[str, ...]
    wanted_bytes: int
    available_bytes: int
    marked_bytes: int
    chosen_bytes: int
    freeable_bytes: int
    topics: tuple[TopicShare, ...]
    held: Mapping[Hold, int]

    @property
    def is_reached(self) -> bool:
        return self.marked_bytes + self.chosen_bytes >= self.wanted_bytes

    @property
    def segments(self) -> int:
        return sum(share.segments for share in self.topics)


@dataclass(frozen=True, slots=True)
class Choice:
    """cuts: by partition directory, the offset below which whole segments are deleted."""

    file_systems: tuple[FileSystemChoice, ...]
    cuts: Mapping[str, int]

    @property
    def attainable_bytes(self) -> int:
        """The bytes requested, or as many as each file system can free."""
        return min((min(each.wanted_bytes, each.freeable_bytes) for each in self.file_systems), default=0)


def choose(surveys: Sequence[Survey], wanted_bytes: int) -> Choice:
    """The choice for each file system, in the order of the first partition on it."""
    by_device: dict[int, list[Survey]] = {}
    for survey in surveys:
        by_device.setdefault(survey.device, []).append(survey)
    file_systems: list[FileSystemChoice] = []
    cuts: dict[str, int] = {}
    for in_file_system in by_device.values():
        taken = _oldest(in_file_system, wanted_bytes - sum(survey.marked_bytes for survey in in_file_system))
        file_systems.append(_summed_up(in_file_system, taken, wanted_bytes))
        cuts |= {path: pieces[-1].upper_bound for path, pieces in taken.items()}
    return Choice(tuple(file_systems), cuts)


def refuse_unreached(choice: Choice) -> None:
    """Raises Refused if deleting everything that may be deleted would free too little on a file system."""
    for each in choice.file_systems:
        if not each.is_reached:
            attainable = (
                f"at most {each.freeable_bytes:,} can (--free {each.freeable_bytes})"
                if each.freeable_bytes
                else "none can"
            )
            raise Refused(
                f"{', '.join(each.log_dirs)}: {each.wanted_bytes:,} bytes cannot be freed, {attainable}; nothing was changed"
            )


def _oldest(surveys: Iterable[Survey], needed_bytes: int) -> dict[str, list[Freeable]]:
    """The segments to delete, by partition. On a tie the first partition wins."""
    heap = [
        _Head(survey.pieces[0], number, 0, survey) for number, survey in enumerate(surveys) if survey.pieces
    ]
    heapq.heapify(heap)
    taken: dict[str, list[Freeable]] = {}
    while heap and needed_bytes > 0:
        head = heap[0]
        taken.setdefault(head.survey.path, []).append(head.piece)
        needed_bytes -= head.piece.size_bytes
        following = head.at + 1
        if following < len(head.survey.pieces):
            heapq.heapreplace(heap, _Head(head.survey.pieces[following], head.number, following, head.survey))
        else:
            heapq.heappop(heap)
    return taken


@dataclass(frozen=True, slots=True)
class _Head:
    """The oldest remaining segment of a partition."""

    piece: Freeable
    number: int
    at: int
    survey: Survey

    def __lt__(self, other: "_Head") -> bool:
        return self._key < other._key

    @property
    def _key(self) -> tuple[bool, int, int]:
        return not self.piece.is_due, self.piece.stamp_ms, self.number


def _summed_up(
    surveys: Sequence[Survey], taken: Mapping[str, Sequence[Freeable]], wanted_bytes: int
) -> FileSystemChoice:
    held: dict[Hold, int] = {}
    for survey in surveys:
        for hold, size_bytes in survey.held.items():
            held[hold] = held.get(hold, 0) + size_bytes
    marked_bytes = sum(survey.marked_bytes for survey in surveys)
    on = file_system_of(surveys[0].path)
    return FileSystemChoice(
        log_dirs=tuple(dict.fromkeys(survey.log_dir for survey in surveys)),
        wanted_bytes=wanted_bytes,
        available_bytes=0 if on is None else on.free_bytes,
        marked_bytes=marked_bytes,
        chosen_bytes=sum(piece.size_bytes for pieces in taken.values() for piece in pieces),
        freeable_bytes=marked_bytes + sum(piece.size_bytes for each in surveys for piece in each.pieces),
        topics=tuple(_shares(surveys, taken)),
        held=held,
    )


def _shares(surveys: Sequence[Survey], taken: Mapping[str, Sequence[Freeable]]) -> Iterator[TopicShare]:
    by_topic: dict[str, list[Sequence[Freeable]]] = {}
    for survey in surveys:
        if survey.path in taken:
            by_topic.setdefault(survey.topic, []).append(taken[survey.path])
    for topic, parts in sorted(by_topic.items()):
        lasts = [pieces[-1].threshold for pieces in parts]
        yield TopicShare(
            topic=topic,
            partitions=len(parts),
            segments=sum(map(len, parts)),
            size_bytes=sum(piece.size_bytes for pieces in parts for piece in pieces),
            retention_ms=_smallest(last.retention_ms for last in lasts),
            retention_bytes=_smallest(last.retention_bytes for last in lasts),
        )


def _smallest(limits: Iterable[int | None]) -> int | None:
    """The smallest of the limits; None if a partition has no equivalent limit."""
    found = list(limits)
    known = [limit for limit in found if limit is not None]
    return min(known) if len(known) == len(found) else None
