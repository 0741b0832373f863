"""Reading commands on the data of a running broker: begin again with a target whose files were deleted after it was listed."""

import time
from collections.abc import Iterator
from typing import Any

from kseg.jobs.events import Advance, Event, Failure, Work
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.partition.targets import Target
from kseg.segment.values import dataclass

READINGS = 4
_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Rereading:
    """The work of a reading command. As long as it has shown nothing of a target, a file that is gone makes it list the target again. A
    target that is gone itself is `changed-while-read`."""

    work: Work[Any, Any]

    def __call__(self, target: Target, options: Any) -> Iterator[Event]:
        for number in range(1, READINGS + 1):
            is_shown = False
            for event in self._events(target, options):
                if not is_shown and isinstance(event, Failure) and _is_in_use(target):
                    gone = _note_if_gone(target)
                    if gone is not None:
                        yield gone
                        return
                    if event.is_vanished and number < READINGS:
                        break
                is_shown = is_shown or not isinstance(event, Advance)
                yield event
            else:
                return
            time.sleep(_PAUSE_S * number)

    def _events(self, target: Target, options: Any) -> Iterator[Event]:
        try:
            yield from self.work(target, options)
        except UnreadableInput as error:
            yield Failure.of(target.path, error)


# needed only after a failure, and large for the start of a program
def _is_in_use(target: Target) -> bool:
    from kseg.recovery.verify.repeated_reading import is_in_use

    return is_in_use(target)


def _note_if_gone(target: Target) -> Finding | None:
    from kseg.recovery.verify.repeated_reading import was_deleted

    return was_deleted(target)
