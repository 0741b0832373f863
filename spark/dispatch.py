"""The entry points for the command line: run the work of a command on a cluster, by the generic fan-out or a special one, and list the
files of many partition directories (`path_probes`)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kseg.jobs.events import Event, Work
from kseg.jobs.guarded import Named
from kseg.segment.partition.targets import FileTarget, ListFiles, PartitionTarget, files_of
from kseg.spark import cluster_fanout, path_probes
from kseg.spark.options import ClusterOptions


def run(
    work: Work[Any, Any],
    targets: Sequence[Named],
    options: Any,
    *,
    cluster: ClusterOptions,
    finished: Callable[[Any], None] | None = None,
    notify: Callable[[str], None] | None = None,
    **more: Any,
) -> Iterator[Event]:
    """Run work on a cluster; arguments and events are those of `cluster_fanout.run`."""
    from kseg.compaction.cleaner.compact import compact_group

    if work is compact_group:
        from kseg.spark.shuffle.compact import run as compact

        return compact(work, targets, options, cluster, finished, notify, **more)  # type: ignore[arg-type]  # groups
    return cluster_fanout.run(work, targets, options, cluster, finished, notify, **more)


def lister(cluster: ClusterOptions, notify: Callable[[str], None]) -> ListFiles:
    """`files_of` that leaves many directories to the cluster."""

    def list_files(directories: Sequence[str]) -> Iterable[Sequence[FileTarget]]:
        if len(directories) <= path_probes.MAX_DRIVER_PROBES:
            return files_of(directories)
        context = cluster_fanout.ready(cluster, notify)
        run = cluster_fanout.task_run(_nothing, [PartitionTarget(path) for path in directories], None)
        listed: list[list[FileTarget]] = path_probes.probe_on_cluster(context, run, files_of, directories)
        return listed

    return list_files


def _nothing(_target: PartitionTarget, _options: None) -> Iterator[Event]:
    return iter(())
