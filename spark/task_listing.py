"""The files of many partition directories, listed by tasks (`path_probes`)."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from kseg.jobs.events import Event
from kseg.segment.partition.targets import FileTarget, ListFiles, PartitionTarget, files_of
from kseg.spark import cluster_fanout, path_probes
from kseg.spark.options import ClusterOptions


def lister(cluster: ClusterOptions, say: Callable[[str], None]) -> ListFiles:
    """`files_of` that leaves many directories to the cluster."""

    def list_files(directories: Sequence[str]) -> Iterable[Sequence[FileTarget]]:
        if len(directories) <= path_probes.FEW:
            return files_of(directories)
        context = cluster_fanout.ready(cluster, say)
        run = cluster_fanout.described(_nothing, [PartitionTarget(path) for path in directories], None)
        listed: list[list[FileTarget]] = path_probes.by_tasks(context, run, files_of, directories)
        return listed

    return list_files


def _nothing(_target: PartitionTarget, _options: None) -> Iterator[Event]:
    return iter(())
