"""Helpers of the salvage tests: plan a repair, write its result to another directory, read batches."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from kseg.change.plan.content import Fresh, Span
from kseg.change.plan.directory_image import DirectoryImage, steps_between
from kseg.change.plan.inputs import inputs_of
from kseg.recovery.policy import BrokerState, LoadSettings, Repair
from kseg.recovery.salvage.salvage import salvage
from kseg.segment.crc import crc32, crc32c
from tests.support.trees import unchanged
from tests.support.verify_helpers import NOW_MS, Verdict, judge

SETTINGS = LoadSettings(now_ms=NOW_MS)


def plan(
    partition: Path,
    *,
    rebuild: bool = False,
    repair_bits: bool = False,
    settings: LoadSettings = SETTINGS,
    broker_state: BrokerState | None = None,
) -> Repair:
    """Plan the salvage of a partition directory, which stays unchanged. Fails if the plan contradicts itself."""
    with unchanged(partition):
        inputs = inputs_of(str(partition))
        around = broker_state or BrokerState(is_clean=True)
        repair = salvage(str(partition), inputs, around, settings, rebuild=rebuild, repair_bits=repair_bits)
    found = DirectoryImage.of(inputs)
    # fails if a change has no reason
    steps_between(found, repair.image, repair.why)
    changed = {
        name
        for name in {*found, *repair.image}
        if (name in found) != (name in repair.image)
        or (name in found and found.content(name) != repair.image.content(name))
    }
    assert set(repair.why) == changed
    assert repair.load_failure is None
    return repair


def write_repaired(repair: Repair, partition: Path, target: Path) -> Path:
    """Write the planned directory, with the planned modification times."""
    target.mkdir(parents=True)
    for name in repair.image:
        data = bytearray()
        for piece in repair.image.content(name):
            if isinstance(piece, Span):
                data += (partition / piece.name).read_bytes()[piece.position : piece.end_position]
            else:
                assert isinstance(piece, Fresh)
                data += piece.data
        (target / name).write_bytes(data)
        like = repair.image.like(name)
        if like is not None:
            status = (partition / like).stat()
            os.utime(target / name, ns=(status.st_atime_ns, status.st_mtime_ns))
    return target


def needs_no_repair(partition: Path, repair: Repair) -> bool:
    """Whether nothing would change."""
    return repair.image == DirectoryImage.of(inputs_of(str(partition)))


def salvaged(partition: Path, target: Path, **options: object) -> tuple[Repair, Verdict]:
    """Plan, write below `target`, and check the guarantees of every salvage: verify finds no error that a repair could fix, and a second
    salvage plans nothing."""
    repair = plan(partition, **options)  # type: ignore[arg-type]
    result = write_repaired(repair, partition, target / partition.name)
    again = plan(result)
    assert needs_no_repair(result, again), again.why
    assert again.removed == ()
    verdict = judge(result)
    beyond_repair = {finding.id for finding in verdict.findings if "dump" in finding.kind.hint}
    assert verdict.ids("error") <= beyond_repair, verdict.output("error")
    assert again.log_end_offset == repair.log_end_offset
    assert again.last_stable_offset == repair.last_stable_offset
    return repair, verdict


def batches(log: Path) -> Iterator[tuple[int, bytes]]:
    """(position, bytes) of each batch of a valid log, by its size fields; fails if the log is not valid."""
    data, position = log.read_bytes(), 0
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position + 8)
        batch = data[position : position + 12 + size]
        assert is_valid(batch), (log, position)
        yield position, batch
        position += len(batch)


def is_valid(batch: bytes) -> bool:
    """Whether the checksum is correct by the rule of the batch's format."""
    if len(batch) < 26 or struct.unpack_from(">i", batch, 8)[0] + 12 != len(batch):
        return False
    if batch[16] < 2:
        return crc32(batch[16:]) == int.from_bytes(batch[12:16], "big")
    return len(batch) >= 61 and crc32c(batch[21:]) == int.from_bytes(batch[17:21], "big")


def logs(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def all_batches(partition: Path) -> list[bytes]:
    """The batches of all segments, in order."""
    return [batch for log in logs(partition) for _, batch in batches(log)]


def offsets(batch: bytes) -> tuple[int, int]:
    """First and last offset of a batch; for a message set of an old format, the last offset twice."""
    (first,) = struct.unpack_from(">q", batch)
    return first, first + (struct.unpack_from(">i", batch, 23)[0] if batch[16] >= 2 else 0)
