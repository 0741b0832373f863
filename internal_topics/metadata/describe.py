"""`kseg metadata`: the state in a cluster's metadata log, and whether the partition directories under PATH agree with it.

1. Find the metadata log: a file or directory of it that was named, else the one in a log dir under PATH, else the one of the same node
   beside it. Of several copies the longest is used; logs of two clusters are a usage error.
2. Return its state at the requested offset or time as rows, or the events up to it.
3. Give a verdict on each partition directory, and on each missing replica.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial

from kseg.change.apply.lock import is_locked
from kseg.internal_topics.broker_directories import BrokerDirectories, BrokerPartition
from kseg.internal_topics.metadata.directory_status import DirectoryVerdict, missing_from, status_of
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_history import MetadataHistory
from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.metadata_log import (
    METADATA_LOG_ROLES,
    MetadataReading,
    metadata_log_steps,
    read_metadata_file,
    read_metadata_log,
)
from kseg.internal_topics.metadata.metadata_place import AsOf
from kseg.internal_topics.metadata.metadata_rows import image_rows, metadata_row
from kseg.internal_topics.metadata.settling import settled
from kseg.jobs.events import Advance, Event, Row
from kseg.segment.errors import Refused, UsageError
from kseg.segment.partition.names import METADATA_DIRECTORY, parse_file_name
from kseg.segment.partition.targets import FileTarget, PartitionTarget, directory_of
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_OF_TOPICS = ("topic", "partition", "config", "acl", "removed_topic", "directory")


@dataclass(frozen=True, slots=True)
class MetadataTarget:
    """The directories of one broker, as one unit of work. path: the PATHs, to name it to the user."""

    path: str
    directories: BrokerDirectories


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataOptions:
    """as_of: an earlier state. history: events instead of the state. topics: globs; partition: a number; kinds: of rows, none for
    all; node: only partitions with a replica there, and rows about that broker."""

    as_of: AsOf | None = None
    history: bool = False
    topics: tuple[str, ...] = ()
    partition: int | None = None
    kinds: tuple[str, ...] = ()
    node: int | None = None
    show_secrets: bool = False


def describe_metadata(target: MetadataTarget, options: MetadataOptions) -> Iterator[Event]:
    """The events of `kseg metadata`. Raises UsageError, UnreadableInput and Refused."""
    directories = target.directories
    finder = MetadataFinder(directories.log_dirs)
    path = _metadata_path(directories, finder)
    yield Advance(path, 0)
    history = MetadataHistory(options.show_secrets) if options.history else None
    reading = MetadataReading(
        as_of=options.as_of, everything=True, watch=None if history is None else history.watch
    )
    image = yield from metadata_log_steps(path, reading)
    if options.as_of is None:
        finder.keep(image)
    cluster_id = _cluster_id(directories, finder, image)
    yield from image.doubts
    yield from image.notes
    is_earlier = options.as_of is not None and image.is_cut
    compared = [log_dir for log_dir in directories.log_dirs if not finder.uses_zookeeper(log_dir)]
    yield Row(metadata_row(image, cluster_id, compared, is_earlier=is_earlier))
    if history is not None:
        yield from (
            Row(event)
            for event in history.events(image.names, image.leaders)
            if _is_event_wanted(event, options)
        )
        return
    brokers = _OfNode(image, options)
    for row in image_rows(image, show_secrets=options.show_secrets):
        if _is_wanted(row, options) and brokers(row):
            yield Row(row)
    if options.node is not None:
        return
    for verdict in _verdicts(directories, finder, image, is_earlier=is_earlier):
        row = (verdict.as_of_then() if is_earlier else verdict).as_row()
        if _is_wanted(row, options):
            yield Row(row)


# --- find the log


def _metadata_path(directories: BrokerDirectories, finder: MetadataFinder) -> str:
    """The metadata log to read. Raises UsageError if there is none, or if there are logs of several clusters."""
    paths = [path for path in map(_named_log, directories.partitions) if path is not None]
    if not paths:
        log_dirs = dict.fromkeys([*directories.log_dirs, *map(_log_dir_of, directories.partitions)])
        paths = [image.path for image in map(finder.image_for, log_dirs) if image is not None]
    paths = list({places.realpath(path): path for path in paths}.values())
    if not paths:
        raise UsageError(
            f"there is no metadata log: neither {METADATA_DIRECTORY} nor a file of it under PATH or beside it"
        )
    if len(paths) == 1:
        return paths[0]
    images = [_read(path, MetadataReading()) for path in paths]
    for image in images:
        finder.keep(image)
    clusters = {image.cluster_id for image in images if image.cluster_id is not None}
    if len(clusters) > 1:
        raise UsageError(f"PATH has the metadata logs of several clusters: {', '.join(sorted(clusters))}")
    return max(images, key=lambda image: image.reach).path


def _named_log(found: BrokerPartition) -> str | None:
    """The path of a metadata log, or of a file of one; None for other partitions. A file or directory that is not named like a
    partition may be a copy."""
    path = found.target.path
    if found.name is None and isinstance(found.target, FileTarget):
        return path if parse_file_name(os.path.basename(path)).role in METADATA_LOG_ROLES else None
    return path if found.name is None or found.name.is_metadata_log else None


def _log_dir_of(found: BrokerPartition) -> str:
    if isinstance(found.target, PartitionTarget) and found.target.log_dir is not None:
        return found.target.log_dir
    directory = places.abspath(directory_of(found.target))
    is_inside = found.name is not None or isinstance(found.target, PartitionTarget)
    return os.path.dirname(directory) if is_inside else directory


def _read(path: str, reading: MetadataReading) -> MetadataImage:
    return read_metadata_log(path, reading) if places.isdir(path) else read_metadata_file(path, reading)


def _cluster_id(directories: BrokerDirectories, finder: MetadataFinder, image: MetadataImage) -> str | None:
    """The cluster id in meta.properties of the log dirs. Raises Refused if it is not the metadata log's."""
    found = None
    for log_dir in directories.log_dirs:
        theirs = finder.node_of(log_dir).cluster_id
        if None not in (theirs, image.cluster_id) and theirs != image.cluster_id:
            raise Refused(
                f"{image.path} belongs to cluster {image.cluster_id}, but {log_dir} belongs to cluster {theirs}"
            )
        found = found or theirs
    return found


# --- rows


def _verdicts(
    directories: BrokerDirectories, finder: MetadataFinder, image: MetadataImage, *, is_earlier: bool
) -> Iterator[DirectoryVerdict]:
    """Directories of a running broker that seem to become stray come last, judged again once it has had time to finish. If a broker keeps
    its metadata in ZooKeeper, this log does not determine which partitions it has."""
    unsettled = {}
    for found in directories.partitions:
        log_dir = _log_dir_of(found)
        verdict = status_of(found, finder.node_of(log_dir), image)
        if verdict is not None and verdict.is_doubtful and finder.uses_zookeeper(log_dir):
            yield verdict.of_zookeeper()
        elif verdict is not None and verdict.is_doubtful and not is_earlier and is_locked(log_dir):
            unsettled[verdict.path] = found
        elif verdict is not None:
            yield verdict

    def judge(path: str, now: MetadataImage) -> DirectoryVerdict:
        found = unsettled[path]
        verdict = status_of(found, finder.node_of(_log_dir_of(found)), now)
        assert verdict is not None
        return verdict

    yield from settled(dict.fromkeys(unsettled, image), judge, lambda verdict: verdict.is_doubtful).values()
    for log_dir in [each for each in directories.log_dirs if not finder.uses_zookeeper(each)]:
        others, gone = partial(finder.others_of, log_dir), partial(finder.gone_from, log_dir)
        yield from missing_from(log_dir, finder.placed_node_of(log_dir), image, others, gone)


def _is_wanted(row: Mapping[str, object], options: MetadataOptions) -> bool:
    kind = row["type"]
    if options.kinds and kind not in options.kinds:
        return False
    if not options.topics and options.partition is None:
        return True
    if kind not in _OF_TOPICS:
        return bool(options.kinds)
    if options.partition is not None and row.get("partition", options.partition) != options.partition:
        return False
    is_of_topic = kind not in ("config", "acl") or row["resource_type"] == "TOPIC"
    name = row["resource_name"] if kind in ("config", "acl") else row["topic"]
    return is_of_topic and _matches(name, options.topics)


def _matches(name: object, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(str(name or ""), glob) for glob in globs)


class _OfNode:
    """Whether a row concerns the requested node; without one every row does."""

    def __init__(self, image: MetadataImage, options: MetadataOptions) -> None:
        self._node = options.node
        self._topics = {
            topic.id
            for topic in image.topics.values()
            if any(options.node in each.replicas for each in topic.partitions.values())
        }

    def __call__(self, row: Mapping[str, object]) -> bool:
        if self._node is None:
            return True
        match row["type"]:
            case "partition":
                replicas = row["replicas"]
                return isinstance(replicas, tuple) and self._node in replicas
            case "topic":
                return row["topic_id"] in self._topics
            case "broker":
                return row["broker_id"] == self._node
            case "config":
                return row["resource_type"] == "BROKER" and row["resource_name"] in ("", str(self._node))
        return False


def _is_event_wanted(event: Mapping[str, object], options: MetadataOptions) -> bool:
    if options.topics and not (event["topic"] is not None and _matches(event["topic"], options.topics)):
        return False
    if options.partition is not None and event["partition"] not in (None, options.partition):
        return False
    nodes = event["nodes"]
    return options.node is None or (isinstance(nodes, list) and options.node in nodes)
