"""Keep one offset checkpoint per log dir up to date during a run of `compact` or `retain`.

Each command has its own checkpoint and takes the offsets from its own results: see the subclasses in `cleaner.run`
and `retention.run`.
"""

import os
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from kseg.change.apply.executor import apply_plan
from kseg.change.plan.content import Fresh, content_of
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan, Step, Write
from kseg.change.run.options import ChangeOptions
from kseg.change.run.run_lifecycle import RunLifecycle
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.counted import counted, listed
from kseg.segment.errors import FormatError, Refused
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionName, Role
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint, encode_offset_checkpoint, with_offsets
from kseg.segment.terminal import shown_path

Values = dict[str, Any]
_MAX_TOPICS_NAMED = 10
_UNKNOWN = "policy-unknown"

Entries = dict[tuple[str, int], int | None]  # by topic and partition; None: no entry

O = TypeVar("O", bound=ChangeOptions)


class _Result(Protocol):
    """The fields that the results of both commands share."""

    @property
    def directory(self) -> str: ...

    @property
    def applied(self) -> bool: ...

    @property
    def journal(self) -> str | None: ...


R = TypeVar("R", bound=_Result)


class CheckpointRun(RunLifecycle[O], Generic[O, R]):
    """One run over many targets. is_due: something was planned but not applied.

    role: the checkpoint to keep up to date. result_type: of the command's results. why: the reason given for the change to it.
    """

    role: ClassVar[Role]
    result_type: ClassVar[type]
    why: ClassVar[str]

    def __init__(self, options: O) -> None:
        super().__init__(options)
        self.is_due = False
        self._unknown: list[str] = []
        self._entries: dict[str, Entries] = {}
        self._changed: dict[str, list[str]] = {}

    @abstractmethod
    def is_pending(self, result: R) -> bool:
        """Whether the result describes a change that a run with --apply would make."""

    @abstractmethod
    def checkpoint_entry(self, result: R, name: PartitionName) -> tuple[bool, int | None]:
        """(whether the result determines the checkpoint entry, the entry or None to remove it)."""

    @abstractmethod
    def row_of(self, log_dir: str, entries: Entries, done: Values) -> Values:
        """The result for a data directory. done: whether it was applied, and the journal."""

    def is_concerned(self, result: R) -> bool:
        """Whether the log dir's own files cover this log."""
        return True

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        emitted = set[tuple[str, str]]()
        for event in super().through(events):
            if isinstance(event, Finding) and event.id == _UNKNOWN:
                name = own_partition_name(event.path)
                topic_and_message = event.path if name is None else name.topic, event.message
                if topic_and_message in emitted:
                    continue  # the same reason is reported once per topic
                emitted.add(topic_and_message)
            yield event
        if self._unknown:
            yield self._policy_unknown()

    def note(self, event: Event) -> None:
        if isinstance(event, Finding) and event.id == _UNKNOWN:
            self._unknown.append(event.path)
        if isinstance(event, Row) and isinstance(event.result, self.result_type):
            self._note(cast("R", event.result))

    def _policy_unknown(self) -> Failure:
        """The failure that names the partitions skipped because their cleanup.policy is unknown."""
        names = {own.topic for own in map(own_partition_name, self._unknown) if own is not None}
        which = (
            f": {listed([shown_path(name) for name in sorted(names)], _MAX_TOPICS_NAMED)}" if names else ""
        )
        verb = "was" if len(self._unknown) == 1 else "were"
        sentence = (
            f"{counted(len(self._unknown), 'partition')} {verb} skipped because the cleanup.policy is unknown{which}; "
            "give --metadata PATH (a metadata log that has it) or --cleanup-policy"
        )
        return Failure(self._unknown[0], sentence, Refused.exit_status, paths=tuple(self._unknown))

    def _note(self, result: R) -> None:
        self.is_due = self.is_due or (not result.applied and self.is_pending(result))
        directory = result.directory
        log_dir, name = self.log_dir_around(directory), own_partition_name(directory)
        if log_dir is None or name is None or not self.is_concerned(result):
            return
        if result.journal:
            self._changed.setdefault(log_dir, []).append(os.path.basename(os.path.abspath(directory)))
        is_stated, entry = self.checkpoint_entry(result, name)
        if is_stated:
            self._entries.setdefault(log_dir, {})[name.topic, name.partition] = entry

    def close(self, log_dir: str) -> Iterator[Event]:
        entries, changed = self._entries.get(log_dir, {}), self._changed.get(log_dir, [])
        plan = self._plan(log_dir, entries)
        if plan.is_empty and len(changed) < 2:
            return  # at most one partition changed, and its journal undoes everything
        self.is_due = self.is_due or not self.options.apply
        done: Values = {"applied": False, "journal": None}
        if self.options.apply:
            applied = apply_plan(
                plan,
                journal_id=self.options.run_id,
                keeping=self.options.keeping,
                partitions=changed,
            )
            done = {"applied": True, "journal": applied.journal}
        yield Row(self.row_of(log_dir, entries, done))

    def _plan(self, log_dir: str, entries: Entries) -> Plan:
        """Raises Refused when the checkpoint cannot be read, because its other entries would be lost."""
        inputs, name = inputs_of(log_dir), NAME_BY_ROLE[self.role]
        path = os.path.join(log_dir, name)
        steps: tuple[Step, ...] = ()
        exists = any(file.name == name for file in inputs)
        data = read_small(path) if exists and entries else b""
        try:
            stored = decode_offset_checkpoint(data)
        except FormatError as error:
            raise Refused(f"{path} cannot be read ({error}); `kseg recover {log_dir}` rewrites it") from error
        updated = with_offsets(stored, entries)
        if updated != stored:
            content = content_of([Fresh(encode_offset_checkpoint(updated))])
            steps = (Write(name, content, self.why, name if exists else None),)
        return Plan(command=self.command, directory=log_dir, inputs=inputs, steps=steps)
