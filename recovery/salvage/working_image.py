"""The directory during planning: an image, the reason for each change, and the existing bytes.

A file that would be rewritten with its own bytes is kept, so that salvage of its own result changes nothing.
"""

import os
from collections.abc import Iterable

from kseg.change.plan.content import Piece, Span, content_of
from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.steps import FileIdentity
from kseg.segment.files import DISK, Reader


class WorkingImage:
    """directory: as shown to the user. found: the files as they are stored there. image: as they would be. reader: opens the
    files as found."""

    def __init__(self, directory: str, inputs: Iterable[FileIdentity], reader: Reader = DISK) -> None:
        self.directory = directory
        self.reader = reader
        self.identities = {file.name: file for file in inputs}
        self.found = DirectoryImage.of(self.identities.values())
        self.image = self.found.copy()
        self._why: dict[str, str] = {}
        # name as found, by new name: an empty file has no bytes that could identify it
        self._renamed: dict[str, str] = {}

    def path(self, name: str) -> str:
        """Path of the found file that supplies a file's bytes; the path it will have when it is rebuilt."""
        content = self.image.content(name) if name in self.image else ()
        source = self._renamed.get(name, name)
        if len(content) == 1 and isinstance(content[0], Span):
            source = content[0].name
        return os.path.join(self.directory, source)

    def path_of(self, found: str) -> str:
        """Path of a file as found, whatever becomes of it."""
        return os.path.join(self.directory, found)

    def sources(self) -> dict[str, FileIdentity]:
        """The found file behind each planned name; valid while nothing but renames and removals is planned."""
        return {name: self.identities[self._renamed.get(name, name)] for name in self.image}

    def read(self, name: str) -> bytes:
        """A side file as planned, before any content is written. Raises UnreadableInput."""
        return b"" if not self.image.content(name) else self.reader.read_small(self.path(name))

    def put(self, name: str, data: bytes, why: str) -> None:
        """Create or replace a side file unless it already has these bytes; a prefix of the old content becomes a truncation."""
        if name in self.image:
            size = self.image.size_bytes(name)
            is_beginning = size >= len(data) > 0 and self._begins_with(name, data)
            if size == len(data) and (is_beginning or not data):
                return
            if is_beginning and self._is_as_found(name):
                self.image.truncate(name, len(data))
                self._why[name] = why
                return
        self.image.write(name, data)
        self._why[name] = why

    def _begins_with(self, name: str, data: bytes) -> bool:
        """Whether the file begins with `data`; reads no further, as an active segment's index is preallocated to 10 MiB."""
        if not self.image.content(name):
            return False
        with self.reader.open(self.path(name)) as file:
            return bytes(file.view[: len(data)]) == data and not file.unreadable(0, len(data))

    def put_log(self, name: str, pieces: Iterable[Piece], like: str | None, why: str) -> None:
        """Create or replace a log."""
        content = content_of(pieces)
        if name in self.image and self.image.content(name) == content:
            return
        if name in self.found and not content:
            self.image.truncate(name, 0)
        else:
            self.image.write(name, content, like)
        self._why[name] = why

    def remove(self, name: str, why: str) -> None:
        self.image.remove(name)
        self._renamed.pop(name, None)
        self._why[name] = why

    def rename(self, name: str, new_name: str, why: str) -> None:
        self.image.rename(name, new_name)
        self._renamed[new_name] = self._renamed.pop(name, name)
        self._why[name] = self._why[new_name] = why

    def _is_as_found(self, name: str) -> bool:
        return name in self.found and self.image.content(name) == self.found.content(name)

    def changes(self) -> dict[str, str]:
        """The reason for each name that differs from what was found."""
        return {name: why for name, why in self._why.items() if self._differs(name)}

    def _differs(self, name: str) -> bool:
        if name not in self.image or name not in self.found:
            return (name in self.image) != (name in self.found)
        return self.image.content(name) != self.found.content(name)
