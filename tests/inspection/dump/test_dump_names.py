"""File names that are not UTF-8 appear in every line of a dump with the bytes that they have on disk."""

from __future__ import annotations

import os
from pathlib import Path

from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Text
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import FileTarget
from tests.support.one_target import dump


def test_dump_of_a_torn_log_keeps_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    name = b"00000000000000000000.\xff.log"
    data = encode_batch(NewBatch(records=(Record(0, 1, b"k", b"v"),)))
    path = os.path.join(os.fsencode(tmp_path), name)
    with open(path, "wb") as log:
        log.write(data + data[:40])

    events = list(dump(FileTarget(os.fsdecode(path)), DumpOptions()))

    lines = b"".join(event.data for event in events if isinstance(event, Text)).splitlines()
    assert lines[0] == b"Dumping " + path
    assert lines[-1] == b"Found 40 invalid bytes at the end of " + name
