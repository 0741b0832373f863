"""What a clean stop leaves of a log, as far as a short look tells: the judge of a clean-shutdown marker.

A broker believes the marker and then reads no log. For each partition the end of the last segment is looked at: the marker
lies when that segment lacks an index, has preallocated ones, or does not end with a whole batch.
"""

from collections.abc import Iterator

from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.partition.directory import Entry, PartitionDirectory, SegmentFiles, list_partition
from kseg.segment.partition.names import PartitionName, PartitionState
from kseg.segment.scanning.scan import Damage, Scanner
from kseg.segment.sidecar.index import OffsetIndex


def lies_in(path: str, name: PartitionName | None) -> Iterator[str]:
    """What in a partition directory gives a clean-shutdown marker the lie, as a clause."""
    if name is None or name.state is not PartitionState.LIVE:
        return
    partition = list_partition(path)
    if partition.segments:
        reason = _lie_of(partition, partition.segments[-1])
        if reason:
            yield f"{name.text} {reason}"


def _lie_of(partition: PartitionDirectory, segment: SegmentFiles) -> str:
    """What a clean stop would not have left behind, in words; empty when there is nothing."""
    had_times = any(other.time_index for other in partition.segments)
    if segment.offset_index is None:
        return "has no index for its last segment"
    if segment.time_index is None and had_times:
        return "has no time index for its last segment"
    try:
        start = 0
        for entry, width in ((segment.offset_index, 8), (segment.time_index, 12)):
            if entry is not None and _is_preallocated(entry, width):
                return f"has a preallocated {entry.name.name}"
        with MappedFile(segment.offset_index.path) as file:
            start = OffsetIndex(file.view, segment.base_offset).last_entry.position
        with MappedFile(segment.log.path) as file:
            start = start if 0 <= start <= file.size_bytes else 0
            for item in Scanner.over(file, segment.base_offset).blocks(start):
                if not isinstance(item, Damage) or item.kind == "unreadable-batch":
                    continue
                if item.position + item.length == file.size_bytes:
                    return f"does not end with a whole batch ({item.kind})"
    except UnreadableInput:
        return ""
    return ""


def _is_preallocated(entry: Entry, width: int) -> bool:
    """Whether the last of several slots was never used."""
    with MappedFile(entry.path) as file:
        has_zeros = file.size_bytes >= 2 * width and not any(file.view[file.size_bytes - width :])
        return has_zeros and not file.unreadable()
