"""A run that writes changed copies (--output), from the first line of its journal to the last."""

import os
from contextlib import suppress

from kseg.change.apply.copy_journal import BegunOutput, missing_parents
from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.journal import read_journal
from kseg.change.apply.journal_lines import COPY, VERSION, encoded
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.journal_scan import unfinished_in
from kseg.change.apply.journal_writer import append, write_at_once
from kseg.change.apply.lock import claimed
from kseg.change.apply.recorded_change import half_done_sentence
from kseg.segment.errors import Refused


def begin_copies(output: str, command: str, run_id: str, disk: Disk = DISK) -> JournalLocation:
    """Before the first copy: remove what an earlier run of the same command left incomplete in `output`, and begin this run's
    journal. Raises Refused when another incomplete change is in the way, or the output is not writable."""
    output = os.path.abspath(output)
    location = JournalLocation(output, run_id, in_log_dir=True)
    try:
        _clear_incomplete(output, command, disk)
        made = missing_parents(output, disk)
    except OSError as error:
        raise _not_written(output, error) from error
    begun = BegunOutput(made[-1] if made else output, location)
    try:
        begun.clear_others(disk)
        for path in reversed(made):
            disk.make_directory(begun.path(path))
        status = disk.status(output)
        header = {
            "type": "journal",
            "version": VERSION,
            "id": run_id,
            "kind": COPY,
            "command": command,
            "directory": output,
            "directory_mtime_ns": None if made or status is None else status.st_mtime_ns,
            "made": made,
        }
        first = encoded(header, b"", is_signed=True)
        path_now = begun.path(location.journal) if made else location.journal
        write_at_once(path_now, first + encoded({"type": "staged"}, first, is_signed=True), status, disk)
        disk.sync_directory(os.path.dirname(path_now))
        if made:
            disk.rename(begun.folder, begun.top)
            disk.sync_directory(os.path.dirname(begun.top))
    except OSError as error:
        for at in (str, begun.path) if made else (str,):
            with suppress(OSError):
                disk.unlink(at(location.journal))
            for path in made:
                with suppress(OSError):
                    disk.remove_directory(at(path))
        raise _not_written(output, error) from error
    return location


def _clear_incomplete(output: str, command: str, disk: Disk) -> None:
    from kseg.change.apply.undo import undo

    if disk.status(output) is None:
        return
    for journal in unfinished_in(output, disk):
        if journal.kind != COPY or journal.command != command:
            raise Refused(half_done_sentence(journal))
        undo(journal.location, disk)


def _not_written(output: str, error: OSError) -> Refused:
    where = output if error.filename is None else error.filename
    return Refused(f"cannot write {where}: {error.strerror}; no copy was written")


def end_copies(location: JournalLocation, is_complete: bool) -> None:
    """After the last copy. An incomplete run without any copy leaves nothing behind. Raises Refused."""
    from kseg.change.apply.undo import undo

    journal = read_journal(location)
    if not is_complete:
        if all(line["type"] != "copy" for line in journal.lines):
            undo(location)
        return
    try:
        with claimed(location.directory):
            append(journal, {"type": "done"}, DISK)
    except OSError as error:
        raise Refused(
            f"cannot write {location.journal}: {error.strerror}; {half_done_sentence(journal)}"
        ) from error


def unfinished_sentence(location: JournalLocation) -> str:
    """How to continue when some of the copies exist; empty when none does. Raises UnreadableInput."""
    journal = read_journal(location)
    return half_done_sentence(journal) if any(line["type"] == "copy" for line in journal.lines) else ""
