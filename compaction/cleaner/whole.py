"""What a run of `compact` does around the partitions: the lock, and the cleaner's checkpoint of the data directories.

1. Before: the locks of all data directories concerned (--apply), so that no broker is running and none starts.
2. The partitions (`work.compact`), here or in worker processes. Their result rows pass by, and are kept.
3. After: cleaner-offset-checkpoint of each data directory. Until that is written the offset there is too low, and a
   cleaner does again what is done already.

Only the rows tell what the partitions are like: workers are other processes.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kseg.compaction.cleaner.options import CompactOptions
from kseg.compaction.cleaner.rows import COMMAND, log_dir_row
from kseg.segment.apply.executor import apply_plan
from kseg.segment.apply.lock import locked
from kseg.segment.errors import FormatError, KsegError, Refused
from kseg.segment.events import Event, Failure, Row
from kseg.segment.files import read_small
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionState, Role
from kseg.segment.plan.inputs import inputs_of
from kseg.segment.plan.pieces import Fresh, content_of
from kseg.segment.plan.steps import Plan, Step, Write
from kseg.segment.sidecar.checkpoint import (
    decode_offset_checkpoint,
    encode_offset_checkpoint,
    with_offsets,
)
from kseg.segment.targets import PartitionTarget, Target

Values = dict[str, Any]
Key = tuple[str, int]

_CHECKPOINT = NAME_BY_ROLE[Role.CLEANER_OFFSETS]


class Run:
    """One run of `compact` over many targets. is_due: something was planned and not carried out."""

    def __init__(self, options: CompactOptions) -> None:
        self._options = options
        self.is_due = False
        self._log_dirs: list[str] = []
        self._offsets: dict[str, dict[Key, int | None]] = {}
        self._changed: dict[str, list[str]] = {}

    @contextmanager
    def held(self, targets: Sequence[Target]) -> Iterator[None]:
        """The locks while the targets are worked on. Raises Refused when a broker is running."""
        found = [
            target.log_dir for target in targets if isinstance(target, PartitionTarget) and target.log_dir
        ]
        self._log_dirs = list(dict.fromkeys(found)) if self._options.output is None else []
        with locked(self._log_dirs if self._options.apply else ()):
            if self._options.apply:
                self._settle()
            yield

    def _settle(self) -> None:
        from kseg.segment.apply.settle import settle

        for log_dir in self._log_dirs:
            settle(log_dir, COMMAND)

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events of the partitions, and behind them those of their data directories."""
        for event in events:
            if isinstance(event, Row) and event.values.get("type") == "result":
                self._note(dict(event.values))
            yield event
        for log_dir in self._log_dirs:
            try:
                yield from self._close(log_dir)
            except KsegError as error:
                yield Failure(log_dir, str(error), error.exit_status)

    def _note(self, result: Values) -> None:
        self.is_due = self.is_due or (not result["applied"] and bool(result["steps"]))
        directory = os.path.abspath(str(result["directory"]))
        log_dir = next(
            (each for each in self._log_dirs if os.path.abspath(each) == os.path.dirname(directory)), None
        )
        name = own_partition_name(directory)
        if log_dir is None or name is None:
            return
        if result["journal"]:
            self._changed.setdefault(log_dir, []).append(os.path.basename(directory))
        if result["passes"] and name.state is PartitionState.LIVE:
            self._offsets.setdefault(log_dir, {})[name.topic, name.partition] = result["next_dirty_offset"]

    def _close(self, log_dir: str) -> Iterator[Event]:
        options, changed = self._options, self._changed.get(log_dir, [])
        offsets = self._offsets.get(log_dir, {})
        plan = _plan(log_dir, offsets)
        if plan.is_empty and len(changed) < 2:
            return  # the one journal there may be undoes all
        done: Values = {"applied": False, "journal": None}
        if options.apply:
            applied = apply_plan(plan, journal_id=options.run_id, partitions=changed)
            done = {"applied": True, "journal": applied.journal}
        noted = {f"{topic}-{number}": at for (topic, number), at in offsets.items() if at is not None}
        yield Row(log_dir_row(log_dir, noted, done))


def _plan(log_dir: str, offsets: dict[Key, int | None]) -> Plan:
    """Raises Refused when the checkpoint cannot be read: then nobody knows what else stood in it."""
    inputs = inputs_of(log_dir)
    steps: tuple[Step, ...] = ()
    is_there = any(file.name == _CHECKPOINT for file in inputs)
    data = read_small(os.path.join(log_dir, _CHECKPOINT)) if is_there and offsets else b""
    try:
        found = decode_offset_checkpoint(data) if data else ()
    except FormatError as error:
        path = os.path.join(log_dir, _CHECKPOINT)
        raise Refused(f"{path} cannot be read ({error}); `kseg recover {log_dir}` writes it anew") from error
    wanted = with_offsets(found, offsets)
    if wanted != found:
        content = content_of([Fresh(encode_offset_checkpoint(wanted))])
        why = "first dirty offsets as the logs are"
        steps = (Write(_CHECKPOINT, content, why, _CHECKPOINT if is_there else None),)
    return Plan(command=COMMAND, directory=log_dir, inputs=inputs, steps=steps)
