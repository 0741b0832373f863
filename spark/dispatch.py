"""Who runs the work of a command on a cluster: the fan-out, which knows nothing of it, or a way that it has of its own."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kseg.jobs.events import Event, Work
from kseg.jobs.fanout import Named
from kseg.spark import cluster_fanout
from kseg.spark.options import ClusterOptions


def run(
    work: Work[Any, Any],
    targets: Sequence[Named],
    options: Any,
    *,
    cluster: ClusterOptions,
    finished: Callable[[Any], None] | None = None,
    say: Callable[[str], None] | None = None,
    **more: Any,
) -> Iterator[Event]:
    """As `fanout.run`; more: for it."""
    from kseg.compaction.cleaner.compact import compact_group

    if work is compact_group:
        from kseg.spark.shuffle.compact import run as compact

        return compact(work, targets, options, cluster, finished, say, **more)  # type: ignore[arg-type]  # groups
    return cluster_fanout.run(work, targets, options, cluster, finished, say, **more)
