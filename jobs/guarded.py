"""Run the work on one target so that an exception becomes a `Failure` and does not stop the work on the others."""

from collections.abc import Iterator
from typing import Protocol, TypeVar

from kseg.jobs.events import Event, Failure, Work
from kseg.segment import unreadable
from kseg.segment.errors import KsegError, OutOfResources, UnreadableInput
from kseg.segment.findings import Finding

BUG_STATUS = 70


class Named(Protocol):
    """A unit of work that can be named to the user."""

    @property
    def path(self) -> str: ...


T = TypeVar("T", bound=Named)
O = TypeVar("O")


def guarded(work: Work[T, O], target: T, options: O) -> Iterator[Event]:
    """The events of one target; an exception ends them with a `Failure`. Findings follow for bytes of opened files that could not
    be read, unless the work has reported them, instead of those about zeros in their place."""
    unreadable.begin()
    try:
        for event in work(target, options):
            if not isinstance(event, Finding) or not unreadable.explains(event):
                yield event
    except KsegError as error:
        yield Failure.of(target.path, error)
    except OSError as error:
        reason = error.strerror or str(error)
        yield Failure(target.path, f"cannot read {target.path}: {reason}", UnreadableInput.exit_status)
    except MemoryError:
        message = f"not enough memory for {target.path}: try --jobs 1, or raise the limit (ulimit -v)"
        yield Failure(target.path, message, OutOfResources.exit_status)
    except Exception as error:  # noqa: BLE001  (a bug in one target must not stop the others)
        yield bug(target.path, error)
    yield from unreadable.findings()


def bug(path: str, error: Exception) -> Failure:
    """The Failure of an unexpected exception, with its traceback."""
    import traceback

    kind = type(error).__name__
    message = f"{kind}: {error}" if str(error) else kind
    return Failure(path, f"bug in kseg at {path}: {message}", BUG_STATUS, traceback.format_exc())
