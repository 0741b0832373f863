"""Journals and quarantines in another directory (`--journal DIR`, `--quarantine DIR`): for a disk that is full or must not be written.

    <DIR>/kseg-<id>/<directory name>.<inode>/journal.jsonl      the journal of one directory
    <DIR>/kseg-<id>/<directory name>.<inode>/<file name>        a file that the change has removed from the directory

A directory whose journal is elsewhere has an empty file, the pointer, whose name contains that place, so that `undo` and later
commands find the journal:

    kseg-journal-<id>-at-<DIR, percent-encoded>.open            the change is not done; later `.done`

An empty file takes an inode and a name and, as a rule, no block: with 0 bytes free ext4 and tmpfs have room for it, as long as there is
room in the blocks of the directory and of the inodes. (XFS and Btrfs may need a block for either; then the change is refused before
anything has moved.) The hard links of files that move are beside the pointer for the same reason; elsewhere they have a directory. New
files cannot be elsewhere, since they become part of the directory by a rename.

The journal is created before its pointer and removed after it, so a pointer without a journal means that DIR is not mounted: an
open pointer blocks every change, a done one does not. (A kill between the two can leave a journal in DIR to which nothing
points: it had not committed, or was undone, and is never read.) A pointer may be forged: no link is followed, the name must
be one that kseg derives from this directory's inode, and a journal found there is trusted no more than any other.
"""

import os
from urllib.parse import quote_from_bytes, unquote_to_bytes

from kseg.change.apply.journal_lines import is_id
from kseg.segment.errors import Refused
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, OFFSET_CHECKPOINT_ROLES, Role

JOURNAL = "journal.jsonl"
PREFIX = "kseg-journal-"  # of the names of pointers (`pointer_name`)
OPEN, DONE = ".open", ".done"
_AT = "-at-"
_NAME_BYTES = 255


def home(around: str, journal_id: str, directory: str, inode: int) -> str:
    """The directory below `around` for this one; unique by its inode, since several directories can have the same name. A name as long as a
    topic's may be is cut off at the end."""
    end = f".{inode:x}"
    name = os.fsencode(os.path.basename(os.path.abspath(directory)))[: _NAME_BYTES - len(end)]
    return os.path.join(os.path.realpath(around), f"kseg-{journal_id}", os.fsdecode(name) + end)


def is_home(path: str, journal_id: str, inode: int) -> bool:
    """Whether `home` can return this path."""
    head, tail = os.path.split(path)
    is_ours = os.path.basename(head) == f"kseg-{journal_id}" and tail.rpartition(".")[2] == f"{inode:x}"
    return is_ours and os.path.isabs(path) and os.path.normpath(path) == path


def pointer_name(path: str, journal_id: str) -> str:
    """The name of the pointer to a journal in this home, without its suffix."""
    around = os.path.dirname(os.path.dirname(path))
    return f"{PREFIX}{journal_id}{_AT}{quote_from_bytes(os.fsencode(around), safe='')}"


def read_pointer(name: str) -> tuple[str, str] | None:
    """(id, DIR) of a pointer of this name; None for any other file."""
    suffix = next((each for each in (OPEN, DONE) if name.endswith(each)), None)
    journal_id, at, quoted = name.removeprefix(PREFIX).removesuffix(suffix or "").partition(_AT)
    if suffix is None or not at or not is_id(journal_id):
        return None
    around = os.fsdecode(unquote_to_bytes(quoted))
    is_path = os.path.isabs(around) and os.path.normpath(around) == around and "\0" not in around
    is_ours = is_path and name == pointer_name(os.path.join(around, "-", "-"), journal_id) + suffix
    return (journal_id, around) if is_ours else None


def check_place(path: str, directory: str, what: str) -> None:
    """Check a place for journals or quarantines. what: a journal or a quarantine of `directory`. Raises Refused for a place where it would
    keep a broker from starting, and below something that is not a directory."""
    inside = os.path.realpath(path)
    there = inside
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        raise Refused(f"{path} cannot hold a {what}: {there} is not a directory; nothing was changed")
    if inside == os.path.realpath(directory) or _is_data_directory(inside):
        raise Refused(f"{path} belongs to Kafka and cannot hold a {what}")
    while inside != os.path.dirname(inside):
        around = os.path.dirname(inside)
        if own_partition_name(inside) is None and _is_data_directory(around):
            raise Refused(f"{path} cannot hold a {what}: a broker fails on {inside} in {around}")
        inside = around


def check_pointer(path: str, journal_id: str) -> None:
    """Raises Refused for a home whose path is too long for the name of a pointer."""
    if len(os.fsencode(pointer_name(path, journal_id))) + len(OPEN) > _NAME_BYTES:
        around = os.path.dirname(os.path.dirname(path))
        raise Refused(
            f"--journal {around}: the path is too long to be noted; name a shorter one, or mount it elsewhere"
        )


def _is_data_directory(path: str) -> bool:
    """Whether a directory is a data directory; a `.lock` alone does not make one."""
    roles = (Role.META_PROPERTIES, *OFFSET_CHECKPOINT_ROLES)
    return any(os.path.lexists(os.path.join(path, NAME_BY_ROLE[role])) for role in roles)
