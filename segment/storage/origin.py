"""The interface to byte sources other than disks.

An origin is a tree of names. It lists directories and reads ranges of files; kseg needs nothing else:

    attached      resolves paths to origins
    places        os.stat, os.scandir, os.path.isdir … for paths of either kind
    local_copy    the bytes of such a file as a descriptor: whole, or the requested ranges
segment.files uses that descriptor like that of any other file.

`object_store` and `tar_archive` are the two kinds. Their errors are OSErrors whose `strerror` is a sentence about the problem, so that they
are reported like those of a disk.
"""

import errno
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from kseg.segment.errors import OUT_OF_REACH
from kseg.segment.values import dataclass


class ItemKind(StrEnum):
    """What a name in an origin refers to. OTHER: a link or a device, which is never read."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Item:
    """One name. mtime_ns: modification time in the origin; 0 if unknown. version: changes with the content (an ETag); empty if unknown."""

    kind: ItemKind
    size_bytes: int = 0
    mtime_ns: int = 0
    version: str = ""


ROOT = Item(ItemKind.DIRECTORY)


class ByteOrigin(Protocol):
    """A tree of files. Paths inside it have no slash at either end; the root is the empty path.

    damage: why the listing is incomplete, as a sentence; None if it is complete.
    """

    damage: str | None

    def listing(self, inside: str) -> Mapping[str, Item]:
        """The entries of a directory, by name; listed once. Raises FileNotFoundError, NotADirectoryError, or OSError with a sentence."""
        ...

    def read(self, inside: str, item: Item, start: int, stop: int) -> bytes:
        """The bytes of a file between two positions. Raises OSError, also if the file has changed since it was listed."""
        ...

    def is_seekable(self, inside: str) -> bool:
        """Whether reading a range of this file costs no more than the range."""
        ...


def failure(sentence: str) -> OSError:
    """The exception for an origin with invalid bytes. The sentence gives the reason."""
    return OSError(errno.EREMOTEIO, sentence)


def out_of_reach(sentence: str) -> OSError:
    """The exception for an origin that does not return its bytes, which may be valid. The sentence gives the reason."""
    return OSError(OUT_OF_REACH, sentence)
