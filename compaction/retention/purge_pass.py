"""Delete marked files as part of `retain`: the verdict on each mark, and the order of deleting and marking.

1. Files that were marked long enough ago are deleted before anything is marked. This may free the space that marking needs.
2. Without a delay nothing could be undone anyway, so segments are marked and deleted without a journal: even a full disk
   can be freed. Otherwise marking goes through the executor.
3. Files marked now are deleted afterwards if their delay has passed.
"""

import os
from collections.abc import Generator
from dataclasses import replace

from kseg.change.run.prepared import Prepared, carried_out
from kseg.compaction.known_settings import settings_for
from kseg.compaction.retention import rows
from kseg.compaction.retention.options import RetainOptions
from kseg.compaction.retention.rows import Purged, RetainResult
from kseg.compaction.retention.topic_limits import configured
from kseg.jobs import events
from kseg.jobs.events import Event
from kseg.segment.partition.deletion_marks import DeletionMark, marks_in
from kseg.segment.partition.targets import PartitionTarget


def purged_around(
    prepared: Prepared[RetainResult], options: RetainOptions
) -> Generator[Event, None, RetainResult]:
    """Delete files that are already marked first, which may free the space that marking needs, and files marked now once their
    delay has passed. The rows are ordered by file name, as if from one purge."""
    emitted: list[Event] = []
    try:
        return _marked_and_purged(prepared, options, emitted)
    finally:
        yield from sorted(emitted, key=_file_of)


def _marked_and_purged(
    prepared: Prepared[RetainResult], options: RetainOptions, emitted: list[Event]
) -> RetainResult:
    from kseg.change.apply.disk import disk_for
    from kseg.compaction.retention.purge import mark_at_once

    directory = prepared.plan.directory
    passes = [_collected(purged(prepared, options), emitted)]
    already_purged = frozenset(passes[0].names)
    inputs = tuple(file for file in prepared.plan.inputs if file.name not in already_purged)
    remaining = replace(prepared, plan=replace(prepared.plan, inputs=inputs))
    already_marked = frozenset(mark.name.name for mark in marks_in(directory))
    is_readable = options.accept_unreadable or not prepared.unreadable
    if is_readable and not _with_delay(directory, options).file_delete_delay_ms:
        plan, unmarked = mark_at_once(remaining.plan, disk_for(options.follow_links))
        remaining = replace(remaining, plan=plan)
        names = tuple(file.name for file in unmarked)
        passes.append(Purged(names, sum(file.size_bytes for file in unmarked)))
        passes.append(_collected(purged(prepared, options, excluded=already_marked), emitted))
    marked = carried_out(remaining, options)
    passes.append(_collected(purged(prepared, options, excluded=already_marked), emitted))
    return replace(
        prepared.result,
        applied=True,
        journal=marked.journal,
        purged=tuple(sorted(name for each in passes for name in each.names)),
        bytes_purged=sum(each.size_bytes for each in passes),
    )


def _collected(work: Generator[Event, None, Purged], emitted: list[Event]) -> Purged:
    """Run `work`, append its events to `emitted`, and return its value."""
    while True:
        try:
            emitted.append(next(work))
        except StopIteration as stop:
            outcome: Purged = stop.value
            return outcome


def _file_of(event: Event) -> str:
    return (
        event.result.name.name
        if isinstance(event, events.Row) and isinstance(event.result, DeletionMark)
        else ""
    )


def _with_delay(directory: str, options: RetainOptions) -> RetainOptions:
    """The options with the topic's configuration applied."""
    target = PartitionTarget(directory)
    return configured(target, settings_for(target, options.topics), options)[0]


def purged(
    prepared: Prepared[RetainResult], options: RetainOptions, excluded: frozenset[str] = frozenset()
) -> Generator[Event, None, Purged]:
    """excluded: marked files that are kept and already reported."""
    from kseg.change.apply.disk import disk_for
    from kseg.compaction.retention.purge import free_purged, purge, purge_id, purge_verdicts

    directory = prepared.plan.directory
    options = _with_delay(directory, options)
    if options.apply and options.shared is not None:
        from kseg.change.run.attempts import earlier_attempt

        earlier = earlier_attempt(
            directory, purge_id(options.run_id), directory, Purged, disk_for(options.follow_links)
        )
        if earlier is not None:
            yield from earlier.events
            free_purged(directory, options)
            return earlier.prepared.result
    name = prepared.result.partition
    emitted_rows, due = [], []
    for purge_verdict in purge_verdicts(directory, options):
        mark, verdict = purge_verdict.mark, "purge" if purge_verdict.is_due else "wait"
        if mark.name.name in excluded:
            continue
        path = os.path.join(directory, mark.name.name)
        row = rows.mark_row(name, path, mark.size_bytes, mark.marked_at_ms, verdict, purge_verdict.reason)
        emitted_rows.append(events.Row(row, mark))
        if purge_verdict.is_due:
            due.append(mark)
    yield from emitted_rows
    names = [mark.name.name for mark in due]
    outcome = Purged(tuple(names), sum(mark.size_bytes for mark in due))
    if options.apply:
        purge(
            directory,
            names,
            options,
            disk_for(options.follow_links),
            note=_journal_note(directory, emitted_rows, outcome, options),
        )
    return outcome


def _journal_note(
    directory: str, emitted_rows: list[events.Row], outcome: Purged, options: RetainOptions
) -> dict[str, object] | None:
    if options.shared is None:
        return None
    from kseg.change.run.attempts import journal_note

    return journal_note(directory, emitted_rows, outcome)
