"""Work that may be tried more than once: by a process that took over from one that died, or by two at the same time.

On a cluster any process can be lost in the middle of a change, another one is told to do its work, and nobody knows
whether the first is really gone. What is said in the end must be what one undisturbed attempt would have said, and it
would have changed the directory once.

Planning everything first, and carrying the plans out in a second round, would not do: the plan of a compaction is
gigabytes of new files that live where they were made, and the second round could be lost half way just as well. So there
is one round, and an attempt

1. takes the seat of its directory (`partition_lock`): it waits for an attempt that is at work there, and keeps a broker out;
2. looks for the journal of its run. When there is one the change was decided: it is brought to its end, which for one
   that is done is nothing, and the journal tells what was said on the way to it. (What was begun and not decided is
   cleared away, as ever.)
3. else plans, and leaves with the plan, in the first line of the journal, what it has said.

What was tried and had nothing to change left no journal: tried again it says the same. A copy (--output) leaves none
either. It gets its name in one instant, and its original stays as it is, so that the second attempt plans the same
copy: one that lies there, was not there when the run began, and looks as planned, is that of the first.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from kseg.change.apply.disk import DISK, Disk
from kseg.change.apply.journal import Journal, JournalState, as_pointed, is_there, place_for, read_journal
from kseg.change.apply.lock import claimed_by_command
from kseg.change.plan.steps import Plan
from kseg.change.run.prepared import Prepared
from kseg.jobs.events import Advance, Event, Failure, Row
from kseg.segment.errors import Refused
from kseg.segment.findings import Finding
from kseg.segment.values import dataclass

Values = Mapping[str, Any]
T = TypeVar("T", Finding, Failure)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A change that an earlier attempt has decided, and that is done now. events: what it said before. prepared: what is
    left to be said."""

    events: tuple[Event, ...]
    prepared: Prepared


def earlier_attempt(directory: str, journal_id: str, about: str, disk: Disk = DISK) -> Earlier | None:
    """What an earlier attempt at the same has changed, brought to its end; None when nothing was decided.

    about: the target, as the attempt called it in `told`. Raises Refused when the change cannot be brought to its end.
    """
    place = as_pointed(place_for(directory, journal_id), disk)
    if not is_there(place, disk):
        return None
    from kseg.change.apply.executor import finish_claimed

    with claimed_by_command(directory, disk.follow_links):
        journal = read_journal(place, disk)
        told = None if journal.state is JournalState.ABANDONED else journal.header.get("told")
        if not isinstance(told, dict) or told.get("about") != about:
            return None
        applied = finish_claimed(journal, disk)
        assert applied is not None
    nothing = Plan(command=journal.command, directory=directory, inputs=(), steps=())
    result = _values(journal, told.get("result"))
    return Earlier(tuple(_events(journal, told)), Prepared(plan=nothing, result=result, done=applied))


# --- what is told


def told(about: str, events: Iterable[Event], result: Values) -> dict[str, object]:
    """What an attempt leaves in its journal for those after it."""
    said = [_line(event) for event in events if not isinstance(event, Advance)]
    return {"about": about, "events": said, "result": dict(result)}


def _line(event: Event) -> list[object]:
    match event:
        case Row():
            return ["row", dict(event.values)]
        case Finding():
            return ["finding", asdict(event)]
        case Failure():
            return ["failure", asdict(event)]
    raise TypeError(f"{event!r} is nothing that a change says")


def _events(journal: Journal, told: Values) -> Iterator[Event]:
    for line in told.get("events", ()):
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


def overheard(work: Generator[Event, None, Any], said: list[Event]) -> Generator[Event, None, Any]:
    """The events of `work`, noted in `said` on their way, and its value."""
    while True:
        try:
            event = next(work)
        except StopIteration as stop:
            return stop.value
        said.append(event)
        yield event
