"""The result of `append`, as a value."""

from collections.abc import Mapping
from typing import ClassVar

from kseg.change.run.results import ChangeResult
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendResult(ChangeResult):
    """What `append` makes of one partition: the line `{"type":"result","command":"append", …}` of docs/json.md."""

    command: ClassVar[str] = "append"

    partition: str = ""
    becomes_stray: bool = False
    applied: bool = False
    is_new: bool
    records: int
    batches: int
    bytes: int
    segments_rolled: int
    flushes: int
    log_start_offset: int
    first_offset: int
    log_end_offset: int
    lines_ignored: Mapping[str, int]
    batches_left_out: int = 0
    journal: str | None = None
