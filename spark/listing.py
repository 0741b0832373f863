"""The files of many partition directories, listed by tasks (`errands`)."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from kseg.segment.events import Event
from kseg.segment.targets import FileTarget, ListFiles, PartitionTarget, files_of
from kseg.spark import errands, fanout
from kseg.spark.cluster import ClusterOptions


def lister(cluster: ClusterOptions, say: Callable[[str], None]) -> ListFiles:
    """`files_of` that leaves many directories to the cluster."""

    def list_files(directories: Sequence[str]) -> Iterable[Sequence[FileTarget]]:
        if len(directories) <= errands.FEW:
            return files_of(directories)
        context = fanout.ready(cluster, say)
        run = fanout.described(_nothing, [PartitionTarget(path) for path in directories], None)
        listed: list[list[FileTarget]] = errands.by_tasks(context, run, files_of, directories)
        return listed

    return list_files


def _nothing(_target: PartitionTarget, _options: None) -> Iterator[Event]:
    return iter(())
