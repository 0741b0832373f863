"""State of a simulated load: the changing image of the directory, the files it is read from, and the findings.

Every operation has a reason, kept by file name in `why`. Files are mapped on first use and unmapped when too many
are; nothing on disk changes.
"""

import os
from collections.abc import Collection, Iterable
from typing import Self

from kseg.change.plan.content import Fresh, Piece, Span
from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.steps import FileIdentity
from kseg.recovery.loading.kafka_exceptions import NUMBER_FORMAT, BrokerException
from kseg.recovery.policy import Removed
from kseg.segment import layout as L
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.java.java_text import LONG_BITS, parse_integer
from kseg.segment.partition.names import OFFSET_DIGITS, is_seen_by_java
from kseg.segment.scanning.scan import BATCHES_PER_TABLE, Scanner
from kseg.segment.storage import places

_MAX_MAPS = 64


class LoadState:
    """The partition directory during the load. directory: as shown to the user. image: its current simulated state. findings,
    removed, why: as in a Repair."""

    def __init__(self, directory: str, inputs: Iterable[FileIdentity], folders: Collection[str] = ()) -> None:
        self.directory = directory
        self.folders = folders
        self.found = DirectoryImage.of(inputs)
        self.image = self.found.copy()
        self.why: dict[str, str] = {}
        self.findings: list[Finding] = []
        self.removed: list[Removed] = []
        self._maps: dict[str, MappedFile] = {}
        self._snapshots: dict[int, str] = {}
        self._odd_snapshots: set[str] = set()
        for name in self.image:
            self._note_snapshot(name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._maps.values():
            file.close()
        self._maps.clear()

    # --- looking

    def listing(self) -> list[str]:
        """The names that a broker finds when it lists the segments. Snapshots are known by name
        only, whether or not they are listed."""
        return [name for name in self.image if is_seen_by_java(name)]

    @property
    def directory_name(self) -> str:
        return os.path.basename(places.abspath(self.directory))

    def path(self, name: str) -> str:
        """Path of a file as shown to the user; without a name, that of the directory."""
        return os.path.join(self.directory, name) if name else self.directory

    def view(self, name: str) -> memoryview:
        """The bytes of a file in its simulated state. Raises UnreadableInput."""
        content = self.image.content(name)
        if not content:
            return memoryview(b"")
        parts = [self._bytes_of(piece) for piece in content]
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def scanner(self, name: str, base_offset: int, capacity: int = BATCHES_PER_TABLE) -> Scanner:
        """A scanner over a log in its simulated state. Raises UnreadableInput."""
        source = self.source(name)
        is_as_found = source is not None and source.position == 0
        file = self._file(source.name) if source is not None and is_as_found else None
        return Scanner(self.view(name), base_offset, capacity, file=file)

    def _bytes_of(self, piece: Piece) -> memoryview:
        if isinstance(piece, Span):
            return self._file(piece.name).view[piece.position : piece.end_position]
        assert isinstance(piece, Fresh)  # no other kind of source is created here
        return memoryview(piece.data)

    def list_snapshots(self) -> dict[int, str]:
        """Names of the producer snapshots by their offset; raises BrokerException when the name of one has no number."""
        for name in self._odd_snapshots:
            offset_in_name(name)
        return dict(self._snapshots)

    def size_bytes(self, name: str) -> int:
        return self.image.size_bytes(name)

    def source(self, name: str) -> Span | None:
        """The original bytes that a file consists of; None when it is empty or rebuilt."""
        content = self.image.content(name)
        return content[0] if len(content) == 1 and isinstance(content[0], Span) else None

    def _file(self, name: str) -> MappedFile:
        file = self._maps.pop(name, None)
        if file is None:
            if len(self._maps) >= _MAX_MAPS:
                self._maps.pop(next(iter(self._maps))).close()
            file = MappedFile(self.path(name))
        self._maps[name] = file  # the newest comes last
        return file

    # --- changing

    def write(self, name: str, data: bytes, why: str) -> None:
        """Create or replace a file. Data equal to the beginning of the original file is referenced, not stored."""
        self.image.write(name, [Span(name, 0, len(data))] if self._is_found(name, data) else data)
        self.why[name] = why
        self._note_snapshot(name)

    def remove(self, name: str, why: str) -> None:
        self.image.remove(name)
        self.why[name] = why
        self._forget_snapshot(name)

    def rename(self, name: str, new_name: str, why: str) -> None:
        self.image.rename(name, new_name)
        self.why[name] = self.why[new_name] = why
        self._forget_snapshot(name)
        self._note_snapshot(new_name)

    def truncate(self, name: str, size_bytes: int, why: str) -> None:
        self.image.truncate(name, size_bytes)
        self.why[name] = why

    def create_from(self, name: str, source: Span, why: str) -> None:
        """Create a file from a range of an original file, with that file's modification time."""
        self.image.write(name, [source], like=source.name)
        self.why[name] = why

    def report(self, finding: Finding) -> None:
        self.findings.append(finding)

    def note(self, kind: str, name: str, message: str) -> None:
        """Add a finding about a whole file."""
        self.findings.append(Finding(kind, self.path(name), message))

    def changes(self) -> dict[str, str]:
        """The reasons by name, only for files that differ from the original."""
        return {
            name: why
            for name, why in self.why.items()
            if (name in self.image) != (name in self.found)
            or (name in self.image and self.image.content(name) != self.found.content(name))
        }

    def _is_found(self, name: str, data: bytes) -> bool:
        if name not in self.found or self.found.size_bytes(name) < len(data):
            return False
        return not data or self._file(name).view[: len(data)] == data

    def _note_snapshot(self, name: str) -> None:
        if name.endswith(L.SNAPSHOT_SUFFIX):
            try:
                self._snapshots[offset_in_name(name)] = name
            except BrokerException:
                self._odd_snapshots.add(name)

    def _forget_snapshot(self, name: str) -> None:
        if name in self._odd_snapshots:
            self._odd_snapshots.remove(name)
        elif name.endswith(L.SNAPSHOT_SUFFIX) and self._snapshots.get(at := offset_in_name(name)) == name:
            del self._snapshots[at]


def offset_in_name(name: str) -> int:
    """The number before the first dot. Raises BrokerException if a broker fails to parse it."""
    digits, _, _ = name.partition(".")
    offset = parse_integer(digits, LONG_BITS)
    if offset is None:
        raise BrokerException(NUMBER_FORMAT, f"the name {name!r} has no offset")
    return offset


def numbered(offset: int, suffix: str) -> str:
    """A file name as a broker writes it, including offsets below 0, which it should never write."""
    return f"{'-' if offset < 0 else ''}{abs(offset):0{OFFSET_DIGITS}d}{suffix}"
