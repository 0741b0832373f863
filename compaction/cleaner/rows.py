"""What `compact` yields: a row per delete horizon and per top key, and one result (docs/json.md)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

from kseg.change.run.results import ChangeResult, Rows
from kseg.compaction.cleaner.cleanable import Cleanable
from kseg.compaction.cleaner.cleaning_evidence import CleaningEvidence
from kseg.compaction.cleaner.rounds import Cleaned
from kseg.compaction.known_settings import as_values
from kseg.compaction.retention.units import duration_words
from kseg.segment.json_rows import show_bytes
from kseg.segment.partition.topic_settings import TopicSettings
from kseg.segment.values import dataclass

Row = dict[str, object]

COMMAND = "compact"
_MOST_HORIZONS = 100
# fields of the result that are named like their total
_COUNTED = (
    *("records_before", "records_after", "live_keys", "superseded_bytes"),
    *("tombstones_kept", "tombstones_removed", "tombstones_expired"),
    *("markers_kept", "markers_removed", "markers_stamped", "invalid_records", "aborted_records"),
    *("batches_kept", "batches_rebuilt", "batches_emptied", "batches_removed", "groups_skipped"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactResult(ChangeResult):
    """The result of `compact` for one partition: the line `{"type":"result","command":"compact", …}` of docs/json.md.

    Records are those of the cleaned segments; bytes and segments are those of the log.
    """

    command: ClassVar[str] = COMMAND
    optional: ClassVar[tuple[str, ...]] = ("room",)

    partition: str
    directory: str
    applied: bool = False
    steps: int = 0
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    first_dirty_offset: int | None = None
    first_uncleanable_offset: int | None = None
    next_dirty_offset: int | None = None
    held_by: str | None = None
    clean_bytes: int = 0
    dirty_bytes: int = 0
    dirty_ratio: float = 0.0
    passes: int = 0
    map_keys: int = 0
    rolled: bool
    segments_before: int
    segments_after: int
    bytes_before: int
    bytes_after: int
    records_before: int = 0
    records_after: int = 0
    live_keys: int = 0
    superseded_records: int = 0
    superseded_bytes: int = 0
    tombstones_kept: int = 0
    tombstones_removed: int = 0
    tombstones_expired: int = 0
    markers_kept: int = 0
    markers_removed: int = 0
    markers_stamped: int = 0
    invalid_records: int = 0
    aborted_records: int = 0
    batches_kept: int = 0
    batches_rebuilt: int = 0
    batches_emptied: int = 0
    batches_removed: int = 0
    groups_skipped: int = 0
    output: str | None = None
    journal: str | None = None
    quarantine: str | None = None
    settings: Mapping[str, object]
    room: Rows | None = None


def compact_result(
    partition: str, directory: str, evidence: CleaningEvidence, range_: Cleanable, known: TopicSettings | None
) -> CompactResult:
    """The result for a log that is not cleaned. known: the topic's settings."""
    segments = evidence.segments
    size_bytes = sum(segment.size_bytes for segment in segments)
    return CompactResult(
        partition=partition,
        directory=directory,
        log_start_offset=evidence.log_to_clean.log_start_offset,
        log_end_offset=evidence.log_to_clean.log_end_offset,
        last_stable_offset=evidence.log_to_clean.last_stable_offset,
        first_dirty_offset=range_.first_dirty_offset,
        first_uncleanable_offset=range_.first_uncleanable_offset,
        next_dirty_offset=range_.first_dirty_offset,
        held_by=range_.bound.value,
        clean_bytes=range_.clean_bytes,
        dirty_bytes=range_.dirty_bytes,
        dirty_ratio=round(range_.dirty_ratio, 4),
        rolled=evidence.roll is not None,
        segments_before=len(segments),
        segments_after=len(segments),
        bytes_before=size_bytes,
        bytes_after=size_bytes,
        settings=as_values(known),
    )


def with_cleaned(result: CompactResult, cleaned: Cleaned) -> CompactResult:
    """The result after the log was cleaned."""
    tally = cleaned.tally
    return replace(
        result,
        next_dirty_offset=cleaned.next_dirty_offset,
        passes=tally.rounds,
        map_keys=tally.map_keys,
        segments_after=len(cleaned.segments),
        bytes_after=sum(segment.size_bytes for segment in cleaned.segments),
        superseded_records=tally.superseded,
        **{name: getattr(tally, name) for name in _COUNTED},
    )


def detail_rows(partition: str, cleaned: Cleaned, now_ms: int) -> Iterator[Row]:
    """When tombstones expire, and which keys had most old values."""
    horizons = sorted(item for item in cleaned.horizons.items() if item[0] >= 0)
    for horizon_ms, tombstones in horizons[:_MOST_HORIZONS]:
        yield {
            "type": "horizon",
            "command": COMMAND,
            "partition": partition,
            "delete_horizon_ms": horizon_ms,
            "wait_ms": max(0, horizon_ms - now_ms),
            "words": duration_words(max(0, horizon_ms - now_ms)),
            "tombstones": tombstones,
        }
    for top in cleaned.top_keys:
        key, encoding = show_bytes(top.key, "auto")
        yield {
            "type": "key",
            "command": COMMAND,
            "partition": partition,
            "key": key,
            "key_encoding": encoding,
            "bytes": top.bytes_superseded,
            "records": top.records,
        }


def log_dir_row(log_dir: str, offsets: dict[str, int], done: Row) -> Row:
    """The result for a data directory: the first dirty offsets that its checkpoint now contains."""
    return {
        "type": "result",
        "command": COMMAND,
        "log_dir": log_dir,
        "directory": log_dir,
        "next_dirty_offsets": offsets,
        **done,
    }
