"""The course of a plan: every state through which a directory passes, identified by what its names refer to.

A file is identified by a token: its name as found (a string), or the number of the step that writes it (an integer). A state contains the
token and the length of each name. Steps are atomic, so a directory whose change was killed is in one of these states, and the inode numbers
of the journal show in which: progress need not be recorded between the steps.

These are also derived from the steps alone, before the first one:

    lost        found files that have no name at the end: the quarantine must have them
    touched     found files that do not stay as and where they were: lost, renamed, or truncated
    made        names that are not of found files
    tails       the bytes that each truncation removes
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from kseg.change.plan.content import Span
from kseg.change.plan.steps import FileIdentity, Remove, Rename, Step, Truncate, Write
from kseg.segment.values import dataclass

Token = str | int
Change = tuple[tuple[str, Token | None], ...]


@dataclass(frozen=True, slots=True)
class Tail:
    """The bytes that step `number` truncates from the file found as `name`: `length` bytes from `position`."""

    number: int
    name: str
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class ObservedFile:
    """The state of a name on disk."""

    inode: int
    size_bytes: int
    mtime_ns: int


def is_alike(seen: ObservedFile | None, other: ObservedFile | None) -> bool:
    """Whether size and time are equal, or both are missing. The inode is not compared: undoing a later change may have restored a
    copy."""
    if seen is None or other is None:
        return seen is other
    return (seen.size_bytes, seen.mtime_ns) == (other.size_bytes, other.mtime_ns)


def unlike(seen: Mapping[str, ObservedFile], other: Mapping[str, ObservedFile]) -> list[str]:
    """The names whose files are not alike."""
    return [name for name in {*seen, *other} if not is_alike(seen.get(name), other.get(name))]


class StepProgress:
    """inputs: the directory as found. steps: in order. Raises ValueError for steps that contradict each other."""

    def __init__(self, inputs: Iterable[FileIdentity], steps: Sequence[Step]) -> None:
        self.inputs = {file.name: file for file in inputs}
        self.steps = tuple(steps)
        self.start: dict[str, Token] = {name: name for name in self.inputs}
        self.changes: list[Change] = []
        self.tails: list[Tail] = []
        self._cut_to: list[dict[str, int]] = []  # per step: sizes of found files from then on
        self._sizes = {name: file.size_bytes for name, file in self.inputs.items()}
        self.end = dict(self.start)
        for number, step in enumerate(self.steps):
            self._take(number, step)
        held = {token for token in self.end.values() if isinstance(token, str)}
        cut = {tail.name for tail in self.tails}
        self.lost = sorted(self.inputs.keys() - held)
        self.touched = sorted(name for name in self.inputs if self.end.get(name) != name or name in cut)
        self.made = sorted({name for change in self.changes for name, _ in change} - self.inputs.keys())
        self.survivors = {token: name for name, token in self.end.items() if isinstance(token, str)}

    def _take(self, number: int, step: Step) -> None:
        cut_to: dict[str, int] = {}
        match step:
            case Write():
                for piece in step.content:
                    if isinstance(piece, Span):
                        self._check_span(step.name, piece)
                if step.like is not None and step.like not in self.inputs:
                    raise ValueError(f"{step.name} is to be created like {step.like}, which does not exist")
                change: Change = ((step.name, number),)
            case Truncate():
                change, cut_to = (), self._cut(number, step)
            case Rename():
                if step.name == step.new_name:
                    raise ValueError(f"{step.name} is renamed to itself")
                change = ((step.name, None), (step.new_name, self._held(step.name)))
            case Remove():
                self._held(step.name)
                change = ((step.name, None),)
        for name, token in change:
            if not name or "/" in name or name in (".", ".."):
                raise ValueError(f"{name!r} is not a file name")
            if token is None:
                del self.end[name]
            else:
                self.end[name] = token
        self.changes.append(change)
        self._cut_to.append(cut_to)

    def _held(self, name: str) -> Token:
        if name not in self.end:
            raise ValueError(f"there is no {name} at that step of the plan")
        return self.end[name]

    def _check_span(self, name: str, piece: Span) -> None:
        found = self.inputs.get(piece.name)
        if found is None or piece.position < 0 or piece.end_position > found.size_bytes:
            raise ValueError(f"{name} is made of bytes of {piece.name} that were not found")

    def _cut(self, number: int, step: Truncate) -> dict[str, int]:
        token = self._held(step.name)
        if not isinstance(token, str):
            raise ValueError(f"{step.name} is cut after it was written")  # noqa: TRY004  (a plan, not a type, is wrong)
        size_bytes = self._sizes[token]
        if not 0 <= step.size_bytes <= size_bytes:
            raise ValueError(f"{step.name} has fewer than {step.size_bytes} bytes")
        self.tails.append(Tail(number, token, step.size_bytes, size_bytes - step.size_bytes))
        self._sizes[token] = step.size_bytes
        return {token: step.size_bytes}

    def end_size(self, found: str) -> int:
        """The final length of a found file."""
        return self._sizes[found]

    # --- the state of a directory

    def end_state(self, staged: Mapping[int, ObservedFile]) -> dict[str, ObservedFile]:
        """The token of each name when all is done. staged: the files that the steps wrote, by number."""
        return {name: self._at_the_end(token, staged) for name, token in self.end.items()}

    def _at_the_end(self, token: Token, staged: Mapping[int, ObservedFile]) -> ObservedFile:
        if isinstance(token, int):
            return staged[token]
        found = self.inputs[token]
        return ObservedFile(found.inode, self._sizes[token], found.mtime_ns)

    def steps_done(
        self, actual: Mapping[str, ObservedFile], staged: Mapping[int, ObservedFile]
    ) -> int | None:
        """The number of steps that are done in a directory in the state `actual`; None if it is not a state of the course.

        The greatest number that fits. Time: linear in files and steps. Modification times of files that the plan truncates
        are not compared: a kill can come before they are restored.
        """
        cut = {tail.name for tail in self.tails}
        state: dict[str, Token] = dict(self.start)
        sizes = {name: file.size_bytes for name, file in self.inputs.items()}
        location = {name: name for name in cut}  # the current names of the truncated files

        def is_wrong(name: str) -> bool:
            seen, token = actual.get(name), state.get(name)
            if seen is None or token is None:
                return (seen is None) != (token is None)
            if isinstance(token, int):
                return seen != staged.get(token)
            found = self.inputs[token]
            if (seen.inode, seen.size_bytes) != (found.inode, sizes[token]):
                return True
            return seen.mtime_ns != found.mtime_ns and token not in cut

        wrong = {name for name in {*state, *actual} if is_wrong(name)}
        answer = None if wrong else 0
        for done, (change, cut_to) in enumerate(zip(self.changes, self._cut_to, strict=True), 1):
            sizes.update(cut_to)
            for name, token in change:
                if token is None:
                    state.pop(name, None)
                else:
                    state[name] = token
                    if token in location:
                        location[str(token)] = name
            for name in (*(name for name, _ in change), *(location[token] for token in cut_to)):
                (wrong.add if is_wrong(name) else wrong.discard)(name)
            if not wrong:
                answer = done
        return answer

    def names_after(self, done: int) -> dict[str, Token]:
        """The token of each name after the first `done` steps."""
        state = dict(self.start)
        for change in self.changes[:done]:
            for name, token in change:
                if token is None:
                    state.pop(name, None)
                else:
                    state[name] = token
        return state

    def tokens(self) -> dict[str, set[Token | None]]:
        """The tokens that each name may have during the course (None: no file)."""
        may: dict[str, set[Token | None]] = {name: {name} for name in self.inputs}
        for change in self.changes:
            for name, token in change:
                may.setdefault(name, {None}).add(token)
        return may

    def sizes(self, found: str) -> set[int]:
        """The sizes that a found file has during the course."""
        cuts = {cut_to[found] for cut_to in self._cut_to if found in cut_to}
        return {self.inputs[found].size_bytes, *cuts}


def written(progress: StepProgress) -> Iterator[tuple[int, Write]]:
    """The steps that write a file, with their numbers."""
    for number, step in enumerate(progress.steps):
        if isinstance(step, Write):
            yield number, step
