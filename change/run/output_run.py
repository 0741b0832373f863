"""A run that makes changed copies (--output), from its first line in the journal to the last."""

import os
from contextlib import suppress

from kseg.change.apply.copy_journal import BegunOutput, missing_parents
from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.journal import JournalPlace, append, read_journal, write_at_once
from kseg.change.apply.journal_lines import COPY, VERSION, encoded
from kseg.change.apply.journal_scan import unfinished_in
from kseg.change.apply.lock import claimed
from kseg.change.apply.recorded_change import half_done_sentence
from kseg.segment.errors import Refused


def begin_copies(output: str, command: str, run_id: str, disk: Disk = DISK) -> JournalPlace:
    """Before the first copy: what a run of the same command left half done in `output` goes, and the journal of this run
    is there. Raises Refused when another half-done change is in the way, or nothing can be written."""
    from kseg.change.apply.undo import undo

    output = os.path.abspath(output)
    for journal in unfinished_in(output, disk) if disk.status(output) is not None else ():
        if journal.kind != COPY or journal.command != command:
            raise Refused(half_done_sentence(journal))
        undo(journal.place, disk)
    place = JournalPlace(output, run_id, in_log_dir=True)
    made = missing_parents(output, disk)
    begun = BegunOutput(made[-1] if made else output, place)
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
        first = encoded(header, b"")
        path_now = begun.path(place.journal) if made else place.journal
        write_at_once(path_now, first + encoded({"type": "staged"}, first), status, disk)
        disk.sync_directory(os.path.dirname(path_now))
        if made:
            disk.rename(begun.folder, begun.top)
            disk.sync_directory(os.path.dirname(begun.top))
    except OSError as error:
        for at in (str, begun.path) if made else (str,):
            with suppress(OSError):
                disk.unlink(at(place.journal))
            for path in made:
                with suppress(OSError):
                    disk.remove_directory(at(path))
        where = output if error.filename is None else error.filename
        raise Refused(f"cannot write {where}: {error.strerror}; there is no copy") from error
    return place


def end_copies(place: JournalPlace, is_complete: bool, disk: Disk = DISK) -> None:
    """Behind the last copy. A run that was not complete and made nothing leaves nothing. Raises Refused."""
    from kseg.change.apply.undo import undo

    journal = read_journal(place, disk)
    if not is_complete:
        if all(line["type"] != "copy" for line in journal.lines):
            undo(place, disk)
        return
    try:
        with claimed(place.directory):
            append(journal, {"type": "done"}, disk)
    except OSError as error:
        raise Refused(
            f"cannot write {place.journal}: {error.strerror}; {half_done_sentence(journal)}"
        ) from error


def unfinished_sentence(place: JournalPlace, disk: Disk = DISK) -> str:
    """How to go on with copies of which some are there; empty when none is. Raises UnreadableInput."""
    journal = read_journal(place, disk)
    return half_done_sentence(journal) if any(line["type"] == "copy" for line in journal.lines) else ""
