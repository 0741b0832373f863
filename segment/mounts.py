"""The file system of a path, according to the mount table of the kernel (proc(5), `/proc/self/mountinfo`).

    36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/sda1 rw,errors=continue
    (1)(2) (3)  (4)      (5)         (6)       (7)   (8) (9)    (10)       (11)

(3) major:minor of the device, (5) mount point, (6) options of the mount, (9) type, (10) source, (11) options of the file
system. Space, tab, newline and backslash in a field are `\\ooo`. Without such a table the result is empty.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from kseg.segment.values import dataclass

_TABLE = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """device: `major:minor`. type: of the file system, such as `ext4`. options: of the mount, followed by those of the file system."""

    device: str
    point: str
    type: str
    source: str
    options: tuple[str, ...]

    @property
    def is_read_only(self) -> bool:
        return "ro" in self.options


def mounts() -> Iterator[Mount]:
    """All mounts visible to this process, in the order in which they were created."""
    with suppress(OSError), open(_TABLE, encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            with suppress(ValueError, IndexError):
                fields = line.split()
                dash = fields.index("-", 6)
                options = tuple(dict.fromkeys(f"{fields[5]},{fields[dash + 3]}".split(",")))
                yield Mount(
                    fields[2], _unescaped(fields[4]), fields[dash + 1], _unescaped(fields[dash + 2]), options
                )


def mount_around(path: str) -> Mount | None:
    """The mount of a path: the one with the longest mount point above it, and the last of several there."""
    place = os.path.realpath(path)
    above = [each for each in mounts() if _is_below(place, each.point)]
    return max(reversed(above), key=lambda each: len(each.point), default=None)


def is_read_only(path: str) -> bool:
    """Whether the file system of a path is mounted read-only; False if that is unknown."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def is_mount_point(path: str) -> bool:
    """Whether something is mounted at a directory itself: it can be neither renamed nor deleted (EBUSY). A link to one can."""
    place = os.path.realpath(path)
    return not os.path.islink(path) and any(each.point == place for each in mounts())


def _is_below(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescaped(field: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), field)
