"""Which journals lie in a directory: of a partition those in .kseg, of a data directory those beside its own files."""

import os
import stat
from dataclasses import replace

from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.elsewhere import DONE, PREFIX, read_pointer
from kseg.change.apply.journal import (
    NOT_OURS,
    SUFFIX,
    Journal,
    JournalPlace,
    JournalState,
    place_for,
    read_journal,
)
from kseg.change.apply.journal_lines import is_id
from kseg.segment.errors import Refused, cannot_read
from kseg.segment.partition.names import KSEG_DIRECTORY

_LAST_LINE_BYTES = 4096


def journals_in(directory: str, disk: Disk = DISK) -> list[Journal]:
    """All journals in a directory, oldest first. Raises UnreadableInput when one cannot be read."""
    return [read_journal(place, disk) for place in places_in(directory, disk)]


def unfinished_in(directory: str, disk: Disk = DISK) -> list[Journal]:
    """The journals in a directory but for those of changes that are done, oldest first: of those only the end is read,
    since many can lie there. Raises UnreadableInput."""
    places = [place for place in places_in(directory, disk) if not _ends_done(place, disk)]
    return [
        journal for place in places if (journal := read_journal(place, disk)).state is not JournalState.DONE
    ]


def places_in(directory: str, disk: Disk = DISK) -> list[JournalPlace]:
    """Where they lie, oldest first; none is opened. Raises UnreadableInput when the directory cannot be listed, Refused
    when the place of journals is none."""
    try:
        places = [JournalPlace(directory, name, in_log_dir=False) for name in _partition_ids(directory, disk)]
        names = [name for name in disk.names(directory) if name.startswith(PREFIX)]
        pointed = _pointed(directory, names, disk)
        places += pointed
        ids = _log_dir_ids(names) - {place.id for place in pointed}
        places += [JournalPlace(directory, name, in_log_dir=True) for name in sorted(ids)]
    except OSError as error:
        raise cannot_read(directory, error) from error
    return places


def _ends_done(place: JournalPlace, disk: Disk) -> bool:
    """Whether the last line of a journal says so; False when that cannot be told from its last bytes. Of one elsewhere its
    pointer says so: it need not be in reach."""
    try:
        if place.home is not None and (place.pointer(disk) or "").endswith(DONE):
            return True
        status = disk.status(place.journal)
        if status is None:
            return False
        descriptor = disk.open_to_read(place.journal)
        try:
            start = max(0, status.st_size - _LAST_LINE_BYTES)
            data = disk.read(descriptor, _LAST_LINE_BYTES, start)
        finally:
            disk.close(descriptor)
    except OSError as error:
        if error.errno in NOT_OURS:  # whoever reads it says so
            return False
        raise cannot_read(place.journal, error) from error
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
            f"{path} is {what}, which kseg never makes there; look at it, then move it away"
        ) from error
    return [name for name in names if is_id(name)]


def _pointed(directory: str, names: list[str], disk: Disk) -> list[JournalPlace]:
    """The places of journals that lie elsewhere."""
    found = dict(filter(None, map(read_pointer, names)))
    return [
        replace(place, home=place.elsewhere(around, disk))
        for id_, around in sorted(found.items())
        for place in (place_for(directory, id_),)
    ]


def _log_dir_ids(names: list[str]) -> set[str]:
    ids = set()
    for name in names:
        if read_pointer(name) is None:
            id_, _, _ = name.removeprefix(PREFIX).removesuffix(SUFFIX).partition("-new-")
            ids.add(id_.partition("-old-")[0])
    return {id_ for id_ in ids if is_id(id_)}
