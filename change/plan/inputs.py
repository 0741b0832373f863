"""The files of a directory as the planner found them; the executor compares them before it changes anything."""

import os
import stat

from kseg.change.plan.steps import FileIdentity
from kseg.segment.errors import Refused, cannot_read
from kseg.segment.layout import LOG_SUFFIX
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.storage import places
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Listing:
    """A listing of a directory. files: all regular files in it (not in subdirectories), by name. names: of everything in it. odd_logs:
    paths of logs by name that are not regular files."""

    files: tuple[FileIdentity, ...]
    names: tuple[str, ...]
    odd_logs: tuple[str, ...] = ()


def inputs_of(directory: str, *, follow_links: bool = False) -> tuple[FileIdentity, ...]:
    """The regular files of a directory, as of `listing_of`."""
    return listing_of(directory, follow_links=follow_links).files


def listing_of(directory: str, *, follow_links: bool = False) -> Listing:
    """What is in a directory. Call it before the files are read, so that a change during the reading is noticed.

    A broker follows links, a rename replaces them: a plan that left linked files out would take them for lost. follow_links: list what they
    lead to, for a load that is only simulated and for a plan that may turn out to be empty (`refuse_links`). Raises UnreadableInput when
    the directory cannot be listed, Refused where one of Kafka's files is a link otherwise."""
    found, names, odd_logs = [], [], []
    try:
        with places.scandir(directory) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # a running broker has deleted it since
                    continue
                names.append(entry.name)
                if stat.S_ISREG(status.st_mode):
                    found.append(identity(entry.name, status))
                elif stat.S_ISLNK(status.st_mode) and _leads_to_file(entry) and _is_kafkas(entry.name):
                    if follow_links:
                        found.append(identity(entry.name, entry.stat()))
                        continue
                    raise _is_link(entry)
                elif entry.name.endswith(LOG_SUFFIX):
                    odd_logs.append(entry.path)
    except OSError as error:
        raise cannot_read(directory, error) from error
    return Listing(tuple(sorted(found, key=lambda file: file.name)), tuple(names), tuple(odd_logs))


def refuse_links(directory: str) -> None:
    """Raises Refused if one of Kafka's files in a directory that is to be changed or copied is a link, UnreadableInput when the directory
    cannot be listed. The listing itself says which entries are links, so no file is asked for its status."""
    try:
        with places.scandir(directory) as entries:
            for entry in entries:
                if entry.is_symlink() and _leads_to_file(entry) and _is_kafkas(entry.name):
                    raise _is_link(entry)
    except OSError as error:
        raise cannot_read(directory, error) from error


def identity(name: str, status: os.stat_result) -> FileIdentity:
    """The identity of a file, from its stat result."""
    return FileIdentity(name, status.st_size, status.st_mtime_ns, status.st_ino)


def _is_link(entry: places.DirEntry) -> Refused:
    return Refused(
        f"{entry.path} is a link to a file elsewhere; kseg changes only directories that contain the files themselves"
    )


def _leads_to_file(entry: places.DirEntry) -> bool:
    try:
        return entry.is_file()
    except OSError:  # cyclic links
        return False


def _is_kafkas(name: str) -> bool:
    return parse_file_name(name).role is not Role.UNKNOWN
