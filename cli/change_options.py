"""What the commands that change directories have in common: --apply, --output and what goes with them, and the frame of
a run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kseg.cli.option_schema import Option
from kseg.cli.options import directory_option
from kseg.segment.errors import UsageError

if TYPE_CHECKING:
    from kseg.change.apply.keeping import Keeping
    from kseg.change.run.run_lifecycle import RunLifecycle
    from kseg.change.run.shared_run import SharedRun
    from kseg.cli.options import Shown
    from kseg.cli.render import Style, Words
    from kseg.cli.report import Page, Report
    from kseg.cli.request import Request
    from kseg.cli.run_summary import RunSummary
    from kseg.jobs.events import Work
    from kseg.segment.findings import Finding
    from kseg.segment.partition.targets import Target
    from kseg.spark.options import ClusterOptions

CHANGE = "Changing files"

FollowLinks = Annotated[
    bool,
    Option(
        "--follow-links",
        help="Also change partitions that are reached through symbolic links below PATH, as a broker would.",
        panel=CHANGE,
    ),
]


class InPlaceOptions(NamedTuple):
    """What every command takes that changes partitions in place."""

    apply: Annotated[bool, Option("--apply", help="Apply the plan in place.", panel=CHANGE)] = False
    quarantine: Annotated[
        str | None,
        directory_option(
            "--quarantine",
            "Directory for copies of removed bytes, on any file system. Default: next to the journal, as hard links that take "
            "no space.",
            CHANGE,
        ),
    ] = None
    journal: Annotated[
        str | None,
        directory_option(
            "--journal",
            "Directory for the journal, on any file system, for instance when the disk is full. `kseg undo` finds it there. "
            "Default: .kseg in the partition directory.",
            CHANGE,
        ),
    ] = None
    accept_unreadable: Annotated[
        bool,
        Option(
            "--accept-unreadable",
            help="Also change partitions with unreadable bytes: these count as lost.",
            panel=CHANGE,
        ),
    ] = False
    follow_links: FollowLinks = False

    def keeping(self, output: str | None = None) -> "Keeping":
        """Where journal and quarantine go. Raises UsageError for a copy, which has neither."""
        from kseg.change.apply.keeping import Keeping

        for name, value in (("--journal", self.journal), ("--quarantine", self.quarantine)):
            if value is not None and output is not None:
                raise UsageError(f"{name} applies to a change in place, not to --output")
        return Keeping(self.journal, self.quarantine)


class CopyOptions(NamedTuple):
    """Instead of a change in place, a changed copy."""

    output: Annotated[
        str | None,
        directory_option(
            "--output",
            "Write a changed copy of the partitions below this directory; the input does not change.",
            CHANGE,
        ),
    ] = None
    hard_link: Annotated[
        bool,
        Option(
            "--hard-link", help="With --output: unchanged files of the copy are hard links.", panel=CHANGE
        ),
    ] = False

    def check(self, in_place: InPlaceOptions) -> None:
        """Raises UsageError for options that do not go together."""
        if in_place.apply and self.output is not None:
            raise UsageError("--apply and --output are mutually exclusive")
        if self.hard_link and self.output is None:
            raise UsageError("--hard-link requires --output")


def identity(
    apply: bool, cluster: "ClusterOptions | None", output: str | None = None
) -> "tuple[str, SharedRun | None]":
    """(the id for the journals of a run that writes, how its work is shared out over a cluster).

    What neither needs is not imported: most plans are made to be read."""
    if not apply and cluster is None and output is None:
        return "", None
    from kseg.change.apply.journal_location import new_run_id
    from kseg.change.run.shared_run import SharedRun
    from kseg.cli.run import clock_ms

    run_id = new_run_id(clock_ms())
    return run_id if apply or output is not None else "", None if cluster is None else SharedRun(
        run_id, output
    )


def change_style(
    command: str,
    *,
    json: bool,
    verbose: bool,
    shown: "Shown",
    words: "Words",
    report: "Report",
    remains: "Callable[[Mapping[str, Any]], bool]",
    advice: "Callable[[RunSummary], str | None]",
    after_failure: "Callable[[], str | None]" = lambda: "",
    page: "Page | None" = None,
) -> "Style":
    """How a run is shown that plans first. page: as in `Style`. advice: what carries the plan out, None for what the findings hint at. after_failure: the next command where something failed; None
    likewise."""
    from kseg.cli.render import Style

    return Style(
        command=command,
        json=json,
        **shown,
        findings_are_result=True,
        words=words,
        report=report,
        verbose=verbose,
        page=page,
        remains=remains,
        advice=lambda tally: after_failure() if tally.failures else advice(tally),
    )


def look_at_settings(
    run: "RunLifecycle[Any]", topic_settings: "Callable[[Sequence[Target]], tuple[Any, tuple[Finding, ...]]]"
) -> "Callable[[Sequence[Target]], None]":
    """What `change` is to look at for a run that goes by the settings of topics."""

    def look(targets: "Sequence[Target]") -> None:
        topics, run.first_events = topic_settings(targets)
        run.options = replace(run.options, topics=topics)

    return look


def change(
    work: "Work[Any, Any]",
    run: "RunLifecycle[Any]",
    style: "Style",
    request: "Request",
    *,
    jobs: int | None,
    look: "Callable[[Sequence[Target]], None] | None" = None,
    alone: "Callable[[Any, int], Any] | None" = None,
) -> int:
    """Run `work` on the partitions that were asked for, with what surrounds them; gives the exit status.

    look: what else is to be known about the targets, put into the run before it begins. alone: the options for one partition that has
    all the jobs for itself."""
    from kseg.change.run.pipeline import groups_of
    from kseg.cli.options import default_jobs
    from kseg.cli.run import over_targets
    from kseg.segment.partition.targets import Expansion

    return over_targets(
        work,
        run.options,
        style,
        expand=Expansion.VERIFY,
        request=request,
        jobs=jobs,
        in_place=run.options.apply,
        through=run.through,
        grouped=groups_of,
        hold=lambda targets: _held(
            run,
            request.paths,
            targets,
            look,
            None
            if alone is None or request.cluster is not None
            else lambda options: alone(options, jobs or default_jobs()),
        ),
    )


@contextmanager
def _held(
    run: "RunLifecycle[Any]",
    paths: Sequence[str],
    targets: "Sequence[Target]",
    look: "Callable[[Sequence[Target]], None] | None",
    alone: "Callable[[Any], Any] | None",
) -> "Iterator[object]":
    """What the run holds; not before it is known that its copies leave the input as it is. Raises Refused."""
    from kseg.segment.errors import Refused
    from kseg.segment.partition.targets import LogDirTarget, links_below, refuse_inside

    logs = [target for target in targets if not isinstance(target, LogDirTarget)]
    run.whole = [target.path for target in targets if isinstance(target, LogDirTarget)]
    run.links = links_below(paths, targets)
    if run.links and run.options.apply and not run.options.follow_links:
        more = f" and {len(run.links) - 1} more are links" if len(run.links) > 1 else " is a link"
        raise Refused(
            f"{run.links[0]}{more} to directories elsewhere; their targets are changed only with --follow-links; "
            "nothing was changed"
        )
    if look is not None:
        look(targets)
    if alone is not None and len(logs) == 1:
        run.options = alone(run.options)
    run.first_events = (*run.first_events, *_without_partitions(run.whole, logs))
    if run.options.output is not None:
        refuse_inside(run.options.output, targets)
    with run.held(logs) as options:
        yield options


def _without_partitions(whole: "Sequence[str]", logs: "Sequence[Target]") -> "Iterator[Finding]":
    """What is to be said of data directories in which there is nothing else to say."""
    from kseg.segment.findings import no_partitions
    from kseg.segment.partition.targets import PartitionTarget

    held = {target.log_dir for target in logs if isinstance(target, PartitionTarget)}
    yield from (no_partitions(log_dir) for log_dir in whole if log_dir not in held)
