"""What a run of `compact` or `retain` does around the partitions: it keeps one checkpoint of their data directories.

The checkpoint notes where each log begins, in the sense of the command. Which one, and what a result row says of it,
differs between the commands: the subclasses are in `cleaner.run` and `retention.run`.
"""

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from kseg.change.apply.executor import apply_plan
from kseg.change.plan.content import Fresh, content_of
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan, Step, Write
from kseg.change.run.frame import Around
from kseg.change.run.prepared import ChangeOptions
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.errors import FormatError, Refused
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionName, Role
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint, encode_offset_checkpoint, with_offsets

Values = dict[str, Any]
_MOST_NAMED = 10
_UNKNOWN = "policy-unknown"

Entries = dict[tuple[str, int], int | None]  # by topic and partition; None: no entry

O = TypeVar("O", bound=ChangeOptions)


class CheckpointRun(Around[O]):
    """One run over many targets. is_due: something was planned and not carried out.

    role: the checkpoint it keeps in line. why: the reason for the plan when that changes.
    """

    role: ClassVar[Role]
    why: ClassVar[str]

    def __init__(self, options: O) -> None:
        super().__init__(options)
        self.is_due = False
        self._unknown: list[str] = []
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

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        told = set[tuple[str, str]]()
        for event in super().through(events):
            if isinstance(event, Finding) and event.id == _UNKNOWN:
                name = own_partition_name(event.path)
                about = event.path if name is None else name.topic, event.message
                if about in told:
                    continue  # once for each topic, for the same reason
                told.add(about)
            yield event
        if self._unknown:
            yield self._left_alone()

    def note(self, event: Event) -> None:
        if isinstance(event, Finding) and event.id == _UNKNOWN:
            self._unknown.append(event.path)
        if isinstance(event, Row) and event.values.get("type") == "result":
            self._note(event.values)

    def _left_alone(self) -> Failure:
        """What was not worked on because nobody knows what it is configured to: no success."""
        names = {own.topic for own in map(own_partition_name, self._unknown) if own is not None}
        named = sorted(names)[:_MOST_NAMED]
        more = f" and {len(names) - len(named)} more" if len(names) > len(named) else ""
        which = f": {', '.join(named)}{more}" if named else ""
        count = len(self._unknown)
        sentence = (
            f"{count} {'partition was' if count == 1 else 'partitions were'} left alone, because nobody knows the "
            f"cleanup.policy{which}; --metadata PATH names a metadata log that does, --cleanup-policy says it"
        )
        return Failure(self._unknown[0], sentence, Refused.exit_status, paths=tuple(self._unknown))

    def _note(self, result: Mapping[str, Any]) -> None:
        self.is_due = self.is_due or (not result["applied"] and self.is_left(result))
        directory = os.path.abspath(str(result["directory"]))
        log_dir = next(
            (each for each in self.log_dirs if os.path.abspath(each) == os.path.dirname(directory)), None
        )
        name = own_partition_name(directory)
        if log_dir is None or name is None or not self.is_concerned(result):
            return
        if result["journal"]:
            self._changed.setdefault(log_dir, []).append(os.path.basename(directory))
        is_said, entry = self.entry_of(result, name)
        if is_said:
            self._entries.setdefault(log_dir, {})[name.topic, name.partition] = entry

    def close(self, log_dir: str) -> Iterator[Event]:
        entries, changed = self._entries.get(log_dir, {}), self._changed.get(log_dir, [])
        plan = self._plan(log_dir, entries)
        if plan.is_empty and len(changed) < 2:
            return  # the one journal there may be undoes all
        self.is_due = self.is_due or not self.options.apply
        done: Values = {"applied": False, "journal": None}
        if self.options.apply:
            keeping = self.options.keeping
            applied = apply_plan(
                plan,
                journal_id=self.options.run_id,
                quarantine=keeping.quarantine,
                journal_dir=keeping.journal_dir,
                partitions=changed,
            )
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
