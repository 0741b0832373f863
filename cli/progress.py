"""The progress bar: on stderr, only on a terminal, only for long runs.

It is redrawn when an event arrives, not by a thread, because worker processes are forked while it is shown. It is cleared whenever
something else is written. It counts bytes if the command reports them, else targets.
"""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import size_words
from kseg.segment.counted import counted
from kseg.segment.storage import places
from kseg.segment.terminal import visible

PATIENCE_SECONDS = 0.5  # shorter work shows no bar, and so never imports rich
REDRAW_SECONDS = 0.1
PLACE_COLUMNS = 40  # the bar and the counts need the rest of the line


class Progress:
    """paths: the files and directories whose sizes make up the total. summary: the counts of finished targets and of errors so far."""

    def __init__(self, paths: Sequence[str], wanted: bool, summary: RunSummary) -> None:
        self._paths = paths
        self._wanted = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._quiet_until = time.monotonic() + PATIENCE_SECONDS
        self._bar: Any = None
        self._task: Any = None
        self._done_bytes = 0
        self._total_bytes: int | None = None
        self._path = ""
        self._summary = summary
        self._steps: tuple[str, int, int] | None = None

    def advance(self, path: str, bytes_done: int) -> None:
        """Add processed bytes of a target."""
        self._done_bytes += bytes_done
        self._path = path
        self.tick()

    def step(self, what: str, done: int, of: int) -> None:
        """Show `done` of `of` directories, for work that yields no events before its end."""
        self._steps = what, done, of
        self.tick()

    def tick(self) -> None:
        """Draw the bar, unless it was drawn a moment ago."""
        if not self._wanted or time.monotonic() < self._quiet_until:
            return
        self._quiet_until = time.monotonic() + REDRAW_SECONDS
        if self._bar is None:
            self._bar, self._task = _new_bar()
        if not self._bar.live.is_started:
            self._bar.start()
        done, total = self._summary.finished, self._summary.targets
        state = f"{done:,} of {total:,} targets" if total > 1 else ""
        if self._summary.errors:
            state += f"{', ' if state else ''}{counted(self._summary.errors, 'error')}"
        if self._done_bytes:
            if self._total_bytes is None:
                self._total_bytes = _total_bytes(self._paths)
            done, total = self._done_bytes, self._total_bytes
            state = f"{size_words(done)} of {size_words(total)}{', ' if state else ''}{state}"
        if self._steps is not None and self._steps[2] > 1:
            what, done, total = self._steps
            state = f"{done:,} of {total:,} {what}"
        self._bar.update(
            self._task, completed=done, total=total or None, description=_place(self._path), state=state
        )
        self._bar.refresh()

    def hide(self) -> None:
        """Clear the line of the bar, if it is shown."""
        if self._bar is not None and self._bar.live.is_started:
            self._bar.stop()


def _place(path: str) -> str:
    """The end of a path; for a segment including its partition, since most first segments have the same name."""
    folder, name = os.path.split(path.rstrip("/"))
    place = visible(os.path.join(os.path.basename(folder), name))
    return place if len(place) <= PLACE_COLUMNS else f"…{place[1 - PLACE_COLUMNS :]}"


def _new_bar() -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    bar = RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
    return bar, bar.add_task("", total=None, state="")


def _total_bytes(paths: Sequence[str]) -> int:
    """The size of the files, and of the files directly in the directories."""
    total = 0
    for path in paths:
        try:
            if places.isdir(path):
                with places.scandir(path) as entries:
                    total += sum(entry.stat().st_size for entry in entries if entry.is_file())
            else:
                total += places.stat(path).st_size
        except OSError:
            continue
    return total
