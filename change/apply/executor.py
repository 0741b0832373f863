"""Apply a plan, so that a kill at any instant loses nothing and the change can be finished or undone.

1. Check that the directory is as the planner found it, that it has no incomplete change, and that the disk space suffices
   (module room).
2. Begin the journal: the whole plan and the files as found.
3. Stage (module staging): write all new files, hard-link all files that will move into the quarantine, copy
   what will be truncated. Check the inputs once more.
4. Write the line `staged`. Until then nothing in the directory has changed, and a failure is cleaned up;
   from then on `finish` completes the change and `undo` reverts it.
5. Take the steps in order. Each is one rename, unlink or truncation; the disk shows how many are done (module
   step_progress), so a killed change continues where it stopped.
6. Check the directory against the planned end, drop the hard links of files that are still in the directory (they
   would keep space from being freed later), and write the line `done`.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kseg.change.apply.disk import DISK, Disk, closing, kept_open
from kseg.change.apply.elsewhere import check_place
from kseg.change.apply.file_operations import give_times, has_checksum, is_same_file, remove_quietly
from kseg.change.apply.journal import Journal, JournalState, is_there, partition_journals, read_journal
from kseg.change.apply.journal_lines import COPY, PLAN
from kseg.change.apply.journal_location import JournalLocation, location_for
from kseg.change.apply.journal_writer import append, begin
from kseg.change.apply.keeping import BESIDE, DECIDED, Keeping
from kseg.change.apply.lock import claimed_by_command
from kseg.change.apply.proof import check_steps, is_second_name
from kseg.change.apply.recorded_change import (
    Change,
    abandon,
    cannot_change,
    change_of,
    clear_the_way,
    half_done_sentence,
    header_of,
    overtaken_by,
    roll_back,
    undo_command,
)
from kseg.change.apply.room import Room, out_of_room, refuse_without, rooms_of
from kseg.change.apply.signals import deferring_signals
from kseg.change.apply.staging import Staged, Staging, check_inputs, look, refuse_flags, unshared
from kseg.change.apply.step_progress import ObservedFile, StepProgress
from kseg.change.plan.steps import Plan, Remove, Rename, Step, Truncate, Write
from kseg.segment.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result. journal: for `kseg undo`. quarantine: where removed data is kept (a directory, or the prefix of the file
    names; None if nothing was removed). steps: their number. not_owned: new files that could not get the owner that they should
    have."""

    directory: str
    journal: str
    quarantine: str | None
    steps: int
    not_owned: tuple[str, ...] = ()


def apply_plan(
    plan: Plan,
    *,
    journal_id: str,
    keeping: Keeping = BESIDE,
    partitions: Sequence[str] = (),
    after: str | None = None,
    note: Mapping[str, object] | None = None,
    disk: Disk = DISK,
) -> Applied:
    """Carry out a plan. The caller has taken the lock of the data directory (`lock.locked`) before planning.

    journal_id: of the run (`new_run_id`), the same for all directories that it changes. keeping: where the journal and removed data are
    stored, in directories that are created if missing. partitions: for the plan of a data directory, the names of the
    partitions in it that the run has changed: undoing this journal undoes theirs too (such a plan may have no
    steps). after: the id of an earlier journal of the same directory, which is undone after this one. note: for later
    attempts at the same change (module attempts). Raises Refused with one sentence: before the commit nothing has changed, after it the
    sentence explains how to continue. Raises ValueError for a plan that contradicts itself.
    """
    if plan.is_empty and not partitions and after is None:
        raise ValueError("there is nothing to do in an empty plan")
    location = location_for(plan.directory, journal_id, keeping.journal_dir, disk)
    with claimed_by_command(plan.directory, disk.follow_links):
        clear_the_way(plan.directory, disk)
        others = {"partitions": list(partitions), "after": after} | ({} if note is None else {"told": note})
        change = _decided(plan, location, keeping, others, disk)
        return _carried_out(change, 0, disk)


def finish(location: JournalLocation, disk: Disk = DISK) -> list[Applied]:
    """Complete an incomplete change, and those in partitions that its journal names. A complete change stays as it
    is, one that did not commit is removed, and what an `append` wrote is kept.

    The caller holds the lock of the data directory. Raises Refused if there is no such journal, a directory changed
    since, or an undo has begun.
    """
    if not is_there(location, disk):
        raise Refused(f"there is no journal {location.journal}")
    finished = []
    for each in (*partition_journals(read_journal(location, disk), disk), location):
        with claimed_by_command(each.directory, disk.follow_links):
            done = finish_claimed(read_journal(each, disk), disk)
            finished += [done] if done is not None else []
    return finished


# --- up to the commit


def _decided(
    plan: Plan, location: JournalLocation, keeping: Keeping, others: Mapping[str, object], disk: Disk
) -> Change:
    inputs = check_inputs(plan.directory, plan.inputs, disk)
    rooms: tuple[Room, ...] = ()
    try:
        keeping.refuse_moved()
        steps = unshared(plan.directory, plan.steps, disk)
        progress = StepProgress(inputs, steps)
        refuse_flags(plan.directory, progress.touched, disk)
        rooms = rooms_of(plan, keeping, steps)
        refuse_without(rooms, plan.directory, keeping)
        if disk.status(location.journal) is not None:
            raise Refused(f"{location.journal} already exists")
        status = disk.status(plan.directory)
        assert status is not None  # it is claimed
        elsewhere = None if keeping.quarantine is None else _elsewhere(location, keeping.quarantine, disk)
        header = {
            "id": location.id,
            **header_of(plan, steps, inputs, status.st_mtime_ns),
            "directory": plan.directory if location.home is None else os.path.abspath(plan.directory),
            "quarantine": elsewhere,
            **others,
        }
    except OSError as error:
        raise cannot_change(plan.directory, error, "nothing was changed") from error
    try:
        journal = begin(location, header, disk)
        with kept_open(location.directories):
            staged = Staging(location, progress, elsewhere, disk).make()
            check_inputs(plan.directory, plan.inputs, disk)
            keeping.refuse_moved()
            journal = append(journal, staged.as_line(), disk)
    except BaseException as error:
        roll_back(location, disk)
        if isinstance(error, OSError):
            keeping.refuse_moved()
            more = out_of_room(error, rooms, keeping, plan.directory)
            raise cannot_change(plan.directory, error, f"nothing was changed{more}") from error
        raise
    return Change(journal, progress, staged, elsewhere)


def _elsewhere(location: JournalLocation, quarantine: str, disk: Disk) -> str:
    """The directory of this change in a quarantine; raises Refused for a place that would keep a broker from starting."""
    check_place(quarantine, location.directory, "quarantine")
    return location.elsewhere(quarantine, disk)


# --- from the commit on


def finish_claimed(journal: Journal, disk: Disk) -> Applied | None:
    """`finish` for one directory that the caller has claimed."""
    if journal.state is JournalState.ABANDONED:
        abandon(journal, disk)
        return None
    if journal.state in (
        JournalState.UNDOING,
        JournalState.UNDONE,
        JournalState.UNREADABLE,
        JournalState.OUT_OF_REACH,
    ):
        raise Refused(half_done_sentence(journal))
    if journal.kind != PLAN:
        return _kept(journal, disk)
    change = change_of(journal, disk)
    assert change.staged is not None
    if journal.state is JournalState.DONE:
        return _applied(change, change.staged)
    done = change.progress.steps_done(_looked(change, disk), change.staged.files)
    if done is None:
        path = journal.path
        if overtaken := overtaken_by(journal):
            raise Refused(half_done_sentence(journal, overtaken))
        raise Refused(
            f"{journal.location.directory} changed since {journal.command} was interrupted; cannot continue with {path}, "
            f"but `{undo_command(path)}` undoes it"
        )
    try:
        with change.quarantine_elsewhere():
            check_steps(journal.location, change.progress, change.staged, change.elsewhere, done, disk)
    except OSError as error:
        raise Refused(f"cannot continue: {error.filename or journal.path}: {error.strerror}") from error
    return _carried_out(change, done, disk)


def _kept(journal: Journal, disk: Disk) -> Applied:
    from kseg.change.apply.append_journal import keep

    if journal.state is not JournalState.DONE and journal.kind == COPY:
        append(journal, {"type": "done"}, disk)
    elif journal.state is not JournalState.DONE:
        keep(journal, disk)
    return Applied(directory=journal.location.directory, journal=journal.path, quarantine=None, steps=0)


def _looked(change: Change, disk: Disk) -> dict[str, ObservedFile]:
    try:
        return look(change.journal.location.directory, disk)
    except OSError as error:
        raise Refused(f"cannot read {change.journal.location.directory}: {error.strerror}") from error


def _carried_out(change: Change, done: int, disk: Disk) -> Applied:
    """Carry out the steps that are not `done` yet."""
    assert change.staged is not None
    try:
        with deferring_signals(), kept_open(change.journal.location.directories):
            _take_steps(change, done, disk)
    except OSError as error:
        way_on = f"{_way_on(change.journal, disk)}{out_of_room(error, (), DECIDED)}"
        stands = f"the change is half done and nothing is lost: {way_on}"
        raise cannot_change(change.journal.location.directory, error, stands) from error
    return _applied(change, change.staged)


def _way_on(journal: Journal, disk: Disk) -> str:
    path, first = journal.path, ""
    if not is_there(journal.location, disk):
        first = "mount again what its journal lies on, then "
    return f"{first}`{undo_command(path, finish=True)}` finishes it, `{undo_command(path)}` undoes it"


def _take_steps(change: Change, done: int, disk: Disk) -> None:
    staged = change.staged
    assert staged is not None
    location, progress = change.journal.location, change.progress
    for number, step in enumerate(progress.steps[done:], done):
        # some file systems (btrfs) sync the one file and not the names before it: after a power failure, the log would be cut first
        if isinstance(step, Truncate) and number:
            disk.sync_directory(location.directory)
        _take(location, number, step, progress, disk)
    for tail in progress.tails:  # a kill may have come between the truncation and this
        name = progress.survivors.get(tail.name)
        if name is not None:
            give_times(disk, location.target(name), progress.inputs[tail.name].mtime_ns)
    disk.sync_directory(location.directory)
    _verify(change, staged, disk)
    for name in progress.survivors:
        if name in staged.kept and is_second_name(location, name, progress.survivors[name], disk):
            remove_quietly(disk, location.old(name))
    append(change.journal, {"type": "done"}, disk)


def _take(location: JournalLocation, number: int, step: Step, progress: StepProgress, disk: Disk) -> None:
    path = location.target(step.name)
    match step:
        case Write():
            disk.rename(location.new(number), path)
        case Remove():
            disk.unlink(path)
        case Rename():
            target = location.target(step.new_name)
            here, there = disk.status(path), disk.status(target)
            if here is not None and there is not None and is_same_file(here, there):
                disk.unlink(path)  # two names of one file: a rename would have no effect
            else:
                disk.rename(path, target)
        case Truncate():
            with closing(disk, disk.open_to_write(path)) as descriptor:
                disk.truncate(descriptor, step.size_bytes)
                disk.sync(descriptor)


def _verify(change: Change, staged: Staged, disk: Disk) -> None:
    """Verify names, sizes and times of the directory, and the bytes of new files. Raises OSError (EIO)."""
    location, progress = change.journal.location, change.progress
    expected, actual = progress.end_state(staged.files), look(location.directory, disk)
    wrong = sorted(name for name in {*expected, *actual} if expected.get(name) != actual.get(name))
    if wrong:
        raise OSError(errno.EIO, "it is not as planned", location.target(wrong[0]))
    for name, token in progress.end.items():
        if isinstance(token, int):
            path, size_bytes = location.target(name), staged.files[token].size_bytes
            if not has_checksum(path, size_bytes, staged.crcs[token], disk):
                raise OSError(errno.EIO, "it reads back differently", path)


def _quarantine(change: Change) -> str | None:
    has_any = bool(change.progress.lost) or any(tail.length for tail in change.progress.tails)
    return (change.elsewhere or change.journal.location.quarantine) if has_any else None


def _applied(change: Change, staged: Staged) -> Applied:
    return Applied(
        directory=change.journal.location.directory,
        journal=change.journal.path,
        quarantine=_quarantine(change),
        steps=len(change.progress.steps),
        not_owned=tuple(staged.not_owned),
    )
