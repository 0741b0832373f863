"""The partitions that a read covers.

Paths are resolved to partitions as everywhere in kseg; a path with wildcards stands for what it matches. Directories that a broker has
renamed (`-delete`, `-stray`, `-future`) are read only if they are named themselves. A directory is recognised by its name and not
opened here: most of the directories may be irrelevant to the read.
"""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence

from kseg.segment.errors import UnreadableInput, UsageError
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import PartitionState
from kseg.segment.partition.targets import Expansion, LogTarget, directory_of, resolve_targets
from kseg.segment.storage import places
from kseg.segment.values import dataclass
from kseg.spark.source.offset_range_limits import AtOffsets, AtTimes, TopicPartition, shown
from kseg.spark.source.options import SourceOptions

NO_PARTITION = -1  # for a directory that is not named like a partition


@dataclass(frozen=True, slots=True)
class SourcePartition:
    """A log to read. topic, partition: from the name of its directory."""

    target: LogTarget
    topic: str
    partition: int

    @property
    def where(self) -> TopicPartition:
        return self.topic, self.partition


def places_of(options: SourceOptions) -> list[SourcePartition]:
    """The partitions of a read, in the order of their paths and names. Raises UsageError if an option names a partition that does not
    exist, UnreadableInput if nothing can be read."""
    asked = options.subscription
    chosen = [place for place in _places_below(options.paths) if asked.accepts(*place.where)]
    missing: set[str] = set()
    if asked.topics is not None:
        missing = set(asked.topics) - {place.topic for place in chosen}
    elif asked.partitions is not None:
        missing = set(map(shown, set(asked.partitions) - _wheres(chosen)))
    if missing:
        raise UnreadableInput(f"there is no {', '.join(sorted(missing))} in {', '.join(options.paths)}")
    for side in (options.starting, options.ending):
        if isinstance(side, AtOffsets | AtTimes) and side.by_partition.keys() != _wheres(chosen):
            raise UsageError(
                "offsets by partition must name every partition that is read, with -2 for earliest and -1 for latest: "
                f"partitions read: {_named(_wheres(chosen))}; partitions named: {_named(side.by_partition)}"
            )
    return chosen


def absolute_paths(given: Sequence[str]) -> Iterator[str]:
    """The absolute paths that paths and wildcards match; tasks may have another working directory. Raises UnreadableInput for a
    wildcard that nothing matches."""
    for path in map(places.given, given):
        if places.lexists(path) or not glob.has_magic(path):
            yield places.abspath(path)
            continue
        found = sorted(glob.glob(path))
        if not found:
            raise UnreadableInput(f"no files match {path}")
        yield from map(places.abspath, found)


def _places_below(given: Sequence[str]) -> Iterator[SourcePartition]:
    """Each partition once, even if several paths lead to it."""
    paths = list(absolute_paths(given))
    targets = {target.path: target for target in resolve_targets(paths, expand=Expansion.PARTITIONS)}
    for target in targets.values():
        assert isinstance(target, LogTarget)
        directory = directory_of(target)
        name = own_partition_name(directory)
        if name is None:
            yield SourcePartition(target, os.path.basename(directory), NO_PARTITION)
        elif name.state is PartitionState.LIVE or target.path in paths:
            yield SourcePartition(target, name.topic, name.partition)


def _wheres(places: Sequence[SourcePartition]) -> set[TopicPartition]:
    return {place.where for place in places}


def _named(wheres: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted(map(shown, wheres))) or "none"
