"""The program: from `sys.argv` to an exit status.

Every command pays for start-up, so the cheap cases come first: the version needs no parser, an ordinary command line is parsed
by `option_schema.quick_read`, and only the rest (help, completion, mistakes) imports typer. This is the only place where an
exception becomes a sentence on stderr and an exit status.
"""

import gc
import os
import sys
from collections.abc import Sequence

from kseg.cli import lean_start  # noqa: F401  (before the imports that it is about)
from kseg.cli.registry import COMMANDS, function_of
from kseg.cli.streams import Output, complain, reserve_standard_streams, silence
from kseg.cli.termination import end_by_received_signal, handle_termination, interrupted_words
from kseg.segment.errors import KsegError, OutOfResources, UnreadableInput

BUG = 70
INTERRUPTED = 130
MANY_OBJECTS = 50_000
COMPLETING = "_KSEG_COMPLETE"  # set by the shell's completion script


def main() -> None:
    gc.set_threshold(MANY_OBJECTS)  # imports create thousands of objects that all stay alive
    reserve_standard_streams()
    handle_termination()
    status = run(sys.argv[1:])
    end_by_received_signal()
    gc.freeze()  # otherwise the interpreter examines every object once more at exit
    sys.exit(status)


def run(words: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    try:
        return _dispatch(words)
    except KsegError as error:
        complain(f"kseg: {error}")
        return error.exit_status
    except BrokenPipeError:
        silence()
        return 0
    except KeyboardInterrupt as interrupt:
        complain(f"kseg: {interrupted_words(interrupt)}")
        return INTERRUPTED
    except MemoryError:
        complain("kseg: not enough memory: try --jobs 1, or raise the limit (ulimit -v)")
        return OutOfResources.exit_status
    except Exception as error:  # noqa: BLE001  (the last line of defence: a bug ends in a report line)
        return _report_bug(error)


def print_version() -> int:
    from kseg.cli.version import report

    out = Output()
    out.line(report())
    out.flush()
    return 0


def _dispatch(words: Sequence[str]) -> int:
    if COMPLETING not in os.environ:
        if list(words) == ["--version"]:
            return print_version()
        if words and words[0] in COMMANDS:
            status = _run_quickly(words[0], words[1:])
            if status is not None:
                return status
    from kseg.cli import typer_app

    if not words and COMPLETING not in os.environ:
        typer_app.run(["--help"], print_version)
        return 2
    return typer_app.run(words, print_version)


def _run_quickly(name: str, words: Sequence[str]) -> int | None:
    from kseg.cli.option_schema import bind, parameters, quick_read, spelled_out

    command = function_of(name)
    known = parameters(command)
    raw = quick_read(known, spelled_out(known, words))
    return None if raw is None else command(**bind(known, raw))


def _report_bug(error: Exception) -> int:
    if isinstance(error, FileNotFoundError) and not _current_directory_exists():
        complain(
            "kseg: the current directory has been deleted: change to one that exists (cd), and run the command again"
        )
        return UnreadableInput.exit_status
    if os.environ.get("KSEG_TRACEBACK") == "1":
        import traceback

        traceback.print_exc()
    kind = type(error).__name__
    message = f"{kind}: {error}" if str(error) else kind
    complain(f"kseg: bug in kseg: {message} (KSEG_TRACEBACK=1 shows where; please report it)")
    return BUG


def _current_directory_exists() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True
