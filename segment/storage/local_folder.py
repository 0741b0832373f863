"""A directory on disk as an origin, for files that are stored in another layout than the one shown."""

import os
from collections.abc import Mapping

from kseg.segment.storage.archive_bytes import LocalBytes
from kseg.segment.storage.origin import Item, ItemKind


class LocalFolder:
    """root: the directory. Links are followed."""

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
