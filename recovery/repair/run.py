"""The run of `recover` around the partitions: the files of the data directories, the clean-shutdown marker.

1. Before: with a clean-shutdown marker or --mark-clean, all partitions are planned first. With --mark-clean nothing
   changes unless all of them will be valid; when one of them needs a repair, an existing marker is removed
   before anything else changes. The partitions are still loaded as if the marker were there, as planned.
2. The partitions (`repair.recover`). Their result rows are collected.
3. After: the plan for the files of each data directory (`log_dir`). Every file of every partition is synced before the
   marker is written.

With single segments as targets, only the marker of their data directory is touched: it is removed while a segment
changes, and restored afterwards.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kseg.change.apply.lock import is_locked
from kseg.change.plan.steps import Plan, step_rows
from kseg.change.run.prepared import complete_or_refuse, copies_of, copy_path, refuse_unreadable
from kseg.change.run.run_lifecycle import RunLifecycle, around_files
from kseg.jobs.events import Event, Failure, Row, Work
from kseg.recovery.repair import log_dir as own_files
from kseg.recovery.repair.aligned_checkpoints import PartitionOutcome
from kseg.recovery.repair.clean_shutdown_marker import Marker, marker_of, with_missing_replicas
from kseg.recovery.repair.log_dir import LOSSES, opening_of
from kseg.recovery.repair.meta_properties_repair import IdentityRepair, Registered, RequestedIdentity
from kseg.recovery.repair.options import RecoverOptions
from kseg.recovery.repair.recover import recover
from kseg.recovery.repair.rows import RecoverResult, log_dir_row, outcome_of, outcome_of_failure
from kseg.segment.diagnosis import MissingReplica
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.directory import own_partition_name, partitions_in
from kseg.segment.partition.names import PartitionState
from kseg.segment.partition.targets import FileTarget, PartitionTarget, Target, directory_of
from kseg.segment.unreadable import explains, findings_of

Values = dict[str, Any]
_NOTHING_DONE: Values = {"applied": False, "journal": None, "quarantine": None}

# the events of a work function over many targets, whether it runs locally or elsewhere
Over = Callable[[Work[Any, Any], Sequence[Any], object], Iterator[Event]]


def _nothing_registered(_log_dirs: Sequence[str]) -> Mapping[int, tuple[str, ...]]:
    return {}


def _doubts_in(identity: IdentityRepair | None, left: Sequence[Finding]) -> list[str]:
    """Why a broker may not start with the own files of a data directory: clauses, one for each file. left: what is wrong with them."""
    of_identity = [identity.doubt] if identity is not None and identity.doubt else []
    first_errors = {each.path: each for each in reversed(left) if each.severity == ERROR}
    return [*of_identity, *map(_clause, reversed(first_errors.values()))]


def _clause(error: Finding) -> str:
    is_of_bytes = error.position is not None
    return f"{os.path.basename(error.path)}: {error.message}" if is_of_bytes else error.message


class RecoverRun(RunLifecycle[RecoverOptions]):
    """One run of `recover` over many targets. over: runs the work on targets, used to plan ahead. registered: see `identity`."""

    command = own_files.COMMAND

    def __init__(
        self, options: RecoverOptions, over: Over, registered: Registered = _nothing_registered
    ) -> None:
        super().__init__(options)
        self._over = over
        self._registered = registered
        # for each data directory that was named as a whole: the replicas that the metadata log places there and that are missing
        self.missing: Mapping[str, Sequence[Finding]] = {}
        self._outcomes: dict[str, list[PartitionOutcome]] = {}
        # names of partition directories, including those without a log
        self._looked_at: dict[str, set[str]] = {}
        self._directories: dict[str, list[str]] = {}
        self._changed: dict[str, list[str]] = {}
        self._openings: dict[str, str] = {}  # by data directory, the id of the journal that has the marker
        self._markers: dict[str, Marker | None] = {}  # markers that existed before the run
        self._single_segments: dict[str, list[FileTarget]] = {}  # single segments, by data directory
        # by directory, for segments that were named alone
        self._of_segments: dict[str, list[PartitionOutcome]] = {}

    def begin(self, targets: Sequence[Target]) -> None:
        for log_dir in self.log_dirs:
            self._markers[log_dir] = marker_of(log_dir)
            if self.options.apply:
                self._resume(log_dir)
                if self._markers[log_dir] is not None or self.options.mark_clean:
                    self._look_ahead(log_dir, targets)
            else:
                with suppress(UnreadableInput):  # if something is in the way, the error names it
                    opening = opening_of(log_dir)
                    self._markers[log_dir] = self._markers[log_dir] if opening is None else opening.marker

        if self.options.apply or self.options.output is not None:
            by_log_dir = around_files(targets)
            self._single_segments = {
                each: by_log_dir[each] for each in by_log_dir if each not in self.log_dirs
            }
        for log_dir, files in self._single_segments.items() if self.options.apply else ():
            self._begin_single_segments(log_dir, files)

    def _begin_single_segments(self, log_dir: str, files: Sequence[FileTarget]) -> None:
        from kseg.change.apply.unfinished import complete_unfinished

        complete_unfinished(log_dir, own_files.COMMAND)
        self._markers[log_dir] = marker_of(log_dir)
        self._resume(log_dir)
        if self._markers[log_dir] is not None:
            planned = replace(self.options_for_work(), apply=False, shared=None)
            events = self._over(recover, files, planned)
            results = (event.result for event in events if isinstance(event, Row))
            changing = [each for each in results if isinstance(each, RecoverResult) and each.steps]
            self._take_marker(log_dir, changing, [])

    def partial_log_dirs(self) -> Sequence[str]:
        return list(self._single_segments)

    def close_partial_log_dir(self, log_dir: str) -> Iterator[Event]:
        files, opening = self._single_segments[log_dir], self._openings.get(log_dir)
        if self.options.output is not None:
            yield Row(self._copied_single_segments(log_dir, files))
        elif opening is not None:
            yield Row(self._close_single_segments(log_dir, opening, {directory_of(file) for file in files}))

    def _close_single_segments(self, log_dir: str, opening: str, directories: set[str]) -> Values:
        from kseg.change.apply.append_files import sync_files

        outcomes = [outcome for each in directories for outcome in self._of_segments.get(each, ())]
        marker = self._markers[log_dir]
        assert marker is not None  # without a marker there is no opening journal
        for directory in directories:
            sync_files(directory)
        plan = own_files.marking_plan(log_dir, outcomes, marker)
        return log_dir_row(plan, self._carried_out(log_dir, plan, opening, ()))

    def options_for_work(self) -> RecoverOptions:
        marked = frozenset(log_dir for log_dir, marker in self._markers.items() if marker is not None)
        return replace(self.options, marked=marked, is_nested=len(self.log_dirs) > 1)

    def copy_of(self, target: Target) -> str | None:
        log_dir = target.log_dir if isinstance(target, PartitionTarget) else None
        by_log_dir = self.options_for_work().copy_of(log_dir)
        return None if by_log_dir is None else copy_path(by_log_dir, directory_of(target))

    def note(self, event: Event) -> None:
        if isinstance(event, Row) and isinstance(event.result, RecoverResult):
            self._note(event.result)
        elif isinstance(event, Failure):
            self._note_segment(os.path.dirname(event.path) or os.curdir, outcome_of_failure(event))
            self._note_outcome(event.path, outcome_of_failure(event))

    def _note(self, result: RecoverResult) -> None:
        outcome = outcome_of(result)
        self._note_segment(result.directory, outcome)
        log_dir = self._note_outcome(result.directory, outcome)
        if log_dir is not None:
            self._directories.setdefault(log_dir, []).append(result.directory)
            if result.journal:
                self._changed.setdefault(log_dir, []).append(result.directory)

    def _note_segment(self, directory: str, outcome: PartitionOutcome | None) -> None:
        if self._single_segments and outcome is not None:
            self._of_segments.setdefault(directory, []).append(outcome)

    def _note_outcome(self, directory: str, outcome: PartitionOutcome | None) -> str | None:
        """Record the outcome under the partition's data directory. outcome: None if there is no log, and so no checkpoint entry."""
        log_dir = self.log_dir_around(directory)
        if log_dir is not None:
            self._looked_at.setdefault(log_dir, set()).add(os.path.basename(os.path.abspath(directory)))
            if outcome is not None:
                self._outcomes.setdefault(log_dir, []).append(outcome)
        return log_dir

    def _look_ahead(self, log_dir: str, targets: Sequence[Target]) -> None:
        """Plan all partitions first. Raises Refused if --mark-clean was given and cannot be fulfilled."""
        planned = replace(self.options_for_work(), apply=False, shared=None)
        inside = [
            target for target in targets if isinstance(target, PartitionTarget) and target.log_dir == log_dir
        ]
        for target in inside:  # an unfinished change of this command would block the plan
            with suppress(UnreadableInput):  # planning it later reports this; the other targets continue
                complete_or_refuse(target.path, self.command, self.options)
        changing, doubtful, outcomes = list[RecoverResult](), [], []
        for event in self._over(recover, inside, planned):
            if isinstance(event, Failure):
                doubtful.append(event.sentence)
                outcomes.append(outcome_of_failure(event))
            elif isinstance(event, Row) and isinstance(event.result, RecoverResult):
                outcomes.append(outcome_of(event.result))
                if event.result.steps:
                    changing.append(event.result)
        if self.options.mark_clean:
            own_files.refuse_unless_clean(log_dir, [outcome for outcome in outcomes if outcome is not None])
        self._take_marker(log_dir, changing, doubtful)

    def _take_marker(self, log_dir: str, changing: Sequence[RecoverResult], doubtful: Sequence[str]) -> None:
        """Remove the marker. changing: the partitions that need a repair."""
        if not changing:
            return  # nothing is changed if the repair is not possible
        needs = [f"{result.partition} needs a repair" for result in changing]
        plan = own_files.opening_plan(log_dir, [*needs, *doubtful])
        if not plan.is_empty:
            from kseg.change.apply.executor import apply_plan

            names = [os.path.basename(os.path.abspath(result.directory)) for result in changing]
            losses = [result.partition for result in changing if result.removed]
            apply_plan(
                plan,
                journal_id=self.options.run_id,
                # the marker is kept under a second name, where `opening_of` finds it
                keeping=replace(self.options.keeping, quarantine=None),
                partitions=names,
                note={LOSSES: losses},
            )
            self._resume(log_dir)

    def _resume(self, log_dir: str) -> None:
        """Adopt a killed run that had removed the marker; this run completes it."""
        opening = opening_of(log_dir)
        if opening is not None:
            self._markers[log_dir] = opening.marker
            self._openings[log_dir] = opening.id

    def close(self, log_dir: str) -> Iterator[Event]:
        outcomes, missing = self._outcomes.get(log_dir, []), self.missing.get(log_dir, ())
        marker = with_missing_replicas(self._markers[log_dir], missing)
        # in doubt, everything else is still done: the partitions are already changed
        mark_clean = self.options.mark_clean and not own_files.doubts_about(log_dir, outcomes)
        if self.options.apply and own_files.will_mark(
            log_dir, outcomes, mark_clean=mark_clean, marker=marker
        ):
            self._sync_partitions(log_dir)
        identity, left = self._own_state(log_dir) if self._is_whole(log_dir) else (None, ())
        yield from left
        plan = own_files.closing_plan(
            log_dir,
            outcomes,
            self.options.policy,
            mark_clean=mark_clean,
            marker=marker,
            identity=identity,
            missing={
                (replica.topic, replica.partition)
                for replica in (finding.diagnosis for finding in missing)
                if isinstance(replica, MissingReplica)
            },
        )
        if not self.options.apply and self.options.output is None and is_locked(log_dir):
            plan = own_files.beside_broker(plan)
        reported = own_files.reported_plan(plan, outcomes, mark_clean=mark_clean, marker=marker)
        yield from (finding for finding in plan.reasons if not explains(finding))
        yield from findings_of(log_dir)
        for row in step_rows(log_dir, reported):
            yield Row(row)
        doubts = _doubts_in(identity, left)
        done = self._done(log_dir, plan, outcomes)
        if done is None and self.options.output is None:
            is_told = doubts or missing or (identity is not None and identity.needed)
            done = dict(_NOTHING_DONE) if is_told else None
        if done is not None:
            yield Row(log_dir_row(reported, done, doubts, missing, identity))
        if self.options.mark_clean:
            own_files.refuse_unless_clean(log_dir, outcomes)

    def _sync_partitions(self, log_dir: str) -> None:
        """The marker of a clean shutdown must not reach the disk before what it vouches for."""
        from kseg.change.apply.append_files import sync_files

        for directory in self._directories.get(log_dir, ()):
            sync_files(directory)

    def _done(self, log_dir: str, plan: Plan, outcomes: Sequence[PartitionOutcome]) -> Values | None:
        """Carry out the plan for the files of a data directory, or only report it; None if there is nothing to report."""
        copy = self.options_for_work().copy_of(log_dir)
        if copy is not None:
            is_copied = outcomes or self._is_whole(log_dir)
            return self._copied(log_dir, plan, copy, outcomes) if is_copied else None
        opening = self._openings.get(log_dir)
        changed = [os.path.basename(os.path.abspath(path)) for path in self._changed.get(log_dir, ())]
        # otherwise at most one partition changed, and its journal undoes everything
        if plan.is_empty and len(changed) < 2 and opening is None:
            return None
        return self._carried_out(log_dir, plan, opening, changed)

    def _own_state(self, log_dir: str) -> tuple[IdentityRepair | None, tuple[Finding, ...]]:
        """The repair of meta.properties, and what no repair changes."""
        from kseg.recovery.verify.log_dir_check import beyond_repair

        options = self.options
        identity = own_files.identity_in_run(
            log_dir,
            self.log_dirs,
            options.identity or RequestedIdentity(),
            options.settings.now_ms,
            self._registered,
        )
        before = self.log_dirs[: self.log_dirs.index(log_dir)]
        return identity, tuple(beyond_repair(log_dir, before, options, options.settings.now_ms))

    def _is_whole(self, log_dir: str) -> bool:
        """Whether all partitions of a data directory were processed, rather than a selection."""
        partitions = partitions_in(log_dir)
        there = {path for path, name in partitions if name.state is not PartitionState.DELETE}
        return there <= self._looked_at.get(log_dir, set())

    def _copied(self, log_dir: str, plan: Plan, copy: str, outcomes: Sequence[PartitionOutcome]) -> Values:
        """All of the data directory's own files if it was copied completely, else the checkpoint entries of the copied partitions."""
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

    def _copied_single_segments(self, log_dir: str, files: Sequence[FileTarget]) -> Values:
        """The unchanged checkpoint entries of partitions of which only single segments were selected."""
        from kseg.change.run.copied_checkpoints import carried_row, carry, entries_of

        names = (own_partition_name(directory_of(file)) for file in files)
        keys = {(name.topic, name.partition) for name in names if name is not None}
        carried, output = entries_of(log_dir, keys), str(self.options.output)
        carry(carried, keys, output, copies_of(self.options))
        plan = Plan(command=self.command, directory=log_dir, inputs=(), steps=())
        done = {"applied": True, "journal": None, "quarantine": None, "output": output, "whole": False}
        return log_dir_row(plan, {**done, "checkpoints": carried_row(carried)})

    def _carried_out(self, log_dir: str, plan: Plan, opening: str | None, changed: Sequence[str]) -> Values:
        """Apply the plan for the data directory's own files.

        opening: the id of the journal that holds its marker. changed: names of the partitions with a journal.
        """
        options = self.options
        done = dict(_NOTHING_DONE)
        if options.apply:
            from kseg.change.apply.executor import apply_plan

            if not plan.is_empty and not options.accept_unreadable:
                refuse_unreadable(log_dir, findings_of(log_dir))
            applied = apply_plan(
                plan,
                journal_id=f"{options.run_id}-end" if opening == options.run_id else options.run_id,
                keeping=options.keeping,
                partitions=() if opening == options.run_id else changed,
                after=opening,
            )
            done = {"applied": True, "journal": applied.journal, "quarantine": applied.quarantine}
        return done
