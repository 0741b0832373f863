"""Kafka 0.7: `.kafka` files, the sets inside their messages, and what a fetch returned (fact sheet §2.1, §4.6).

    file     := entry…
    entry    := size int32 (bytes after it), magic 0, crc, payload                magic 0: 9 bytes + payload
              | size int32,                  magic 1, attributes, crc, payload    magic 1: 10 bytes + payload
    crc      := CRC-32 of the payload alone: magic and attributes are unprotected
    payload  := the message, or (attributes, bits 0 and 1: 1 gzip, 2 snappy) a compressed set of entries

No key, no offset, no timestamp. An offset is a byte position: the number in the file's name + the position in the file. A consumer got the
offset of the *next* message. The messages of a compressed set cannot be addressed: all but the last one had the offset of their entry.

These two magics are not those of 0.8: a file is 0.7 by its name, never by its bytes.

The walk (`walk`) returns entries and damage spans that account for every byte:

1. An entry with valid size, magic and checksum is returned; the walk continues after it.
2. Zeros up to the end of the file are a preallocated tail.
3. If only the checksum or the magic is wrong and the recorded size leads, across at most a few more such entries,
   to a valid entry or a valid end, the size is confirmed: the damage is this entry. With a known magic it is
   returned as an entry whose `crc_valid` is false.
4. Otherwise search for the next plausible entry: size and magic fit, the codec is known, the checksum is valid.

The search scans all positions in one pass of a compiled pattern. The bytes checksummed for candidates are limited to
a multiple of the file's allocated size, so a hostile file costs linear time. Once the limit is reached, the rest is damage.

Large holes of a sparse file are zeros, in which no entry begins; they are skipped.
"""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TYPE_CHECKING

from kseg.segment import layout as L
from kseg.segment.codecs.codec import decompress
from kseg.segment.crc import crc32
from kseg.segment.errors import CodecError, FormatError
from kseg.segment.holes import without_large_holes
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from typing_extensions import Buffer

SIZE_FIELD = 4
MIN_SIZE_FIELD = 1 + 4  # magic and crc: the smallest size that 0.7's recovery accepts
CODEC_MASK = 0x03  # two bits, not three as in later versions
HEADER_BYTES = {0: SIZE_FIELD + 1 + 4, 1: SIZE_FIELD + 1 + 1 + 4}
MAX_NESTING = 16  # nested sets; real ones have two or three levels
DEFAULT_LIMIT_BYTES = 256 * 1024 * 1024

_SIZE_AND_MAGIC = struct.Struct(">iB")
_CRC = struct.Struct(">I")
KNOWN_CODECS = (L.NONE, L.GZIP, L.SNAPPY)
_CORROBORATING_HOPS = 16
_SEARCH_ALLOWANCE_BYTES = 64 * 1024 * 1024
_SEARCH_FACTOR = 8
_ZERO_PIECE = 64 * 1024
_CANDIDATE_BYTES = SIZE_FIELD + 2  # bytes that a pattern examines

# The beginning of a plausible entry, as a look-ahead so that overlapping candidates are all found. The first pattern also
# requires a size below 16 MiB, which makes it much more selective.
_PLAUSIBLE = rb"(?=(?!\x00{3}[\x00-\x04])%s[\x00-\xff]{%d}(?:\x00|\x01[\x00-\x02]))"
_SMALL_CANDIDATE = re.compile(_PLAUSIBLE % (rb"\x00", 3))
_ANY_CANDIDATE = re.compile(_PLAUSIBLE % (rb"[\x00-\x7f]", 3))


@dataclass(frozen=True, slots=True)
class Entry07:
    """One entry of a file or of a decompressed set.

    position, size_bytes: byte range of the entry, including the size field. attributes: 0 for magic 0, which has none.
    crc: as stored. payload_position: where the payload begins; it extends to the end of the entry.
    """

    position: int
    size_bytes: int
    magic: int
    attributes: int
    crc: int
    crc_valid: bool
    payload_position: int

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes

    @property
    def payload_bytes(self) -> int:
        return self.end_position - self.payload_position

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy; 3 is undefined (0.7 throws when it reads such an entry)."""
        return self.attributes & CODEC_MASK

    def payload(self, view: memoryview) -> memoryview:
        """The stored payload, a slice of the buffer that contains the entry."""
        return view[self.payload_position : self.end_position]


@dataclass(frozen=True, slots=True)
class Damage07:
    """A span of bytes without an entry; `kind` is an id of the catalogue of findings."""

    kind: str
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class End07:
    """Where 0.7's recovery stops. position: number of bytes that it keeps. cause: one of

    `end` (the whole file is valid), `cut-off`, `small-size`, `bad-crc`, and, where the load throws instead of
    truncating: `unknown-magic`, `too-small-for-magic`.
    """

    position: int
    cause: str

    @property
    def throws(self) -> bool:
        return self.cause in ("unknown-magic", "too-small-for-magic")


@dataclass(frozen=True, slots=True)
class Message07:
    """A message as a consumer sees it.

    offset, next_offset: of the entry of the file that contains it and of the entry after that one; all messages of a
    compressed set share both. consumer_offset: the offset that a 0.7 consumer got with it. depth: number of sets around
    it. magic, crc, crc_valid: of its own entry.
    """

    offset: int
    next_offset: int
    consumer_offset: int
    depth: int
    magic: int
    crc: int
    crc_valid: bool
    payload: memoryview


def entry_at(view: memoryview, position: int, end: int) -> Entry07 | str:
    """The validated entry at `position`, or why there is none: the cause of an End07."""
    remaining = end - position
    if remaining < MIN_SIZE_FIELD:
        return "end" if remaining == 0 else _cause_of_scrap(view, position, remaining)
    size, magic = _SIZE_AND_MAGIC.unpack_from(view, position)
    if size < MIN_SIZE_FIELD:
        return "small-size"
    if size > remaining - SIZE_FIELD:
        return "cut-off"
    header_bytes = HEADER_BYTES.get(magic)
    if header_bytes is None:
        return "unknown-magic"
    payload_position = position + header_bytes
    entry_end = position + SIZE_FIELD + size
    if payload_position > entry_end:
        return "too-small-for-magic"
    crc = _CRC.unpack_from(view, payload_position - 4)[0]
    crc_valid = crc32(view[payload_position:entry_end]) == crc
    attributes = view[position + 5] if magic == 1 else 0
    return Entry07(position, SIZE_FIELD + size, magic, attributes, crc, crc_valid, payload_position)


def _cause_of_scrap(view: memoryview, position: int, remaining: int) -> str:
    """The cause for 1 to 4 bytes at the end: they may contain a size field, but no entry."""
    size = int.from_bytes(view[position : position + SIZE_FIELD], "big", signed=True)
    return "small-size" if remaining == SIZE_FIELD and size < MIN_SIZE_FIELD else "cut-off"


def valid_prefix(data: "Buffer") -> End07:
    """How much of a file 0.7's recovery keeps, and why it stops there (0.7.2: FileMessageSet.recover).

    It checks only size, magic and checksum: an unknown codec is kept.
    """
    view = memoryview(data)
    position = 0
    while True:
        entry = entry_at(view, position, len(view))
        if isinstance(entry, str):
            return End07(position, entry)
        if not entry.crc_valid:
            return End07(position, "bad-crc")
        position = entry.end_position


def walk(
    data: "Buffer",
    start: int = 0,
    unreadable: Callable[[int, int], Sized] | None = None,
    extents: Callable[[int, int], Iterable[tuple[int, int]]] | None = None,
) -> Iterator[Entry07 | Damage07]:
    """Entries and damage spans from `start` (a boundary) to the end, in order; together they cover every byte.

    unreadable: returns the unreadable ranges within a range; they read as zeros. extents: (position, length) of the data within a
    range, without the holes of the file (`MappedFile.extents`).
    """
    view = memoryview(data)
    walker = _Walker(
        view, without_large_holes([(0, len(view))] if extents is None else extents(0, len(view)))
    )
    position = start
    while position < len(view):
        judged = entry_at(view, position, len(view))
        if isinstance(judged, Entry07) and judged.crc_valid:
            yield judged
            position = judged.end_position
            continue
        found = walker.damage(position, judged)
        size = found.size_bytes if isinstance(found, Entry07) else found.length
        if unreadable is not None and len(unreadable(position, position + size)):
            found = Damage07("unreadable-batch", position, size)
        yield found
        position += size


class _Walker:
    """The checks of one walk, and the bytes that they may still read."""

    def __init__(self, view: memoryview, extents: list[tuple[int, int]]) -> None:
        """extents: (start, end) of the data between the holes that are skipped."""
        self.view = view
        self.end = len(view)
        self.extents = extents
        occupied_bytes = sum(end - start for start, end in extents)
        self.budget_bytes = _SEARCH_ALLOWANCE_BYTES + _SEARCH_FACTOR * occupied_bytes
        self._zeros_from: int | None = None

    def only_zeros_from(self, position: int) -> bool:
        """Whether everything from `position` on is zeros; the tail of the file is checked only once."""
        if self._zeros_from is None:
            self._zeros_from = self._start_of_zeros(0, self.end)
        return self._zeros_from <= position

    def judge(self, position: int) -> Entry07 | str:
        """The entry at a candidate; its checksum counts against the limit."""
        entry = entry_at(self.view, position, self.end)
        if isinstance(entry, Entry07):
            self.budget_bytes -= entry.size_bytes
        return entry

    def damage(self, position: int, found: Entry07 | str) -> Entry07 | Damage07:
        """What is wrong at `position`, and how far the damage extends."""
        view, end = self.view, self.end
        if isinstance(found, Entry07):
            self.budget_bytes -= found.size_bytes
        if self.only_zeros_from(position):
            return Damage07("zero-tail", position, end - position)
        size = int.from_bytes(view[position : position + SIZE_FIELD], "big", signed=True)
        if (isinstance(found, Entry07) or found == "unknown-magic") and self._corroborated(
            position + SIZE_FIELD + size
        ):
            if isinstance(found, Entry07):
                return found
            return Damage07("bad-magic", position, SIZE_FIELD + size)
        resumed = self._search(position + 1)
        if found == "cut-off" and resumed == end:
            kind = "torn-tail"
        elif self._start_of_zeros(position, resumed) == position:
            kind = "zero-filled"
        elif isinstance(found, Entry07):
            kind = "bad-crc"
        else:
            kind = "foreign-bytes" if found == "unknown-magic" else "bad-length"
        return Damage07(kind, position, resumed - position)

    def _corroborated(self, position: int) -> bool:
        """Whether a valid entry or a valid end is at `position` or a few entries after it."""
        for _ in range(_CORROBORATING_HOPS):
            if self.budget_bytes < 0:
                return False
            if self.only_zeros_from(position):
                return True
            entry = self.judge(position)
            if isinstance(entry, Entry07):
                if entry.crc_valid:
                    return True
                position = entry.end_position
            elif entry == "unknown-magic":
                position += SIZE_FIELD + int.from_bytes(self.view[position : position + SIZE_FIELD], "big")
            else:
                return False
        return False

    def _search(self, position: int) -> int:
        """The position of the next plausible entry at or after `position`, or the end."""
        narrow_from = max(position, self.end - SIZE_FIELD - 0xFFFFFF)
        for pattern, first, last in (
            (_ANY_CANDIDATE, position, narrow_from),
            (_SMALL_CANDIDATE, narrow_from, self.end),
        ):
            for start, stop in self.extents:
                # the size field of an entry may begin with the zeros at the end of a hole
                start, stop = max(first, start - SIZE_FIELD), min(last, stop)
                if start >= stop:
                    continue
                for match in pattern.finditer(self.view, start, min(self.end, stop + _CANDIDATE_BYTES)):
                    candidate = match.start()
                    if candidate >= stop or self.budget_bytes < 0:
                        break
                    if self._plausible(candidate):
                        return candidate
        return self.end

    def _plausible(self, position: int) -> bool:
        entry = self.judge(position)
        if isinstance(entry, str) or not entry.crc_valid:
            return False
        if entry.payload_bytes:
            return True
        # the checksum of empty content is 0, so nine or ten ordinary bytes look like an empty message: check the next entry
        following = self.judge(entry.end_position)
        return following == "end" or (isinstance(following, Entry07) and following.crc_valid)

    def _start_of_zeros(self, position: int, stop: int) -> int:
        """Where the zeros at the end of a range begin; the end of the range if there are none."""
        for start, end in reversed(self.extents):
            start, end = max(start, position), min(end, stop)
            while start < end:
                piece = max(start, end - _ZERO_PIECE)
                rest = bytes(self.view[piece:end]).rstrip(b"\x00")
                if rest:
                    return piece + len(rest)
                end = piece
        return position


def messages(
    view: memoryview, entry: Entry07, base_offset: int = 0, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[Message07]:
    """The messages of one entry, in order, with nested sets unpacked.

    view: the file that contains the entry. base_offset: the number in the file's name. limit_bytes: the maximum total
    size of all sets of the entry when decompressed. Raises CodecError (unknown codec, undecodable,
    too large, nested too deep) or FormatError (a set that ends inside an entry), after the messages before it.
    """
    offset = base_offset + entry.position
    next_offset = base_offset + entry.end_position
    held: tuple[Entry07, memoryview, int] | None = None
    for found in _flatten(view, entry, 0, [limit_bytes]):
        if held is not None:
            yield _message(*held, offset, next_offset, offset)
        held = found
    # 0.7 returned only the last message of a compressed set with the offset that follows the set
    if held is not None:
        yield _message(*held, offset, next_offset, next_offset)


def _message(
    entry: Entry07, payload: memoryview, depth: int, offset: int, next_offset: int, consumer_offset: int
) -> Message07:
    return Message07(
        offset, next_offset, consumer_offset, depth, entry.magic, entry.crc, entry.crc_valid, payload
    )


def _flatten(
    view: memoryview, entry: Entry07, depth: int, room: list[int]
) -> Iterator[tuple[Entry07, memoryview, int]]:
    """(own entry, payload, depth) of each message in `entry`; `room` holds the remaining limit in bytes."""
    codec = entry.codec
    payload = entry.payload(view)
    if codec == L.NONE:
        yield entry, payload, depth
        return
    if codec not in KNOWN_CODECS:
        raise CodecError(f"codec id {codec} is unknown to Kafka 0.7")
    if depth == MAX_NESTING:
        raise CodecError(f"sets are nested more than {MAX_NESTING} deep")
    content = decompress(codec, entry.magic, payload, room[0])
    room[0] -= len(content)
    position = 0
    while position < len(content):
        inner = entry_at(content, position, len(content))
        if isinstance(inner, str):
            raise FormatError(
                f"a compressed message set is damaged at byte {position} of its content ({inner})"
            )
        yield from _flatten(content, inner, depth + 1, room)
        position = inner.end_position
