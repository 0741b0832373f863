"""What a broker's retention deletes because a time index is wrong: a cost of policy kafka that no load shows.

A broker takes the age of a segment from the last slot of its time index, whatever its value (`largest_timestamp`). Zeros there
mean 1970, and with retention.ms set the segment is deleted minutes after the start; for an index of 0 bytes the modification time
of the file counts (verified with a real broker: `tests/kafka/test_price_by_consumers.py`). Segments that would be deleted with
correct timestamps as well are no loss caused by damage. The limit is the configuration of the topic or its broker, else Kafka's
default of seven days; the result names its source.
"""

import struct
from collections.abc import Iterable, Mapping

from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.steps import FileIdentity
from kseg.recovery.salvage.image_reader import ImageReader
from kseg.segment import layout as L
from kseg.segment.partition.names import PartitionName, Role, parse_file_name
from kseg.segment.partition.topic_settings import TopicSettings
from kseg.segment.values import dataclass

_ENTRY = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """now_ms: the clock. retention_ms: of a topic with cleanup.policy=delete."""

    now_ms: int
    retention_ms: int


def time_limit(topic: TopicSettings, partition: PartitionName | None, now_ms: int) -> TimeLimit | None:
    """The limit by which a broker deletes segments of a partition; None if it deletes nothing by time, or if that is unknown."""
    setting = topic.settings.get("retention.ms")
    if setting is None or "delete" not in topic.policies or not setting.value.isdecimal():
        return None
    if partition is not None and partition.topic == "__cluster_metadata":
        return None  # the metadata log, which the log manager does not manage
    return TimeLimit(now_ms, int(setting.value))


def deleted_by_wrong_times(
    directory: str,
    found: Iterable[FileIdentity],
    image: DirectoryImage,
    sound: DirectoryImage,
    limit: TimeLimit,
) -> frozenset[str]:
    """Names of the logs that time-based retention deletes from `image`, as a broker loads it, but not from `sound`, whose time
    indexes are correct. found: the original files. Raises UnreadableInput."""
    mtimes = _mtimes(found)
    if all(image.content(name) == sound.content(name) for name in _time_indexes(image) if name in sound):
        return frozenset()
    return _expired(directory, image, mtimes, limit) - _expired(directory, sound, mtimes, limit)


def deletes_any(
    directory: str, found: Iterable[FileIdentity], image: DirectoryImage, limit: TimeLimit
) -> bool:
    """Whether time-based retention deletes any log from `image`, as a broker loads it. Raises UnreadableInput."""
    return bool(_expired(directory, image, _mtimes(found), limit))


def _mtimes(found: Iterable[FileIdentity]) -> dict[str, int]:
    return {file.name: file.mtime_ns // 1_000_000 for file in found}


def _time_indexes(image: DirectoryImage) -> list[str]:
    return [name for name in image if name.endswith(L.TIME_INDEX_SUFFIX)]


def _expired(
    directory: str, image: DirectoryImage, mtimes: Mapping[str, int], limit: TimeLimit
) -> frozenset[str]:
    """The oldest segments, up to the first that is young enough (Kafka: UnifiedLog.deletableSegments)."""
    reader = ImageReader(directory, image)
    expired: set[str] = set()
    for name in sorted(name for name in image if _is_live_log(name)):
        index_name = name.removesuffix(L.LOG_SUFFIX) + L.TIME_INDEX_SUFFIX
        entries = reader.read_small(index_name) if index_name in image else b""
        stamp_ms = _last_timestamp(entries)
        if stamp_ms < 0:
            stamp_ms = mtimes.get(image.like(name) or name, limit.now_ms)
        if limit.now_ms - stamp_ms <= limit.retention_ms:
            break
        expired.add(name)
    return frozenset(expired)


def _is_live_log(name: str) -> bool:
    parsed = parse_file_name(name)
    return parsed.role is Role.LOG and parsed.is_live and parsed.base_offset is not None


def _last_timestamp(entries: bytes) -> int:
    """Timestamp of the last complete slot, whether it was written or only preallocated."""
    slots = len(entries) // L.TIME_INDEX_ENTRY
    if not slots:
        return L.NO_TIMESTAMP
    timestamp_ms, _ = _ENTRY.unpack_from(entries, (slots - 1) * L.TIME_INDEX_ENTRY)
    return int(timestamp_ms)
