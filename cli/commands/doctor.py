"""`kseg doctor`: one page on the state of a broker's data directories, and what to do."""

from dataclasses import replace

from kseg.cli.options import (
    CommonOptions,
    Depth,
    DropCache,
    Html,
    Json,
    Now,
    OnCluster,
    Paths,
    Verbose,
    refuse_read_only,
)
from kseg.cli.topic_evidence import MetadataPath, NodesProperties

EXAMPLES = (
    ("What is wrong here, and what do I type", "kseg doctor /var/lib/kafka"),
    ("All data directories of a broker together", "kseg doctor /data1/kafka /data2/kafka"),
    ("Headers and checksums only, as fast as the disk", "kseg doctor --quick /var/lib/kafka"),
    ("A page to attach to the incident", "kseg doctor --html doctor.html /var/lib/kafka"),
    ("For a script", "kseg doctor --json /var/lib/kafka"),
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
    """Show on one page the state of a broker's data directories, and the commands to run, in order.

    Combines the results of other commands: whether a broker runs and how its last stop ended, disks and mounts, `verify` with its
    forecast of a broker's start, what each damaged partition costs (`recover`), hanging transactions, groups that do not
    continue where they stopped, what is deleted soon after the start (by retention, and committed offsets that have expired),
    compacted topics that no cleaner cleans, and files that are no longer used. Never writes.
    Of many replicas with the same fault only the first ones get a step each, with --verbose all.
    The exit status is 1 when there is an error or something to be done.
    """
    refuse_read_only("doctor", paths)
    from kseg.cli.doctor.examination import Examination
    from kseg.cli.render import Style
    from kseg.cli.run import clock_ms, notice, over_targets, page_for, workers
    from kseg.cli.shared_targets import Sharing
    from kseg.cli.text.doctor import DoctorReport
    from kseg.cli.verify_work import Verification, VerifyWithLoads
    from kseg.segment.partition.targets import Expansion

    options = depth.options(clock_ms(now), drop_cache, html is not None)
    cluster = on.cluster(light=True)
    evidence = {"--metadata": metadata, "--server-properties": server_properties}
    request = replace(common.request(paths, cluster, evidence), is_verbose=verbose)
    style = Style(
        command="doctor",
        json=json,
        **common.shown(),
        findings_are_result=True,
        report=DoctorReport(options.now_ms),
        verbose=verbose,
        page=page_for(html, "doctor", options.now_ms),
        words=lambda _: (),  # printed at the end of the report
        remains=lambda row: row.get("type") == "step" and bool(row["due"]),
        errors_settle=True,
        advice=lambda _: "",  # the steps contain it
    )
    verification = Verification(metadata, server_properties)
    examination = Examination(
        request, metadata, verification, workers(cluster, common.jobs, notice(style)), options.now_ms
    )
    return over_targets(
        VerifyWithLoads(),
        options,
        style,
        expand=Expansion.VERIFY,
        request=request,
        jobs=common.jobs,
        sharing=Sharing.LARGE,
        look=examination.look,
        through=examination.through,
    )
