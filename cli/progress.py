"""The progress bar: on stderr, only on a terminal, only for work that lasts.

It has no thread (worker processes are forked while it is shown): it is redrawn when an `Advance` arrives. It
leaves the screen whenever something else is written, and comes back with the next `Advance`.
"""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

PATIENCE_SECONDS = 0.5  # shorter work shows no bar, and so never pays for importing rich
REDRAW_SECONDS = 0.1


class Progress:
    """paths: files and directories whose sizes make up the whole. stdout_is_terminal: results appear on it too."""

    def __init__(self, paths: Sequence[str], wanted: bool, stdout_is_terminal: bool) -> None:
        self._paths = paths
        self._wanted = wanted and sys.stderr is not None and sys.stderr.isatty()
        self._quiet_until = time.monotonic() + PATIENCE_SECONDS
        self._bar: Any = None
        self._task: Any = None
        self._done_bytes = 0
        self._stdout_is_terminal = stdout_is_terminal

    def advance(self, path: str, bytes_done: int) -> None:
        self._done_bytes += bytes_done
        if not self._wanted or time.monotonic() < self._quiet_until:
            return
        self._quiet_until = time.monotonic() + REDRAW_SECONDS
        if self._bar is None:
            self._bar, self._task = _new_bar(_total_bytes(self._paths))
        if not self._bar.live.is_started:
            self._bar.start()
        self._bar.update(self._task, completed=self._done_bytes, description=os.path.basename(path) or path)
        self._bar.refresh()

    def hide(self) -> None:
        """Clear the line of the bar, if it is there."""
        if self._bar is not None and self._bar.live.is_started:
            self._bar.stop()


def _new_bar(total_bytes: int) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.progress import Progress as RichProgress

    bar = RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
    return bar, bar.add_task("", total=total_bytes or None)


def _total_bytes(paths: Sequence[str]) -> int:
    """The size of the files, and of the files directly in the directories."""
    total = 0
    for path in paths:
        try:
            if os.path.isdir(path):
                with os.scandir(path) as entries:
                    total += sum(entry.stat().st_size for entry in entries if entry.is_file())
            else:
                total += os.stat(path).st_size
        except OSError:
            continue
    return total
