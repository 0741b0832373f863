"""What a run of `compact` or `retain` does around the partitions: the lock, and one checkpoint of the data directories.

1. Before: the locks of all data directories concerned (--apply), so that no broker is running and none starts.
2. The partitions, here or in worker processes. Their result rows pass by, and are kept.
3. After: the checkpoint of each data directory that notes where its logs begin now, in the sense of the command.

Only the rows tell what the partitions are like: workers are other processes. What differs between the commands is
what a row says: the subclasses are in `cleaner.whole` and `retention.whole`.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

from kseg.segment.apply.executor import apply_plan
from kseg.segment.apply.lock import locked
from kseg.segment.errors import FormatError, KsegError, Refused
from kseg.segment.events import Event, Failure, Row
from kseg.segment.files import read_small
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionName, Role
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
Entries = dict[tuple[str, int], int | None]  # by topic and partition; None: no entry


class RunOptions(Protocol):
    """What is asked of the options of either command."""

    @property
    def apply(self) -> bool: ...

    @property
    def run_id(self) -> str: ...


class CheckpointRun(ABC):
    """One run over many targets. is_due: something was planned and not carried out.

    command: whose run. role: the checkpoint it keeps in line. why: the reason for the plan when that changes.
    """

    command: ClassVar[str]
    role: ClassVar[Role]
    why: ClassVar[str]

    def __init__(self, options: RunOptions) -> None:
        self._run_options = options
        self.is_due = False
        self._log_dirs: list[str] = []
        self._entries: dict[str, Entries] = {}
        self._changed: dict[str, list[str]] = {}

    @abstractmethod
    def is_left(self, result: Mapping[str, Any]) -> bool:
        """Whether the row plans what a run with --apply would do."""

    @abstractmethod
    def entry_of(self, result: Mapping[str, Any], name: PartitionName) -> tuple[bool, int | None]:
        """(whether the row says what the checkpoint has to say, the entry; None: there is to be none)."""

    @abstractmethod
    def row_of(self, log_dir: str, entries: Entries, done: Values) -> Values:
        """The result for a data directory. done: whether it was applied, and the journal."""

    def is_concerned(self, result: Mapping[str, Any]) -> bool:
        """Whether the row is about a log that the data directory's own files speak of."""
        return True

    def log_dirs_of(self, targets: Sequence[Target]) -> list[str]:
        """The data directories whose checkpoint the run writes, each once."""
        found = [
            target.log_dir for target in targets if isinstance(target, PartitionTarget) and target.log_dir
        ]
        return list(dict.fromkeys(found))

    @contextmanager
    def held(self, targets: Sequence[Target]) -> Iterator[None]:
        """The locks while the targets are worked on. Raises Refused when a broker is running."""
        self._log_dirs = self.log_dirs_of(targets)
        with locked(self._log_dirs if self._run_options.apply else ()):
            if self._run_options.apply:
                from kseg.segment.apply.settle import settle

                for log_dir in self._log_dirs:
                    settle(log_dir, self.command)
            yield

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events of the partitions, and behind them those of their data directories."""
        for event in events:
            if isinstance(event, Row) and event.values.get("type") == "result":
                self._note(event.values)
            yield event
        for log_dir in self._log_dirs:
            try:
                yield from self._close(log_dir)
            except KsegError as error:
                yield Failure(log_dir, str(error), error.exit_status)

    def _note(self, result: Mapping[str, Any]) -> None:
        self.is_due = self.is_due or (not result["applied"] and self.is_left(result))
        directory = os.path.abspath(str(result["directory"]))
        log_dir = next(
            (each for each in self._log_dirs if os.path.abspath(each) == os.path.dirname(directory)), None
        )
        name = own_partition_name(directory)
        if log_dir is None or name is None or not self.is_concerned(result):
            return
        if result["journal"]:
            self._changed.setdefault(log_dir, []).append(os.path.basename(directory))
        is_said, entry = self.entry_of(result, name)
        if is_said:
            self._entries.setdefault(log_dir, {})[name.topic, name.partition] = entry

    def _close(self, log_dir: str) -> Iterator[Event]:
        entries, changed = self._entries.get(log_dir, {}), self._changed.get(log_dir, [])
        plan = self._plan(log_dir, entries)
        if plan.is_empty and len(changed) < 2:
            return  # the one journal there may be undoes all
        done: Values = {"applied": False, "journal": None}
        if self._run_options.apply:
            applied = apply_plan(plan, journal_id=self._run_options.run_id, partitions=changed)
            done = {"applied": True, "journal": applied.journal}
        yield Row(self.row_of(log_dir, entries, done))

    def _plan(self, log_dir: str, entries: Entries) -> Plan:
        """Raises Refused when the checkpoint cannot be read: then nobody knows what else stood in it."""
        inputs, name = inputs_of(log_dir), NAME_BY_ROLE[self.role]
        path = os.path.join(log_dir, name)
        steps: tuple[Step, ...] = ()
        is_there = any(file.name == name for file in inputs)
        data = read_small(path) if is_there and entries else b""
        try:
            found = decode_offset_checkpoint(data)
        except FormatError as error:
            raise Refused(
                f"{path} cannot be read ({error}); `kseg recover {log_dir}` writes it anew"
            ) from error
        wanted = with_offsets(found, entries)
        if wanted != found:
            content = content_of([Fresh(encode_offset_checkpoint(wanted))])
            steps = (Write(name, content, self.why, name if is_there else None),)
        return Plan(command=self.command, directory=log_dir, inputs=inputs, steps=steps)
