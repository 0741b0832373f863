"""Quick check of the end of a log: can a clean-shutdown marker be true?

A broker trusts the marker and then reads no log. This checks the end of the last segment of each partition: the marker
is false if that segment lacks an index, has preallocated ones, or does not end with a complete batch. The metadata log is not
evidence: a node recovers it from its first offset regardless of the marker (KafkaMetadataLog), and 4.4 leaves its indexes
preallocated when it stops.
"""

from collections.abc import Iterator

from kseg.segment import layout as L
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.partition.directory import SegmentFiles, list_partition, plain_last_segment
from kseg.segment.partition.names import PartitionName, PartitionState
from kseg.segment.probe import Probe
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.scan import Scanner, rows_for
from kseg.segment.sidecar.index import OffsetIndex


def marker_contradictions(path: str, name: PartitionName | None) -> Iterator[str]:
    """What in a partition directory contradicts a clean-shutdown marker, as a clause."""
    if name is None or name.state is not PartitionState.LIVE or name.is_metadata_log:
        return
    last, had_times = plain_last_segment(path), True
    if last is None:
        segments = list_partition(path).segments
        last = segments[-1] if segments else None
        had_times = any(segment.time_index for segment in segments)
    if last is not None:
        reason = _contradiction(last, had_times)
        if reason:
            yield f"{name.text} {reason}"


def _contradiction(segment: SegmentFiles, had_times: bool) -> str:
    """What a clean shutdown would not have left behind, as text; empty if nothing. had_times: some segment has a time index."""
    if segment.offset_index is None:
        # a segment gets its index with its first batch
        return "has no index for its last segment" if segment.log.size_bytes else ""
    if segment.time_index is None and had_times:
        return "has no time index for its last segment"
    try:
        end = _last_slot(segment.offset_index.path, L.OFFSET_INDEX_ENTRY)
        if end is None:
            return f"has a preallocated {segment.offset_index.name.name}"
        start = OffsetIndex(end, segment.base_offset).last_entry.position
        if segment.time_index is not None and _last_slot(segment.time_index.path, L.TIME_INDEX_ENTRY) is None:
            return f"has a preallocated {segment.time_index.name.name}"
        with MappedFile(segment.log.path, is_surely_regular=True) as file:
            start = start if 0 <= start <= file.size_bytes else 0
            rows = rows_for(file.size_bytes - start)
            for item in Scanner.over(file, segment.base_offset, rows).blocks(start):
                if not isinstance(item, Damage) or item.kind == "unreadable-batch":
                    continue
                if item.position + item.length == file.size_bytes:
                    return f"does not end with a complete batch ({item.kind})"
    except UnreadableInput:
        return ""
    return ""


def _last_slot(path: str, width: int) -> bytes | None:
    """The last whole slot of an index, empty if it has none; None if it has several and never used the last one."""
    with Probe(path, is_surely_regular=True) as file:
        end = file.size_bytes - file.size_bytes % width
        start = max(0, end - width)
        slot = file.read(start, end - start)
        is_unused = start > 0 and not any(slot)
        return None if is_unused and not file.unreadable(start, end) else slot
