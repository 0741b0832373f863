"""Files of a partition that are marked for deletion: `<name>.deleted` (Kafka: LocalLog.deleteSegmentFiles).

A broker renames the files of a segment first and unlinks them `file.delete.delay.ms` later; at startup it unlinks all
remaining ones. The modification time of a marked file is that of its last write. The time of the mark is its ctime, which the
rename sets; later copies and permission changes advance it and never set it back.

The metadata log marks its snapshots in the same way and deletes them itself: they are not files of a segment.
"""

import stat

from kseg.segment.errors import cannot_read
from kseg.segment.partition.names import SEGMENT_ROLES, FileName, FileState, Role, parse_file_name
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_MARKED_ROLES = (*SEGMENT_ROLES, Role.KAFKA07_LOG)


@dataclass(frozen=True, slots=True)
class DeletionMark:
    """One marked file. marked_at_ms: its ctime, which is an upper bound of the time of the mark."""

    name: FileName
    size_bytes: int
    marked_at_ms: int


def marks_in(directory: str) -> tuple[DeletionMark, ...]:
    """The marked files of segments in a partition directory, by name. Raises UnreadableInput."""
    found = []
    try:
        with places.scandir(directory) as entries:
            for entry in entries:
                name = parse_file_name(entry.name)
                if name.state is not FileState.DELETED or name.role not in _MARKED_ROLES:
                    continue
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found.append(DeletionMark(name, status.st_size, status.st_ctime_ns // 1_000_000))
    except OSError as error:
        raise cannot_read(directory, error) from error
    return tuple(sorted(found, key=lambda mark: mark.name.name))
