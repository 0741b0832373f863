"""What a partition has in remote storage, for rooms that do not read the topic that says so."""

from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class RemoteSpan:
    """A segment in remote storage. first_offset, last_offset: of it, what a fetch is given from there. max_timestamp_ms: of the whole
    segment."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
