"""What `retain` yields: a row per segment, per marked file and per simulated limit, and one result (docs/json.md)."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Self

from kseg.change.run.results import ChangeResult, Rows
from kseg.compaction.known_settings import as_values
from kseg.compaction.retention.freeing import Choice
from kseg.compaction.retention.options import RetainOptions
from kseg.compaction.retention.rules import Rule, Threshold, WhatIf
from kseg.compaction.retention.units import duration_words
from kseg.compaction.retention.verdicts import HeldBy, Verdict
from kseg.segment.counted import counted
from kseg.segment.partition.topic_settings import TopicSettings
from kseg.segment.values import dataclass

Row = dict[str, object]

COMMAND = "retain"


def segment_row(
    partition: str,
    base_offset: int,
    size_bytes: int,
    largest_timestamp: int,
    mtime_ms: int,
    verdict: Verdict,
    threshold: Threshold,
) -> Row:
    """The line `{"type":"segment", …}` of the command contract."""
    return {
        "type": "segment",
        "command": COMMAND,
        "partition": partition,
        "base_offset": base_offset,
        "bytes": size_bytes,
        "largest_timestamp": largest_timestamp,
        "mtime": mtime_ms,
        "verdict": verdict.verdict,
        "rule": verdict.rule,
        "reason": verdict.reason,
        "held_by": _held_by(verdict.held_by),
        "goes_at": {"retention_ms": threshold.retention_ms, "retention_bytes": threshold.retention_bytes},
    }


def _held_by(held_by: HeldBy | None) -> Row | None:
    if held_by is None:
        return None
    return {"kind": held_by.kind, "offset": held_by.offset, "timestamp": held_by.timestamp_ms}


def what_if_rows(partition: str, ladder: tuple[WhatIf, ...]) -> Iterator[Row]:
    """What other limits would free, each alone."""
    for step in ladder:
        words = duration_words(step.value) if step.rule is Rule.TIME else counted(step.value, "byte")
        yield {
            "type": "what_if",
            "command": COMMAND,
            "partition": partition,
            "rule": step.rule.value,
            "value": step.value,
            "words": words,
            "segments": step.segments,
            "bytes_freed": step.bytes_freed,
            "log_start_offset": step.log_start_offset,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainResult(ChangeResult):
    """The result of `retain` for one partition: the line `{"type":"result","command":"retain", …}` of docs/json.md."""

    command: ClassVar[str] = COMMAND
    optional: ClassVar[tuple[str, ...]] = ("room",)

    partition: str
    directory: str
    applied: bool = False
    limits: Row
    deleted: tuple[int, ...] = ()
    unmarked: tuple[int, ...] = ()
    purged: tuple[str, ...] = ()
    segments: int = 0
    first_base_offset: int | None = None
    log_start_offset: int | None = None
    log_start_moved: bool = False
    log_end_offset: int | None = None
    high_watermark: int | None = None
    tiered: bool = False
    remote_end_offset: int | None = None
    rolled: bool = False
    bytes_freed: int = 0
    files_bytes: int = 0
    bytes_purged: int = 0
    journal: str | None = None
    settings: Mapping[str, object]
    room: Rows | None = None


@dataclass(frozen=True, slots=True)
class Purged:
    """Marked files that were deleted: names and bytes."""

    names: tuple[str, ...]
    size_bytes: int

    def as_row(self) -> Row:
        return {"purged": list(self.names), "bytes_purged": self.size_bytes}

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> Self:
        """Parse the output of `as_row`. Raises TypeError for anything else."""
        match row:
            case {"purged": list(names), "bytes_purged": int(size_bytes)}:
                texts = tuple(name for name in names if isinstance(name, str))
                if len(texts) == len(names):
                    return cls(texts, size_bytes)
        raise TypeError(f"{row!r} does not say what was purged")


def retain_result(
    partition: str, directory: str, options: RetainOptions, known: TopicSettings | None
) -> RetainResult:
    """The result before anything is known about the log. known: the topic's settings."""
    limits = options.limits
    return RetainResult(
        partition=partition,
        directory=directory,
        limits={
            "retention_ms": limits.retention_ms,
            "retention_bytes": limits.retention_bytes,
            "cleanup_policy": limits.policy_text,
        },
        tiered=limits.is_tiered,
        remote_end_offset=options.remote_end_offset,
        settings=as_values(known),
    )


def mark_row(partition: str, file: str, size_bytes: int, marked_at_ms: int, verdict: str, reason: str) -> Row:
    """One file that is marked for deletion. verdict: purge, wait, unmark, keep."""
    return {
        "type": "mark",
        "command": COMMAND,
        "partition": partition,
        "file": file,
        "bytes": size_bytes,
        "marked_at": marked_at_ms,
        "verdict": verdict,
        "reason": reason,
    }


def free_rows(choice: Choice, options: RetainOptions) -> Iterator[Row]:
    """One row per file system: what is deleted from each topic, and the total."""
    for each in choice.file_systems:
        for share in each.topics:
            yield {
                "type": "free_topic",
                "command": COMMAND,
                "log_dirs": list(each.log_dirs),
                "topic": share.topic,
                "partitions": share.partitions,
                "segments": share.segments,
                "bytes": share.size_bytes,
                "retention_ms": share.retention_ms,
                "retention_bytes": share.retention_bytes,
            }
        yield {
            "type": "free",
            "command": COMMAND,
            "log_dirs": list(each.log_dirs),
            "wanted": each.wanted_bytes,
            "available": each.available_bytes,
            "marked_bytes": each.marked_bytes,
            "chosen_bytes": each.chosen_bytes,
            "segments": each.segments,
            "freeable_bytes": each.freeable_bytes,
            "reached": each.is_reached,
            "held": {hold.value: size_bytes for hold, size_bytes in sorted(each.held.items())},
            "applied": options.apply,
            "purge": options.purge,
        }
