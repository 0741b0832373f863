"""Decide whether a data directory without meta.properties must have had one: brokers before 0.9 wrote none, and a
directory of copied partitions needs none.

The first evidence found counts, in this order: a metadata log (KRaft); files in partitions that only later brokers write; and
for a directory with a broker's checkpoints, a sibling data directory that has the file, or batches of a format that older
brokers did not have (magic 1 came with 0.10).
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from kseg.segment.errors import KsegError
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.partition.log_dir_state import has_metadata_log
from kseg.segment.partition.names import (
    NAME_BY_ROLE,
    OFFSET_CHECKPOINT_ROLES,
    FileState,
    Role,
    parse_file_name,
)
from kseg.segment.storage import places
from kseg.segment.terminal import shown_path

META_PROPERTIES = NAME_BY_ROLE[Role.META_PROPERTIES]
_WRITTEN_SINCE = (NAME_BY_ROLE[Role.PARTITION_METADATA], NAME_BY_ROLE[Role.LEADER_EPOCHS])
_MAX_PARTITIONS_CHECKED = 20  # limit on partitions whose batches are checked, and on sibling directories
_MAGIC_POSITION = 16  # in every format
_YOUNGER_MAGICS = (1, 2)


def why_identity_is_missing(log_dir: str, partitions: Iterable[str]) -> str:
    """The evidence that a broker that writes meta.properties has used the directory, as a clause; empty if there is none. partitions: the
    paths of its partition directories."""
    paths = list(partitions)
    if has_metadata_log(log_dir):
        return "a KRaft node keeps its metadata log here"
    for path in paths:
        for name in _WRITTEN_SINCE:
            if places.lexists(os.path.join(path, name)):
                return f"{shown_path(os.path.basename(path))} has a {name}"
    if not any(places.lexists(os.path.join(log_dir, NAME_BY_ROLE[role])) for role in OFFSET_CHECKPOINT_ROLES):
        return ""
    for other in _siblings(log_dir):
        return f"{shown_path(other)} next to it has one"
    for path in paths[:_MAX_PARTITIONS_CHECKED]:
        magic = _first_magic(path)
        if magic in _YOUNGER_MAGICS:
            return f"{shown_path(os.path.basename(path))} has batches of magic {magic}"
    return ""


def is_without_kraft(log_dirs: Iterable[str], partitions: Sequence[str]) -> bool:
    """Whether no KRaft node has used these data directories: none has a metadata log, and no partition a partition.metadata, which a KRaft
    node writes for each. partitions: as above."""
    name = NAME_BY_ROLE[Role.PARTITION_METADATA]
    is_old = bool(partitions) and not any(places.lexists(os.path.join(path, name)) for path in partitions)
    return is_old and not any(map(has_metadata_log, log_dirs))


def identity_missing(log_dir: str, why: str) -> Finding:
    """The finding for a data directory that has lost its meta.properties. why: the evidence, empty if only the user says so."""
    words = "there is no meta.properties"
    return Finding("meta-properties-missing", log_dir, f"{words}, and {why}" if why else words)


def _siblings(log_dir: str) -> Iterator[str]:
    """Sibling directories with a meta.properties, which usually belong to the same node."""
    here = places.abspath(log_dir)
    parent = os.path.dirname(here)
    names: list[str] = []
    with suppress(OSError):
        names = sorted(places.listdir(parent))
    for name in names[:_MAX_PARTITIONS_CHECKED]:
        path = os.path.join(parent, name)
        if path != here and places.isfile(os.path.join(path, META_PROPERTIES)):
            yield path


def _first_magic(partition: str) -> int | None:
    """The magic of the first batch in the first log of a partition that has one."""
    names: list[str] = []
    with suppress(OSError):
        names = sorted(places.listdir(partition))
    for name in names:
        parsed = parse_file_name(name)
        if parsed.role is Role.LOG and parsed.state is FileState.LIVE:
            with suppress(KsegError), MappedFile(os.path.join(partition, name)) as file:
                if file.size_bytes > _MAGIC_POSITION:
                    return file.view[_MAGIC_POSITION]
    return None
