"""A plan: which files change, in which order, and why. It is a value that can be printed, compared and converted to JSON.

Every executor of a plan guarantees:

1. `inputs` are the files as they were when the evidence was read. If one of them has changed since, nothing
   is done.
2. All new contents are written first, from the files as found; so a `Span` refers to a file by its name as found.
3. The steps are carried out in order, each naming files by their names at that moment. A step whose
   target name is taken replaces that file. Nothing is ever deleted: what a step replaces, truncates or removes goes to the quarantine.

A broker may open the directory between any two steps. So a planner orders its steps such that each intermediate state
is one that a broker understands: side files of a log that changes are removed first and written last.
"""

from collections.abc import Iterator

from kseg.change.plan.content import Content, Fresh, Made, Span, length_of
from kseg.segment.counted import counted
from kseg.segment.findings import Finding
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """The identity of an unchanged file. inode: so that a replaced file is recognised too."""

    name: str
    size_bytes: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class Write:
    """Write the file `name` with this content, replacing an existing one atomically. like: the file (by its
    name as found) whose owner, permissions and modification time it gets; None gives those of a new file."""

    name: str
    content: Content
    why: str
    like: str | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the file to `size_bytes`; the rest goes to the quarantine. The modification time is kept."""

    name: str
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Give the file another name in the same directory."""

    name: str
    new_name: str
    why: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Move the file from the directory to the quarantine."""

    name: str
    why: str


Step = Write | Truncate | Rename | Remove


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a command would change in one directory.

    command: the one that planned it ("recover"). directory: as shown to the user. inputs: all files of it, by name. steps: in
    order. reasons: the findings that led here.
    """

    command: str
    directory: str
    inputs: tuple[FileIdentity, ...]
    steps: tuple[Step, ...]
    reasons: tuple[Finding, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.steps


def step_rows(partition: str, plan: Plan) -> Iterator[dict[str, object]]:
    """The lines of a plan (docs/json.md), one for each step, in order. partition: as shown."""
    for step in plan.steps:
        yield {
            "type": "step",
            "command": plan.command,
            "partition": partition,
            **step_row(step),
            "words": step_words(step),
        }


def step_words(step: Step) -> str:
    """One line of text."""
    match step:
        case Write():
            fresh = sum(piece.length for piece in step.content if not isinstance(piece, Span))
            size = length_of(step.content)
            whence = f"{size} bytes" if fresh == size else f"{size} bytes, {size - fresh} of them unchanged"
            return f"write {step.name} ({whence}): {step.why}"
        case Truncate():
            return f"cut {step.name} to {counted(step.size_bytes, 'byte')}: {step.why}"
        case Rename():
            return f"rename {step.name} to {step.new_name}: {step.why}"
        case Remove():
            return f"remove {step.name}: {step.why}"


def step_row(step: Step) -> dict[str, object]:
    """The JSON form (docs/json.md): the operation, the file, its resulting size, the reason."""
    match step:
        case Write():
            values: dict[str, object] = {
                "do": "write",
                "file": step.name,
                "size": length_of(step.content),
                "pieces": list(_piece_rows(step.content)),
            }
        case Truncate():
            values = {"do": "truncate", "file": step.name, "size": step.size_bytes}
        case Rename():
            values = {"do": "rename", "file": step.name, "to": step.new_name}
        case Remove():
            values = {"do": "remove", "file": step.name}
    return {**values, "why": step.why}


def _piece_rows(content: Content) -> Iterator[dict[str, object]]:
    for piece in content:
        if isinstance(piece, Fresh | Made):
            yield {"fresh": piece.length}
        else:
            yield {"file": piece.name, "position": piece.position, "length": piece.length}
