"""Find the metadata log of a log dir, and the node to which the log dir belongs.

1. The one that the user specified: a partition directory, a log dir that contains one, one snapshot, or one segment.
2. `__cluster_metadata-0` in the log dir itself.
3. In another log dir of the same node: among those given and those in server.properties (first the ones beside the log dir), else among
   the siblings of the log dir (also those of a link's target), else in directories with similar names (`/data-0/kafka-log0`,
   `/data-1/kafka-log1`). These may be copies of the same broker at another time (`/copy-1/d1`, `/copy-2/d1`), so the nearest counts, and of
   several at the same distance the longest. meta.properties of both must name the same cluster and the same node; if that of the log dir
   is lost, the metadata log must place its partitions on the node.
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from kseg.internal_topics.metadata.metadata_image import MetadataImage, Node
from kseg.segment.errors import KsegError, Refused, UnreadableInput, UsageError, cannot_read
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.names import METADATA_DIRECTORY, NAME_BY_ROLE, Role, parse_file_name
from kseg.segment.partition.targets import PartitionTarget, is_directory
from kseg.segment.sidecar.metadata_files import MetaProperties, decode_meta_properties
from kseg.segment.storage import places

_MAX_NEIGHBOURS = 1000
_DIGITS = re.compile(r"\d+")


class MetadataFinder:
    """Finds and reads metadata logs, each once.

    given: log dirs that the user named. explicit: the path of --metadata. more: further directories that may contain a metadata log.
    left_out: log dirs that the node no longer has: what they hold counts as missing. Raises UsageError for an explicit path without one,
    UnreadableInput for one that cannot be read.
    """

    def __init__(
        self,
        given: Sequence[str] = (),
        explicit: str | None = None,
        more: Sequence[str] = (),
        left_out: Sequence[str] = (),
    ) -> None:
        self._left_out = [*left_out]
        self._named = {places.realpath(path) for path in more}
        self._told = {places.realpath(path) for path in given}
        self._given = [*given, *more]
        self._images: dict[str, MetadataImage] = {}
        self._by_log_dir: dict[str, MetadataImage | None] = {}
        self._nodes: dict[str, Node] = {}
        # by log dir and cluster id: the node of the log dir, according to a metadata log of that cluster
        self._node_ids: dict[tuple[str, str], int] = {}
        self._naming: dict[str, bool] = {}
        self._explicit = None if explicit is None else _read(_named(explicit))

    def image_for(self, log_dir: str) -> MetadataImage | None:
        """The metadata image for a log dir; None if there is none. Raises Refused if the one that was named belongs to another cluster."""
        if log_dir not in self._by_log_dir:
            self._by_log_dir[log_dir] = self._find(log_dir)
        return self._by_log_dir[log_dir]

    def own_image(self, log_dir: str) -> MetadataImage | None:
        """The image of the metadata log in the log dir itself; None if there is none. Raises as `image_for`."""
        image = self.image_for(log_dir)
        return image if image is not None and os.path.dirname(image.path) == log_dir else None

    def image_at(self, path: str) -> MetadataImage:
        """The image of a metadata log, or of a file of one; without state if it cannot be read."""
        key = places.realpath(path)
        if key not in self._images:
            try:
                self._images[key] = _read(path)
            except UnreadableInput as error:  # it exists, but its content is unknown
                doubt = Finding("metadata-log-doubtful", path, str(error))
                image = MetadataImage(path=path, end_offset=0, epoch=-1, timestamp_ms=-1, doubts=(doubt,))
                self._images[key] = image
        return self._images[key]

    def keep(self, image: MetadataImage) -> None:
        """Use an image of the end of a metadata log that the caller has read. One with doubts is read again, since they are judged."""
        if image.is_certain:
            self._images.setdefault(places.realpath(image.path), image)

    def uses_zookeeper(self, log_dir: str) -> bool:
        """Whether the broker of a log dir keeps its metadata in ZooKeeper in spite of the metadata log that it has: during a migration to
        KRaft until it is restarted as a KRaft broker, and permanently if the migration is abandoned. ZooKeeper's topics need not be in that
        log (observed with 3.9.1). A metadata log that the user named counts nevertheless."""
        image, node_id = self.image_for(log_dir), self.node_of(log_dir).node_id
        broker = None if image is None or node_id is None else image.brokers.get(node_id)
        return self._explicit is None and broker is not None and broker.uses_zookeeper

    def governing_image(self, log_dir: str) -> MetadataImage | None:
        """The metadata image for a log dir, if it decides which topics, ids and configurations the broker has; None if it does not
        (`uses_zookeeper`) or if there is none. Raises as `image_for`."""
        return None if self.uses_zookeeper(log_dir) else self.image_for(log_dir)

    def node_of(self, log_dir: str) -> Node:
        """The node of a log dir; its meta.properties is read once."""
        if log_dir not in self._nodes:
            self._nodes[log_dir] = node_of(log_dir)
        return self._nodes[log_dir]

    def placed_node_of(self, log_dir: str) -> Node:
        """The node of a log dir, from its meta.properties, else from the partitions that the metadata log places there."""
        node, image = self.node_of(log_dir), self.image_for(log_dir)
        if image is None or not image.is_certain or None not in (node.node_id, node.directory_id):
            return node
        return self._by_placement(log_dir, image, node)

    def node_told_by_metadata(self, log_dir: str) -> int | None:
        """The node of a log dir from its directory id, unless another one has the same, and the partitions placed there, whatever node its
        meta.properties names; None if the metadata log does not determine it."""
        node, image = self.node_of(log_dir), self.image_for(log_dir)
        if image is None or not image.is_certain:
            return None
        known, twice = replace(node, node_id=None), None
        if sum(self.node_of(other).directory_id == node.directory_id for other in self._given) > 1:
            known, twice = replace(known, directory_id=None), node.directory_id
        return self._by_placement(log_dir, image, known, twice).node_id

    def _by_placement(
        self, log_dir: str, image: MetadataImage, known: Node, twice: str | None = None
    ) -> Node:
        """twice: a directory id that does not count, because several log dirs have it."""
        from kseg.internal_topics.metadata.node_by_placement import node_by_placement

        here = places.realpath(log_dir)
        others = [other for other in [*self._given, *_neighbours(log_dir)] if places.realpath(other) != here]
        found = [self.node_of(other).directory_id for other in others]
        taken = {each for each in found if each not in (None, twice)}
        is_own = places.realpath(os.path.dirname(image.path)) == here
        return node_by_placement(log_dir, known, image, taken, is_own=is_own)

    def others_of(self, log_dir: str) -> list[str]:
        """The other log dirs of the same node, as far as they are given or found. A log dir with the same directory id is a copy. A given
        log dir whose meta.properties is lost counts as one of the node's: what it has is not missing."""
        node = self.placed_node_of(log_dir)
        seen = {places.realpath(path) for path in (log_dir, *self._left_out)}
        found = []
        directory_ids = {node.directory_id} - {None}
        for other in chain.from_iterable(self._by_distance(log_dir)):
            real = places.realpath(other)
            theirs = self.node_of(other)
            is_lost = theirs == Node() and other in self._given
            is_ours = node.node_id is not None and (is_lost or _is_same(node, theirs))
            if real not in seen and is_ours and theirs.directory_id not in directory_ids:
                found.append(other)
                directory_ids |= {theirs.directory_id} - {None}
            seen.add(real)
        return found

    def gone_from(self, log_dir: str) -> set[str]:
        """The directory ids that the node of a log dir has registered and that none of its log dirs has any longer: those of disks that
        were replaced, or removed from server.properties. Empty unless all log dirs of the node are known: because server.properties names
        them, or because as many have a new id as are gone. Only one of the given log dirs of the node returns them, a new one if
        possible."""
        node, image = self.placed_node_of(log_dir), self.image_for(log_dir)
        broker = None if image is None or node.node_id is None else image.brokers.get(node.node_id)
        if broker is None or {*broker.log_dirs} <= {node.directory_id}:
            return set()  # without examining the directories around it
        ids = {path: self.node_of(path).directory_id for path in (log_dir, *self.others_of(log_dir))}
        left_out = {self.node_of(path).directory_id for path in self._left_out}
        gone = {*broker.log_dirs} - {*ids.values()} - left_out
        new = [path for path, directory_id in ids.items() if directory_id not in broker.log_dirs]
        known = {places.realpath(path): path for path in ids}
        are_all = len(gone) <= len(new) or (bool(self._named) and self._named <= known.keys())
        if not gone or not are_all or None in ids.values():
            return set()
        telling = min(self._told & known.keys(), key=lambda real: (known[real] not in new, real), default="")
        return gone if telling == places.realpath(log_dir) else set()

    def _by_distance(self, log_dir: str) -> Iterator[Sequence[str]]:
        """The possible locations of other log dirs of the node, the nearest first. A directory can occur several times."""
        parent = os.path.dirname(places.abspath(log_dir))
        yield [each for each in self._given if os.path.dirname(places.abspath(each)) == parent]
        yield self._given
        yield _children(parent)
        behind_links = os.path.dirname(places.realpath(log_dir))
        if behind_links != parent:
            yield _children(behind_links)
        yield [*_alike(log_dir)]

    def _find(self, log_dir: str) -> MetadataImage | None:
        node = self.node_of(log_dir)
        if self._explicit is not None:
            ours, theirs = node.cluster_id, self._explicit.cluster_id
            if ours is not None and theirs is not None and ours != theirs:
                raise Refused(
                    f"{self._explicit.path} belongs to cluster {theirs}, but {log_dir} belongs to cluster {ours}"
                )
            return self._explicit
        own = os.path.join(log_dir, METADATA_DIRECTORY)
        if places.isdir(own):
            return self.image_at(own)
        doubtful = None
        seen: set[str] = set()
        for others in self._by_distance(log_dir):
            found = _with_metadata(others, seen)
            for other in sorted(found, key=_reach, reverse=True):  # `_reach` reads only the ends of the logs
                if self._is_of_the_node(log_dir, node, other):
                    image = self.image_at(os.path.join(other, METADATA_DIRECTORY))
                    if image.epoch >= 0:
                        return image
                    doubtful = doubtful or image
        return doubtful

    def _is_of_the_node(self, log_dir: str, node: Node, other: str) -> bool:
        """Whether another log dir with a metadata log belongs to the same node, by meta.properties or else by the placement of partitions.
        All nodes of a cluster have the same log: once one of them determines the node, those of other nodes are not read."""
        theirs = self.node_of(other)
        if None not in (node.node_id, node.cluster_id):
            return _is_same(node, theirs)
        if theirs.node_id is None or node.cluster_id not in (None, theirs.cluster_id):
            return False
        if node.directory_id is None and not self._names_topics(log_dir):
            return False
        node_id = None if theirs.cluster_id is None else self._node_ids.get((log_dir, theirs.cluster_id))
        if node_id is None:
            image = self.image_at(os.path.join(other, METADATA_DIRECTORY))
            node_id = (
                self._by_placement(log_dir, image, self.node_of(log_dir)).node_id
                if image.is_certain
                else None
            )
            if node_id is not None and theirs.cluster_id is not None:
                self._node_ids[log_dir, theirs.cluster_id] = node_id
        return node_id == theirs.node_id

    def _names_topics(self, log_dir: str) -> bool:
        """Whether any partition here has a topic id, which is needed to look up its placement in a metadata log."""
        if log_dir not in self._naming:
            name = NAME_BY_ROLE[Role.PARTITION_METADATA]
            self._naming[log_dir] = any(
                places.isfile(os.path.join(each, name)) for each in _children(log_dir, most=None)
            )
        return self._naming[log_dir]


def _read(path: str) -> MetadataImage:
    # imported here: most directories have no metadata log to decode
    from kseg.internal_topics.metadata.metadata_log import read_metadata_file, read_metadata_log

    if not is_directory(path, path):
        return read_metadata_file(path)
    image = read_metadata_log(path)
    if image.is_certain:
        return image
    from kseg.internal_topics.metadata.metadata_gap import with_judged_gaps

    return with_judged_gaps(image, node_of(os.path.dirname(places.abspath(path))).node_id)


def read_again(image: MetadataImage) -> MetadataImage:
    """The image of the same metadata log as it is now; the same image if that cannot be read."""
    try:
        return _read(image.path)
    except KsegError:
        return image


def node_of(log_dir: str) -> Node:
    """The content of a log dir's meta.properties; empty when it is missing or cannot be read."""
    try:
        properties = decode_meta_properties(
            read_small(os.path.join(log_dir, NAME_BY_ROLE[Role.META_PROPERTIES]))
        )
    except KsegError:
        properties = MetaProperties(0)
    return Node(properties.node_id, properties.cluster_id, properties.directory_id)


def _named(path: str) -> str:
    """The metadata log directory or file that the user specified."""
    if not is_directory(path, path):
        name = parse_file_name(os.path.basename(path))
        if name.role not in (Role.METADATA_SNAPSHOT, Role.LOG):
            raise UsageError(f"{path} is neither a snapshot nor a segment of a metadata log")
        return path
    inside = os.path.join(path, METADATA_DIRECTORY)
    if places.isdir(inside):
        return inside
    try:
        roles = {parse_file_name(name).role for name in places.listdir(path)}
    except OSError as error:
        raise cannot_read(path, error) from error
    if not roles & {Role.LOG, Role.METADATA_SNAPSHOT}:
        raise UsageError(f"{path} contains no metadata log: neither {METADATA_DIRECTORY} nor its files")
    return path


def _is_same(node: Node, other: Node) -> bool:
    return node.node_id == other.node_id and node.cluster_id == other.cluster_id


def _with_metadata(directories: Sequence[str], seen: set[str]) -> Iterator[str]:
    for directory in directories:
        if not places.isdir(os.path.join(directory, METADATA_DIRECTORY)):
            continue  # most directories end here, before realpath resolves the links on their paths
        real = places.realpath(directory)
        if real not in seen:
            seen.add(real)
            yield directory


def _neighbours(log_dir: str) -> Iterator[str]:
    """The siblings of a log dir, and those of `_alike`."""
    yield from _children(os.path.dirname(places.abspath(log_dir)))
    yield from _alike(log_dir)


def _alike(log_dir: str) -> Iterator[str]:
    """Directories whose last two path components differ from those of a log dir only in their numbers."""
    parent, name = os.path.split(places.abspath(log_dir))
    for folder in _children_alike(*os.path.split(parent)):
        if folder != parent:
            yield from _children_alike(folder, name)


def _children_alike(directory: str, name: str) -> list[str]:
    beginning, wanted = _DIGITS.split(name, 1)[0], _DIGITS.sub("", name)
    alike = [
        each
        for each in _names_in(directory)
        if each.startswith(beginning) and _DIGITS.sub("", each) == wanted
    ]
    return [os.path.join(directory, each) for each in alike]


def _reach(log_dir: str) -> tuple[int, int]:
    """The extent of a metadata log: leader epoch of the last batch, and end offset."""
    from kseg.segment.partition.partition_log import PartitionLog  # imported here: only if several were found

    try:
        with PartitionLog(PartitionTarget(os.path.join(log_dir, METADATA_DIRECTORY))) as log:
            last = log.last_batch
            return (-1 if last is None else last.leader_epoch), log.end_offset
    except KsegError:
        return -1, -1


def _children(directory: str, most: int | None = _MAX_NEIGHBOURS) -> list[str]:
    return [os.path.join(directory, name) for name in _names_in(directory, most)]


def _names_in(directory: str, most: int | None = _MAX_NEIGHBOURS) -> list[str]:
    try:
        return sorted(places.listdir(directory))[:most]
    except OSError:
        return []
