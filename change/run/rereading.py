"""Work on the data of a running broker: begin again with a target whose files the broker has changed in the meantime."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from kseg.change.apply.running_broker import (
    CHANGED,
    PAUSE_S,
    READINGS,
    Place,
    is_in_use,
    left_out,
    place_of,
    was_deleted,
)
from kseg.jobs.events import Advance, Event, Failure, Work
from kseg.segment.errors import Refused, UnreadableInput, VanishedInput
from kseg.segment.findings import INFO, Finding
from kseg.segment.partition.targets import Target
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Rereading:
    """The work of a reading command. As long as nothing about a target has been shown, the target is listed again if one of its files is
    gone. A target that is itself gone is `changed-while-read`, whether or not anything about it has been shown.

    confirms: hold back errors and warnings to the end, and yield those that a second reading has as well; for work that changes nothing."""

    work: Work[Any, Any]
    confirms: bool = False

    def __call__(self, target: Target, options: Any) -> Iterator[Event]:
        doubted: list[Finding] = []
        for number in range(1, READINGS + 1):
            is_shown = False
            for event in self._events(target, options):
                if isinstance(event, Failure) and is_in_use(target):
                    gone = was_deleted(target)
                    if gone is not None:
                        yield gone
                        return
                    if event.is_vanished and not is_shown and number < READINGS:
                        break
                if isinstance(event, Finding) and self._is_doubted(event, target):
                    doubted.append(event)
                else:
                    is_shown = is_shown or not isinstance(event, Advance)
                    yield event
            else:
                break
            doubted.clear()
            time.sleep(PAUSE_S * number)
        if doubted:
            yield from self._confirmed(doubted, target, options)

    def _is_doubted(self, finding: Finding, target: Target) -> bool:
        return self.confirms and finding.severity != INFO and is_in_use(target)

    def _confirmed(self, doubted: list[Finding], target: Target, options: Any) -> Iterator[Event]:
        time.sleep(PAUSE_S)
        again = {place_of(event) for event in self._events(target, options) if isinstance(event, Finding)}
        confirmed = [finding for finding in doubted if place_of(finding) in again]
        yield from confirmed
        if len(confirmed) < len(doubted):
            yield left_out(target, len(doubted) - len(confirmed), 2)

    def _events(self, target: Target, options: Any) -> Iterator[Event]:
        try:
            yield from self.work(target, options)
        except UnreadableInput as error:
            yield Failure.of(target.path, error)
        except FileNotFoundError as error:
            gone = VanishedInput(f"cannot read {error.filename or target.path}: {error.strerror}")
            yield Failure.of(target.path, gone)


def repeated(read: Callable[[], Iterator[Event]], *targets: Target) -> Iterator[Event]:
    """The events of a plan that is not carried out, or of a comparison. read: makes the plan or comparison of these targets once.

    Beside a running broker it is made again, up to `READINGS` times, if a file was gone, or if it has a failure, an error or a warning that
    no earlier one had. If even the last one has new ones, there is no result, only a failure.
    """
    seen: set[Place | str] = set()
    for number in range(1, READINGS + 1):
        events: list[Event] = []
        for event in read():
            if isinstance(event, Advance):
                yield event
            else:
                events.append(event)
        doubted = {place for event in events if (place := _doubt(event)) is not None}
        is_whole = number == READINGS or not any(isinstance(e, Failure) and e.is_vanished for e in events)
        if (is_whole and doubted <= seen) or not any(map(is_in_use, targets)):
            yield from events
            return
        gone = [note for note in map(was_deleted, targets) if note is not None]
        if gone:
            yield from gone
            return
        seen |= doubted
        if number < READINGS:
            time.sleep(PAUSE_S * number)
    path = targets[0].path
    yield Failure.of(
        path, Refused(f"the broker changed {path} in each of {READINGS} readings; nothing is known")
    )


def _doubt(event: Event) -> Place | str | None:
    """What casts doubt on a plan or a comparison that was made beside a running broker."""
    match event:
        case Failure(sentence=sentence):
            return sentence
        case Finding(id=kind, severity=severity) if severity != INFO or kind == CHANGED:
            return place_of(event)
    return None
