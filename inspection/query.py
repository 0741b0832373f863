"""Options of `lookup`, `read` and `list`."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kseg.segment.partition.bounds import Bounds
from kseg.segment.partition.remote_span import RemoteSpan
from kseg.segment.redaction import Redactor
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.segment.json_rows import RowDecoder

TIERED_KINDS = ("earliest-local", "latest-tiered", "earliest-pending-upload")
LOOKUP_KINDS = (
    "offset",
    "timestamp",
    "max-timestamp",
    "earliest",
    *TIERED_KINDS,
    "latest",
    "key",
    "leader-epoch",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupQuery:
    """kind: one of LOOKUP_KINDS; exactly the operand of that kind is set (offset, timestamp_ms, key, leader_epoch).

    every_version: with kind "key" the whole history instead of the newest record. bounds: with kind "key", of the records that count. jobs:
    how many processes may search one log for a key. partition_counts: with kind "key", how many partitions each topic has, to search only
    the partition that the default partitioner selects; None searches all. use_index: False scans. log_start_offset: None reads the log
    dir's checkpoint, else the first segment's base offset. remote: by partition directory, what the log has in remote storage, where that
    is known. remote_ends: by the directory of a partition with tiered storage, the offset after the last one there, None if unknown.
    row_decoder: decodes the key and value of the record that is found.
    """

    kind: str
    offset: int | None = None
    timestamp_ms: int | None = None
    key: bytes | None = None
    leader_epoch: int | None = None
    every_version: bool = False
    bounds: Bounds = Bounds()
    jobs: int = 1
    partition_counts: Mapping[str, int] | None = None
    use_index: bool = True
    log_start_offset: int | None = None
    remote: Mapping[str, tuple[RemoteSpan, ...]] = field(default_factory=dict)
    remote_ends: Mapping[str, int | None] = field(default_factory=dict)
    read_committed: bool = False
    bytes_mode: str = "auto"
    row_decoder: "RowDecoder | None" = None


FRAMINGS = ("none", "message-set", "multi")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadQuery:
    """The parameters of a fetch. grow: double `max_bytes` until one whole message fits (up to `max_message_bytes`); framing: one
    of FRAMINGS (the 0.7 fetch results). row_decoder: decodes keys and values in rows. redactor: recognizes the secrets that
    raw bytes must not contain, None allows all."""

    offset: int
    max_bytes: int
    max_message_bytes: int = 64 * 1024 * 1024
    grow: bool = True
    raw: bool = False
    framing: str = "none"
    use_index: bool = True
    bytes_mode: str = "auto"
    row_decoder: "RowDecoder | None" = None
    redactor: Redactor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """now_ms: the wall clock, to recognize future timestamps. count: read every batch header, for exact numbers. files: also a
    row for each file. groups: the committed offsets of groups, by (topic, partition), each as (group, offset); None if groups
    were not requested. is_brief: a row has only the columns of a table of many partitions, if that is faster. shapes: with
    `count`, also return the shape of each log, for pictures."""

    now_ms: int
    is_brief: bool = False
    count: bool = True
    files: bool = True
    shapes: bool = False
    groups: Mapping[tuple[str, int], Sequence[tuple[str, int]]] | None = None
