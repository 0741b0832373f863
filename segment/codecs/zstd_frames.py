"""zstd as Kafka reads and writes it (RFC 8878, fact sheet §3.5; zstd-jni's ZstdInputStream).

    stream := (frame | skippable frame)…
    frame  := 28 B5 2F FD, descriptor, [window: 1], [dictionary: 0…4], [content size: 0…8], block…, [checksum: 4]
    block  := 3 bytes little-endian: last (1 bit), type (2 bits: stored, run, compressed), size (21 bits); data

Java's frames have no content size, so the block headers are walked before the library is called: the walk finds the
end of the frame and an upper bound of its content (at most 128 KiB a block). Neither a claimed size nor a tiny bomb
can then make kseg allocate more than the blocks can fill, and a single call with a reused context decompresses the
frame.

Rules of the reader: empty input is empty content; a window or a claimed single segment above 128 MiB is rejected; a
checksum is verified; garbage after a frame is an error. A truncated frame is an error too, but if a complete frame precedes it in the
same piece of input (zstd-jni reads 131075 bytes at a time), it silently ends the stream with the content so far.
"""

import struct
import threading

import zstandard

from kseg.segment import layout as L
from kseg.segment.codecs.codec import Filler, beyond_limit, check_level
from kseg.segment.errors import CodecError
from kseg.segment.kernel.usual_blocks import usual_block_end

_FRAME_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_WORD = struct.Struct("<I")
_LARGEST_BLOCK = 128 * 1024
_LARGEST_WINDOW = (1 << 27) + 1
_JAVA_INPUT_PIECE = _LARGEST_BLOCK + 3
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_RAW, _RUN, _COMPRESSED = 0, 1, 2
_DEFAULT_LEVEL, _MIN_LEVEL, _MAX_LEVEL = 3, -131072, 22


class _Contexts(threading.local):
    """zstd contexts of a thread: they are expensive to create and must not be shared between threads."""

    def __init__(self) -> None:
        self.reader = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
        self.writers: dict[int, zstandard.ZstdCompressor] = {}


_contexts = _Contexts()


def decompress(data: memoryview, magic: int, limit_bytes: int) -> memoryview:
    """The content of all frames; see `codec.decompress`."""
    if magic >= L.MAGIC_V2 and limit_bytes >= _LARGEST_BLOCK and usual_block_end(data, L.ZSTD):
        return memoryview(_frame_content(data, _LARGEST_BLOCK))
    _check_magic(magic)
    return _decompress_any(data, limit_bytes)


def filler() -> Filler:
    """See `codec.filler`. The library allocates the content itself, so it is copied."""

    def fill(frame: memoryview, room: memoryview) -> int:
        content = _contexts.reader.decompress(frame, _LARGEST_BLOCK)
        size_bytes = len(content)
        room[:size_bytes] = content
        return size_bytes or -1

    return Filler(fill, zstandard.ZstdError, _LARGEST_BLOCK)


def _check_magic(magic: int) -> None:
    if magic < L.MAGIC_V2:
        raise CodecError(f"zstd is not allowed in messages of magic {magic}")


def _decompress_any(data: memoryview, limit_bytes: int) -> memoryview:
    pieces: list[bytes] = []
    room = limit_bytes
    position = 0
    while position < len(data):
        end, max_bytes = _frame_extent(data, position)
        if end > len(data):
            if not position or (position - 1) // _JAVA_INPUT_PIECE != (len(data) - 1) // _JAVA_INPUT_PIECE:
                raise CodecError("the zstd stream ends inside a frame")
            if max_bytes > room:
                raise beyond_limit("zstd", limit_bytes)
            pieces.append(_streamed_content(data[position:]))
            break
        if max_bytes:
            piece = _bounded_frame_content(data[position:end], max_bytes, room, limit_bytes)
            room -= len(piece)
            pieces.append(piece)
        position = end
    return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def _frame_extent(data: memoryview, start: int) -> tuple[int, int]:
    """(end of the frame at `start`, upper bound of its content in bytes); an end after the data means that the frame is truncated.

    A skippable frame yields 0, any other at least 1 so that the library checks it.
    """
    size_bytes = len(data)
    cut_off = size_bytes + 1
    if size_bytes - start < 8:
        return cut_off, 1
    (magic,) = _WORD.unpack_from(data, start)
    if magic & _SKIPPABLE_MASK == _SKIPPABLE_MAGIC:
        length = _WORD.unpack_from(data, start + 4)[0]
        if length > 0xFFFFFFFF - 8:
            raise CodecError("a skippable zstd frame has an invalid length")
        return start + 8 + length, 0
    if magic != _FRAME_MAGIC:
        raise CodecError("the bytes are not a zstd frame")
    descriptor = data[start + 4]
    position, content_size, window = _header(data, start)
    if position > size_bytes:
        return cut_off, 1
    max_bytes = 0
    largest = max(min(window, _LARGEST_BLOCK), 1)
    while position + 3 <= size_bytes:
        block = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        kind, length = block >> 1 & 3, block >> 3
        max_bytes += min(length, largest) if kind != _COMPRESSED else largest
        position += 3 + (1 if kind == _RUN else length)
        if block & 1:
            position += 4 if descriptor & 4 else 0
            if content_size > max_bytes and position <= size_bytes:
                raise CodecError("a zstd frame declares more content than it holds")
            return position, max(max_bytes, 1)
    return cut_off, max(max_bytes, 1)


def _header(data: memoryview, start: int) -> tuple[int, int, int]:
    """(position of the first block, claimed content size or 0, window in bytes) of the frame at `start`."""
    descriptor = data[start + 4]
    single_segment = descriptor & 0x20
    size_field = _CONTENT_SIZE_BYTES[descriptor >> 6] or (1 if single_segment else 0)
    position = start + 5
    window = 0
    if not single_segment:
        code = data[position]
        window = (1 << 10 + (code >> 3)) * (8 + (code & 7)) // 8
        position += 1
    position += _DICTIONARY_BYTES[descriptor & 3]
    content_size = int.from_bytes(data[position : position + size_field], "little")
    if size_field == 2:
        content_size += 256
    position += size_field
    window = content_size if single_segment else window
    if window > _LARGEST_WINDOW and position <= len(data):
        raise CodecError(f"a zstd frame requires a window of {window} bytes")
    return position, content_size, window


def _bounded_frame_content(frame: memoryview, max_bytes: int, room: int, limit_bytes: int) -> bytes:
    """The content of a complete frame if it fits into `room`."""
    if max_bytes <= room:
        return _frame_content(frame, max_bytes)
    try:
        content: bytes = _contexts.reader.stream_reader(frame).read(room + 1)
    except zstandard.ZstdError as error:
        raise CodecError("a zstd frame cannot be decoded") from error
    if len(content) > room:
        raise beyond_limit("zstd", limit_bytes)
    return content


def _frame_content(frame: memoryview, max_bytes: int) -> bytes:
    try:
        content: bytes = _contexts.reader.decompress(frame, max_output_size=max_bytes)
    except zstandard.ZstdError as error:
        raise CodecError("a zstd frame cannot be decoded") from error
    # the one-shot call accepts a claimed size of 0 without checking blocks and checksum
    return content or _streamed_content(frame)


def _streamed_content(frame: memoryview) -> bytes:
    """The content of a frame, truncated or not; the caller has bounded it by the block headers."""
    try:
        return _contexts.reader.decompressobj().decompress(frame)
    except zstandard.ZstdError as error:
        raise CodecError("a zstd frame cannot be decoded") from error


def compress(data: bytes, magic: int, level: int | None = None) -> bytes:
    """One frame without content size and checksum, as Java's streaming writer makes it."""
    _check_magic(magic)
    level = _DEFAULT_LEVEL if level is None else level
    check_level("zstd", level, _MIN_LEVEL, _MAX_LEVEL)
    writer = _contexts.writers.get(level)
    if writer is None:
        writer = _contexts.writers[level] = zstandard.ZstdCompressor(level=level, write_content_size=False)
    stream = writer.compressobj()  # a one-shot call would know the size and choose a smaller window
    return stream.compress(data) + stream.flush()
