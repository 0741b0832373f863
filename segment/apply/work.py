"""The work of `undo`: one journal, back or on, as a stream of events."""

import os
from collections.abc import Iterator

from kseg.segment.apply.disk import DISK
from kseg.segment.apply.executor import finish
from kseg.segment.apply.journal import Place, is_there, journals_in, place_of
from kseg.segment.apply.lock import locked
from kseg.segment.apply.undo import undo
from kseg.segment.errors import KsegError, Refused, UnreadableInput
from kseg.segment.events import Event, Failure, Row
from kseg.segment.partition.directory import is_log_directory
from kseg.segment.partition.names import KSEG_DIRECTORY

COMMAND = "undo"


def undo_journal(path: str, go_on: bool) -> Iterator[Event]:
    """Take back the change that a journal tells of, or with `go_on` finish a half-done one. One row for each directory.

    path: of the journal, of its directory, or of a directory that has just one. What cannot be is a Failure.
    """
    try:
        place = _journal_at(path)
        with locked(_log_dirs_of(place)):
            if go_on:
                for applied in finish(place):
                    yield Row(_row(applied.journal, "finished") | {"quarantine": applied.quarantine})
            else:
                for undone in undo(place):
                    row = {"undid": undone.command, "files": list(undone.files)}
                    yield Row(_row(undone.journal, "undone") | row)
    except KsegError as error:
        yield Failure(path, str(error), error.exit_status)


def _row(journal: str, state: str) -> dict[str, object]:
    place = place_of(journal)
    directory = os.path.dirname(journal) if place is None else place.directory
    return {"type": "result", "command": COMMAND, "directory": directory, "journal": journal, "state": state}


def _journal_at(path: str) -> Place:
    place = place_of(path)
    if place is not None:
        if not is_there(place, DISK) and not os.path.isdir(path):
            raise UnreadableInput(f"cannot read {path}: there is no such journal")
        return place
    if not os.path.isdir(path):
        raise UnreadableInput(f"{path} is no journal of kseg's")
    directory = path.rstrip(os.sep) or path
    if os.path.basename(directory) == KSEG_DIRECTORY:
        directory = os.path.dirname(directory) or os.curdir
    journals = journals_in(directory)
    journals = [journal for journal in journals if journal.is_half_done] or journals
    if not journals:
        raise UnreadableInput(f"{path} holds no journal of kseg's")
    if len(journals) > 1:
        raise Refused(
            f"{path} holds {len(journals)} journals; name one of them, the newest first: {journals[-1].path}"
        )
    return journals[0].place


def _log_dirs_of(place: Place) -> list[str]:
    """The data directory whose lock keeps a broker away, if there is one."""
    if place.in_log_dir:
        return [place.directory]
    parent = os.path.dirname(os.path.abspath(place.directory))
    return [parent] if is_log_directory(parent) else []
