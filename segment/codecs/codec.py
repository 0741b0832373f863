"""Compression of batches: one interface to the four codecs, with bounded memory and one kind of error.

A compressed batch does not declare its decompressed size, so each reader works under a limit: before anything is
allocated, a size that a header claims is compared with the limit and with the most that the compressed bytes can
yield. Any invalid input raises a CodecError with a plain sentence.

    id  codec   legal in     framing                           module
     0  none    every magic  the bytes themselves
     1  gzip    every magic  RFC 1952, several members         gzip_stream
     2  snappy  every magic  xerial block stream, or one raw   snappy_stream
     3  lz4     every magic  LZ4 frame, header quirk in 0      lz4_frame
     4  zstd    magic 2      RFC 8878, several frames          zstd_frames
  5…7  -       nowhere

The rules are those of Kafka's readers (org.apache.kafka.common.compress.*, fact sheet §3), including what they
tolerate. The module of a codec, and with it the library, is imported on first use.
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from kseg.segment import layout as L
from kseg.segment.errors import CodecError
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from typing_extensions import Buffer

# The limit on the decompressed size of one batch: far above what a broker accepts, far below what exhausts a machine's memory.
MAX_BODY_BYTES = 256 * 1024 * 1024

Reader = Callable[[memoryview, int, int], memoryview]
Writer = Callable[[bytes, int, int | None], bytes]


@dataclass(frozen=True, slots=True)
class Filler:
    """Writes the content of the usual batches of a codec (`kernel.usual_blocks`) into a caller's buffer.

    fill: takes a block and a buffer of room_bytes or more, and returns the size of the content; for lz4, whose blocks do not record that
    size, it takes room_bytes as a third argument. unreadable: the exception that it raises. After that exception, or a result of −1, call
    `decompress` for the batch, which may still be valid.
    """

    fill: Callable[..., int]
    unreadable: type[Exception]
    room_bytes: int


_MODULES = {
    L.GZIP: "kseg.segment.codecs.gzip_stream",
    L.SNAPPY: "kseg.segment.codecs.snappy_stream",
    L.LZ4: "kseg.segment.codecs.lz4_frame",
    L.ZSTD: "kseg.segment.codecs.zstd_frames",
}
_readers: dict[int, Reader] = {}
_writers: dict[int, Writer] = {}
_fillers: dict[int, Filler | None] = {}


def decompress(codec: int, magic: int, data: "Buffer", limit_bytes: int) -> memoryview:
    """The content of a compressed block.

    codec: id from the attributes (0…7). magic: of the batch or message that contains the block; it decides which codecs are legal and how
    lz4 is read. data: exactly the compressed bytes. limit_bytes: the maximum size of the content. Returns a view of the content (of `data`
    itself for codec 0). Raises CodecError if neither a broker nor a client could read the bytes, or the content would exceed the limit.
    """
    reader = reader_of(codec)
    return reader(data if type(data) is memoryview else memoryview(data), magic, limit_bytes)


def reader_of(codec: int) -> Reader:
    """`decompress` of one codec, for callers with many blocks of it. Raises CodecError for an unknown id."""
    return _readers.get(codec) or _load_reader(codec)


def filler(codec: int) -> Filler | None:
    """The filler of a codec, None if it has none."""
    if codec not in _MODULES:
        return None
    if codec not in _fillers:
        make = getattr(importlib.import_module(_MODULES[codec]), "filler", None)
        _fillers[codec] = None if make is None else make()
    return _fillers[codec]


def compress(codec: int, magic: int, data: bytes, level: int | None = None) -> bytes:
    """Compress data into a block that Kafka's readers accept, framed as its Java writers frame it.

    level: Kafka's scale for the codec (gzip 1…9 or -1, lz4 1…17, zstd -131072…22), null for its default; snappy
    and none have no levels. Raises CodecError for a codec that the magic does not allow or a level outside its scale.
    """
    if codec == L.NONE:
        return data
    writer = _writers.get(codec)
    if writer is None:
        writer = _writers[codec] = cast(Writer, importlib.import_module(_module_of(codec)).compress)
    return writer(data, magic, level)


def _module_of(codec: int) -> str:
    module = _MODULES.get(codec)
    if module is None:
        raise CodecError(f"codec id {codec} is unknown to Kafka")
    return module


def _load_reader(codec: int) -> Reader:
    if codec == L.NONE:
        reader: Reader = _as_it_is
    else:
        reader = cast(Reader, importlib.import_module(_module_of(codec)).decompress)
    _readers[codec] = reader
    return reader


def _as_it_is(data: memoryview, magic: int, limit_bytes: int) -> memoryview:
    if len(data) > limit_bytes:
        raise beyond_limit("uncompressed", limit_bytes)
    return data


def beyond_limit(codec_name: str, limit_bytes: int) -> CodecError:
    """The message for content that exceeds the caller's limit."""
    return CodecError(f"the {codec_name} content is larger than the limit of {limit_bytes} bytes")


def check_level(codec_name: str, level: int, lowest: int, highest: int) -> None:
    """Raises CodecError for a level outside Kafka's scale."""
    if not lowest <= level <= highest:
        raise CodecError(f"{codec_name} supports levels {lowest} to {highest}, not {level}")
