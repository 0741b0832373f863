"""What every command does between its options and its output: expand PATHs to targets, run work on the targets, and pass the
events to the renderer."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kseg.change.apply.journal_probe import half_done_around
from kseg.change.run.rereading import Rereading
from kseg.cli.options import default_jobs
from kseg.cli.render import Style, show
from kseg.cli.request import Request
from kseg.cli.run_summary import RunSummary
from kseg.cli.shared_targets import Sharing, target_runs
from kseg.cli.streams import complain
from kseg.jobs import fanout
from kseg.jobs.events import Event, Failure, Work
from kseg.jobs.guarded import Named
from kseg.segment.errors import KsegError, UnreadableInput, UsageError
from kseg.segment.findings import Finding, deleted_directory
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import PartitionState
from kseg.segment.partition.targets import (
    Expansion,
    ListFiles,
    LogDirTarget,
    PartitionTarget,
    Target,
    directory_of,
    is_selected,
    resolve_targets,
)
from kseg.segment.storage import places
from kseg.segment.storage.attached import damaged_archives
from kseg.segment.terminal import shown_path
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kseg.spark.options import ClusterOptions

    AtOnce = Callable[[Sequence[Target], ClusterOptions, Callable[[str], None]], Iterator[Event]]
    from kseg.cli.html.html_page import HtmlPage


def over_targets(
    work: Work[Any, Any],
    options: object,
    style: Style,
    *,
    expand: Expansion,
    request: Request,
    jobs: int | None = None,
    in_place: bool = False,
    at_once: "AtOnce | None" = None,
    sharing: Sharing = Sharing.NONE,
    through: Callable[[Iterator[Event]], Iterator[Event]] | None = None,
    grouped: Callable[[Sequence[Target], int], Sequence[Named]] | None = None,
    hold: "Callable[[Sequence[Target]], AbstractContextManager[object | None]] | None" = None,
    look: "Callable[[Sequence[Target], Any], tuple[object, Sequence[Event]]] | None" = None,
    wanted: "Callable[[Target], bool] | None" = None,
    worth_a_process: int | None = None,
    confirms: bool = False,
) -> int:
    """Run `work` on the targets of the request, show the events, and return the exit status.

    in_place: the work changes the files of its targets. at_once: for a cluster: processes all targets together.
    sharing: which targets several processes share, as many as the `jobs` of the options. through: transforms the stream of
    events before it is shown. hold: a context held while the targets are processed (a lock), which yields the options to use; a command
    with one looks for unfinished changes itself, for all others these are reported first. look: determines what else is needed about the
    targets; returns the options, and events to show first. wanted: which targets to process. worth_a_process: how many targets take longer
    than starting a process; None if a single one does. confirms: as in `Rereading`. A path that cannot be read is a failure among others
    if there are several paths.
    Raises UsageError if no path was given or the filters leave nothing.
    """
    say = notice(style)
    selection = _selected(request, expand, wanted, style)
    targets = selection.targets
    # a command that changes partitions handles the data directories around them separately (`RunLifecycle.close`)
    worked_on = [
        target for target in targets if grouped is None or not isinstance(target, LogDirTarget)
    ] or targets
    style = replace(style, request=request)
    if style.page is not None:
        style.page.begin(targets)
    jobs = jobs or default_jobs()
    if worth_a_process is not None:
        jobs = max(1, min(jobs, len(targets) // worth_a_process))
    looked: Sequence[Event] = ()
    if look is not None:
        options, looked = look(targets, options)
    first_events = (*archive_findings(), *selection.failures, *looked)
    failed = {event.path for event in first_events if isinstance(event, Failure)}
    tally = RunSummary(
        len(worked_on) + len(failed - {target.path for target in worked_on}),
        errors_settle=style.errors_settle or style.remains is None,
    )
    finished = tally.finish_target if grouped is None else tally.finish_group

    def work_on_all(options: object) -> int:
        cluster = request.cluster
        if cluster is None:
            # commands with groups change their targets, so these are not read again
            own_work = Rereading(work, confirms) if grouped is None else work
            events = _local(own_work, targets, options, jobs, sharing, grouped, finished)
        elif at_once is not None:
            events = at_once(targets, cluster, say)
        else:
            # one target per group, so that a lost task costs one target only
            units = targets if grouped is None else grouped(targets, len(targets))
            over = workers(cluster, jobs, say, in_place=in_place)
            events = over(work, units, options, finished=finished) if units else iter(())
        unfinished = half_done_around(targets) if hold is None else ()
        deleted = _marked_for_deletion(selection, worked_on)
        events = _after((*first_events, *unfinished, *deleted), events)
        return show(
            through(events) if through else events, style, [target.path for target in worked_on], tally
        )

    if hold is None:
        return work_on_all(options)
    with hold(targets) as held:
        return work_on_all(options if held is None else held)


_TOPICS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class _Selection:
    """The targets of a request. failures: paths that cannot be read. passed_over: directories marked for deletion that were skipped."""

    targets: list[Target]
    failures: list[Failure]
    passed_over: list[str]


def _selected(
    request: Request, expand: Expansion, wanted: Callable[[Target], bool] | None, style: Style
) -> _Selection:
    """Expand the paths. Raises UsageError if that leaves nothing, UnreadableInput if the only path cannot be read."""
    if not request.paths:
        raise UsageError(f"kseg {style.command} needs at least one PATH")
    list_files = None
    if request.cluster is not None:
        from kseg.spark.dispatch import lister

        list_files = lister(request.cluster, notice(style))
    passed_over: list[str] = []
    targets, failures = _resolve(request, expand, list_files, passed_over)
    if wanted is not None:
        targets = [target for target in targets if wanted(target)]
    if not targets and not failures:
        is_narrowed = bool(request.topics) or request.partition is not None
        why = (
            f"--topic or --partition match nothing{_topics_there(request)}"
            if is_narrowed
            else "no matching files"
        )
        if passed_over:
            why = f"{passed_over[0]} is marked for deletion; name it to process it"
        raise UsageError(f"nothing to process in {', '.join(request.paths)}: {why}")
    return _Selection(targets, failures, passed_over)


def _topics_there(request: Request) -> str:
    """The topics that could have been meant, or the partitions of the given ones, as the end of a sentence."""
    from difflib import get_close_matches

    from kseg.segment.counted import listed

    targets, _ = _resolve(replace(request, topics=(), partition=None), Expansion.PARTITIONS, None, [])
    names = [
        name for name in (own_partition_name(directory_of(target)) for target in targets) if name is not None
    ]
    of_topics = sorted(
        {(name.topic, name.partition) for name in names if is_selected(name, request.topics, None)}
    )
    if request.topics and of_topics:
        there = [f"{topic}-{partition}" for topic, partition in of_topics]
        return f"; the partitions there: {shown_path(listed(there, _TOPICS_SHOWN))}"
    topics = sorted({name.topic for name in names}, key=lambda each: (each.startswith("__"), each))
    close = [each for topic in request.topics for each in get_close_matches(topic, topics)]
    in_order = [*dict.fromkeys((*close, *topics))]
    return f"; the topics there: {shown_path(listed(in_order, _TOPICS_SHOWN))}" if in_order else ""


def _resolve(
    request: Request,
    expand: Expansion,
    list_files: ListFiles | None,
    passed_over: list[str],
) -> tuple[list[Target], list[Failure]]:
    resolve = partial(
        resolve_targets,
        topics=request.topics,
        partition=request.partition,
        expand=expand,
        list_files=list_files,
        passed_over=passed_over,
    )
    try:
        return resolve(request.paths), []
    except UnreadableInput:
        if len(request.paths) == 1:
            raise
    targets: list[Target] = []
    failures: list[Failure] = []
    for path in request.paths:
        try:
            targets += resolve([path])
        except KsegError as error:
            failures.append(Failure.of(path, error))
    return targets, failures


def _local(
    work: Work[Any, Any],
    targets: Sequence[Target],
    options: Any,
    jobs: int,
    sharing: Sharing,
    grouped: Callable[[Sequence[Target], int], Sequence[Named]] | None,
    finished: Callable[[Any], None],
) -> Iterator[Event]:
    """The events of the work, run by processes of this machine."""
    runs, jobs_for_rest = target_runs(targets, jobs, sharing)
    units, shared = list[Named](), set[int]()
    for each in runs:
        added = each.targets if grouped is None else grouped(each.targets, jobs)
        if each.is_shared:
            shared.update(range(len(units), len(units) + len(added)))
        units += added
    shared_options = replace(options, jobs=jobs) if shared else options
    return fanout.run(work, units, options, jobs_for_rest, finished, shared, shared_options)


def archive_findings() -> Iterator[Finding]:
    """A finding for each truncated tar archive: no target covers the part that is missing."""
    for path, sentence in damaged_archives():
        yield Finding("archive-cut-off", path, sentence)


def _marked_for_deletion(selection: _Selection, worked_on: Sequence[Target]) -> Iterator[Finding]:
    """A finding for each directory marked for deletion that was named itself, or skipped. The work on a data directory reports
    those inside it."""
    reporting_log_dirs = {target.path for target in worked_on if isinstance(target, LogDirTarget)}
    named = (target.path for target in selection.targets if isinstance(target, PartitionTarget))
    for path in (*selection.passed_over, *named):
        name = own_partition_name(path) if path.endswith(f"-{PartitionState.DELETE}") else None
        if name is not None and os.path.dirname(path) not in reporting_log_dirs:
            yield deleted_directory(path, name.text)


def notice(style: Style) -> Callable[[str], None]:
    """A function that prints a sentence that is not part of the result."""

    def say(sentence: str) -> None:
        if not style.quiet:
            complain(f"kseg {style.command}: {sentence}")

    return say


def workers(
    cluster: "ClusterOptions | None",
    jobs: int | None,
    say: Callable[[str], None] | None = None,
    *,
    in_place: bool = False,
) -> Callable[..., Iterator[Event]]:
    """A function that runs work on targets, by a cluster or by local processes. Called like `fanout.run`, without the number of jobs.

    say: receives messages about the cluster.
    """
    if cluster is None:
        return partial(fanout.run, jobs=jobs or default_jobs())
    from kseg.spark import dispatch as on_cluster

    return partial(on_cluster.run, cluster=cluster, notify=say, in_place=in_place)


def _after(first: Sequence[Event], events: Iterator[Event]) -> Iterator[Event]:
    yield from first
    yield from events


def is_one_log(paths: Sequence[str]) -> bool:
    """Whether the paths are one partition directory, or one file."""
    from kseg.segment.partition.recognition import is_surely_partition

    return len(paths) == 1 and (not places.isdir(paths[0]) or is_surely_partition(paths[0]))


def clock_ms(now_ms: int | None = None) -> int:
    """The time of a run in epoch milliseconds. now_ms: the value of `--now`; None: the clock."""
    return time.time_ns() // 1_000_000 if now_ms is None else now_ms


def page_for(path: str | None, command: str, now_ms: int) -> "HtmlPage | None":
    """The report that --html asks for, whose modules a run without it does not import. Raises Refused when it cannot be written."""
    if path is None:
        return None
    from kseg.cli.html.html_page import HtmlPage

    return HtmlPage(path, command, now_ms)
