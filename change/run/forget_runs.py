"""Forget runs that could be undone: remove their journals and quarantines, which frees the space that these hold.

A file is removed only if its bytes exist elsewhere or are useless without the run: each journal is checked before the first one is removed.
"""

import os
from collections.abc import Iterator

from kseg.change.apply.append_undo import kept_path
from kseg.change.apply.disk import DISK
from kseg.change.apply.file_operations import has_checksum, remove_if_empty
from kseg.change.apply.journal import Journal, JournalState, spend_journals
from kseg.change.apply.journal_lines import COPY, PLAN
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.journal_scan import journals_in, location_of
from kseg.change.apply.journal_writer import discard
from kseg.change.apply.lock import claimed_by_command, locked
from kseg.change.apply.recorded_change import change_of, half_done_sentence, quarantine_open
from kseg.change.apply.staging import tail_path
from kseg.change.run.undo_runs import END_SUFFIX, ChangeRun, all_files, runs_below
from kseg.jobs.events import Event, Failure, Row
from kseg.segment.errors import FormatError, KsegError, Refused
from kseg.segment.partition.recognition import is_log_directory


def forget_runs(path: str, apply: bool, follow_links: bool = False) -> Iterator[Event]:
    """Remove what undo needs: for all runs below a path, or for the one run of a journal. A row for each run."""
    try:
        location = location_of(path)
        directory = path if location is None else location.directory
        runs = [run for run in runs_below(directory) if location is None or location.id.startswith(run.id)]
        for run in runs:
            for journal in run.journals:
                _check_forgettable(journal, run)
        log_dirs = {each for run in runs for each in map(_log_dir_of, run.directories) if each is not None}
        if not apply:
            yield from (Row(_forgotten(run, False)) for run in runs)
            return
        with locked(log_dirs):
            for run in runs:
                row = _forgotten(run, True)
                for journal in run.journals:
                    with claimed_by_command(journal.location.directory, follow_links):
                        _forget(journal)
                yield Row(row)
    except KsegError as error:
        yield Failure(path, str(error), error.exit_status)


def _forgotten(run: ChangeRun, applied: bool) -> dict[str, object]:
    return {"type": "result", "state": "forgotten", "applied": applied} | run.row()


def _log_dir_of(directory: str) -> str | None:
    if is_log_directory(directory):
        return directory
    around = os.path.dirname(os.path.abspath(directory))
    return around if is_log_directory(around) else None


def _check_forgettable(journal: Journal, run: ChangeRun) -> None:
    """Raises Refused for an incomplete change, for a part of a run that is undone together, and for files that differ from
    their journal."""
    location = journal.location
    if journal.state is not JournalState.DONE:
        raise Refused(half_done_sentence(journal))
    whole = _whole_of(location, run)
    if whole is not None:
        raise Refused(
            f"{journal.path} can only be forgotten together with {whole.path}: kseg undo --forget {whole.location.directory}"
        )
    try:
        _check_kept(journal)
    except (KeyError, ValueError, TypeError, FormatError) as error:
        raise Refused(f"{journal.path} is not a valid kseg journal: {error}") from error
    except OSError as error:
        raise Refused(f"cannot read what {journal.path} keeps: {error.strerror}") from error


def _whole_of(location: JournalLocation, run: ChangeRun) -> Journal | None:
    """The data directory's journal that also undoes a partition's, if it is not among those of the run."""
    around = _log_dir_of(location.directory)
    if location.in_log_dir or around is None or around in map(os.path.abspath, run.directories):
        return None
    name = os.path.basename(os.path.abspath(location.directory))
    for journal in journals_in(around):
        is_same = journal.location.id.removesuffix(END_SUFFIX) == run.id
        if is_same and name in map(str, journal.header.get("partitions", ())):
            return journal
    return None


def _check_kept(journal: Journal) -> None:
    """Raises Refused if a file that would be removed is not the one that the journal keeps, and so has another origin. Raises
    OSError, ValueError, KeyError, TypeError and FormatError for a journal that cannot be followed."""
    location, inodes, sums = journal.location, _kept_inodes(journal), _kept_sums(journal)
    for path in all_files(journal):
        if path == location.journal:
            continue
        status = DISK.file_status(path)
        is_kept = status is not None and (
            status.st_ino in inodes or (path in sums and has_checksum(path, status.st_size, sums[path], DISK))
        )
        if not is_kept:
            raise Refused(f"{path} is not what {journal.path} says it keeps; inspect it, and move it away")


def _kept_inodes(journal: Journal) -> set[int]:
    """The files beside a journal: those that the change removed, and those that copies replaced."""
    if journal.kind == PLAN:
        staged = change_of(journal, DISK).staged
        return set() if staged is None else {*staged.kept.values()}
    if journal.kind == COPY:
        return {int(row[3]) for line in journal.lines if line["type"] == "copy" for row in line["over"]}
    return set()


def _kept_sums(journal: Journal) -> dict[str, int]:
    """CRC-32C of copies that the change kept, by path."""
    location = journal.location
    if journal.kind == COPY:
        return {}
    elsewhere = journal.elsewhere(DISK)
    if journal.kind != PLAN:
        kept = (journal.line("staged") or {}).get("kept", {})
        return {kept_path(location, elsewhere, str(name)): int(crc) for name, crc in kept.items()}
    change = change_of(journal, DISK)
    if change.staged is None:
        return {}
    found = (
        {}
        if elsewhere is None
        else {os.path.join(elsewhere, name): crc for name, crc in change.staged.copied.items()}
    )
    for tail in change.progress.tails:
        if tail.length:
            path = tail_path(location, change.elsewhere, tail.name, tail.position)
            found[path] = change.staged.tails[tail.number]
    return found


def _forget(journal: Journal) -> None:
    """Remove a journal with all that belongs to it. Needs the claim. Raises Refused."""
    location = journal.location
    try:
        _check_kept(journal)
        status = DISK.status(location.directory)
        elsewhere = journal.elsewhere(DISK)
        with quarantine_open(journal, elsewhere) as is_there:
            if is_there and elsewhere is not None:
                for name in DISK.names(elsewhere):
                    if os.path.join(elsewhere, name) != location.journal:
                        DISK.unlink(os.path.join(elsewhere, name))
        for path in () if elsewhere is None else (elsewhere, os.path.dirname(elsewhere)):
            remove_if_empty(DISK, path)
        spend_journals([journal], DISK)
        discard(location, DISK, None if status is None else status.st_mtime_ns)
    except OSError as error:
        raise Refused(
            f"cannot forget {journal.path}: {error.strerror}; repeat the command to continue"
        ) from error
    except (KeyError, ValueError, TypeError, FormatError) as error:
        raise Refused(f"{journal.path} is not a valid kseg journal: {error}") from error
