"""Read a planned directory as if it existed, to assess what a plan would leave.

    an original file, or its beginning          the file itself, mapped
    new bytes, small files                      assembled in memory
    a large file of several pieces              assembled in an anonymous file while it is open

Each open file needs at most one anonymous file.
"""

import os
from collections.abc import Iterable
from typing import Self

from kseg.change.apply.scratch_file import ScratchFile
from kseg.change.plan.content import Content, Fresh, Made, Span, length_of
from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.steps import FileIdentity
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile, Reader, read_small
from kseg.segment.unreadable import BadArea

_MAX_IN_MEMORY_BYTES = 4 << 20


class ImageFile:
    """The bytes of one planned file. Closing it releases the mapping or the anonymous file behind them."""

    def __init__(self, view: memoryview, holder: MappedFile | ScratchFile | None = None) -> None:
        self.view = view
        self.size_bytes = len(view)
        self.data_end = len(view)
        if isinstance(holder, MappedFile):
            self.data_end = min(holder.data_end, len(view))
        self._holder = holder

    def extents(self, start: int, stop: int) -> Iterable[tuple[int, int]]:
        if isinstance(self._holder, MappedFile):
            return self._holder.extents(start, stop)
        return ((start, stop - start),)

    def unreadable(self, start: int = 0, stop: int | None = None) -> tuple[BadArea, ...]:
        if not isinstance(self._holder, MappedFile):
            return ()
        return self._holder.unreadable(start, self.size_bytes if stop is None else stop)

    def close(self) -> None:
        self.view.release()
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ImageReader(Reader):
    """Opens the files of `image`, which was planned for the files of `directory` as found. Raises Refused when there
    is no room to assemble a large file."""

    def __init__(self, directory: str, image: DirectoryImage) -> None:
        self._directory = directory
        self._image = image

    def open(self, path: str, drop_cache: bool = False) -> ImageFile:
        content = self._content(path)
        match content:
            case (Span(position=0) as span,):
                file = MappedFile(os.path.join(self._directory, span.name))
                return ImageFile(file.view[: span.length], file)
            case _ if length_of(content) <= _MAX_IN_MEMORY_BYTES:
                return ImageFile(memoryview(self._bytes(content)))
            case _:
                return self._put_together(content)

    def read_small(self, path: str) -> bytes:
        content = self._content(path)
        match content:
            case (Span(position=0) as span,):
                return read_small(os.path.join(self._directory, span.name))[: span.length]
        return self._bytes(content)

    def _content(self, path: str) -> Content:
        name = os.path.basename(path)
        if name not in self._image:
            raise UnreadableInput(f"cannot read {path}: it is not planned")
        return self._image.content(name)

    def _bytes(self, content: Content) -> bytes:
        data = bytearray()
        for piece in content:
            match piece:
                case Fresh():
                    data += piece.data
                case Span():
                    with MappedFile(os.path.join(self._directory, piece.name)) as file:
                        data += file.view[piece.position : piece.end_position]
                case Made():
                    raise AssertionError("salvage makes no piece ahead")
        return bytes(data)

    def _put_together(self, content: Content) -> ImageFile:
        scratch = ScratchFile(None)
        try:
            for piece in content:
                match piece:
                    case Fresh():
                        scratch.write(piece.data)
                    case Span():
                        path = os.path.join(self._directory, piece.name)
                        with MappedFile(path) as file:
                            scratch.copy(path, file.view, piece.position, piece.length)
                    case Made():
                        raise AssertionError("salvage makes no piece ahead")
            return ImageFile(scratch.view, scratch)
        except BaseException:
            scratch.close()
            raise


def identities(
    image: DirectoryImage, inputs: tuple[FileIdentity, ...], now_ms: int
) -> tuple[FileIdentity, ...]:
    """The files of the image, described as a directory listing would. inputs: the files it was planned for."""
    times = {file.name: file.mtime_ns for file in inputs}
    return tuple(
        FileIdentity(name, image.size_bytes(name), times.get(image.like(name) or "", now_ms * 1_000_000), 0)
        for name in image
    )
