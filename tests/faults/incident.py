"""One fault in one run of a command, and what must hold afterwards.

1. The exit status is one of the contract's, no bug is reported, and if the command gave up it says in words which error the system returned
   and where.
2. No byte of the evidence is lost, and nothing beside it is changed.
3. Repeating the command leaves what it leaves without a fault; `kseg undo` afterwards, or at once, restores everything as found, times and
   permissions included, and nothing else. An index that the command reports as unreadable may have been rebuilt from its log instead: with
   other entries than a broker chose, but as valid.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.cases import Case, lines_to_append, words_for
from tests.faults.shim import NO_FAULT, Fault, Kind, Machine, Mode, Outcome
from tests.support.trees import Entry, tree_state

_CONTRACT = (0, 1, 3, 4, 5)
_OURS = re.compile(r"^aside$|(^|/)(kseg-|\.kseg(/|$)|\.kseg\.|\.[^/]*\.kseg-)")
_MADE_ANEW = re.compile(
    r"cannot read (\S.*?(?:\.(?:time)?index|/leader-epoch-checkpoint)): .*\(unreadable-file\)$", re.MULTILINE
)  # a side file that cannot be read is reported, and rebuilt from the log
_RUN = re.compile(r"-[0-9a-f]{8}-[0-9a-f]{8}\.c000\b")
State = dict[str, tuple[str, str, int]]


def state(root: Path) -> dict[str, Entry]:
    """Everything below the root except kseg's own files."""
    return {name: entry for name, entry in tree_state(root).items() if name != "." and not _OURS.search(name)}


def contents(root: Path) -> State:
    """The state without times, and with the id of the run removed from the names of export files."""
    return {
        _RUN.sub("-run.c000", name): (entry.kind, entry.content, entry.mode)
        for name, entry in state(root).items()
    }


def litter(root: Path) -> list[str]:
    """kseg's own files."""
    return [name for name in tree_state(root) if _OURS.search(name)]


@dataclass
class Scenario:
    """A case that is created again for each fault."""

    case: Case
    original: Path
    place: Path
    machine: Machine
    found: dict[str, Entry] = field(init=False)
    evidence: dict[str, Entry] = field(init=False)
    planned: State = field(init=False)
    status: int = field(init=False)
    trace: Outcome = field(init=False)
    rounds: int = 0

    def __post_init__(self) -> None:
        self.place.mkdir(parents=True)
        lines_to_append(self.place / "lines.jsonl")
        root = self.fresh()
        self.found = state(root)
        self.evidence = tree_state(self.original)
        self.trace = self._run(root, self.case.words, Fault())
        assert self.trace.status in (0, 1), self.trace.output
        self.planned = contents(root)
        self.status = self.trace.status

    def count(self, kinds: Kind) -> int:
        """The number of calls of these kinds in a run without a fault."""
        return self.trace.calls(kinds)

    def fresh(self) -> Path:
        """The original data directory at a new path."""
        shutil.rmtree(self.place / str(self.rounds), ignore_errors=True)
        self.rounds += 1
        root = self.place / str(self.rounds)
        shutil.copytree(self.original, root, symlinks=True)
        if "ASIDE" in self.case.words:
            (root / "aside").mkdir()
        for words in self.case.before:
            assert self._run(root, words).status in (0, 1)
        return root

    def _run(self, root: Path, words: tuple[str, ...], fault: Fault = NO_FAULT) -> Outcome:
        return self.machine.run(words_for(words, root), root, fault)

    def strike(self, fault: Fault, goes_back: bool) -> list[str]:
        """What is wrong after this fault. goes_back: undo at once instead of repeating the command."""
        root = self.fresh()
        struck = self._run(root, self.case.words, fault)
        wrong = self._wrong_with(struck, fault, root) if struck.struck else []
        anew = {os.path.relpath(path, root) for path in _MADE_ANEW.findall(struck.output)}
        result, planned = _without_content(contents(root), anew), _without_content(self.planned, anew)
        if struck.status == 0 and result != planned:
            wrong.append(f"status 0, and not as planned: {_first(result, planned)}")
        wrong += self._unsound(root, anew)
        wrong += self._lost(root)
        if self.case.has_output and (now := _input(state(root))) != _input(self.found):
            wrong.append(f"the input has changed: {_first(now, _input(self.found))}")
        if not goes_back:
            wrong += self._again(root, struck, anew)
        if not wrong and self.case.can_be_undone:
            wrong += self._back(root)
        return [f"{fault}: {struck.struck}: {sentence}\n    {struck.output.strip()}" for sentence in wrong]

    def _wrong_with(self, struck: Outcome, fault: Fault, root: Path) -> list[str]:
        if self.case.has_workers and fault.mode is Mode.KILL and struck.status in (3, 5):
            return (
                [] if "killed by SIGKILL" in struck.output else ["it does not say that a worker was killed"]
            )
        return _wrong_with(struck, fault, root)

    def _unsound(self, root: Path, anew: set[str]) -> list[str]:
        """Those of these side files that verify does not accept."""
        directories = sorted({str((root / name).parent) for name in anew if (root / name).exists()})
        output = self.machine.run(["verify", "--json", *directories], root).output if directories else ""
        errors = [line for line in output.splitlines() if '"severity":"error"' in line]
        return [f"{name} is not sound" for name in anew if any(f'{name}"' in line for line in errors)]

    def _again(self, root: Path, struck: Outcome, anew: set[str]) -> list[str]:
        if self.case.words[0] == "append" and struck.status == 0:
            # it would append the lines again
            return []
        if self.case.words[0] == "export" and struck.status == 5 and "cannot read" in struck.output:
            # the readable part was published, and is not overwritten
            return []
        again = self._run(root, self.case.words)
        is_done = struck.status == 0 or (struck.status == -9 and contents(root) == self.planned)
        if self.case.words[0] == "append" and again.status == 4 and "kseg undo" in again.output:
            # its writes are kept or undone, but how far it had read its input is unknown
            return []
        if again.status not in (self.status, *((3, 4) if is_done else ())):
            return [f"given again it ends with {again.status}: {again.output}"]
        now, planned = _without_content(contents(root), anew), _without_content(self.planned, anew)
        # a marker that was not true in between is not restored automatically
        if struck.status in (4, 5):
            now, planned = _of_partitions(now), _of_partitions(planned)
        if now != planned:
            return [f"given again it leaves something else: {_first(now, planned)}"]
        return []

    def _back(self, root: Path) -> list[str]:
        """Undo until nothing is left to undo, as an operator would: first the whole, then the partitions."""
        # the command itself is the undo
        if self.case.is_undo:
            again = self._run(root, self.case.words)
            wrong = [] if contents(root) == self.planned else [f"undo again ends with: {again.output}"]
            return wrong + [f"left behind: {name}" for name in litter(root)]
        whole = root / ("out" if self.case.has_output else "data")
        # it was killed before the output existed
        if self.case.has_output and not whole.exists() and litter(root):
            undone = self.machine.run(["undo", str(whole)], root)
            if undone.status:
                return [f"undo of what is not there yet ends with {undone.status}: {undone.output}"]
        for directory in (whole, *sorted(whole.glob("*/"))):
            for _ in range(4):
                if not any(_OURS.search(name) for name in _names(directory)):
                    break
                undone = self.machine.run(["undo", str(directory)], root)
                newest = re.search(r"name one of them, the newest first: (.*)", undone.output)
                if newest:
                    undone = self.machine.run(["undo", newest[1]], root)
                if undone.status:
                    return [f"undo {directory.name} ends with {undone.status}: {undone.output}"]
        now = state(root)
        if now != self.found:
            return [f"undo leaves something else: {_first(now, self.found)}"]
        return [f"undo leaves {name}" for name in litter(root) if name != "aside"]

    def _lost(self, root: Path) -> list[str]:
        """Original files of which not every byte exists somewhere."""
        if self.case.purges:
            return []
        there = {entry.content for entry in tree_state(root).values() if entry.kind == "file"}
        lost = []
        for name, entry in self.evidence.items():
            if entry.kind == "file" and entry.content not in there and not self._is_in_pieces(root, name):
                lost.append(f"{name} is nowhere any more")
        return lost

    def _is_in_pieces(self, root: Path, name: str) -> bool:
        """Whether the beginning of the file still exists, and the end that was cut off or overwritten is kept."""
        data = (self.original / name).read_bytes()
        base = os.path.basename(name)
        here = root / name
        if self.case.words[0] in ("append", "undo") and here.exists():
            now = here.read_bytes()
            return now.startswith(data) or data.startswith(now)
        cut = sorted(
            (int(path.name.rpartition("-")[2]), path.read_bytes())
            for path in root.rglob(f"*{base}.from-*")
            if path.is_file()
        )
        if not cut:
            return False
        begins = any(
            path.is_file() and path.read_bytes()[: cut[0][0]] == data[: cut[0][0]]
            for path in root.rglob(f"*{base}*")
        )
        return begins and b"".join(end for _, end in cut) == data[cut[0][0] :]


def _without_content(found: State, names: set[str]) -> State:
    return {name: entry if name not in names else (entry[0], "", entry[2]) for name, entry in found.items()}


def _of_partitions(found: State) -> State:
    return {name: entry for name, entry in found.items() if name.count("/") > 1}


def _names(directory: Path) -> list[str]:
    return os.listdir(directory) if directory.exists() else []


def _input(found: dict[str, Entry]) -> dict[str, Entry]:
    return {name: entry for name, entry in found.items() if name.startswith("data")}


def _wrong_with(struck: Outcome, fault: Fault, root: Path) -> list[str]:
    if fault.mode is Mode.KILL:
        return [] if struck.status == -9 else [f"it was killed and ends with {struck.status}"]
    wrong = []
    if struck.status not in _CONTRACT:
        wrong.append(f"exit status {struck.status}")
    if "bug in kseg" in struck.output or "Traceback" in struck.output:
        wrong.append("it says that this is a bug in kseg")
    if fault.mode is Mode.FAIL and struck.status >= 3:
        if os.strerror(fault.error) not in struck.output:
            wrong.append("it does not say which error the system gave")
        if str(root) not in struck.output:
            wrong.append("it does not say where")
    return wrong


def _first(now: Mapping[str, object], planned: Mapping[str, object]) -> str:
    names = [name for name in sorted({*now, *planned}) if now.get(name) != planned.get(name)]
    name = names[0]
    return f"{name}: {now.get(name)} instead of {planned.get(name)} ({len(names)} names)"
