"""What a partition has in remote storage, for packages that do not read __remote_log_metadata themselves."""

from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class RemoteSpan:
    """A segment in remote storage. first_offset, last_offset: of the part that a fetch returns from there. max_timestamp_ms: of the
    whole segment."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class RemoteCopy:
    """A whole segment in remote storage. end_offset: after its last one."""

    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
