"""Deleting marked files for good (Kafka: the `delete-file` task, `file.delete.delay.ms` after the mark).

1. A file goes when it was marked at least the delay ago (`segment/partition/marks` says how that is known).
2. All of them leave the directory as one change with a journal, so that a kill leaves a way on.
3. Then the journal and what it kept are dropped, and the space is free. Until here `kseg undo` would bring them back.

A purge that was killed between 2 and 3 is dropped by the next one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kseg.compaction.retention.ages import duration_words
from kseg.compaction.retention.options import RetainOptions
from kseg.compaction.retention.rows import COMMAND
from kseg.segment.apply.disk import DISK, Disk
from kseg.segment.apply.executor import apply_plan
from kseg.segment.apply.journal import State, discard, journals_in
from kseg.segment.errors import Refused
from kseg.segment.partition.marks import Mark, marks_in
from kseg.segment.plan.inputs import inputs_of
from kseg.segment.plan.steps import Plan, Remove

_ID_SUFFIX = "-purge"


@dataclass(frozen=True, slots=True)
class Ripeness:
    """Whether a mark is old enough, and why."""

    mark: Mark
    is_ripe: bool
    reason: str


def ripeness(directory: str, options: RetainOptions) -> tuple[Ripeness, ...]:
    """Of every mark in a directory. Raises UnreadableInput."""
    return tuple(_ripeness(mark, options) for mark in marks_in(directory))


def _ripeness(mark: Mark, options: RetainOptions) -> Ripeness:
    delay_ms = options.file_delete_delay_ms
    age_ms = options.now_ms - mark.marked_at_ms
    is_ripe = age_ms >= delay_ms or not delay_ms
    words = f"marked {duration_words(max(0, age_ms))} ago, the delay is {duration_words(delay_ms)}"
    return Ripeness(mark, is_ripe, words)


def purge(directory: str, names: Sequence[str], options: RetainOptions, disk: Disk = DISK) -> None:
    """Delete these marked files. Raises Refused."""
    inputs = inputs_of(directory)
    steps = tuple(Remove(name, "it is marked for deletion") for name in names)
    plan = Plan(command=COMMAND, directory=directory, inputs=inputs, steps=steps)
    if not plan.is_empty:
        apply_plan(plan, journal_id=f"{options.run_id}{_ID_SUFFIX}", disk=disk)
    _drop_purged(directory, disk)


def _drop_purged(directory: str, disk: Disk) -> None:
    """Free what purges have taken out. Raises Refused when that cannot be."""
    for journal in journals_in(directory, disk):
        if journal.place.id.endswith(_ID_SUFFIX) and journal.state is State.DONE:
            try:
                discard(journal.place, disk)
            except OSError as error:
                raise Refused(f"cannot clear away {journal.path}: {error.strerror}") from error
