"""Find journals: all those of a directory (of a partition in .kseg, of a data directory beside its own files), or the one at a
given path."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from kseg.change.apply.disk import DISK, Disk, closing
from kseg.change.apply.elsewhere import DONE, PREFIX, read_pointer
from kseg.change.apply.journal import NOT_OURS, Journal, JournalState, read_journal, whole_lines
from kseg.change.apply.journal_lines import decoded, is_id
from kseg.change.apply.journal_location import (
    ID_TIME,
    JOURNAL_FILE,
    SUFFIX,
    JournalLocation,
    as_pointed,
    location_for,
    next_id_time,
)
from kseg.segment.errors import KsegError, Refused, cannot_read
from kseg.segment.partition.names import KSEG_DIRECTORY

_LAST_LINE_BYTES = 4096


def journals_in(directory: str, disk: Disk = DISK) -> list[Journal]:
    """All journals in a directory, oldest first. Raises UnreadableInput if one cannot be read."""
    return [read_journal(location, disk) for location in locations_in(directory, disk)]


def id_after(run_id: str, directories: Iterable[str]) -> str:
    """The id for a run that changes `directories`: `run_id`, or, if the clock has been set back since the newest run there, one that
    follows it. Runs are undone in the order of their ids. What cannot be listed is left to the change itself to report."""
    newest = ""
    for directory in filter(_may_have_journals, directories):
        with suppress(KsegError):
            newest = max((newest, *(each.id[:ID_TIME] for each in locations_in(directory))))
    try:
        return run_id if newest < run_id[:ID_TIME] else f"{next_id_time(newest)}{run_id[ID_TIME:]}"
    except ValueError:  # not an id that kseg made
        return run_id


def _may_have_journals(directory: str) -> bool:
    """Whether a directory may have journals, by its names alone: most directories of most runs have none."""
    with suppress(OSError):
        return any(name == KSEG_DIRECTORY or name.startswith(PREFIX) for name in os.listdir(directory))
    return False


def unfinished_in(directory: str, disk: Disk = DISK) -> list[Journal]:
    """The journals of incomplete changes in a directory, oldest first. Of complete ones only the end is read,
    since there can be many. Raises UnreadableInput."""
    locations = [location for location in locations_in(directory, disk) if not _ends_done(location, disk)]
    return [
        journal
        for location in locations
        if (journal := read_journal(location, disk)).state is not JournalState.DONE
    ]


def locations_in(directory: str, disk: Disk = DISK) -> list[JournalLocation]:
    """The locations of all journals in a directory, oldest first, without opening them. Raises UnreadableInput if the directory cannot be
    listed, Refused if .kseg is not a directory."""
    try:
        locations = [
            JournalLocation(directory, name, in_log_dir=False) for name in _partition_ids(directory, disk)
        ]
        names = [name for name in disk.names(directory) if name.startswith(PREFIX)]
        pointed = _pointed(directory, names, disk)
        locations += pointed
        ids = _log_dir_ids(names) - {location.id for location in pointed}
        locations += [JournalLocation(directory, name, in_log_dir=True) for name in sorted(ids)]
    except OSError as error:
        raise cannot_read(directory, error) from error
    return locations


def _ends_done(location: JournalLocation, disk: Disk) -> bool:
    """Whether the change is done according to the last line of its journal; False if its last bytes do not show it. For a journal
    elsewhere, which may be unreachable, the pointer shows it."""
    try:
        if location.home is not None and (location.pointer(disk) or "").endswith(DONE):
            return True
        status = disk.status(location.journal)
        if status is None:
            return False
        with closing(disk, disk.open_to_read(location.journal)) as descriptor:
            data = disk.read(descriptor, _LAST_LINE_BYTES, max(0, status.st_size - _LAST_LINE_BYTES))
    except OSError as error:
        if error.errno in NOT_OURS:  # reported when the journal is read
            return False
        raise cannot_read(location.journal, error) from error
    _, newline, last = data.removesuffix(b"\n").rpartition(b"\n")
    return data.endswith(b"\n") and bool(newline) and last.startswith(b'{"type":"done"')


def _partition_ids(directory: str, disk: Disk) -> list[str]:
    path = os.path.join(directory, KSEG_DIRECTORY)
    try:
        names = disk.names(path)
    except NotADirectoryError as error:
        status = disk.status(path)
        if status is None:
            return []
        what = "a link" if stat.S_ISLNK(status.st_mode) else "no directory"
        raise Refused(
            f"{path} is {what}, which kseg never creates there; inspect it, then move it away"
        ) from error
    return [name for name in names if is_id(name)]


def _pointed(directory: str, names: list[str], disk: Disk) -> list[JournalLocation]:
    """The locations of journals elsewhere."""
    found = dict(filter(None, map(read_pointer, names)))
    return [
        replace(location, home=location.elsewhere(around, disk))
        for id_, around in sorted(found.items())
        for location in (location_for(directory, id_),)
    ]


def _log_dir_ids(names: list[str]) -> set[str]:
    ids = set()
    for name in names:
        if read_pointer(name) is None:
            id_, _, _ = name.removeprefix(PREFIX).removesuffix(SUFFIX).partition("-new-")
            ids.add(id_.partition("-old-")[0])
    return {id_ for id_ in ids if is_id(id_)}


def location_of(path: str) -> JournalLocation | None:
    """The location for the path of a journal or of the directory around it; None for any other path. Raises Refused for
    a journal elsewhere whose directory is missing."""
    around = os.path.dirname(path) if os.path.basename(path) == JOURNAL_FILE else path
    is_inside = os.path.basename(os.path.dirname(os.path.abspath(around))).startswith("kseg-")
    # a data directory inside a directory named kseg-data, for example, is not a journal
    if is_inside and not (os.path.isdir(around) and not os.path.lexists(os.path.join(around, JOURNAL_FILE))):
        return _location_elsewhere(os.path.realpath(around))
    head, tail = os.path.split(path.rstrip(os.sep) or path)
    if tail == JOURNAL_FILE and os.path.basename(os.path.dirname(head or os.curdir)) == KSEG_DIRECTORY:
        head, tail = os.path.split(head)
    if os.path.basename(head) == KSEG_DIRECTORY and is_id(tail):
        return JournalLocation(os.path.dirname(head) or os.curdir, tail, in_log_dir=False)
    name = tail.removeprefix(PREFIX).removesuffix(SUFFIX)
    if tail == f"{PREFIX}{name}{SUFFIX}" and is_id(name):
        return JournalLocation(head or os.curdir, name, in_log_dir=True)
    return None


def _location_elsewhere(home: str) -> JournalLocation:
    """The location of the journal at this path, which names its directory. Raises Refused."""
    journal_id = os.path.basename(os.path.dirname(home)).removeprefix("kseg-")
    try:
        lines = decoded(whole_lines(DISK, os.path.join(home, JOURNAL_FILE)), journal_id)
        directory = str(lines[0]["directory"])
    except (OSError, ValueError, IndexError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        more = ": mount what it lies on" if isinstance(error, FileNotFoundError) else ""
        raise Refused(f"{home} has no valid kseg journal: {reason}{more}") from None
    location = location_for(directory, journal_id)
    if as_pointed(location, DISK).home != home:
        raise Refused(
            f"{os.path.join(home, JOURNAL_FILE)} is the journal of {directory}, which does not point to it"
        )
    return replace(location, home=home)
