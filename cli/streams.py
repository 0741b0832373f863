"""The two streams a command writes to: bytes for stdout in large writes, sentences for stderr."""

import errno
import os
import select
import sys
from contextlib import suppress

from kseg.change.apply.signals import deferring_signals
from kseg.cli.termination import was_interrupted
from kseg.segment.errors import Refused
from kseg.segment.terminal import for_terminal, visible

STDOUT = 1
_COLOURS = {"error": b"1;31", "warning": b"33", "info": b"36", "good": b"32"}
WRITE_BYTES = 1 << 17
PATIENCE_SECONDS = 5  # how long an interrupted command waits for the reader of its output


def reserve_standard_streams() -> None:
    """Occupy the descriptors of standard streams that the caller has closed: otherwise the next file that is opened, a journal or a log,
    would get the descriptor of stdout, and with it the output. Reading stdin and writing to stdout still fail."""
    for descriptor in range(3):
        with suppress(OSError):
            try:
                os.fstat(descriptor)
            except OSError:
                os.open(os.devnull, os.O_RDONLY if descriptor == STDOUT else os.O_WRONLY)


class Output:
    """stdout as bytes; written in chunks of about `WRITE_BYTES`, or immediately on a terminal.

    Raises BrokenPipeError when the reader has gone, and Refused when the output cannot be written: a full disk, a closed stdout. If
    `goes_on` is given, nothing is raised: the cause and these words go to stderr, and the command continues without output. has_failed:
    whether the output could not be written to its end, for another reason than that its reader has gone.
    """

    def __init__(self, goes_on: str = "") -> None:
        self._goes_on = goes_on
        self.has_failed = False
        self.is_terminal = os.isatty(STDOUT)
        self._has_colour = (
            self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def write(self, data: bytes | memoryview) -> None:
        """Lines; unsafe characters are escaped on a terminal."""
        self.write_exactly(for_terminal(bytes(data)) if self.is_terminal else data)

    def write_exactly(self, data: bytes | memoryview) -> None:
        """Bytes, unchanged. No reference to the caller's memory is kept."""
        if isinstance(data, memoryview):
            self.flush()
            self._write(data)
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= WRITE_BYTES or self.is_terminal:
            self.flush()

    def line(self, text: str) -> None:
        self.write(encoded(text) + b"\n")

    def painted(self, text: str, tone: str) -> None:
        """A line for people. tone: a severity or `good`; on a terminal that word has its colour, otherwise the first word, or all of a line
        that is indented, which belongs to a section."""
        plain = encoded(text)
        if not self._has_colour or tone not in _COLOURS:
            self.write(plain + b"\n")
            return
        safe = for_terminal(plain)
        mark = b": " + tone.encode() + b": "
        if mark in safe:
            start = safe.index(mark) + len(b": ")
            stop = start + len(tone)
        else:
            start = len(safe) - len(safe.lstrip(b" "))
            stop = len(safe) if start or b" " not in safe else safe.index(b" ")
        colour = b"\x1b[" + _COLOURS[tone] + b"m"
        self.write_exactly(safe[:start] + colour + safe[start:stop] + b"\x1b[0m" + safe[stop:] + b"\n")

    def flush(self) -> None:
        if not self._pending:
            return
        data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._pending_bytes = 0
        self._write(memoryview(data))

    def _write(self, rest: memoryview) -> None:
        """Write these bytes, which include everything pending. A signal ends the wait for the reader, but not between a write and the note
        of how much it wrote: the rest becomes pending, so that the next line does not begin in the middle of another."""
        try:
            while rest:
                if not select.select((), (STDOUT,), (), PATIENCE_SECONDS if was_interrupted() else None)[1]:
                    raise BrokenPipeError(errno.EPIPE, "the output is not read")
                with deferring_signals():
                    rest = rest[os.write(STDOUT, rest) :]
        except KeyboardInterrupt:
            self._pending = [bytes(rest)]
            raise
        except OSError as error:
            self._pending = []
            is_unread = isinstance(error, BrokenPipeError)
            if not self._goes_on and is_unread:
                raise
            if not self._goes_on:
                raise not_written(error) from error
            self.has_failed = not is_unread
            silence()
            cause = "the output is no longer read" if is_unread else not_written(error)
            complain(f"kseg: {cause}; {self._goes_on}")
        self._pending = []


def not_written(error: OSError) -> Refused:
    """The exception for a failed write to stdout."""
    return Refused(f"cannot write the standard output: {error.strerror}")


def terminal_columns() -> int | None:
    """The width of the terminal if stdout is one; None otherwise, for any width. COLUMNS is ignored for a pipe: a program that
    has loaded readline exports it to everything it starts."""
    if not os.isatty(STDOUT):
        return None
    import shutil

    return shutil.get_terminal_size().columns


def encoded(text: str) -> bytes:
    """Text as UTF-8; names that are not UTF-8 (surrogates) become the bytes that they are on disk."""
    return text.encode("utf-8", "surrogateescape")


def complain(sentence: str) -> None:
    """One line on stderr; errors of stderr are ignored."""
    try:
        sys.stderr.write(visible(sentence).encode("utf-8", "backslashreplace").decode("utf-8") + "\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


def silence() -> None:
    """Redirect stdout to nowhere after its reader has gone, so that nothing fails while the process exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDOUT)
    os.close(nowhere)
