"""`kseg diff`: compare two copies of partitions, and find where they begin to differ."""

from typing import Annotated

from kseg.cli.option_schema import Argument
from kseg.cli.options import CommonOptions, Html, Json, Now, OnCluster, Verbose
from kseg.segment.errors import UsageError

EXAMPLES = (
    ("Are two replicas the same log?", "kseg diff /broker-1/orders-0 /broker-2/orders-0"),
    ("A backup against the live disk", "kseg diff /mnt/backup/kafka /var/lib/kafka"),
    ("One partition against a backup of the log dir", "kseg diff /var/lib/kafka/orders-0 /mnt/backup/kafka"),
    ("What a repair changed", "kseg diff /var/lib/kafka /mnt/repaired"),
    ("One topic, as a page for a browser", "kseg diff --topic orders --html diff.html /broker-1 /broker-2"),
)  # fmt: skip

Copies = Annotated[
    tuple[str, ...],
    Argument(
        "PATH",
        help=(
            "The two copies, A and B: two partition directories, log dirs, directories above several, "
            "or segment files. A partition directory is compared with the partition of its name in a "
            "log dir."
        ),
    ),
]


def command(
    *,
    paths: Copies,
    json: Json = False,
    html: Html = None,
    common: CommonOptions,
    now: Now = None,
    verbose: Verbose = False,
    on: OnCluster,
) -> int:
    """Compare two copies of partitions: two replicas, a backup and the live disk, before and after a repair.

    Partitions are compared by offset, batch by batch, regardless of segment boundaries; batches with different bytes
    are compared record by record. The result for each: same, one behind the other, diverged (and from which offset,
    also by the leader epochs), damaged in one, or only in one. Records that compaction has removed from one copy (it
    has a later record of the key), a different log start, other codecs and other leader epochs of the same records
    are told apart from losses and a divergence. Never writes to the logs. The exit status is 0 when the records are
    the same, otherwise 1.
    """
    from kseg.cli.render import Style
    from kseg.cli.run import clock_ms, over_targets, page_for
    from kseg.cli.text.diff import DiffReport, advice_for
    from kseg.inspection.copies.compare_copies import SAME_RECORDS, compare_copies
    from kseg.inspection.copies.copy_pairs import pair_up
    from kseg.segment.partition.targets import Expansion

    if len(paths) != 2:
        raise UsageError(f"kseg diff takes two PATHs, the two copies; given: {len(paths)}")
    report = DiffReport(paths, verbose)
    style = Style(
        command="diff",
        json=json,
        **common.shown(),
        findings_are_result=True,
        report=report,
        words=lambda _: (),
        remains=lambda row: row.get("type") == "comparison" and row["verdict"] not in SAME_RECORDS,
        errors_settle=True,
        advice=lambda _: advice_for(report.worst),
        page=page_for(html, "diff", clock_ms(now)),
    )
    cluster = on.cluster(light=True)
    is_narrowed = bool(common.topics) or common.partition is not None
    return over_targets(
        compare_copies,
        None,
        style,
        expand=Expansion.PARTITIONS,
        request=common.request(paths, cluster),
        jobs=common.jobs,
        grouped=lambda targets, jobs: pair_up(
            paths, targets, is_narrowed=is_narrowed, jobs=jobs if cluster is None else 1
        ),
    )
