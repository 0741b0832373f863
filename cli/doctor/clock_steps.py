"""The step for a clock that was ahead: retention has deleted segments before their time, and their files may still be there.

A broker whose clock is ahead deletes whatever is older than retention.ms by that clock. It only renames the files to `….deleted`, and
deletes them log.segment.delete.delay.ms (a minute) later, or, if it is stopped or killed before, at its next start. Until then
`kseg retain --unmark` brings them back (observed with 4.3.1). That a clock was ahead is seen in the metadata log, whose timestamps come
from the clock of the active controller.
"""

import os
from collections.abc import Callable, Iterator, Sequence

from kseg.cli.doctor.next_step import NextStep
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.cli.text.amounts import size_words
from kseg.compaction.retention.unmark import UnmarkableSegments, unmarkable_segments
from kseg.inspection.disk_leftovers import Leftover, LeftoverKind
from kseg.jobs.events import Event, Row
from kseg.segment.counted import counted, listed
from kseg.segment.layout import DELETED_SUFFIX, LOG_SUFFIX
from kseg.segment.moments import CLOCK_DIFFERENCE_MS, moment
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.terminal import shown_path

_LISTED = 5


def deleted_early(
    leftovers: Sequence[Leftover],
    targets: Sequence[PartitionTarget],
    ahead_ms: int,
    over: Callable[..., Iterator[Event]],
) -> Iterator[UnmarkableSegments]:
    """The segments that are marked for deletion and can be restored, if the clock was ahead. leftovers: of the data directories. ahead_ms:
    by how much the metadata log is ahead of this machine's clock, at least. over: runs work on targets."""
    if ahead_ms <= CLOCK_DIFFERENCE_MS:
        return
    marked = {
        os.path.dirname(each.path)
        for each in leftovers
        if each.kind is LeftoverKind.DELETED_FILES
        and each.size_bytes
        and each.path.endswith(LOG_SUFFIX + DELETED_SUFFIX)
    }
    wanted = [target for target in targets if target.path in marked]
    for event in over(unmarkable_segments, wanted, None) if wanted else ():
        if isinstance(event, Row) and isinstance(event.result, UnmarkableSegments):
            yield event.result


def restore_deleted(found: Sequence[UnmarkableSegments], written_ms: int, request: Request) -> NextStep:
    """Not due: nobody but the user knows whether the records are still wanted. written_ms: the latest time in the metadata log."""
    names = [os.path.basename(each.directory) for each in found]
    segments = counted(sum(each.segments for each in found), "segment")
    held = size_words(sum(each.size_bytes for each in found))
    return NextStep(
        f"The metadata log has records of {moment(written_ms)}, which is in the future: the clock of a controller was ahead, or this one is "
        f"behind. A broker with such a clock deletes what is not old enough. {segments} ({held}) of {shown_path(listed(names, _LISTED))} can "
        "still be restored; the next start deletes them for good. Set the clocks before any node starts, and if the records are still wanted, "
        "restore them (without --apply, they are only listed).",
        command_line("retain", {"--unmark": True, "--apply": True}, request),
        is_due=False,
    )
