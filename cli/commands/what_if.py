"""`kseg what-if`: the size of topics with other settings."""

from typing import Annotated

from kseg.cli.option_schema import Option
from kseg.cli.options import (
    CommonOptions,
    Html,
    Json,
    Now,
    OnCluster,
    Paths,
    Verbose,
    duration_option,
    int_size_option,
    refuse_read_only,
    size_option,
)
from kseg.segment.errors import UsageError

EXAMPLES = (
    ("Which codec would make this topic smaller, and at what price?", "kseg what-if --topic orders /var/lib/kafka"),
    ("These codecs and levels only", "kseg what-if --codec lz4 --codec zstd:9 --topic orders /var/lib/kafka"),
    ("Larger batches from the producers", "kseg what-if --batch-size 128KiB --linger 50 --topic orders /var/lib/kafka"),
    ("How much three days would keep", "kseg what-if --retention-ms 3d /var/lib/kafka"),
    ("A narrower interval, at the cost of more time", "kseg what-if --sample 64MiB --topic orders /var/lib/kafka"),
)  # fmt: skip

TRIED = "Settings to try"


def command(
    *,
    paths: Paths,
    codec: Annotated[
        tuple[str, ...],
        Option(
            metavar="CODEC[:LEVEL]",
            help=(
                "Try this codec: none, gzip, snappy, lz4 or zstd, with a level as in zstd:9; may be "
                "repeated. Default: all, zstd at levels 1, 3 and 9."
            ),
            panel=TRIED,
        ),
    ] = (),
    batch_size: Annotated[
        int | None,
        int_size_option(
            "Try producer batches with this batch.size. Default, without --linger: 64KiB with 20 ms and 256KiB with 100 ms.",
            TRIED,
        ),
    ] = None,
    linger: Annotated[int | None, duration_option("Try producer batches with this linger.ms.", TRIED)] = None,
    retention_ms: Annotated[
        tuple[int, ...],
        duration_option(
            "Show what this limit would keep; may be repeated. Default: 1, 3, 7 and 30 days.", TRIED
        ),
    ] = (),
    retention_bytes: Annotated[
        tuple[int, ...],
        size_option(
            "Show what this limit per partition would keep; may be repeated. Default: about a half "
            "and a quarter of the largest partition.",
            TRIED,
        ),
    ] = (),
    compaction: Annotated[
        bool,
        Option(
            help="Also show what cleanup.policy=compact would keep. This plans a compaction of all topics, which reads every key.",
            panel=TRIED,
        ),
    ] = False,
    sample: Annotated[
        int, size_option("How much of each topic to measure. A smaller topic is measured completely.", TRIED)
    ] = 8 << 20,
    json: Json = False,
    html: Html = None,
    common: CommonOptions,
    now: Now = None,
    verbose: Verbose = False,
    on: OnCluster,
) -> int:
    """Estimate the size of topics with another codec, level, batch size, linger or retention, and name the property that sets it.

    Samples real batches, spread evenly over all logs of a topic, and recompresses them with the codecs of a broker; the
    interval contains the true number with 95 % confidence. Codecs are tried on batches as they are, which is what a
    broker does for a topic with compression.type; another batch.size or linger.ms joins adjacent batches of a producer.
    What retention limits keep is exact. CPU time is that of the compressor on this machine, per GiB of uncompressed
    records. Never writes to the logs.
    """
    from kseg.cli.render import Style
    from kseg.cli.run import clock_ms, notice, over_targets, page_for, workers
    from kseg.cli.streams import terminal_columns
    from kseg.cli.text.what_if import WhatIfReport
    from kseg.cli.what_if_run import WhatIfParameters, WhatIfRun
    from kseg.inspection.what_if.candidates import DEFAULT_BATCHING, candidates_of, read_candidate
    from kseg.inspection.what_if.measuring import measure
    from kseg.segment.partition.targets import Expansion

    if not sample:
        raise UsageError("--sample takes a positive number of bytes")
    if compaction:
        refuse_read_only("what-if --compaction", paths)
    asked = ((batch_size, linger),) if batch_size is not None or linger is not None else None
    batching = DEFAULT_BATCHING if asked is None and not codec else asked or ()
    now_ms = clock_ms(now)
    largest = max((size for size, _ in batching if size is not None), default=0)
    parameters = WhatIfParameters(
        candidates=candidates_of([read_candidate(text) for text in codec], batching),
        sample_bytes=sample,
        place_bytes=min(sample, max(256 << 10, 2 * largest)),
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        compaction=compaction,
        now_ms=now_ms,
    )
    cluster = on.cluster(light=True)
    style = Style(
        command="what-if",
        json=json,
        **common.shown(),
        findings_are_result=True,
        report=WhatIfReport(verbose, terminal_columns()),
        words=lambda _: (),
        page=page_for(html, "what-if", now_ms),
    )
    run = WhatIfRun(parameters, workers(cluster, common.jobs, notice(style)))
    return over_targets(
        measure,
        None,
        style,
        expand=Expansion.PARTITIONS,
        request=common.request(paths, cluster),
        jobs=common.jobs,
        look=run.look,
        through=run.through,
        wanted=run.is_wanted,
    )
