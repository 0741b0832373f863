"""Reading commands on the data of a running broker: begin again with a target whose files were deleted after it was listed."""

import time
from collections.abc import Iterator
from typing import Any

from kseg.jobs.events import Advance, Event, Work
from kseg.recovery.verify.repeated_reading import READINGS, is_in_use, was_deleted
from kseg.segment.errors import UnreadableInput, VanishedInput
from kseg.segment.partition.targets import Target
from kseg.segment.values import dataclass

_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Rereading:
    """The work of a reading command. As long as it has shown nothing of a target, a file that is gone makes it list the target again. A
    target that is gone itself is `changed-while-read`."""

    work: Work[Any, Any]

    def __call__(self, target: Target, options: Any) -> Iterator[Event]:
        is_shown = False
        for number in range(1, READINGS + 1):
            try:
                for event in self.work(target, options):
                    is_shown = is_shown or not isinstance(event, Advance)
                    yield event
                return
            except UnreadableInput as error:
                if is_shown or not is_in_use(target):
                    raise
                gone = was_deleted(target)
                if gone is not None:
                    yield gone
                    return
                if number == READINGS or not isinstance(error, VanishedInput):
                    raise
            time.sleep(_PAUSE_S * number)
