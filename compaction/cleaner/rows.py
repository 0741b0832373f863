"""What `compact` says: a row for each step, each delete horizon and each key worth naming, and one result (docs/json.md)."""

from collections.abc import Iterator

from kseg.compaction.cleaner.cleanable import Cleanable
from kseg.compaction.cleaner.cleaning_evidence import CleaningEvidence
from kseg.compaction.cleaner.rounds import Cleaned
from kseg.compaction.retention.units import duration_words
from kseg.segment.json_rows import show_bytes

Row = dict[str, object]

COMMAND = "compact"
_MOST_HORIZONS = 100


def result_row(partition: str, directory: str, evidence: CleaningEvidence, range_: Cleanable | None) -> Row:
    """The line `{"type":"result","command":"compact", …}` of a log of which nothing is cleaned."""
    segments = evidence.segments
    size_bytes = sum(segment.size_bytes for segment in segments)
    row: Row = {
        "type": "result",
        "command": COMMAND,
        "partition": partition,
        "directory": directory,
        "applied": False,
        "steps": 0,
        "log_start_offset": evidence.standing.log_start_offset,
        "log_end_offset": evidence.standing.log_end_offset,
        "last_stable_offset": evidence.standing.last_stable_offset,
        "first_dirty_offset": None,
        "first_uncleanable_offset": None,
        "next_dirty_offset": None,
        "held_by": None,
        "clean_bytes": 0,
        "dirty_bytes": 0,
        "dirty_ratio": 0.0,
        "passes": 0,
        "map_keys": 0,
        "rolled": evidence.roll is not None,
        "segments_before": len(segments),
        "segments_after": len(segments),
        "bytes_before": size_bytes,
        "bytes_after": size_bytes,
    }
    for name in (
        "records_before",
        "records_after",
        "live_keys",
        "superseded_records",
        "superseded_bytes",
        "tombstones_kept",
        "tombstones_removed",
        "tombstones_expired",
        "markers_kept",
        "markers_removed",
        "markers_stamped",
        "invalid_records",
        "aborted_records",
        "batches_kept",
        "batches_rebuilt",
        "batches_emptied",
        "batches_removed",
        "groups_skipped",
    ):
        row[name] = 0
    row |= {"output": None, "journal": None, "quarantine": None}
    if range_ is not None:
        row |= {
            "first_dirty_offset": range_.first_dirty_offset,
            "first_uncleanable_offset": range_.first_uncleanable_offset,
            "next_dirty_offset": range_.first_dirty_offset,
            "held_by": range_.bound.value,
            "clean_bytes": range_.clean_bytes,
            "dirty_bytes": range_.dirty_bytes,
            "dirty_ratio": round(range_.dirty_ratio, 4),
        }
    return row


def cleaned_row(evidence: CleaningEvidence, cleaned: Cleaned) -> Row:
    """What cleaning changes in the result. Records are those of the cleaned segments; bytes and segments of the log."""
    tally = cleaned.tally
    return {
        "next_dirty_offset": cleaned.next_dirty_offset,
        "passes": tally.rounds,
        "map_keys": tally.map_keys,
        "segments_after": len(cleaned.segments),
        "bytes_after": sum(segment.size_bytes for segment in cleaned.segments),
        "records_before": tally.records_before,
        "records_after": tally.records_after,
        "live_keys": tally.live_keys,
        "superseded_records": tally.superseded,
        "superseded_bytes": tally.superseded_bytes,
        "tombstones_kept": tally.tombstones_kept,
        "tombstones_removed": tally.tombstones_removed,
        "tombstones_expired": tally.tombstones_expired,
        "markers_kept": tally.markers_kept,
        "markers_removed": tally.markers_removed,
        "markers_stamped": tally.markers_stamped,
        "invalid_records": tally.invalid_records,
        "aborted_records": tally.aborted_records,
        "batches_kept": tally.batches_kept,
        "batches_rebuilt": tally.batches_rebuilt,
        "batches_emptied": tally.batches_emptied,
        "batches_removed": tally.batches_removed,
        "groups_skipped": tally.groups_skipped,
    }


def detail_rows(partition: str, cleaned: Cleaned, now_ms: int) -> Iterator[Row]:
    """When tombstones may go, and which keys had most old values."""
    horizons = sorted(cleaned.horizons.items())
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
            "records": top.values,
        }


def log_dir_row(log_dir: str, offsets: dict[str, int], done: Row) -> Row:
    """The result for a data directory: the first dirty offsets that its checkpoint notes now."""
    return {
        "type": "result",
        "command": COMMAND,
        "log_dir": log_dir,
        "directory": log_dir,
        "next_dirty_offsets": offsets,
        **done,
    }
