"""The uploads of Aiven's plugin for tiered storage, as partition directories with the file names of a broker.

    stored below the root                                     shown
    orders-MWJ6FHTfRYy67jzwZdeqSQ/7/                          orders-7/
      00000000000000001234-tqimKeZwStOEOwRzT3L5oQ.log           00000000000000001234.log
      ….indexes                                                 00000000000000001234.index  .timeindex  .txnindex
                                                                <end offset + 1>.snapshot
                                                                leader-epoch-checkpoint     of the last segment
      ….rsm-manifest                                            read for sizes and chunks, see `tiered_manifest`

Objects without a manifest (an incomplete upload), and those of another segment with the same base offset, are shown under their own names.
Two topics with the same name (one was deleted and created again) are shown with their ids: orders-MWJ6FHTfRYy67jzwZdeqSQ-7. Reading a
range of a log fetches the chunks that contain it; the last few of them are kept.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Mapping

from kseg.segment.codecs.codec import decompress
from kseg.segment.errors import CodecError, FormatError
from kseg.segment.layout import MAGIC_V2, ZSTD
from kseg.segment.storage.archive_bytes import LocalBytes
from kseg.segment.storage.origin import ByteOrigin, Item, ItemKind, failure, out_of_reach
from kseg.segment.storage.tiered_manifest import (
    MAX_CHUNK_BYTES,
    MAX_MANIFEST_BYTES,
    TieredManifest,
    read_manifest,
)
from kseg.segment.values import dataclass

_TOPIC = re.compile(r"(.+)-([A-Za-z0-9_-]{22})")
_MANIFEST = re.compile(r"(\d{20})-([A-Za-z0-9_-]{22})\.rsm-manifest")
_SUFFIXES = {"offset": ".index", "timestamp": ".timeindex", "transaction": ".txnindex"}
_EPOCHS = "leader-epoch-checkpoint"
_KEPT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class _Source:
    """The storage location of a shown file. path: of the object. stored: its item. start: of a side file in the object. manifest: of a log,
    otherwise None. is_encrypted: the content cannot be read."""

    path: str
    stored: Item
    start: int = 0
    manifest: TieredManifest | None = None
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class _Uploaded:
    """An uploaded segment. path: of its objects, without their suffix. indexes: the object with its side files, None if there is none."""

    path: str
    manifest: TieredManifest
    indexes: Item | None


class TieredStorage:
    """origin, root: the directory with the directories of topics."""

    def __init__(self, origin: ByteOrigin, root: str) -> None:
        self._origin, self._root = origin, root
        self.damage = origin.damage
        self._partitions: dict[str, str] | None = None
        self._listings: dict[str, dict[str, Item]] = {}
        self._sources: dict[str, _Source] = {}
        self._chunks: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    # --- names

    def listing(self, inside: str) -> Mapping[str, Item]:
        """The partitions, or the files of one partition."""
        if self._partitions is None:
            self._partitions = self._find_partitions()
        if not inside:
            return dict.fromkeys(self._partitions, Item(ItemKind.DIRECTORY))
        if inside not in self._partitions:
            raise FileNotFoundError(2, os.strerror(2), inside)
        if inside not in self._listings:
            self._listings[inside] = self._files(inside, self._partitions[inside])
        return self._listings[inside]

    def _below(self, *names: str) -> str:
        return "/".join(filter(None, (self._root, *names)))

    def _find_partitions(self) -> dict[str, str]:
        """Paths of partitions, by the name under which they are presented."""
        found: dict[str, list[tuple[str, str]]] = {}
        for topic_dir, item in sorted(self._origin.listing(self._root).items()):
            topic = _TOPIC.fullmatch(topic_dir)
            if item.kind is not ItemKind.DIRECTORY or topic is None:
                continue
            for number, each in self._origin.listing(self._below(topic_dir)).items():
                if each.kind is ItemKind.DIRECTORY and number.isascii() and number.isdecimal():
                    found.setdefault(f"{topic[1]}-{number}", []).append((topic_dir, number))
        return {
            name if len(places) == 1 else f"{topic_dir}-{number}": self._below(topic_dir, number)
            for name, places in found.items()
            for topic_dir, number in places
        }

    def _files(self, shown: str, path: str) -> dict[str, Item]:
        stored = self._origin.listing(path)
        items: dict[str, Item] = {}
        taken: set[str] = set()
        last: _Uploaded | None = None
        for name in sorted(stored):
            named = _MANIFEST.fullmatch(name)
            stem = name.removesuffix(".rsm-manifest")
            if named is None or f"{stem}.log" not in stored or f"{named[1]}.log" in items:
                continue
            manifest = self._manifest(f"{path}/{name}", stored[name])
            taken.update((name, f"{stem}.log", f"{stem}.indexes"))
            log = _Source(f"{path}/{stem}.log", stored[f"{stem}.log"], 0, manifest, manifest.is_encrypted)
            self._add(items, shown, f"{named[1]}.log", log, manifest.size_bytes)
            last = _Uploaded(f"{path}/{stem}", manifest, stored.get(f"{stem}.indexes"))
            self._add_indexes(items, shown, named[1], last)
        if last is not None:
            self._add_index(items, shown, _EPOCHS, "leaderEpoch", last)
        for name, item in stored.items():
            if name not in taken and name not in items:
                items[name] = item
                self._sources[f"{shown}/{name}"] = _Source(f"{path}/{name}", item)
        return items

    def _add_indexes(self, items: dict[str, Item], shown: str, base: str, segment: _Uploaded) -> None:
        for index, suffix in _SUFFIXES.items():
            self._add_index(items, shown, base + suffix, index, segment)
        end_offset = segment.manifest.end_offset
        if end_offset is not None:
            self._add_index(items, shown, f"{end_offset + 1:020d}.snapshot", "producerSnapshot", segment)

    def _add_index(
        self, items: dict[str, Item], shown: str, name: str, index: str, segment: _Uploaded
    ) -> None:
        """Add a side file, if the segment has it."""
        place, item = segment.manifest.indexes.get(index), segment.indexes
        if place is not None and item is not None:
            start, size_bytes = place
            source = _Source(f"{segment.path}.indexes", item, start, None, segment.manifest.is_encrypted)
            self._add(items, shown, name, source, size_bytes)

    def _add(self, items: dict[str, Item], shown: str, name: str, source: _Source, size_bytes: int) -> None:
        items[name] = Item(ItemKind.FILE, size_bytes, source.stored.mtime_ns, source.stored.version)
        self._sources[f"{shown}/{name}"] = source

    def _manifest(self, path: str, item: Item) -> TieredManifest:
        if item.size_bytes > MAX_MANIFEST_BYTES:
            raise failure(f"{path} is larger than {MAX_MANIFEST_BYTES} bytes")
        try:
            return read_manifest(self._origin.read(path, item, 0, item.size_bytes))
        except FormatError as error:
            raise failure(f"{path} cannot be used: {error}") from error

    # --- bytes

    def is_seekable(self, inside: str) -> bool:
        """Whether the objects can be read by ranges."""
        return self._origin.is_seekable(self._sources[inside].path)

    def read(self, inside: str, item: Item, start: int, stop: int) -> bytes:
        """Read a range of a log from its chunks, or of a side file."""
        source = self._sources[inside]
        if source.is_encrypted:
            raise out_of_reach("the tiered-storage plugin has encrypted it, and kseg does not decrypt")
        if source.manifest is None:
            return self._origin.read(source.path, source.stored, source.start + start, source.start + stop)
        size = source.manifest.chunk_bytes
        parts = []
        for number in range(start // size, -(-stop // size)):
            chunk = self._chunk(source, source.manifest, number)
            parts.append(chunk[max(0, start - number * size) : stop - number * size])
        return b"".join(parts)

    def _chunk(self, source: _Source, manifest: TieredManifest, number: int) -> bytes:
        key = source.path, number
        chunk = self._chunks.get(key)
        if chunk is None:
            chunk = self._chunks[key] = self._transformed(source, manifest, number)
            while sum(map(len, self._chunks.values())) > _KEPT_BYTES and len(self._chunks) > 1:
                self._chunks.popitem(last=False)
        self._chunks.move_to_end(key)
        return chunk

    def _transformed(self, source: _Source, manifest: TieredManifest, number: int) -> bytes:
        wanted = min(manifest.chunk_bytes, manifest.size_bytes - number * manifest.chunk_bytes)
        if wanted > MAX_CHUNK_BYTES:
            raise failure(f"a chunk of {wanted} bytes is larger than {MAX_CHUNK_BYTES} bytes")
        where = f"chunk {number} of {source.path}"
        if manifest.starts[number + 1] > source.stored.size_bytes:
            raise failure(
                f"{where} is beyond the end of the object, which has {source.stored.size_bytes} bytes"
            )
        data = self._origin.read(
            source.path, source.stored, manifest.starts[number], manifest.starts[number + 1]
        )
        if manifest.is_compressed:
            try:
                data = bytes(decompress(ZSTD, MAGIC_V2, data, wanted))
            except CodecError as error:
                raise failure(f"{where} cannot be decompressed: {error}") from error
        if len(data) != wanted:
            raise failure(f"{where} has {len(data)} bytes, and the manifest says {wanted}")
        return data


class LocalFolder:
    """A directory on disk as an origin, since its files are shown under other names. root: the directory. Links are followed."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.damage: str | None = None

    def listing(self, inside: str) -> Mapping[str, Item]:
        items = {}
        with os.scandir(os.path.join(self._root, inside)) as found:
            for entry in found:
                if entry.is_dir():
                    items[entry.name] = Item(ItemKind.DIRECTORY)
                elif entry.is_file():
                    status = entry.stat()
                    items[entry.name] = Item(
                        ItemKind.FILE, status.st_size, status.st_mtime_ns, str(status.st_ino)
                    )
                else:
                    items[entry.name] = Item(ItemKind.OTHER)
        return items

    def read(self, inside: str, item: Item, start: int, stop: int) -> bytes:
        return LocalBytes(os.path.join(self._root, inside)).read(start, stop)

    def is_seekable(self, inside: str) -> bool:
        return True
