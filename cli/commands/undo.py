"""`kseg undo`: undo the changes of a command, or complete an interrupted change."""

from collections.abc import Iterator
from typing import Annotated

from kseg.cli.change_options import FollowLinks
from kseg.cli.option_schema import Argument, Option
from kseg.cli.options import Json, NoJobs, NoNow, NoProgress, Quiet, Verbose, read_paths, refuse_read_only
from kseg.jobs.events import Advance, Event, Row
from kseg.segment.errors import UsageError

EXAMPLES = (
    ("Undo a repair", "kseg undo /var/lib/kafka/orders-0/.kseg/20260101T120000Z-1f2e3d4c/journal.jsonl"),
    ("Undo everything that a run changed in a data directory", "kseg undo /var/lib/kafka/kseg-journal-20260101T120000Z-1f2e3d4c.jsonl"),
    ("Undo the last run, by the path that was given to it", "kseg undo /var/lib/kafka"),
    ("Complete a change that was killed", "kseg undo --finish /var/lib/kafka/orders-0"),
    ("What can be undone, and how much space is held for that", "kseg undo --list /var/lib/kafka"),
    ("Free that space; nothing can be undone then", "kseg undo --forget --apply /var/lib/kafka"),
)  # fmt: skip


def command(
    *,
    journals: Annotated[
        tuple[str, ...],
        Argument(
            "JOURNAL",
            help="The journal that a command named, its directory, or the paths that were given to the command, for the newest run there.",
            read_all=read_paths,
        ),
    ],
    finish: Annotated[
        bool, Option(help="Finish an interrupted change instead; what an append wrote is kept.")
    ] = False,
    list_only: Annotated[
        bool, Option("--list", help="List the runs that can be undone, and how much space they hold.")
    ] = False,
    forget: Annotated[
        bool,
        Option(
            help="Free the space of runs, which then cannot be undone: all runs below a path, or that of a journal. Plans unless --apply."
        ),
    ] = False,
    apply: Annotated[bool, Option(help="With --forget: apply the plan.")] = False,
    follow_links: FollowLinks = False,
    json: Json = False,
    verbose: Verbose = False,
    now: NoNow = None,
    jobs: NoJobs = None,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
) -> int:
    """Undo the changes of a command: every file is restored, with its modification time and permissions.

    Refused when a file has changed since, a broker is running, or another kseg is at work there. An interrupted
    change can be undone too, or completed. An interrupted undo continues when the command is repeated. A run is undone
    as a whole, by the paths that were given to it, or not at all. The exit status is 1 when journals are to be forgotten and were only
    planned.
    """
    refuse_read_only("undo", journals)
    if not journals:
        raise UsageError("kseg undo needs at least one JOURNAL")
    if list_only + finish + forget > 1:
        raise UsageError("--list, --finish and --forget are mutually exclusive")
    if apply and not forget:
        raise UsageError("--apply requires --forget; otherwise kseg undo acts at once")
    from kseg.change.apply.undo_command import UndoOptions
    from kseg.change.run.forget_runs import forget_runs
    from kseg.change.run.undo_runs import list_runs, undo_paths, undo_units
    from kseg.cli.next_command import apply_command
    from kseg.cli.progress import Progress
    from kseg.cli.render import Style, show
    from kseg.cli.request import Request
    from kseg.cli.run_summary import RunSummary
    from kseg.cli.text.undo import UndoReport

    is_together = not list_only and not forget
    tally = RunSummary(undo_units(journals) if is_together else len(journals))
    progress = Progress((), not no_progress and not quiet, tally)
    options = UndoOptions(finish, follow_links, progress.step)

    def events() -> Iterator[Event]:
        if is_together:
            for event in undo_paths(journals, options):
                yield event
                if isinstance(event, Row) and isinstance(event.result, str):
                    yield Advance(event.result, 0)
        for path in journals:
            if list_only:
                yield from list_runs(path)
            elif forget:
                yield from forget_runs(path, apply, follow_links)
            tally.finish_target(path)

    report = UndoReport(is_together, finish, shows_all=verbose)
    given = {"--forget": True, "--follow-links": follow_links}
    style = Style(
        command="undo",
        json=json,
        quiet=quiet,
        verbose=verbose,
        progress=not no_progress,
        words=report.words,
        report=report,
        goes_on=is_together or apply,
        remains=lambda values: values.get("state") == "forgotten" and not values["applied"],
        advice=lambda tally: apply_command("undo", given, Request(journals)) if tally.remaining else "",
    )
    return show(events(), style, (), tally, progress)
