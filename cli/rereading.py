"""Reading commands on the data of a running broker: begin again with a target whose files were deleted after it was listed."""

import time
from collections.abc import Iterator
from typing import Any

from kseg.change.apply.running_broker import PAUSE_S, READINGS, is_in_use, was_deleted
from kseg.jobs.events import Advance, Event, Failure, Work
from kseg.segment.errors import UnreadableInput
from kseg.segment.partition.targets import Target
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Rereading:
    """The work of a reading command. As long as it has shown nothing of a target, a file that is gone makes it list the target again. A
    target that is gone itself is `changed-while-read`, whether or not something of it was shown."""

    work: Work[Any, Any]

    def __call__(self, target: Target, options: Any) -> Iterator[Event]:
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
                is_shown = is_shown or not isinstance(event, Advance)
                yield event
            else:
                return
            time.sleep(PAUSE_S * number)

    def _events(self, target: Target, options: Any) -> Iterator[Event]:
        try:
            yield from self.work(target, options)
        except UnreadableInput as error:
            yield Failure.of(target.path, error)
