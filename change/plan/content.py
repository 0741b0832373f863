"""The content of a planned file: spans of existing files, new bytes in memory, and bytes written to an unnamed file.

A plan never holds the bytes of a log. The content of a planned file is a sequence of pieces:

    Span    bytes of a file as *found* (before any step of the plan): name, position, length
    Fresh   bytes that exist in memory only: an index, a snapshot, a checkpoint
    Made    bytes that the planner wrote to an unnamed file because they are too many for memory (`apply.scratch_file`)
"""

from collections.abc import Iterable
from dataclasses import field

from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """`length` bytes from `position` on of the file `name` of the planned directory, as it was found."""

    name: str
    position: int
    length: int

    @property
    def end_position(self) -> int:
        return self.position + self.length


@dataclass(frozen=True, slots=True)
class Fresh:
    """Bytes that are part of the plan itself."""

    data: bytes

    @property
    def length(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"Fresh(<{len(self.data)} bytes>)"


@dataclass(frozen=True, slots=True)
class Made:
    """All bytes of an unnamed file that this process has open. descriptor: of that file; valid while the planner keeps
    it open. crc: CRC-32C of the bytes; two pieces are equal when length and checksum are."""

    descriptor: int = field(compare=False)
    length: int
    crc: int


Piece = Span | Fresh | Made
Content = tuple[Piece, ...]


def content_of(pieces: Iterable[Piece]) -> Content:
    """The shortest form of a content: no empty pieces, adjacent spans of a file joined, so that equal contents of spans compare equal."""
    joined: list[Piece] = []
    for piece in pieces:
        if not piece.length:
            continue
        last = joined[-1] if joined else None
        if isinstance(piece, Span) and isinstance(last, Span):
            if last.name == piece.name and last.end_position == piece.position:
                joined[-1] = Span(last.name, last.position, last.length + piece.length)
                continue
        elif isinstance(piece, Fresh) and isinstance(last, Fresh):
            joined[-1] = Fresh(last.data + piece.data)
            continue
        joined.append(piece)
    return tuple(joined)


def length_of(content: Content) -> int:
    """Size of the file in bytes."""
    return sum(piece.length for piece in content)
