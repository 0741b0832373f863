"""`kseg verify`: is what lies there sound? Findings, a summary, the next command to type."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from kseg.cli.option_schema import Option
from kseg.cli.options import (
    DropCache,
    Jobs,
    Json,
    NoProgress,
    Now,
    OnCluster,
    Partition,
    Paths,
    Quiet,
    Topics,
)
from kseg.cli.topic_evidence import MetadataPath
from kseg.segment.errors import UsageError

if TYPE_CHECKING:
    from kseg.segment.findings import Finding
    from kseg.segment.partition.targets import Target

EXAMPLES = (
    ("Is this data directory sound?", "kseg verify /var/lib/kafka"),
    ("Names, sizes, headers and checksums only, as fast as the disk", "kseg verify --quick /var/lib/kafka"),
    ("Decode every record of a topic", "kseg verify --deep --topic orders /var/lib/kafka"),
    ("Findings for a script", "kseg verify --json orders-0"),
)


def command(
    *,
    paths: Paths,
    quick: Annotated[bool, Option("--quick", help="Only headers, checksums, names and sizes.")] = False,
    deep: Annotated[bool, Option("--deep", help="Also decompress and decode every record.")] = False,
    metadata: MetadataPath = None,
    json: Json = False,
    topics: Topics = (),
    partition: Partition = None,
    now: Now = None,
    jobs: Jobs = None,
    quiet: Quiet = False,
    no_progress: NoProgress = False,
    drop_cache: DropCache = False,
    on: OnCluster,
) -> int:
    """Check files, partitions and whole data directories, and say what is wrong with them.

    Checks the batches and also what lies beside them: indexes against the log, transaction indexes, producer
    snapshots, leader epochs, the chain of segments, checkpoints, leftovers, and the topic ids with the cluster's metadata
    log where there is one. Never writes. The exit status is 1
    when there is an error among the findings.
    """
    if quick and deep:
        raise UsageError("--quick and --deep exclude each other")
    from kseg.cli.render import Style
    from kseg.cli.run import clock_ms, over_targets
    from kseg.cli.text.common import verify_words
    from kseg.cli.topic_evidence import topic_identities
    from kseg.recovery.verify.options import VerifyOptions
    from kseg.recovery.verify.verify import verify
    from kseg.segment.partition.targets import Expansion

    options = VerifyOptions(
        level="quick" if quick else "deep" if deep else "default",
        now_ms=clock_ms() if now is None else now,
        drop_cache=drop_cache,
    )
    style = Style(
        command="verify",
        json=json,
        quiet=quiet,
        progress=not no_progress,
        findings_are_result=True,
        summary=verify_words,
    )

    def look(
        targets: "Sequence[Target]", options: VerifyOptions
    ) -> "tuple[VerifyOptions, tuple[Finding, ...]]":
        identities, told = topic_identities(targets, metadata)
        return replace(options, identities=identities), told

    return over_targets(
        verify,
        options,
        style,
        expand=Expansion.VERIFY,
        paths=paths,
        topics=topics,
        partition=partition,
        jobs=jobs,
        cluster=on.cluster(light=True),
        alone=lambda jobs: replace(options, jobs=jobs),
        look=look,
    )
