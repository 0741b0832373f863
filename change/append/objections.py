"""What a broker would have rejected of the appended records, or would delete of them at once.

1. A record without a key in a compacted topic: a broker rejects it (Kafka: LogValidator), and its cleaner discards one that is there.
2. A timestamp ahead of the clock by more than message.timestamp.after.max.ms: a broker rejects it (LogValidator). Seconds or microseconds
   taken for milliseconds are the usual cause of odd timestamps; a segment with one that is far ahead is never deleted by time.
3. A batch, compressed, above max.message.bytes: a broker rejects it (UnifiedLog.analyzeAndValidateRecords), though it loads, serves and
   replicates one that is there.
4. Records that are all older than retention.ms: a broker deletes them when it enforces retention (UnifiedLog.deleteOldSegments).
"""

from collections.abc import Iterator

from kseg.segment import layout as L
from kseg.segment.counted import counted
from kseg.segment.findings import Finding
from kseg.segment.model import NewBatch
from kseg.segment.moments import moment
from kseg.segment.partition.topic_settings import (
    DEFAULT_MAX_MESSAGE_BYTES,
    DEFAULT_TIMESTAMP_AFTER_MAX_MS,
    MAX_MESSAGE_BYTES,
    TIMESTAMP_AFTER_MAX,
    TopicSettings,
)


class Objections:
    """Collects what is appended to a partition; `findings` once everything was. path: of the partition. now_ms: the broker's clock."""

    def __init__(self, path: str, topic: TopicSettings, now_ms: int) -> None:
        self._path, self._topic, self._now_ms = path, topic, now_ms
        self._is_compacted = "compact" in topic.policies
        ahead_ms = topic.number(TIMESTAMP_AFTER_MAX)
        self._latest_ms = now_ms + (DEFAULT_TIMESTAMP_AFTER_MAX_MS if ahead_ms is None else ahead_ms)
        max_bytes = topic.number(MAX_MESSAGE_BYTES)
        self._max_bytes = DEFAULT_MAX_MESSAGE_BYTES if max_bytes is None else max_bytes
        self._without_key = 0
        self._ahead = 0
        self._newest_ms = L.NO_TIMESTAMP
        self._too_large = self._largest_bytes = 0

    def take(self, batch: NewBatch, size_bytes: int) -> None:
        """Judge a batch. size_bytes: as it was written."""
        if batch.control:
            return
        if size_bytes > self._max_bytes and not batch.is_copy:
            self._too_large += 1
            self._largest_bytes = max(self._largest_bytes, size_bytes)
        if self._is_compacted:
            self._without_key += sum(record.key is None for record in batch.records)
        newest_ms = max((record.timestamp_ms for record in batch.records), default=L.NO_TIMESTAMP)
        self._newest_ms = max(self._newest_ms, newest_ms)
        if newest_ms > self._latest_ms and not batch.is_copy:  # a copy is of what a broker has accepted
            self._ahead += sum(record.timestamp_ms > self._latest_ms for record in batch.records)

    def findings(self) -> Iterator[Finding]:
        if self._without_key:
            many = counted(self._without_key, "record")
            message = (
                f"the topic is compacted, and {many} without a key would be removed by the next cleaning"
            )
            yield Finding("unkeyed-in-compacted", self._path, message, numbers={"records": self._without_key})
        if self._ahead:
            message = (
                f"{counted(self._ahead, 'record')} with a timestamp in the future, up to {moment(self._newest_ms)}: a broker rejects such "
                "records, and retention by time keeps a segment that has one (timestamps are milliseconds since 1970)"
            )
            yield Finding("future-timestamp", self._path, message, numbers={"records": self._ahead})
        if self._too_large:
            message = (
                f"{counted(self._too_large, 'batch')} of up to {self._largest_bytes} bytes, more than the topic's max.message.bytes of "
                f"{self._max_bytes}: a broker rejects such batches, so whoever copies the records with a producer cannot send them on"
            )
            numbers = {"batches": self._too_large, "bytes": self._largest_bytes, "limit": self._max_bytes}
            yield Finding("batch-too-large", self._path, message, numbers=numbers)
        retention_ms = self._topic.number("retention.ms")
        if "delete" not in self._topic.policies or retention_ms is None or retention_ms < 0:
            return
        if L.NO_TIMESTAMP < self._newest_ms < self._now_ms - retention_ms:
            message = (
                f"all appended records are older than the topic's retention.ms of {retention_ms}, the newest is of "
                f"{moment(self._newest_ms)}: a broker deletes them when it enforces retention"
            )
            yield Finding("appended-expired", self._path, message)
