"""Files above 2 GiB, which a broker cannot open: they are read completely, and a finding reports them.

The files are sparse, with batches at the front and after 2 GiB, and in between batches whose bodies are holes.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Text
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.findings import Finding
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.targets import FileTarget
from tests.support.one_target import dump

GIB = 1 << 30


def sparse_log(path: Path) -> int:
    """Write three real batches around two of 1.1 GiB whose bodies are holes; returns the size of the file."""

    def batch(offset: int) -> bytes:
        return encode_batch(NewBatch(records=(Record(offset, 1000 + offset, b"k", b"v"),)))

    with path.open("wb") as log:
        log.write(batch(0))
        for offset in (1, 2):
            size = 11 * GIB // 10
            header = struct.pack(">qiibIhiqqqhii", offset, size - 12, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 0)
            start = log.tell()
            log.write(header)
            log.seek(start + size)
            log.write(batch(10 * offset))
        return log.tell()


@pytest.mark.slow
@pytest.mark.behaviour("F35")
def test_dump_continues_after_2_gib(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    size = sparse_log(path)

    events = list(dump(FileTarget(str(path)), DumpOptions()))

    text = b"".join(event.data for event in events if isinstance(event, Text)).decode()
    starts = [line.split()[1] for line in text.splitlines() if line.startswith("baseOffset")]
    assert size > 2 * GIB
    assert starts == ["0", "1", "10", "2", "20"]
    assert text.splitlines()[-1].endswith("isvalid: true")
    assert "oversized-segment" in [event.id for event in events if isinstance(event, Finding)]
