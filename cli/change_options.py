"""What the commands that change directories share: --apply, --output and related options, and the lifecycle of a run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kseg.cli.option_schema import Option
from kseg.cli.options import directory_option
from kseg.segment.errors import Refused, UsageError

if TYPE_CHECKING:
    from kseg.change.apply.keeping import Keeping
    from kseg.change.run.run_lifecycle import RunLifecycle
    from kseg.cli.html.html_page import HtmlPage
    from kseg.cli.options import Shown
    from kseg.cli.render import Style, Words
    from kseg.cli.report import Report
    from kseg.cli.request import Request
    from kseg.cli.run_summary import RunSummary
    from kseg.cli.shared_targets import Sharing
    from kseg.jobs.events import Work
    from kseg.segment.findings import Finding
    from kseg.segment.partition.targets import Target
    from kseg.spark.options import ClusterOptions

CHANGE = "Changing files"

FollowLinks = Annotated[
    bool,
    Option(
        help="Also change partitions that are reached through symbolic links below PATH, as a broker would.",
        panel=CHANGE,
    ),
]


class InPlaceOptions(NamedTuple):
    """Options of every command that changes partitions in place."""

    apply: Annotated[bool, Option(help="Apply the plan in place.", panel=CHANGE)] = False
    quarantine: Annotated[
        str | None,
        directory_option(
            "Directory for copies of removed bytes, on any file system. Default: next to the journal, as hard links that take "
            "no space.",
            CHANGE,
        ),
    ] = None
    journal: Annotated[
        str | None,
        directory_option(
            "Directory for the journal, on any file system, for instance when the disk is full. `kseg undo` finds it there. "
            "Default: .kseg in the partition directory.",
            CHANGE,
        ),
    ] = None
    accept_unreadable: Annotated[
        bool, Option(help="Also change partitions with unreadable bytes: these count as lost.", panel=CHANGE)
    ] = False
    follow_links: FollowLinks = False

    def keeping(self) -> "Keeping":
        from kseg.change.apply.keeping import Keeping

        return Keeping(self.journal, self.quarantine)


class CopyOptions(NamedTuple):
    """Options for writing a changed copy instead of a change in place."""

    output: Annotated[
        str | None,
        directory_option(
            "Write a changed copy of the partitions below this directory; the input does not change.", CHANGE
        ),
    ] = None
    hard_link: Annotated[
        bool, Option(help="With --output: unchanged files of the copy are hard links.", panel=CHANGE)
    ] = False


NO_COPY = CopyOptions()


def options_of_change(
    in_place: InPlaceOptions, cluster: "ClusterOptions | None", copy: CopyOptions = NO_COPY
) -> dict[str, Any]:
    """The fields of `ChangeOptions` that the command line determines. Raises UsageError for options that exclude each other.

    The imports are local because most runs only print a plan, which needs none of these modules.
    """
    apply, output = in_place.apply, copy.output
    if apply and output is not None:
        raise UsageError("--apply and --output are mutually exclusive")
    if copy.hard_link and output is None:
        raise UsageError("--hard-link requires --output")
    for name, value in (("--journal", in_place.journal), ("--quarantine", in_place.quarantine)):
        if value is not None and output is not None:
            raise UsageError(f"{name} applies to a change in place, not to --output")
    keeping = in_place.keeping()
    fields: dict[str, Any] = {
        "apply": apply,
        "output": output,
        "hard_link": copy.hard_link,
        "keeping": keeping if cluster is not None else keeping.on_devices(),
        "follow_links": in_place.follow_links,
        "accept_unreadable": in_place.accept_unreadable,
    }
    if apply or output is not None or cluster is not None:
        from kseg.change.apply.journal_location import new_run_id
        from kseg.change.run.options import SharedRun
        from kseg.cli.run import clock_ms

        run_id = new_run_id(clock_ms())
        fields["run_id"] = run_id if apply or output is not None else ""
        fields["shared"] = None if cluster is None else SharedRun(run_id, output)
    return fields


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
    page: "HtmlPage | None" = None,
) -> "Style":
    """The display style of a run that plans first.

    page: as in `Style`. advice: the command that carries out the plan; None for the one that the findings suggest. after_failure:
    the same, used when a target failed.
    """
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
    """The `look` argument of `change` for a run that depends on topic settings."""

    def look(targets: "Sequence[Target]") -> None:
        topics, run.first_events = topic_settings(targets)
        run.options = replace(run.options, topics=topics)

    return look


def change(
    work: "Work[Any, Any]",
    run: "RunLifecycle[Any]",
    style: "Style",
    request: "Request",
    plan: "Mapping[str, object]",
    *,
    jobs: int | None,
    look: "Callable[[Sequence[Target]], None] | None" = None,
    sharing: "Sharing | None" = None,
) -> int:
    """Run `work` on the requested partitions with the lifecycle of the run around it; returns the exit status.

    plan: as returned by `plan_options`. look: determines what else is needed about the targets, and adds it to the run before it begins.
    sharing: as in `over_targets`.
    """
    from kseg.change.run.pipeline import groups_of
    from kseg.cli.run import notice, over_targets
    from kseg.cli.shared_targets import Sharing
    from kseg.segment.partition.targets import Expansion

    return over_targets(
        work,
        run.options,
        _resumable(style, run, request, plan),
        expand=Expansion.VERIFY,
        request=request,
        jobs=jobs,
        in_place=run.options.apply,
        through=run.through,
        grouped=groups_of,
        sharing=sharing or Sharing.NONE,
        hold=lambda targets: _held(run, request.paths, targets, look, notice(style)),
    )


def command_to_apply(
    run: "RunLifecycle[Any]", command: str, plan: "Mapping[str, object]", request: "Request"
) -> str:
    """The command that carries out the plan of a run, with the option without which links are refused; on a read-only file system the one
    that says what to do first."""
    from kseg.cli.next_command import apply_command, command_line

    if run.is_read_only:
        return command_line("doctor", {}, request)
    return apply_command(command, {**plan, "--follow-links": True} if run.links else plan, request)


def _resumable(
    style: "Style", run: "RunLifecycle[Any]", request: "Request", plan: "Mapping[str, object]"
) -> "Style":
    """The style of a run that writes: when it is interrupted, its output ends with the commands that complete it and that undo it."""
    options = run.options
    if not options.apply and options.output is None:
        return style
    from kseg.cli.next_command import command_line

    written = request.paths if options.output is None else (options.output,)
    place = {"--apply": options.apply, "--output": options.output, "--hard-link": options.hard_link}
    going_on = command_line(style.command, {**place, **plan}, request)
    advice = style.advice or (lambda _tally: None)
    return replace(
        style,
        advice=lambda tally: going_on if tally.interrupted else advice(tally),
        goes_on=True,
        going_back=command_line("undo", {}, replace(request, paths=written, topics=(), partition=None)),
        has_changed=lambda: _has_changed(written, run.options.run_id),
    )


def _has_changed(written: "Sequence[str]", run_id: str) -> bool:
    """Whether `undo` on the paths would take back this run: if this run has no journal there, it would take back an earlier one."""
    from kseg.change.run.undo_runs import changes_below
    from kseg.segment.errors import KsegError

    try:
        found = [changes_below(path) for path in written]
    except KsegError:
        return True
    runs = [each for below in found for each in below.runs]
    return any(each.id.startswith(run_id) for each in runs) or (
        not runs and any(below.uncommitted for below in found)
    )


@contextmanager
def _held(
    run: "RunLifecycle[Any]",
    paths: Sequence[str],
    targets: "Sequence[Target]",
    look: "Callable[[Sequence[Target]], None] | None",
    say: "Callable[[str], None]",
) -> "Iterator[object]":
    """Add what the targets determine to the run, hold its locks, and yield the options of the work. say: prints a sentence.

    Raises Refused for links that may not be followed, and for an output directory inside the input; UsageError for several targets of one
    log.
    """
    from kseg.segment.partition.target_guards import links_below, refuse_inside, refuse_parts
    from kseg.segment.partition.targets import LogDirTarget

    logs = [target for target in targets if not isinstance(target, LogDirTarget)]
    refuse_parts(logs)
    run.whole = [target.path for target in targets if isinstance(target, LogDirTarget)]
    run.links = links_below(paths, targets)
    if run.links and run.options.apply and not run.options.follow_links:
        which = f"{run.links[0]} is a link to a directory elsewhere, which is"
        if len(run.links) > 1:
            which = (
                f"{run.links[0]} and {len(run.links) - 1} more are links to directories elsewhere, which are"
            )
        raise Refused(f"{which} changed only with --follow-links; nothing was changed")
    if look is not None:
        look(targets)
    run.first_events = (*run.first_events, *_without_partitions(run.whole, logs))
    if run.options.output is not None:
        refuse_inside(run.options.output, targets)
    if not run.options.apply:
        _tell_of_brokers(targets, say)
        run.is_read_only = run.options.output is None and tell_of_read_only(targets, say)
    with run.held(logs) as options:
        yield options


def _tell_of_brokers(targets: "Sequence[Target]", say: "Callable[[str], None]") -> None:
    """Say on which data directories a broker runs: the plan is based on files that keep changing."""
    from kseg.change.apply.lock import in_use_words, lock_holder
    from kseg.cli.topic_evidence import log_dirs_of

    for log_dir in log_dirs_of(targets):
        process_id = lock_holder(log_dir)
        if process_id is not None:
            used = in_use_words(log_dir, process_id)
            say(f"{used}: its files change while they are read, and --apply is refused")


def tell_of_read_only(targets: "Sequence[Target]", say: "Callable[[str], None]") -> bool:
    """Say that nothing can be changed on a file system that is mounted read-only; returns whether there is one."""
    from kseg.segment.mounts import is_read_only
    from kseg.segment.terminal import shown_path

    first = next((target.path for target in targets if is_read_only(target.path)), None)
    if first is not None:
        say(
            f"{shown_path(first)} is on a file system that is mounted read-only, as a kernel does after an I/O error: --apply is refused "
            "until it is writable (`kseg doctor` says what to do)"
        )
    return first is not None


def _without_partitions(whole: "Sequence[str]", logs: "Sequence[Target]") -> "Iterator[Finding]":
    """A finding for each data directory in which no partition was found."""
    from kseg.segment.findings import no_partitions
    from kseg.segment.partition.targets import PartitionTarget

    held = {target.log_dir for target in logs if isinstance(target, PartitionTarget)}
    yield from (no_partitions(log_dir) for log_dir in whole if log_dir not in held)
