"""Changes that may be attempted more than once: by a process that took over from a lost one, or by two at the same time.

On a cluster any process can be lost in the middle of a change; its work is given to another, and it is unknown whether the first has
really ended. The output must be that of one undisturbed attempt, and the directory must change once.

Planning everything first and applying the plans in a second round would not help: the plan of a compaction is gigabytes of new files
on the machine that made them, and the second round can be lost in the middle as well. So there is one round, and an attempt

1. takes the lock of its directory (`partition_lock`): it waits for an attempt that works there, and keeps a broker out;
2. looks up the journal of its run. If there is one, the change was committed: the attempt completes it, and the journal has the events
   that were emitted before. (A change that began and did not commit is cleaned up, as always.)
3. otherwise plans, and stores the events so far with the plan in the first line of the journal.

An attempt with nothing to change left no journal: repeated, it gives the same output. Neither did a copy (--output). A copy
gets its name with one rename, and its original does not change, so the second attempt plans the same copy: a copy that exists,
did not exist when the run began, and matches the plan, was made by the first attempt.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Generic, Protocol, Self, TypeVar

from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.journal import Journal, JournalState, is_there, read_journal
from kseg.change.apply.journal_location import as_pointed, location_for
from kseg.change.apply.lock import claimed_by_command
from kseg.change.plan.steps import Plan
from kseg.change.run.prepared import Prepared
from kseg.jobs.events import Advance, Event, Failure, Row
from kseg.segment.errors import Refused
from kseg.segment.findings import Finding
from kseg.segment.values import dataclass

Values = Mapping[str, Any]
T = TypeVar("T", Finding, Failure)
V = TypeVar("V")


class KeptResult(Protocol):
    """A result that a journal can keep (`results.ChangeResult`)."""

    def as_row(self) -> dict[str, Any]: ...

    @classmethod
    def from_row(cls, row: Values, /) -> Self: ...


R = TypeVar("R", bound=KeptResult)


@dataclass(frozen=True, slots=True)
class EarlierAttempt(Generic[R]):
    """A change that an earlier attempt committed and that is complete now. events: those that the attempt emitted. prepared: the
    rest of the output."""

    events: tuple[Event, ...]
    prepared: Prepared[R]


def earlier_attempt(
    directory: str, journal_id: str, about: str, kind: type[R], disk: Disk = DISK
) -> EarlierAttempt[R] | None:
    """Complete the change that an earlier attempt committed, and return it; None if there is none.

    about: the target, as in the attempt's `journal_note`. kind: of its result. Raises Refused if it cannot be completed.
    """
    location = as_pointed(location_for(directory, journal_id), disk)
    if not is_there(location, disk):
        return None
    from kseg.change.apply.executor import finish_claimed

    with claimed_by_command(directory, disk.follow_links):
        journal = read_journal(location, disk)
        note = None if journal.state is JournalState.ABANDONED else journal.header.get("told")
        if not isinstance(note, dict) or note.get("about") != about:
            return None
        applied = finish_claimed(journal, disk)
        assert applied is not None
    nothing = Plan(command=journal.command, directory=directory, inputs=(), steps=())
    try:
        result = kind.from_row(_values(journal, note.get("result")))
    except TypeError:
        raise _not_followed(journal) from None
    return EarlierAttempt(tuple(_events(journal, note)), Prepared(plan=nothing, result=result, done=applied))


# --- the note in the journal


def journal_note(about: str, events: Iterable[Event], result: KeptResult) -> dict[str, object]:
    """What an attempt stores in its journal for later attempts."""
    events_so_far = [_line(event) for event in events if not isinstance(event, Advance)]
    return {"about": about, "events": events_so_far, "result": result.as_row()}


def _line(event: Event) -> list[object]:
    match event:
        case Row():
            return ["row", dict(event.values)]
        case Finding():
            written = asdict(event)
            del written["diagnosis"]  # only for code in the same process, which has the finding itself
            return ["finding", written]
        case Failure():
            return ["failure", asdict(event)]
    raise TypeError(f"a change does not emit {event!r}")


def _events(journal: Journal, note: Values) -> Iterator[Event]:
    for line in note.get("events", ()):
        match line:
            case ["row", values]:
                yield Row(_values(journal, values))
            case ["finding", values]:
                yield _made(Finding, journal, values)
            case ["failure", values]:
                yield _made(Failure, journal, values)
            case _:
                raise _not_followed(journal)


def _made(kind: type[T], journal: Journal, values: object) -> T:
    try:
        return kind(**_values(journal, values))
    except TypeError:
        raise _not_followed(journal) from None


def _values(journal: Journal, values: object) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise _not_followed(journal)
    return values


def _not_followed(journal: Journal) -> Refused:
    return Refused(f"{journal.path} does not tell what was said before the change")


def recorded(work: Generator[Event, None, V], events_so_far: list[Event]) -> Generator[Event, None, V]:
    """Pass on the events of `work`, appending each to `events_so_far`; returns its value."""
    while True:
        try:
            event = next(work)
        except StopIteration as stop:
            value: V = stop.value
            return value
        events_so_far.append(event)
        yield event
