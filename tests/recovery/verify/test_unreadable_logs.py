"""A log that cannot be opened: nothing is concluded from the end of the log before it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.partition_check import PartitionCheck
from kseg.recovery.verify.totals import Totals
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import DISK, OpenFile, Reader
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import list_partition
from kseg.segment.partition.log_dir_state import read_log_dir_state
from tests.support.verify_helpers import NOW_MS


class FailingDisk(Reader):
    """Cannot open one of the files."""

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, path: str, drop_cache: bool = False) -> OpenFile:
        if path == self.path:
            raise UnreadableInput(f"cannot read {path}: Input/output error")
        return super().open(path, drop_cache)


def found(partition: Path, level: str, reader: Reader) -> set[tuple[str, str]]:
    options = VerifyOptions(level=level, now_ms=NOW_MS)
    listed, state = list_partition(str(partition)), read_log_dir_state(str(partition.parent))
    events = PartitionCheck(listed, state, options, Totals(), reader=reader).events()
    return {(event.id, event.path) for event in events if isinstance(event, Finding)}


@pytest.mark.parametrize("level", ["quick", "default", "deep"])
def test_unreadable_log_is_the_only_new_finding(sound: Path, level: str) -> None:
    logs = [log for log in sound.glob("*/*.log") if len([*log.parent.glob("*.log")]) > 1]
    assert len(logs) > 3
    for log in logs:
        new = found(log.parent, level, FailingDisk(str(log))) - found(log.parent, level, DISK)
        # what is missing between the sequence numbers around it may be in this log, but that is how it looks
        assert {each for each in new if each[0] != "sequence-gap"} == {("unreadable-file", str(log))}
