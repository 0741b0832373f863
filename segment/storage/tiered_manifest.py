"""The manifest that Aiven's plugin for tiered storage uploads with each segment (`….rsm-manifest`, version 1).

Each segment is stored in three objects:

    PREFIX<topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id>.log           the log, in consecutive transformed chunks
                                                                             .indexes       the side files, each a range
                                                                             .rsm-manifest  this JSON

    chunkIndex      originalChunkSize, originalFileSize and the sizes of the chunks in the object:
                    fixed       transformedChunkSize, finalTransformedChunkSize
                    variable    transformedChunks: base64 of a zstd frame of
                                count int32 · base int32 · width int8 · (count − 1) × unsigned of that width, plus base · last int32
                                (count 0: nothing else; count 1: only the last)
    segmentIndexes  offset, timestamp, producerSnapshot, leaderEpoch, transaction (or null): position and size in .indexes
    compression     whether each chunk is a zstd frame; the side files are never compressed
    encryption      present if log and side files are encrypted
    remoteLogSegmentMetadata.endOffset   of the segment; the producer snapshot is named by the next offset

Source: the code of the plugin (SegmentManifestV1, ChunkSizesBinaryCodec, ObjectKeyFactory), 2026-05. Every number is checked before it is
used.
"""

import base64
import binascii
import json
from typing import Any, cast

from kseg.segment.codecs.codec import decompress
from kseg.segment.errors import CodecError, FormatError
from kseg.segment.layout import MAGIC_V2, ZSTD
from kseg.segment.values import dataclass

MAX_MANIFEST_BYTES = 16 << 20
MAX_CHUNK_BYTES = 1 << 30
_MAX_FILE_BYTES = 2**31 - 1
_MAX_SIZES_BYTES = 10 << 20
_INDEXES = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")


@dataclass(frozen=True, slots=True)
class TieredManifest:
    """chunk_bytes: of the log, except for the last chunk. size_bytes: of the log. starts: where chunks begin in the object, and where the
    last one ends. indexes: (position, size) in .indexes by the manifest's name. end_offset: None if the manifest does not contain it."""

    chunk_bytes: int
    size_bytes: int
    starts: tuple[int, ...]
    indexes: dict[str, tuple[int, int]]
    is_compressed: bool
    is_encrypted: bool
    end_offset: int | None


def read_manifest(data: bytes) -> TieredManifest:
    """Parse a manifest. Raises FormatError for anything but a consistent manifest of version 1."""
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"the manifest is not JSON: {error}") from error
    if not isinstance(manifest, dict) or str(manifest.get("version")) != "1":
        raise FormatError("the manifest is not of version 1")
    chunks = _object(manifest, "chunkIndex")
    size_bytes = _number(chunks, "originalFileSize", _MAX_FILE_BYTES)
    chunk_bytes = _number(chunks, "originalChunkSize", _MAX_FILE_BYTES)
    if chunk_bytes < 1:
        raise FormatError("the chunks of the manifest have no size")
    sizes = _chunk_sizes(chunks, -(-size_bytes // chunk_bytes))
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    named = _object(manifest, "segmentIndexes")
    indexes = {
        name: (_number(place, "position", _MAX_FILE_BYTES), _number(place, "size", _MAX_FILE_BYTES))
        for name in _INDEXES
        if isinstance(place := named.get(name), dict)
    }
    remote = manifest.get("remoteLogSegmentMetadata")
    end = remote.get("endOffset") if isinstance(remote, dict) else None
    return TieredManifest(
        chunk_bytes,
        size_bytes,
        tuple(starts),
        indexes,
        manifest.get("compression") is True,
        manifest.get("encryption") is not None,
        end if isinstance(end, int) and 0 <= end < 2**63 - 1 else None,
    )


def _chunk_sizes(chunks: dict[str, Any], count: int) -> list[int]:
    """Sizes of the chunks as stored in the object."""
    match chunks.get("type"):
        case "fixed":
            usual = _number(chunks, "transformedChunkSize", _MAX_FILE_BYTES)
            last = _number(chunks, "finalTransformedChunkSize", _MAX_FILE_BYTES)
            if count > _MAX_SIZES_BYTES:
                raise FormatError(f"the manifest has {count} chunks")
            return [usual] * (count - 1) + [last] * min(count, 1)
        case "variable":
            sizes = decode_chunk_sizes(_decompressed(chunks.get("transformedChunks")))
            if len(sizes) != count:
                raise FormatError(f"the manifest has {len(sizes)} chunk sizes for {count} chunks")
            return sizes
        case other:
            raise FormatError(f"the manifest has a chunk index of the unknown type {other!r}")


def _decompressed(text: object) -> bytes:
    try:
        packed = base64.b64decode(cast("str", text), validate=True)
        return bytes(decompress(ZSTD, MAGIC_V2, packed, _MAX_SIZES_BYTES))
    except (TypeError, ValueError, binascii.Error, CodecError) as error:
        raise FormatError(f"the chunk sizes of the manifest cannot be read: {error}") from error


def decode_chunk_sizes(data: bytes) -> list[int]:
    """The sizes of a variable chunk index. Raises FormatError."""
    count = int.from_bytes(data[:4], "big", signed=True)
    if len(data) < 4 or count < 0:
        raise FormatError("the chunk sizes of the manifest have no count")
    if count == 0:
        return []
    last = int.from_bytes(data[-4:], "big", signed=True)
    base, width = int.from_bytes(data[4:8], "big", signed=True), data[8] if len(data) > 8 else 0
    wanted = 8 if count == 1 else 9 + (count - 1) * width + 4
    if len(data) != wanted or last < 0 or (count > 1 and (base < 0 or not 1 <= width <= 4)):
        raise FormatError("the chunk sizes of the manifest are cut off or too long")
    first = [
        base + int.from_bytes(data[at : at + width], "big") for at in range(9, len(data) - 4, max(1, width))
    ]
    return [*first, last]


def _object(values: dict[str, Any], name: str) -> dict[str, Any]:
    found = values.get(name)
    if not isinstance(found, dict):
        raise FormatError(f"the manifest has no {name}")
    return found


def _number(values: dict[str, Any], name: str, most: int) -> int:
    found = values.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found <= most:
        raise FormatError(f"the manifest has no usable {name}")
    return found
