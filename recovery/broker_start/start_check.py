"""`verify` that also determines how a broker would start. It uses what `verify` has just checked and reads nothing twice.

The `verified` row of each target gets a field `start`: for a partition what log loading does with it (`PartitionStart`), for a
data directory what prevents a start (`LogDirStart`), null if unknown. `node_start` combines the rows of all targets.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kseg.change.apply.running_broker import is_in_use
from kseg.jobs.events import Event, Row
from kseg.recovery.broker_start.log_dir_start import (
    LogDirStart,
    Thrown,
    file_in_place,
    log_dir_start,
    written_at_start,
)
from kseg.recovery.broker_start.partition_start import (
    PartitionStart,
    marked_start,
    opened_by_load,
    partition_start,
)
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.totals import Totals
from kseg.recovery.verify.verify import KINDS, Verify
from kseg.segment.errors import VanishedInput
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.log_shape import LogShape
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.partition.targets import FileTarget, PartitionTarget, Target
from kseg.segment.storage.attached import is_tiered
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class TargetStart:
    """What a broker would do with one target. shape: of its log, if it was requested. greatest_producer_id: of its producers, -1 for
    none."""

    path: str
    start: PartitionStart | LogDirStart
    shape: LogShape | None = None
    greatest_producer_id: int = -1


class VerifyForStart(Verify):
    """`verify`, with the start prediction added to each target's row."""

    def __call__(self, target: Target, options: VerifyOptions) -> Iterator[Event]:
        totals = Totals()
        kinds: set[str] = set()
        errors: list[Finding] = []
        for event in self.findings(target, options, totals):
            if isinstance(event, Finding):
                kinds.add(event.id)
                if event.severity == ERROR:
                    errors.append(event)
            yield event
        blocked = _not_writable(target, totals)
        if blocked is not None:
            totals.admit(blocked)
            yield blocked
        row = totals.row(target.path, KINDS[type(target)])
        start = None
        try:
            start = _start(target, totals, kinds, errors, blocked, options)
        except VanishedInput:
            # if a running broker has removed it, no other broker can start there
            if not is_in_use(target):
                raise
        if start is None:
            yield Row(row.values, totals.shape)
            return
        greatest_id = -1 if totals.checked is None else totals.checked.greatest_producer_id
        found = TargetStart(target.path, start, totals.shape, greatest_id)
        yield Row({**row.values, "start": start.as_row()}, found)


def _not_writable(target: Target, totals: Totals) -> Finding | None:
    from kseg.recovery.broker_start.load_obstacles import locked, not_writable

    if totals.listed is not None:
        return locked(written_at_start(totals.listed))
    if not isinstance(target, PartitionTarget) or target.log_dir is None or totals.checked is None:
        return None
    opened, is_clean = opened_by_load(totals.checked)
    return not_writable(totals.checked.directory, opened, target.log_dir, is_clean=is_clean)


def _start(
    target: Target,
    totals: Totals,
    kinds: set[str],
    errors: Sequence[Finding],
    blocked: Finding | None,
    options: VerifyOptions,
) -> PartitionStart | LogDirStart | None:
    if is_tiered(target.path):
        return None
    if isinstance(target, FileTarget):
        file = parse_file_name(os.path.basename(target.path))
        is_strange = file.role is Role.UNKNOWN and file.is_live
        return file_in_place(target.path) if is_strange else None
    if totals.listed is not None:
        found = log_dir_start(totals.listed, blocked)
        return found if found is None or not found.removed else _with_marked(found, options)
    checked = totals.checked
    if checked is None:
        return None
    start = partition_start(checked, kinds, options, blocked)
    if start is not None and _is_metadata_log(totals):
        # needed for one partition of a node
        from kseg.recovery.broker_start.metadata_start import with_quorum_files

        return with_quorum_files(start, checked.directory, errors)
    return start


def _with_marked(start: LogDirStart, options: VerifyOptions) -> LogDirStart:
    """Add the failures that a broker meets when it loads the directories marked for deletion."""
    around = read_log_dir_state(start.path)
    paths = (os.path.join(start.path, name) for name in start.removed)
    failed = [each for path in paths if (each := marked_start(path, around, options.now_ms)) is not None]
    thrown = {each: Thrown(each.exception or "", each.message or "") for each in failed}
    return replace(
        start,
        offline=(*start.offline, *(thrown[each] for each in failed if each.takes_directory_offline)),
        unloadable=tuple(thrown[each] for each in failed if not each.takes_directory_offline),
    )


def _is_metadata_log(totals: Totals) -> bool:
    name = None if totals.checked is None else totals.checked.directory.name
    return name is not None and name.is_metadata_log
