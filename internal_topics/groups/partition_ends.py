"""Start and end offsets of the logs under PATH, for the lag of groups; each is read once, on demand."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kseg.segment.errors import KsegError
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget

Replicas = Mapping[tuple[str, int], Sequence[LogTarget]]


class LogEnds(NamedTuple):
    """high_watermark: from its checkpoint, up to seconds old; the log end if no checkpoint has it."""

    start_offset: int
    end_offset: int
    high_watermark: int


class PartitionEnds:
    """The ends of partitions by (topic, partition). replicas: their directories; the longest of several counts, as it does for the
    leader."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas
        self._known: dict[tuple[str, int], LogEnds | None] = {}

    def of(self, topic: str, partition: int) -> LogEnds | None:
        """The ends of a partition; None if it is missing or cannot be read."""
        key = topic, partition
        if key not in self._known:
            found = [ends for target in self._replicas.get(key, ()) if (ends := _ends(target)) is not None]
            self._known[key] = max(found, key=lambda ends: ends.end_offset, default=None)
        return self._known[key]


def _ends(target: LogTarget) -> LogEnds | None:
    try:
        with PartitionLog(target) as log:
            if log.is_kafka07 or not log.segments:
                return None
            return LogEnds(log.start_offset, log.end_offset, log.high_watermark)
    except KsegError:
        return None
