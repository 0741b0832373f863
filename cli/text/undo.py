"""The text of `undo`: a line for each directory or run, and whether everything is restored."""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.text.amounts import size_words
from kseg.cli.text.folded_rows import FoldedRows
from kseg.segment.counted import counted, listed
from kseg.segment.moments import moment
from kseg.segment.terminal import shell_quoted, shown_path

_SHOWN = 3  # directories


class UndoReport(FoldedRows):
    """is_together: whether the run restores directories or completes their change; otherwise it lists or forgets runs. finish: whether it
    completes."""

    def __init__(self, is_together: bool, finish: bool, *, shows_all: bool) -> None:
        super().__init__(
            _words,
            "directory" if is_together else "run",
            lambda _rows, _summary: (
                _total(len(self._directories), finish, self._not_restored) if is_together else ""
            ),
            lambda values: values["type"] in ("result", "run"),
            shows_all=shows_all,
        )
        self._not_restored = ""
        self._directories: set[str] = set()  # a data directory can have two journals of a run

    def row(self, values: Mapping[str, Any]) -> None:
        super().row(values)
        if "directory" in values:
            self._directories.add(str(values["directory"]))
        self._not_restored = self._not_restored or _not_restored(values)


def _total(directories: int, finish: bool, not_restored: str) -> str:
    """not_restored: what is said of files of the data directory that were not restored; empty if there are none."""
    where = counted(directories, "directory")
    if finish:
        return f"{where}: interrupted changes completed"
    return f"{where} restored; {not_restored}" if not_restored else f"{where} restored"


def _not_restored(values: Mapping[str, Any]) -> str:
    """What is said of the data directory's own files if only a partition of a run was undone."""
    journal = str(values.get("whole_run") or "")
    if not journal:
        return ""
    left = "the data directory's own files remain as that run left them"
    if values.get("whole_run_lost"):
        return (
            f"{left}, because its journal {shown_path(journal)} is missing; without .kafka_cleanshutdown "
            "a broker checks its logs when it starts"
        )
    return f"{left}; undo it with: kseg undo {shell_quoted(journal)}"


def _words(values: Mapping[str, Any]) -> Iterator[str]:
    if values["type"] in ("run", "runs") or values["state"] == "forgotten":
        yield from _run_words(values)
        return
    where = shown_path(str(values["directory"]))
    if values["state"] == "finished":
        yield f"{where}: completed; undo with: kseg undo {shell_quoted(str(values['journal']))}"
    else:
        files = counted(len(values["files"]), "file")
        undid = "a change that had not begun" if values["undid"] == "?" else values["undid"]
        yield f"{where}: as it was before {undid} ({files})"
        if values.get("kept"):
            first, *others = values["kept"]
            more = f" and {counted(len(others), 'more file')}" if others else ""
            yield (
                f"  the journal was not signed by this user on this machine, so what the undo removed is kept: "
                f"{shown_path(first)}{more}"
            )
        if not_restored := _not_restored(values):
            yield f"  {not_restored}"


def _run_words(values: Mapping[str, Any]) -> Iterator[str]:
    held = size_words(values["bytes"])
    if values["type"] == "runs":
        path = str(values["path"])
        runs = (
            f"{counted(values['runs'], 'run')} can be undone, holding {held}"
            if values["runs"]
            else "nothing to undo"
        )
        yield f"{shown_path(path)}: {runs}"
        if values.get("uncommitted"):
            where = listed([*map(shown_path, values["uncommitted"])], _SHOWN)
            yield (
                f"  a change of {where} was interrupted before it changed anything; what it left is "
                f"removed with: kseg undo {shell_quoted(path)}"
            )
        return
    first, *others = map(str, values["directories"])
    where = counted(len(others) + 1, "directory") if others else shown_path(first)
    head = f"{moment(values['changed_at'])} {values['changed_by']} of {where}"
    if values["type"] == "run":
        state = "interrupted, " if values["half_done"] else ""
        journals = " ".join(shell_quoted(str(path)) for path in values["undone_by"])
        yield f"{head}: {state}holds {held}; undo with: kseg undo {journals}"
    elif values["applied"]:
        yield f"{head}: forgotten, it can no longer be undone; {held} freed"
    else:
        yield f"{head}: to be forgotten, after which it can no longer be undone; {held} to be freed"
