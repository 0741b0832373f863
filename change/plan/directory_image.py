"""A directory as a plan would leave it: planners change the image, nothing on disk changes.

An image maps names to contents. It starts as the directory was found, each file being one span of itself; its operations
are those of a file system. The difference between the first image and the last is the plan:

1. Missing files are removed, side files before logs, unless all of their bytes are in one file of another name:
   then the file is renamed (and truncated, if only its beginning remains).
2. Files that shrink to a prefix of themselves are truncated in place: no byte is copied.
3. Everything else is rewritten: logs first, then their indexes and snapshots, checkpoints last.

Between two steps a broker sees logs without side files, which it rebuilds, and never side files of other log contents.
"""

from collections.abc import Iterable, Iterator, Mapping

from kseg.change.plan.content import Content, Fresh, Piece, Span, content_of, length_of
from kseg.change.plan.steps import FileIdentity, Remove, Rename, Step, Truncate, Write
from kseg.segment.partition.names import Role, parse_file_name

_WRITE_ORDER = {
    Role.LOG: 0,
    Role.OFFSET_INDEX: 1,
    Role.TIME_INDEX: 1,
    Role.TXN_INDEX: 1,
    Role.PRODUCER_SNAPSHOT: 2,
}
_LAST = 3


class DirectoryImage:
    """The files of one directory by name. Two images are equal when all names and contents are."""

    __slots__ = ("_files", "_like")

    def __init__(self, files: Mapping[str, Content] | None = None) -> None:
        self._files: dict[str, Content] = dict(files or {})
        self._like: dict[str, str] = {}

    @classmethod
    def of(cls, inputs: Iterable[FileIdentity]) -> "DirectoryImage":
        """The directory as it was found."""
        return cls({file.name: content_of([Span(file.name, 0, file.size_bytes)]) for file in inputs})

    def copy(self) -> "DirectoryImage":
        twin = DirectoryImage(self._files)
        twin._like = dict(self._like)
        return twin

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._files))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DirectoryImage) and self._files == other._files

    __hash__ = None  # type: ignore[assignment]  # it changes

    def content(self, name: str) -> Content:
        """The content of a file. Raises KeyError if there is none of that name."""
        return self._files[name]

    def size_bytes(self, name: str) -> int:
        return length_of(self._files[name])

    def like(self, name: str) -> str | None:
        """The found file whose owner, permissions and modification time `name` has; None for a new file."""
        return self._like.get(name, _only_source(self._files[name]))

    def write(self, name: str, pieces: Iterable[Piece] | bytes, like: str | None = None) -> None:
        """Create or replace a file."""
        self._files[name] = content_of([Fresh(pieces)] if isinstance(pieces, bytes) else pieces)
        self._like.pop(name, None)
        if like is not None:
            self._like[name] = like

    def truncate(self, name: str, size_bytes: int) -> None:
        """Truncate a file to `size_bytes`, which must not exceed its size."""
        kept: list[Piece] = []
        room = size_bytes
        for piece in self._files[name]:
            taken = min(room, piece.length)
            if isinstance(piece, Span):
                kept.append(Span(piece.name, piece.position, taken))
            elif isinstance(piece, Fresh):
                kept.append(Fresh(piece.data[:taken]))
            elif taken == piece.length:
                kept.append(piece)
            elif taken:
                raise ValueError(f"{name} is cut after it was made")
            room -= taken
        if room:
            raise ValueError(f"{name} has fewer than {size_bytes} bytes")
        self._like.setdefault(name, self.like(name) or name)
        self._files[name] = content_of(kept)

    def rename(self, name: str, new_name: str) -> None:
        """Give a file another name; a file of that name is replaced."""
        self._like.pop(new_name, None)
        like = self._like.pop(name, None)
        self._files[new_name] = self._files.pop(name)
        if like is not None:
            self._like[new_name] = like

    def remove(self, name: str) -> None:
        self._like.pop(name, None)
        del self._files[name]


def steps_between(before: DirectoryImage, after: DirectoryImage, why: Mapping[str, str]) -> tuple[Step, ...]:
    """The steps that turn one image into the other (`change.plan.steps`).

    before: as found. why: a reason for each name that is removed, added or changed; for a rename that of either name.
    """
    moves = dict(_moves(before, after))
    moved = set(moves.values())
    gone = [name for name in before if name not in after and name not in moved]
    steps: list[Step] = [
        Remove(name, why[name]) for name in sorted(gone, key=lambda name: (_is_log(name), name))
    ]
    cuts: list[Step] = []
    writes: list[Write] = []
    for name in after:
        content = after.content(name)
        if name in before and before.content(name) == content:
            continue
        source = moves.get(name)
        if source is not None:
            steps.append(Rename(source, name, why.get(name) or why[source]))
        elif name in before and _is_beginning(before, name, content):
            source = name
        if source is None:
            writes.append(Write(name, content, why[name], after.like(name)))
        elif length_of(content) < before.size_bytes(source):
            cuts.append(Truncate(name, length_of(content), why.get(name) or why[source]))
    writes.sort(key=lambda step: _write_order(step.name))
    return (*steps, *cuts, *writes)


def _moves(before: DirectoryImage, after: DirectoryImage) -> Iterator[tuple[str, str]]:
    """(new name, old name) of the files that are renamed: the new file consists of an old one that is otherwise gone, or of its
    beginning."""
    taken: set[str] = set()
    for name in after:
        source = _only_source(after.content(name))
        if source is None or source == name or source in after or source in taken or source not in before:
            continue
        if _is_beginning(before, source, after.content(name)):
            taken.add(source)
            yield name, source


def _is_beginning(before: DirectoryImage, source: str, content: Content) -> bool:
    if not content:
        return _is_log(source)
    return len(content) == 1 and content[0] == Span(source, 0, length_of(content))


def _is_log(name: str) -> bool:
    """Whether an empty file of this name is the old one truncated to 0 bytes (a log), or a new empty file."""
    return parse_file_name(name).role is Role.LOG


def _only_source(content: Content) -> str | None:
    sources = {piece.name if isinstance(piece, Span) else None for piece in content}
    return sources.pop() if len(sources) == 1 else None


def _write_order(name: str) -> tuple[int, str]:
    return _WRITE_ORDER.get(parse_file_name(name).role, _LAST), name
