"""What the commands that change directories have in common: --apply, --output and what goes with them, and the frame of
a run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from kseg.cli.option_schema import Option
from kseg.segment.errors import UsageError

if TYPE_CHECKING:
    from kseg.change.apply.keeping import Keeping
    from kseg.change.run.frame import Around
    from kseg.change.run.shared_run import Shared
    from kseg.cli.render import Style
    from kseg.jobs.events import Work
    from kseg.segment.partition.targets import Target
    from kseg.spark.options import ClusterOptions

CHANGE = "What is changed"

Apply = Annotated[bool, Option("--apply", help="Carry the plan out, in place.", panel=CHANGE)]
HardLink = Annotated[
    bool,
    Option("--hard-link", help="With --output: unchanged files of the copy are hard links.", panel=CHANGE),
]
FollowLinks = Annotated[
    bool,
    Option(
        "--follow-links",
        help="Change partitions too that are reached through links below PATH, as a broker would.",
        panel=CHANGE,
    ),
]
Quarantine = Annotated[
    str | None,
    Option(
        "--quarantine",
        metavar="DIR",
        help="Where copies of what is taken out go, on any file system. Default: beside the journal, as second names that take "
        "no room.",
        panel=CHANGE,
    ),
]
JournalDir = Annotated[
    str | None,
    Option(
        "--journal",
        metavar="DIR",
        help="Where the journal goes, on any file system: a disk that is full has no room for it. `kseg undo` finds it there. "
        "Default: .kseg in the partition directory.",
        panel=CHANGE,
    ),
]

AcceptUnreadable = Annotated[
    bool,
    Option(
        "--accept-unreadable",
        help="Change partitions with bytes that cannot be read too: they count as lost.",
        panel=CHANGE,
    ),
]


def check_way(apply: bool, output: str | None, hard_link: bool) -> None:
    """Raises UsageError for options that do not go together."""
    if apply and output is not None:
        raise UsageError("--apply and --output exclude each other")
    if hard_link and output is None:
        raise UsageError("--hard-link goes with --output")


def keeping_of(journal_dir: str | None, quarantine: str | None, output: str | None = None) -> "Keeping":
    """Where journal and quarantine go. Raises UsageError for a copy, which has neither."""
    from kseg.change.apply.keeping import Keeping

    for name, value in (("--journal", journal_dir), ("--quarantine", quarantine)):
        if value is not None and output is not None:
            raise UsageError(f"{name} goes with a change in place, and not with --output")
    return Keeping(journal_dir, quarantine)


def identity(
    apply: bool, cluster: "ClusterOptions | None", output: str | None = None
) -> "tuple[str, Shared | None]":
    """(the id for the journals of a run that writes, how its work is shared out over a cluster).

    What neither needs is not imported: most plans are made to be read."""
    if not apply and cluster is None and output is None:
        return "", None
    from kseg.change.apply.journal import new_run_id
    from kseg.change.run.shared_run import Shared
    from kseg.cli.run import clock_ms

    run_id = new_run_id(clock_ms())
    return run_id if apply or output is not None else "", None if cluster is None else Shared(run_id, output)


def change(
    work: "Work[Any, Any]",
    run: "Around[Any]",
    style: "Style",
    *,
    paths: Sequence[str],
    topics: Sequence[str],
    partition: int | None,
    jobs: int | None,
    cluster: "ClusterOptions | None",
    look: "Callable[[Sequence[Target]], None] | None" = None,
) -> int:
    """Run `work` on the partitions that the paths mean, with what surrounds them; gives the exit status.

    look: what else is to be known about the targets, put into the run before it begins."""
    from kseg.change.run.pipeline import groups_of
    from kseg.cli.run import over_targets
    from kseg.segment.partition.targets import Expansion

    return over_targets(
        work,
        run.options,
        style,
        expand=Expansion.PARTITIONS,
        paths=paths,
        topics=topics,
        partition=partition,
        jobs=jobs,
        cluster=cluster,
        in_place=run.options.apply,
        through=run.through,
        grouped=groups_of,
        hold=lambda targets: _held(run, paths, targets, look),
    )


@contextmanager
def _held(
    run: "Around[Any]",
    paths: Sequence[str],
    targets: "Sequence[Target]",
    look: "Callable[[Sequence[Target]], None] | None",
) -> "Iterator[object]":
    """What the run holds; not before it is known that its copies leave the input as it is. Raises Refused."""
    from kseg.segment.errors import Refused
    from kseg.segment.partition.targets import links_below, refuse_inside

    run.links = links_below(paths, targets)
    if run.links and run.options.apply and not run.options.follow_links:
        more = f" and {len(run.links) - 1} more are links" if len(run.links) > 1 else " is a link"
        raise Refused(
            f"{run.links[0]}{more} to directories elsewhere; what they lead to is changed with --follow-links only; "
            "nothing was changed"
        )
    if look is not None:
        look(targets)

    if run.options.output is not None:
        refuse_inside(run.options.output, targets)
    with run.held(targets) as options:
        yield options
