"""The partition directories that may contain the log of a missing replica: under its name with a suffix, or on another node.

A replica that was moved to another log dir, or to another node, leaves a `-delete` directory with its whole log, which a broker deletes
log.segment.delete.delay.ms after the move, or after its next start (Kafka: LogManager.asyncDelete, loadLog; observed with 4.3.1). Until
then, this may be the last copy of what the new place has lost.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from kseg.change.apply.lock import is_locked
from kseg.internal_topics.broker_directories import end_offset_of, ends_of
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import ExpectedPartition, MetadataImage
from kseg.segment import layout as L
from kseg.segment.diagnosis import ReplicaCopy
from kseg.segment.errors import KsegError, VanishedInput
from kseg.segment.files import read_small
from kseg.segment.partition.directory import partition_name, partitions_in
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionState, Role
from kseg.segment.partition.partition_epochs import last_epoch_below
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.metadata_files import decode_partition_metadata
from kseg.segment.storage import places

# directory names by partition and state; several directories can have the same partition and state
PartitionNames = dict[str, dict[PartitionState, list[str]]]
OF_A_MOVE = (PartitionState.FUTURE, PartitionState.DELETE)  # between log dirs


def name_of(expected: ExpectedPartition) -> str:
    return f"{expected.topic}-{expected.partition}"


def names_in(log_dir: str) -> PartitionNames:
    """The partition directories of a log dir, by the partition's name and their state. Raises UnreadableInput: what is in a directory that
    cannot be listed is not missing."""
    found: PartitionNames = {}
    for directory, name in partitions_in(log_dir):
        found.setdefault(name.text, {}).setdefault(name.state, []).append(directory)
    return found


def paths_of(
    log_dir: str, names: PartitionNames, expected: ExpectedPartition, state: PartitionState
) -> list[str]:
    return [os.path.join(log_dir, entry) for entry in names.get(name_of(expected), {}).get(state, ())]


def has_segment(partition_path: str) -> bool:
    """Whether a log exists; a directory that cannot be listed does not count as empty."""
    try:
        with places.scandir(partition_path) as entries:
            return any(entry.name.endswith(L.LOG_SUFFIX) for entry in entries)
    except OSError:
        return True


class Elsewhere(NamedTuple):
    """What other nodes have of a replica. copy: the most complete one, if any has a record. without: the nodes that have no log of it, with
    the number of their log dirs that were examined."""

    copy: ReplicaCopy | None
    without: Mapping[int, int]


CopyOf = Callable[[ExpectedPartition], Elsewhere]


class TopicIdFile(NamedTuple):
    """The partition.metadata of a directory. topic_id: None if it cannot be read; problem: why."""

    is_there: bool
    topic_id: str | None
    problem: str = ""


def topic_id_of(directory: str) -> TopicIdFile:
    place = os.path.join(directory, NAME_BY_ROLE[Role.PARTITION_METADATA])
    try:
        return TopicIdFile(True, decode_partition_metadata(read_small(place)).topic_id)
    except VanishedInput as error:
        # a dangling symlink exists, too
        is_there = places.lexists(place)
        return TopicIdFile(is_there, None, str(error) if is_there else "")
    except KsegError as error:
        return TopicIdFile(True, None, str(error))


def state_of(directory: str) -> PartitionState | None:
    """The state of a partition directory by its name; None if that is not a partition's."""
    name = partition_name(os.path.basename(directory))
    return None if name is None else name.state


def left_by_a_move(around: Iterable[tuple[str, PartitionNames]], expected: ExpectedPartition) -> str | None:
    """The log of a replica that was being moved to another log dir of the node, with what had been copied (`-future`), or the one that such
    a move has left behind (`-delete`); of several, the one that ends last. A broker truncates a `-future` log to the end of the empty log
    that it creates in place of the missing one, and deletes a `-delete` log (observed with 4.3.1)."""
    moving = [
        path
        for log_dir, names in around
        for state in OF_A_MOVE
        for path in paths_of(log_dir, names, expected, state)
        if topic_id_of(path).topic_id == expected.topic_id
    ]
    ends = {path: end_offset_of(PartitionTarget(path)) for path in moving}
    return max((path for path in ends if ends[path] > 0), key=lambda path: ends[path], default=None)


def copies_on_other_nodes(node_id: int | None, log_dirs: Sequence[str], finder: MetadataFinder) -> CopyOf:
    """Finds the most complete replica of a partition on the other nodes. node_id: of the node that has lost its own. log_dirs: of the run,
    all of one cluster; those of running brokers are left out, since their logs grow."""

    @cache
    def around() -> Sequence[tuple[int, str, PartitionNames]]:
        nodes = [(finder.node_of(log_dir).node_id, log_dir) for log_dir in log_dirs]
        return [
            (other, log_dir, names_in(log_dir))
            for other, log_dir in nodes
            if other is not None and other != node_id and not is_locked(log_dir)
        ]

    def copies(expected: ExpectedPartition) -> Iterator[tuple[int, int, bool, ReplicaCopy]]:
        for other, log_dir, names in around():
            for state in PartitionState:
                for path in paths_of(log_dir, names, expected, state):
                    if topic_id_of(path).topic_id == expected.topic_id and has_segment(path):
                        end_offset, end_of_records = ends_of(PartitionTarget(path))
                        epoch = last_epoch_below(path, end_offset + 1)
                        is_live = state is PartitionState.LIVE
                        copy = ReplicaCopy(path, other, end_of_records)
                        yield -1 if epoch is None else epoch, end_of_records, is_live, copy

    def copy_of(expected: ExpectedPartition) -> Elsewhere:
        found = [*copies(expected)]
        without = Counter(other for other, _, _ in around())
        for *_, there in found:
            without.pop(there.node, None)
        with_records = [each for each in found if each[3].end_offset > 0]
        copy = max(with_records, key=lambda each: each[:3])[3] if with_records else None
        return Elsewhere(copy, without)

    return copy_of


def lacks_it(node_id: int, without: Mapping[int, int], image: MetadataImage) -> bool:
    """Whether none of the log dirs of another node has a log of the partition."""
    broker = image.brokers.get(node_id)
    return broker is not None and without.get(node_id, 0) >= max(len(broker.log_dirs), 1)
