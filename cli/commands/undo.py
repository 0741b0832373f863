"""`kseg undo`: take back what a command changed, or finish what it left half done."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from kseg.cli.change_options import FollowLinks
from kseg.cli.option_schema import Argument, Option
from kseg.cli.options import Json, NoBar, NoJobs, NoNow, Quiet
from kseg.jobs.events import Event
from kseg.segment.errors import UsageError

EXAMPLES = (
    (
        "Take back a repair",
        "kseg undo /var/lib/kafka/orders-0/.kseg/20260101T120000Z-1f2e3d4c/journal.jsonl",
    ),
    (
        "Take back everything that a run changed in a data directory",
        "kseg undo /var/lib/kafka/kseg-journal-20260101T120000Z-1f2e3d4c.jsonl",
    ),
    ("Finish a change that was killed", "kseg undo --finish /var/lib/kafka/orders-0"),
)


def command(
    *,
    journals: Annotated[
        tuple[str, ...],
        Argument(
            "JOURNAL",
            help="The journal that a command named, its directory, or a directory that has just one journal.",
        ),
    ],
    finish: Annotated[
        bool,
        Option("--finish", help="Go on with a half-done change instead; what an append wrote is kept."),
    ] = False,
    follow_links: FollowLinks = False,
    json: Json = False,
    now: NoNow = None,
    jobs: NoJobs = None,
    quiet: Quiet = False,
    no_progress: NoBar = False,
) -> int:
    """Take back what a command changed: every file is again what it was, with its time and permissions.

    Refused when a file was changed since, when a broker is running, or another kseg is at work. A change that was
    killed half way can be taken back too, or finished. An undo that was killed goes on when it is given again.
    """
    if not journals:
        raise UsageError("kseg undo needs at least one JOURNAL")
    from kseg.change.apply.undo_command import undo_journal
    from kseg.cli.render import Style, show
    from kseg.cli.run_summary import RunSummary

    tally = RunSummary(len(journals))

    def events() -> Iterator[Event]:
        for path in journals:
            yield from undo_journal(path, finish, follow_links)
            tally.finish_target(path)

    style = Style(command="undo", json=json, quiet=quiet, progress=False, words=_words)
    return show(events(), style, (), tally)


def _words(values: Mapping[str, Any]) -> Iterator[str]:
    from kseg.cli.run_summary import counted
    from kseg.segment.terminal import shell_quoted, visible

    where = visible(str(values["directory"]))
    if values["state"] == "finished":
        yield f"{where}: finished; undo with: kseg undo {shell_quoted(str(values['journal']))}"
    else:
        files = counted(len(values["files"]), "file")
        yield f"{where}: as it was before {values['undid']} ({files})"
        if values.get("whole_run"):
            journal = shell_quoted(str(values["whole_run"]))
            yield f"  the data directory's own files stay as that run set them; take them back with: kseg undo {journal}"
