"""`kseg list`: the inventory."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kseg.cli.options import Jobs, Json, NoProgress, Now, OnCluster, Partition, Paths, Quiet, Topics

if TYPE_CHECKING:
    from kseg.segment.findings import Finding
    from kseg.segment.partition.targets import Target

EXAMPLES = (
    ("What is in a data directory", "kseg list /var/lib/kafka"),
    ("The same for a script", "kseg list --json /var/lib/kafka"),
    ("One topic", "kseg list --topic orders /var/lib/kafka"),
)


def command(
    *,
    paths: Paths,
    json: Json = False,
    topics: Topics = (),
    partition: Partition = None,
    now: Now = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    on: OnCluster,
) -> int:
    """List what is there: every file and what it is, and for each partition its offsets, times and state.

    For each partition: segments, bytes, offsets, time range, codecs, leader epochs, last stable offset, open
    transactions, missing side files. Unknown files are listed too.
    """
    from kseg.cli.render import Style
    from kseg.cli.run import clock_ms, over_targets
    from kseg.cli.text.list import inventory_words, sums_first
    from kseg.cli.topic_evidence import finder_for, replicas_missing
    from kseg.inspection.inventory import list_target
    from kseg.inspection.query import ListOptions
    from kseg.segment.partition.targets import Expansion

    options = ListOptions(now_ms=clock_ms() if now is None else now)
    style = Style(command="list", json=json, quiet=quiet, progress=not no_progress, words=inventory_words)

    def look(targets: "Sequence[Target]", options: ListOptions) -> "tuple[ListOptions, tuple[Finding, ...]]":
        return options, tuple(replicas_missing(targets, finder_for(targets, None)))

    return over_targets(
        list_target,
        options,
        style,
        expand=Expansion.INVENTORY,
        paths=paths,
        topics=topics,
        partition=partition,
        jobs=jobs,
        cluster=on.cluster(light=True),
        through=None if json else sums_first,
        look=look,
    )
