"""What a run of `recover` does around the partitions (`around`): the data directories' own files, the clean marker.

1. Before: where a clean-shutdown marker lies or is wanted, the partitions are planned first. With --mark-clean nothing
   is done unless all of them will be sound; when one of them needs a repair, a marker that lies there is taken away
   before anything else changes. To the partitions it is there still: they are loaded as planned.
2. The partitions (`work.recover`). Their result rows are kept.
3. After: the plan for each data directory's own files (`log_dir`). Every file of every partition is synced before the
   marker is written.

Where targets are single segments, nothing but the marker of their data directory is touched: it goes while one changes,
and comes back behind it.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kseg.change.apply.journal_probe import has_journal
from kseg.change.plan.steps import Plan, step_rows
from kseg.change.run.frame import Around, around_files
from kseg.change.run.prepared import copies_of, copy_path, refuse_unreadable, settle_before
from kseg.jobs.events import Event, Failure, Row, Work
from kseg.recovery.repair import log_dir as own_files
from kseg.recovery.repair.aligned_checkpoints import PartitionOutcome
from kseg.recovery.repair.clean_shutdown_marker import MARKER, Marker, marker_of
from kseg.recovery.repair.meta_properties_repair import (
    AskedIdentity,
    IdentityRepair,
    Registered,
    identity_repair,
)
from kseg.recovery.repair.options import RecoverOptions
from kseg.recovery.repair.recover import recover
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.targets import FileTarget, PartitionTarget, Target, directory_of
from kseg.segment.unreadable import findings_of
from kseg.segment.values import dataclass

Values = dict[str, Any]

_LOSSES = "losses"  # in the journal that has the marker: the partitions that the run takes bytes out of
_SOMETHING = "a partition"  # where the journal does not say it

# the events of a work over targets, wherever it is done
Over = Callable[[Work[Any, Any], Sequence[Any], object], Iterator[Event]]


def _nothing_registered(_log_dirs: Sequence[str]) -> Mapping[int, tuple[str, ...]]:
    return {}


class RecoverRun(Around[RecoverOptions]):
    """One run of `recover` over many targets. over: who works on targets, for planning ahead. registered: see `identity`."""

    command = own_files.COMMAND

    def __init__(
        self, options: RecoverOptions, over: Over, registered: Registered = _nothing_registered
    ) -> None:
        super().__init__(options)
        self._over = over
        self._registered = registered
        self._outcomes: dict[str, list[PartitionOutcome]] = {}
        self._looked_at: dict[str, int] = {}  # partitions, also those without a log
        self._directories: dict[str, list[str]] = {}
        self._changed: dict[str, list[str]] = {}
        self._openings: dict[str, str] = {}  # by data directory, the id of the journal that has the marker
        self._markers: dict[str, Marker | None] = {}  # those that lay there before
        self._alone: dict[str, list[FileTarget]] = {}  # single segments, by data directory
        self._of_segments: dict[
            str, list[PartitionOutcome]
        ] = {}  # by directory, where segments are named alone

    def begin(self, targets: Sequence[Target]) -> None:
        for log_dir in self.log_dirs:
            self._markers[log_dir] = marker_of(log_dir)
            if self.options.apply:
                self._resume(log_dir)
                if self._markers[log_dir] is not None or self.options.mark_clean:
                    self._look_ahead(log_dir, targets)
            else:
                with suppress(UnreadableInput):  # to be named when it is in the way
                    opening = _opening_of(log_dir)
                    self._markers[log_dir] = self._markers[log_dir] if opening is None else opening.marker

        if self.options.apply or self.options.output is not None:
            around = around_files(targets)
            self._alone = {each: around[each] for each in around if each not in self.log_dirs}
        for log_dir, files in self._alone.items() if self.options.apply else ():
            self._begin_alone(log_dir, files)

    def _begin_alone(self, log_dir: str, files: Sequence[FileTarget]) -> None:
        from kseg.change.apply.unfinished import settle

        settle(log_dir, own_files.COMMAND)
        self._markers[log_dir] = marker_of(log_dir)
        self._resume(log_dir)
        if self._markers[log_dir] is not None:
            planned = replace(self.options_for_work(), apply=False, shared=None)
            rows = [event.values for event in self._over(recover, files, planned) if isinstance(event, Row)]
            changing = [dict(row) for row in rows if row.get("type") == "result" and row["steps"]]
            self._take_marker(log_dir, changing, [])

    def beside(self) -> Sequence[str]:
        return list(self._alone)

    def close_beside(self, log_dir: str) -> Iterator[Event]:
        files, opening = self._alone[log_dir], self._openings.get(log_dir)
        if self.options.output is not None:
            yield Row(self._copied_alone(log_dir, files))
        elif opening is not None:
            yield Row(self._close_alone(log_dir, opening, {directory_of(file) for file in files}))

    def _close_alone(self, log_dir: str, opening: str, directories: set[str]) -> Values:
        from kseg.change.apply.sync import sync_files

        outcomes = [outcome for each in directories for outcome in self._of_segments.get(each, ())]
        marker = self._markers[log_dir]
        assert marker is not None  # there is no opening without
        for directory in directories:
            sync_files(directory)
        plan = own_files.marking_plan(log_dir, outcomes, marker)
        return _log_dir_row(plan, self._carried_out(log_dir, plan, opening, ()))

    def options_for_work(self) -> RecoverOptions:
        marked = frozenset(log_dir for log_dir, marker in self._markers.items() if marker is not None)
        return replace(self.options, marked=marked, is_nested=len(self.log_dirs) > 1)

    def copy_of(self, target: Target) -> str | None:
        log_dir = target.log_dir if isinstance(target, PartitionTarget) else None
        around = self.options_for_work().copy_of(log_dir)
        return None if around is None else copy_path(around, directory_of(target))

    def note(self, event: Event) -> None:
        if isinstance(event, Row) and event.values.get("type") == "result":
            self._note(dict(event.values))
        elif isinstance(event, Failure):
            self._note_segment(os.path.dirname(event.path) or os.curdir, _outcome_of_failure(event))
            self._note_outcome(event.path, _outcome_of_failure(event))

    def _note(self, result: Values) -> None:
        directory = str(result["directory"])
        self._note_segment(directory, _outcome_of(result))
        log_dir = self._note_outcome(directory, _outcome_of(result))
        if log_dir is not None:
            self._directories.setdefault(log_dir, []).append(directory)
            if result["journal"]:
                self._changed.setdefault(log_dir, []).append(directory)

    def _note_segment(self, directory: str, outcome: PartitionOutcome | None) -> None:
        if self._alone and outcome is not None:
            self._of_segments.setdefault(directory, []).append(outcome)

    def _note_outcome(self, directory: str, outcome: PartitionOutcome | None) -> str | None:
        """The data directory it lies in. outcome: None where there is no log, which counts for no checkpoint."""
        log_dir = next((each for each in self.log_dirs if _lies_in(directory, each)), None)
        if log_dir is not None:
            self._looked_at[log_dir] = self._looked_at.get(log_dir, 0) + 1
            if outcome is not None:
                self._outcomes.setdefault(log_dir, []).append(outcome)
        return log_dir

    def _look_ahead(self, log_dir: str, targets: Sequence[Target]) -> None:
        """Raises Refused when the data directory is to be marked clean and cannot be."""
        planned = replace(self.options_for_work(), apply=False, shared=None)
        inside = [
            target for target in targets if isinstance(target, PartitionTarget) and target.log_dir == log_dir
        ]
        for target in inside:  # what this command left half done would be in the way of the plan
            settle_before(target.path, self.command, self.options)
        changing, doubtful, outcomes = list[Values](), [], []
        for event in self._over(recover, inside, planned):
            if isinstance(event, Failure):
                doubtful.append(event.sentence)
                outcomes.append(_outcome_of_failure(event))
            elif isinstance(event, Row) and event.values.get("type") == "result":
                outcomes.append(_outcome_of(dict(event.values)))
                if event.values["steps"]:
                    changing.append(dict(event.values))
        if self.options.mark_clean:
            own_files.refuse_unless_sound(log_dir, [outcome for outcome in outcomes if outcome is not None])
        self._take_marker(log_dir, changing, doubtful)

    def _take_marker(self, log_dir: str, changing: Sequence[Values], doubtful: Sequence[str]) -> None:
        """changing: the result rows of what needs a repair."""
        if not changing:
            return  # nothing is done where nothing can be
        needs = [f"{result['partition']} needs a repair" for result in changing]
        plan = own_files.opening_plan(log_dir, [*needs, *doubtful])
        if not plan.is_empty:
            from kseg.change.apply.executor import apply_plan

            names = [os.path.basename(os.path.abspath(str(result["directory"]))) for result in changing]
            losses = [str(result["partition"]) for result in changing if result.get("removed")]
            keeping = self.options.keeping
            apply_plan(
                plan,
                journal_id=self.options.run_id,
                journal_dir=keeping.journal_dir,  # the marker is kept as a second name, which `_opening_of` finds
                partitions=names,
                told={_LOSSES: losses},
            )
            self._resume(log_dir)

    def _resume(self, log_dir: str) -> None:
        """A run that took the marker away, this one or one that was killed since: this run ends it."""
        opening = _opening_of(log_dir)
        if opening is not None:
            self._markers[log_dir] = opening.marker
            self._openings[log_dir] = opening.id

    def close(self, log_dir: str) -> Iterator[Event]:
        options = self.options
        outcomes = self._outcomes.get(log_dir, [])
        mark_clean, marker = options.mark_clean, self._markers[log_dir]
        if mark_clean and own_files.doubts_about(log_dir, outcomes):
            mark_clean = False  # all else is done nevertheless: the partitions are changed already
        if options.apply and own_files.will_mark(log_dir, outcomes, mark_clean=mark_clean, marker=marker):
            from kseg.change.apply.sync import sync_files

            for directory in self._directories.get(log_dir, ()):
                sync_files(directory)
        identity, beside = self._between(log_dir) if self._is_whole(log_dir) else (None, ())
        yield from beside
        plan = own_files.closing_plan(
            log_dir, outcomes, options.policy, mark_clean=mark_clean, marker=marker, identity=identity
        )
        errors = [finding.message for finding in beside if finding.severity == ERROR]
        doubts = [*([identity.doubt] if identity is not None and identity.doubt else ()), *errors]
        told = own_files.told_plan(plan, outcomes, mark_clean=mark_clean, marker=marker)
        yield from plan.reasons
        for row in step_rows(log_dir, told):
            yield Row(row)
        changed = [os.path.basename(os.path.abspath(path)) for path in self._changed.get(log_dir, ())]
        opening = self._openings.get(log_dir)
        copy = self.options_for_work().copy_of(log_dir)
        if copy is not None:
            if outcomes:
                yield Row(_log_dir_row(told, self._copied(log_dir, plan, copy, outcomes), doubts))
        # else the one journal there may be undoes all
        elif not plan.is_empty or len(changed) >= 2 or opening is not None:
            yield Row(_log_dir_row(told, self._carried_out(log_dir, plan, opening, changed), doubts))
        elif doubts:
            yield Row(_log_dir_row(told, {"applied": False, "journal": None, "quarantine": None}, doubts))
        if options.mark_clean:
            own_files.refuse_unless_sound(log_dir, outcomes)

    def _between(self, log_dir: str) -> tuple[IdentityRepair | None, tuple[Finding, ...]]:
        """What meta.properties needs, and what the data directories of the run say against each other."""
        place = self.log_dirs.index(log_dir)
        before, behind = self.log_dirs[:place], self.log_dirs[place + 1 :]
        options = self.options
        identity = identity_repair(
            log_dir,
            [*before, *behind],
            options.identity or AskedIdentity(),
            options.settings.now_ms,
            self._registered,
        )
        if not before:
            return identity, ()
        from kseg.recovery.verify.side_by_side import against_others

        return identity, tuple(against_others(log_dir, before))

    def _is_whole(self, log_dir: str) -> bool:
        """Whether all partitions of a data directory were worked on, and not some that were picked."""
        return self._looked_at.get(log_dir) == len(own_files.partitions_in(log_dir))

    def _copied(self, log_dir: str, plan: Plan, copy: str, outcomes: Sequence[PartitionOutcome]) -> Values:
        """All of the data directory's own files where all of it was copied, else what its checkpoints say of the copies."""
        from kseg.change.apply.copy import write_files
        from kseg.change.run.copied_checkpoints import carried_row, carry

        carried = own_files.carried_entries(log_dir, plan, outcomes)
        is_whole, journal = self._is_whole(log_dir), copies_of(self.options)
        if is_whole:
            own = own_files.plan_of_copy(plan)
            write_files(own, copy, hard_link=self.options.hard_link, journal=journal)
        else:
            carry(carried, [outcome.key for outcome in outcomes if outcome.has_checkpoints], copy, journal)
        return {
            "applied": True,
            "journal": None,
            "quarantine": None,
            "output": copy,
            "whole": is_whole,
            "checkpoints": carried_row(carried),
        }

    def _copied_alone(self, log_dir: str, files: Sequence[FileTarget]) -> Values:
        """Of partitions of which single segments were named: what their data directory says of them, as it stands there."""
        from kseg.change.run.copied_checkpoints import carried_row, carry, entries_of

        names = (own_partition_name(directory_of(file)) for file in files)
        keys = {(name.topic, name.partition) for name in names if name is not None}
        carried, output = entries_of(log_dir, keys), str(self.options.output)
        carry(carried, keys, output, copies_of(self.options))
        plan = Plan(command=self.command, directory=log_dir, inputs=(), steps=())
        done = {"applied": True, "journal": None, "quarantine": None, "output": output, "whole": False}
        return _log_dir_row(plan, {**done, "checkpoints": carried_row(carried)})

    def _carried_out(self, log_dir: str, plan: Plan, opening: str | None, changed: Sequence[str]) -> Values:
        """What becomes of the plan for the data directory's own files.

        opening: the id of the journal that has its marker. changed: names of the partitions with a journal."""
        options = self.options
        done: Values = {"applied": False, "journal": None, "quarantine": None}
        if options.apply:
            from kseg.change.apply.executor import apply_plan

            if not plan.is_empty and not options.accept_unreadable:
                refuse_unreadable(log_dir, findings_of(log_dir))
            applied = apply_plan(
                plan,
                journal_id=f"{options.run_id}-end" if opening == options.run_id else options.run_id,
                quarantine=options.keeping.quarantine,
                journal_dir=options.keeping.journal_dir,
                partitions=() if opening == options.run_id else changed,
                after=opening,
            )
            done = {"applied": True, "journal": applied.journal, "quarantine": applied.quarantine}
        return done


@dataclass(frozen=True, slots=True)
class _Opening:
    """The journal in which a run took the marker away and that no later one ended. marker: what it took away."""

    id: str
    marker: Marker


def _opening_of(log_dir: str) -> _Opening | None:
    """What a run that never came to its end did to the marker."""
    from kseg.change.apply.journal import JournalState
    from kseg.change.apply.journal_scan import journals_in

    if not has_journal(log_dir):
        return None
    journals = journals_in(log_dir)
    followed = {journal.header.get("after") for journal in journals}
    found = None
    for journal in journals:
        is_opening = journal.command == own_files.COMMAND and journal.state is JournalState.DONE
        saved = journal.place.old(MARKER)
        if is_opening and journal.place.id not in followed and os.path.exists(saved):
            told = journal.header.get("told")
            losses = told.get(_LOSSES) if isinstance(told, dict) else None
            names = [str(name) for name in losses] if isinstance(losses, list) else [_SOMETHING]
            found = _Opening(journal.place.id, Marker(saved, tuple(names)))
    return found


def _log_dir_row(plan: Plan, done: Values, doubts: Sequence[str] = ()) -> Values:
    """doubts: why a broker would still not start with the data directory, as clauses."""
    return {
        "type": "result",
        "command": plan.command,
        "log_dir": plan.directory,
        "directory": plan.directory,
        "steps": len(plan.steps),
        "doubt": "; ".join(doubts) or None,
        **done,
    }


def _outcome_of(result: Values) -> PartitionOutcome | None:
    name = own_partition_name(str(result["directory"]))
    if name is None:
        return None
    if result.get("first_base_offset") is None:  # there is no log, and nothing wrong with that
        return PartitionOutcome(
            name=name,
            first_base_offset=0,
            log_start_offset=0,
            log_end_offset=0,
            recovery_point=0,
            changed=bool(result["steps"]),
            loses=bool(result.get("removed")),
            doubt=str(result["doubt"] or ""),
            is_misplaced=bool(result.get("misplaced")),
            is_left_damaged=bool(result.get("left_damaged")),
            is_known=False,
        )
    return PartitionOutcome(
        name=name,
        first_base_offset=result["first_base_offset"],
        log_start_offset=result["log_start_offset"],
        log_end_offset=result["log_end_offset"],
        recovery_point=result["recovery_point"],
        changed=bool(result["steps"]),
        loses=bool(result.get("removed")),
        doubt=str(result["doubt"] or ""),
        is_misplaced=bool(result.get("misplaced")),
        is_left_damaged=bool(result.get("left_damaged")),
    )


def _outcome_of_failure(failure: Failure) -> PartitionOutcome | None:
    name = own_partition_name(failure.path)
    if name is None:
        return None
    return PartitionOutcome(
        name=name,
        first_base_offset=0,
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        doubt=f"cannot be recovered: {failure.sentence}",
        is_known=False,
    )


def _lies_in(directory: str, log_dir: str) -> bool:
    return os.path.dirname(os.path.abspath(directory)) == os.path.abspath(log_dir)
