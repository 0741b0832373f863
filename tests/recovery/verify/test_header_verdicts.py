"""Headers that are checked part by part give the same findings as `verify` on the complete log, each from exactly one part."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.change.append.partition_writer import RollRules
from kseg.recovery.verify.header_verdicts import HeaderVerdicts, check_headers, concerns
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.partition_check import verify_partition
from kseg.recovery.verify.totals import Totals
from kseg.segment.diagnosis import AlteredBaseOffset
from kseg.segment.findings import Finding
from kseg.segment.partition.bounds import Bounds
from kseg.segment.partition.targets import PartitionTarget
from tests.support.scan_helpers import batch_positions

OF_HEADERS = {
    "altered-base-offset",
    "altered-leader-epoch",
    "offset-not-monotonic",
    "offset-below-segment",
    "offset-overflow",
    "leader-epoch-decreases",
    "record-count-mismatch",
    "unknown-attributes",
}
CASES = int(os.environ.get("KSEG_HEADER_CASES", "60"))
SEED = int(os.environ.get("KSEG_HEADER_SEED", "12"))
Reported = set[tuple[str, str, int | None]]


def by_verify(directory: Path) -> Reported:
    options = VerifyOptions(now_ms=healthy.T0)
    target = PartitionTarget(str(directory), str(directory.parent))
    events = verify_partition(target, options, Totals())
    return reported([each for each in events if isinstance(each, Finding)])


def reported(findings: list[Finding]) -> Reported:
    return {(each.id, each.path, each.position) for each in findings if each.id in OF_HEADERS}


def by_parts(directory: Path, draw: random.Random, parts: int) -> list[Finding]:
    found: list[Finding] = []
    for log in sorted(directory.glob("*.log")):
        positions = batch_positions(log.read_bytes())
        cuts = sorted(draw.sample(positions[1:], min(parts - 1, len(positions) - 1)))
        for start, stop in zip([0, *cuts], [*cuts, None], strict=True):
            found += check_headers(str(log), int(log.stem), start, stop).findings
    return found


def flip(log: Path, position: int, bit: int) -> None:
    """Flip a bit: 0 to 63 are those of the base offset from the lowest on, 64 to 95 those of the leader epoch."""
    content = bytearray(log.read_bytes())
    first, width, at = (position, 8, bit) if bit < 64 else (position + 12, 4, bit - 64)
    content[first + width - 1 - at // 8] ^= 1 << at % 8
    log.write_bytes(content)


@pytest.mark.parametrize("rules", [healthy.RULES, RollRules(index_interval_bytes=600)], ids=["many", "one"])
def test_header_findings_of_parts_equal_those_of_the_whole_log(tmp_path: Path, rules: RollRules) -> None:
    """One flipped bit in any batch: the parts of a log, wherever it is divided, report the same findings, each once."""
    draw = random.Random(SEED)
    directory = healthy.partition(tmp_path / "metro-0", rules)
    logs = [log for log in sorted(directory.glob("*.log")) if log.stat().st_size]
    kinds: set[str] = set()
    for _ in range(CASES):
        log = draw.choice(logs)
        content = log.read_bytes()
        position = draw.choice(batch_positions(content))
        flip(log, position, draw.choice((*range(8), 40, 62, 63, *range(64, 68), 90, 95)))
        expected = by_verify(directory)
        found = by_parts(directory, draw, draw.choice((1, 2, 3)))
        log.write_bytes(content)
        assert reported(found) == expected, (log.name, position, batch_positions(content), found)
        assert len(found) == len({(each.id, each.path, each.position) for each in found})
        kinds |= {kind for kind, *_ in expected}
    assert {"altered-base-offset", "altered-leader-epoch"} <= kinds


def test_undamaged_partition_has_complete_spans(tmp_path: Path) -> None:
    directory = healthy.partition(tmp_path / "metro-0")
    for log in directory.glob("*.log"):
        size = log.stat().st_size
        found = check_headers(str(log), int(log.stem))
        assert found == HeaderVerdicts(spans=((0, size),) if size else ())
        positions = batch_positions(log.read_bytes())
        if len(positions) > 4:
            part = check_headers(str(log), int(log.stem), positions[2], positions[4])
            ((start, stop),) = part.spans
            assert start == positions[2] and stop >= positions[4]


def test_finding_concerns_the_records_in_its_bounds() -> None:
    altered = Finding(
        "altered-base-offset",
        "x",
        "",
        0,
        8,
        100,
        109,
        diagnosis=AlteredBaseOffset(500, 100, None),
    )
    for bounds, expected in (
        (Bounds(), True),
        (Bounds(100, 101), True),
        (Bounds(109), True),
        (Bounds(110, 500), False),
        (Bounds(505, 506), True),
        (Bounds(510), False),
    ):
        assert concerns(altered, bounds) is expected, bounds
    unknown = Finding("altered-base-offset", "x", "", 0, 8, diagnosis=AlteredBaseOffset(500, None, None))
    assert concerns(unknown, Bounds(0, 1))
    assert not concerns(Finding("altered-leader-epoch", "x", "", 12, 4, 5, 9), Bounds(10))
