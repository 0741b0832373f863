"""Start and end offsets of the logs under PATH, for the lag of groups; each is read once, on demand."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from kseg.internal_topics.broker_directories import logs_to_read
from kseg.segment.errors import KsegError
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget

Replicas = Mapping[tuple[str, int], Sequence[LogTarget]]


class LogEnds(NamedTuple):
    """start_offset: with tiered storage it may be in remote storage. high_watermark: from its checkpoint, up to seconds old; the log end if
    no checkpoint has it."""

    start_offset: int
    end_offset: int
    high_watermark: int


class PartitionEnds:
    """The ends of partitions by (topic, partition). replicas: their directories; of several the most recent one counts
    (`broker_directories`). tiered: the directories of those with tiered storage."""

    def __init__(self, replicas: Replicas, tiered: AbstractSet[str] = frozenset()) -> None:
        self._replicas = replicas
        self._tiered = tiered
        self._known: dict[tuple[str, int], LogEnds | None] = {}

    def of(self, topic: str, partition: int) -> LogEnds | None:
        """The ends of a partition; None if it is missing or cannot be read."""
        key = topic, partition
        if key not in self._known:
            logs = logs_to_read(self._replicas.get(key, ()))
            found = [ends for each in logs if (ends := _ends(each, each.path in self._tiered)) is not None]
            self._known[key] = max(found, key=lambda ends: ends.end_offset, default=None)
        return self._known[key]


def _ends(target: LogTarget, is_tiered: bool) -> LogEnds | None:
    try:
        with PartitionLog(target) as log:
            if log.is_kafka07 or not log.segments:
                return None
            start = log.remote_start if is_tiered and log.remote_start is not None else log.start_offset
            return LogEnds(start, log.end_offset, log.high_watermark)
    except KsegError:
        return None
