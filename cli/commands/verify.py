"""`kseg verify`: check logs and data directories. Prints findings, a summary, and the next command to type."""

from kseg.cli.options import CommonOptions, Depth, DropCache, Html, Json, Now, OnCluster, Paths, Verbose
from kseg.cli.topic_evidence import MetadataPath, NodesProperties

EXAMPLES = (
    ("Is this data directory sound?", "kseg verify /var/lib/kafka"),
    ("Names, sizes, headers and checksums only, as fast as the disk", "kseg verify --quick /var/lib/kafka"),
    ("Decode every record of a topic", "kseg verify --deep --topic orders /var/lib/kafka"),
    ("The same as a page for a browser", "kseg verify --html verify.html /var/lib/kafka"),
    ("Findings for a script", "kseg verify --json orders-0"),
)


def command(
    *,
    paths: Paths,
    depth: Depth,
    metadata: MetadataPath = None,
    server_properties: NodesProperties = None,
    json: Json = False,
    html: Html = None,
    common: CommonOptions,
    now: Now = None,
    verbose: Verbose = False,
    drop_cache: DropCache = False,
    on: OnCluster,
) -> int:
    """Check files, partitions and whole data directories, and report what is wrong with them.

    Checks the batches and the files beside them: indexes against the log, transaction indexes, producer
    snapshots, leader epochs, the chain of segments, checkpoints, leftovers, and the topic ids with the cluster's metadata
    log if there is one. Records that a coordinator fails to load (groups, transactions) are errors too, unless --quick.
    Never writes. The exit status is 1 when there is an error among the findings.
    """
    from kseg.cli.render import Style
    from kseg.cli.run import clock_ms, over_targets, page_for
    from kseg.cli.shared_targets import Sharing
    from kseg.cli.text.verify import VerifyReport
    from kseg.cli.verify_work import Verification, VerifyWithLoads
    from kseg.segment.partition.targets import Expansion

    evidence = {"--metadata": metadata, "--server-properties": server_properties}
    options = depth.options(clock_ms(now), drop_cache, html is not None)
    style = Style(
        command="verify",
        json=json,
        **common.shown(),
        findings_are_result=True,
        report=VerifyReport(),
        verbose=verbose,
        page=page_for(html, "verify", options.now_ms),
        words=lambda _: (),  # printed at the end of the report
    )
    verification = Verification(metadata, server_properties)
    return over_targets(
        VerifyWithLoads(),
        options,
        style,
        expand=Expansion.VERIFY,
        request=common.request(paths, on.cluster(light=True), evidence),
        jobs=common.jobs,
        sharing=Sharing.LARGE,
        look=verification.look,
        through=verification.through,
    )
