"""The text dump follows lengths as Kafka's does. If they turn out to be wrong it goes back, but not repeatedly."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Event, Text
from kseg.segment import findings
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import FileTarget
from tests.segment.scanning.test_scan_hostile import HOSTILE
from tests.support.one_target import dump
from tests.support.scan_helpers import batch, header, message, plain_file, scanned, with_length

NAME = "00000000000000000000.log"
VALID_AT = re.compile(rb"^(?:baseOffset|offset): .* position: (\d+) .* isvalid: true$", re.MULTILINE)


def valid_positions(events: list[Event]) -> list[int]:
    text = b"".join(event.data for event in events if isinstance(event, Text))
    return [int(position) for position in VALID_AT.findall(text)]


def dumped(folder: Path, data: bytes, options: DumpOptions | None = None) -> list[Event]:
    (folder / NAME).write_bytes(data)
    return list(dump(FileTarget(str(folder / NAME)), options or DumpOptions()))


def chain_behind_each_header(size: int) -> bytes:
    """Valid batches, each followed by a header that leads into one long chain of false messages with a bad end."""
    half = size // 2
    chain = message(0) * (half // 26) + struct.pack(">qi", 0, 3) + b"\1" * 20
    front, number = bytearray(), 0
    while len(front) < half - 300:
        front += batch(2 * number)
        front += header(2 * number, half - len(front))
        number += 1
    return bytes(front) + b"\xee" * (half - len(front)) + chain


def output_bytes(events: Iterator[Event]) -> int:
    """The size of the output: text, and for each finding about the size of its JSON line."""
    return sum(len(event.data) if isinstance(event, Text) else 300 for event in events)


@pytest.mark.slow
@pytest.mark.parametrize(
    "made_by", [*HOSTILE, chain_behind_each_header], ids=lambda made_by: made_by.__name__
)
def test_dump_of_a_hostile_file_is_linear_in_its_size(
    made_by: Callable[[int], bytes], tmp_path: Path
) -> None:
    """Output and processor time of a dump are bounded by a multiple of the file size."""
    seconds = []
    for size in (100_000, 400_000):
        data = made_by(size)
        (tmp_path / NAME).write_bytes(data)
        started = time.process_time()
        output = output_bytes(dump(FileTarget(str(tmp_path / NAME)), DumpOptions(print_data_log=True)))
        seconds.append(time.process_time() - started)
        assert output < 60 * len(data) + 100_000_000
    assert seconds[1] < 10 * seconds[0] + 5, "4 times the bytes: a quadratic dump takes 16 times minutes"


@pytest.mark.parametrize("made_by", HOSTILE, ids=lambda made_by: made_by.__name__)
def test_every_batch_that_the_scanner_finds_is_dumped(
    made_by: Callable[[int], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds even where length fields are no longer trusted."""
    from kseg.inspection.dump import log_text

    data = made_by(60_000)
    expected = set(scanned(data).positions)
    for allowance in (log_text.REWALK_ALLOWANCE_BYTES, -(2**40)):
        monkeypatch.setattr(log_text, "REWALK_ALLOWANCE_BYTES", allowance)
        assert set(valid_positions(dumped(tmp_path, data))) >= expected


def test_dump_and_scanner_name_the_same_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kseg.inspection.dump import log_text

    data, positions = plain_file(9)
    data = with_length(with_length(data, positions[2], 500), positions[6], 14)
    trusting = dumped(tmp_path, data)
    monkeypatch.setattr(log_text, "REWALK_ALLOWANCE_BYTES", -(2**40))
    distrusting = dumped(tmp_path, data)
    assert (
        valid_positions(distrusting)
        == valid_positions(trusting)
        == [p for p in positions if p not in (positions[2], positions[6])]
    )

    def damage(events: list[Event]) -> list[tuple[str, int | None]]:
        found = [e for e in events if isinstance(e, Finding) and findings.CATALOGUE[e.id].severity == "error"]
        return [(finding.id, finding.position) for finding in found]

    assert (
        damage(distrusting)
        == damage(trusting)
        == [("bad-length", positions[2]), ("bad-length", positions[6])]
    )
