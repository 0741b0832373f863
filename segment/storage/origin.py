"""Where bytes come from that are on no disk: the interface, and what an item in it is.

An origin is a tree of names. It lists directories and reads ranges of files; that is all that the rest of kseg needs:

    attached      which paths lead into which origin
    places        os.stat, os.scandir, os.path.isdir … for paths of either kind
    local_copy    the bytes of such a file as a descriptor: whole, or the ranges that were asked for
    segment.files asks for that descriptor; from there on a file is a file

`object_store` and `tar_archive` are the two kinds. An error of theirs is an OSError whose `strerror` is a sentence about what is wrong with
the store, so that it is reported as that of a disk would be.
"""

import errno
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from kseg.segment.errors import OUT_OF_REACH
from kseg.segment.values import dataclass


class ItemKind(StrEnum):
    """What a name in an origin stands for. OTHER: a link, a device: nothing that is read."""

    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Item:
    """One name. mtime_ns: when it was written, as the origin tells it; 0 when it does not. version: what changes with the content
    (an ETag); empty where nothing tells."""

    kind: ItemKind
    size_bytes: int = 0
    mtime_ns: int = 0
    version: str = ""


ROOT = Item(ItemKind.DIRECTORY)


class ByteOrigin(Protocol):
    """A tree of files. Paths inside it have no slash at either end; the root is the empty one.

    damage: a sentence about why not all of it can be listed; None when it can.
    """

    damage: str | None

    def listing(self, inside: str) -> Mapping[str, Item]:
        """The entries of a directory, by name; listed once. Raises FileNotFoundError, NotADirectoryError, or OSError with a sentence."""
        ...

    def read(self, inside: str, item: Item, start: int, stop: int) -> bytes:
        """The bytes of a file between two positions. Raises OSError, also when the file has changed since it was listed."""
        ...

    def is_seekable(self, inside: str) -> bool:
        """Whether reading a range of this file costs no more than the range."""
        ...


def failure(sentence: str) -> OSError:
    """The exception for an origin whose bytes are not what they should be. The sentence gives the reason."""
    return OSError(errno.EREMOTEIO, sentence)


def out_of_reach(sentence: str) -> OSError:
    """The exception for an origin that does not deliver its bytes, which may be sound. The sentence gives the reason."""
    return OSError(OUT_OF_REACH, sentence)
