"""Verify the data of a running broker: report what two readings agree on.

A broker appends, rolls, cleans and deletes while its files are read. So a single reading can see states that never existed on disk: an
index entry whose batch came after the log was mapped, a segment that was deleted after the directory was listed. Damage stays where it is:

1. A reading without errors and warnings is the result.
2. Otherwise the target is listed and read again. A finding is confirmed if an earlier reading had it too, at the same place.
3. The first reading with only confirmed findings is the result. After `READINGS` of them it is the last one, without the findings that no
   other reading had; `changed-while-read` (info) gives their number.
4. A directory that is gone was deleted or renamed by the broker: that is `changed-while-read` too.
"""

import time
from collections.abc import Callable, Iterator

from kseg.change.apply.running_broker import PAUSE_S, READINGS, Place, left_out, place_of, was_deleted
from kseg.jobs.events import Advance, Event
from kseg.recovery.verify.totals import Totals
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import INFO, Finding
from kseg.segment.partition.targets import Target


def confirmed(
    target: Target,
    read: Callable[[Totals], Iterator[Event]],
    totals: Totals,
) -> Iterator[Event]:
    """The events of the reading that is the result. read: reads the target once. totals: of that reading afterwards."""
    seen: set[Place] = set()
    for number in range(1, READINGS + 1):
        own, events, problem = Totals(), [], None
        try:
            for event in read(own):
                if isinstance(event, Advance):
                    yield event
                else:
                    events.append(event)
        except UnreadableInput as error:
            gone = was_deleted(target)
            if gone is not None:
                events, problem = [gone], None
                own.admit(gone)
                break
            problem = error
        doubted = [event for event in events if isinstance(event, Finding) and event.severity != INFO]
        unconfirmed = [finding for finding in doubted if place_of(finding) not in seen]
        if problem is None and not unconfirmed:
            break
        if number < READINGS:
            seen.update(map(place_of, doubted))
            time.sleep(PAUSE_S * number)
        elif problem is not None:
            raise problem
        else:
            for finding in unconfirmed:
                own.severities[finding.severity] -= 1
            events = [event for event in events if event not in unconfirmed]
            note = left_out(target, len(unconfirmed), READINGS)
            own.admit(note)
            events.append(note)
    yield from events
    totals.become(own)
