"""The events of a `verify` run, followed by one `broker-start` row per node: what a broker of that node would do at startup."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kseg.jobs.events import Event, Failure, Row
from kseg.recovery.broker_start.loaded_directory import LoadedDirectory
from kseg.recovery.broker_start.log_dir_start import is_empty_directory, unformatted
from kseg.recovery.broker_start.mounting import Mounted, Registered, may_be_one_machine, mixed_up
from kseg.recovery.broker_start.node_outcome import NodeStart
from kseg.recovery.broker_start.node_properties import NodeProperties
from kseg.recovery.broker_start.node_start import node_start
from kseg.recovery.broker_start.partition_start import PartitionStart
from kseg.recovery.broker_start.start_check import TargetStart
from kseg.segment.diagnosis import PartitionTwice
from kseg.segment.findings import Finding
from kseg.segment.partition.names import METADATA_DIRECTORY
from kseg.segment.partition.topic_identity import TopicIdentity
from kseg.segment.storage import places
from kseg.segment.values import dataclass

# (directory of the metadata log, offset to which a broker truncates it or None, partition directories) → what the truncated log says about
# each of them. None if this node alone cannot tell: another voter of the quorum may still have the records it lost.
IdentitiesAfterCut = Callable[[str, int | None, Sequence[str]], Mapping[str, TopicIdentity] | None]

WHOLE, CUT, UNKNOWN = "whole", "cut", "unknown"


class StartForecast:
    """Collects the rows of all targets. For a partition that loads unchanged, only the name is kept. properties: those of one node, from
    its server.properties."""

    def __init__(
        self, identities_after_cut: IdentitiesAfterCut, properties: NodeProperties | None = None
    ) -> None:
        self.properties = properties
        self._directories: dict[str, LoadedDirectory] = {}
        self._certain: frozenset[str] = frozenset()
        self._gapped: frozenset[str] = frozenset()
        self._identities_after_cut = identities_after_cut
        self._twice: list[tuple[str, str]] = []
        self.registered: Registered = {}  # directory ids, by broker
        self.leaderless: list[str] = []  # of all nodes, see `NodeStart`; once their rows were passed on

    def add_metadata(self, identities: Mapping[str, TopicIdentity], missing: Iterable[str]) -> None:
        """Add what the metadata log says.

        identities: by path of the data directory, for those about which it is complete. missing: partition directories that it expects but
        that do not exist; one that was merely emptied exists, and has a row of its own.
        """
        self._certain = frozenset(identities)
        self._gapped = frozenset(path for path, each in identities.items() if each.has_loadable_gap)
        for path in missing:
            if places.isdir(path):
                continue
            around, name = self._directory_around(path), os.path.basename(path)
            (around.obstructed if places.lexists(path) else around.missing).append(name)

    def directory(self, path: str) -> LoadedDirectory:
        """What is known about the data directory, to be added to."""
        if path not in self._directories:
            self._directories[path] = LoadedDirectory(path)
        return self._directories[path]

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        """Pass the events on, followed by one row per node."""
        for event in events:
            if isinstance(event, Row) and isinstance(event.result, TargetStart):
                self._take(event.result)
            elif isinstance(event, Failure) and is_empty_directory(event.path):
                self.directory(event.path).start = unformatted(event.path)
            elif isinstance(event, Failure):
                self._directory_around(event.path).unread.append(event.path)
            elif isinstance(event, Finding) and isinstance(event.diagnosis, PartitionTwice):
                self._twice.append((event.path, event.diagnosis.other))
            yield event
        for path, other in self._twice:
            self._add_link(path, other)
        said = [each for each in self._directories.values() if _has_something_to_say(each)]
        nodes = _nodes(said, self.registered)
        configured = self._configured(nodes)
        is_certain = configured is not None and self._names_one_of(configured.there)
        for node in nodes:
            if is_certain and configured is not None and node.is_guest_of(configured):
                continue  # a volume of another node on this machine
            start = self._start_of(node, node is configured, is_certain)
            if not start.left_out:  # else they are served once log.dirs is complete
                self.leaderless += (start.once_apart or start).leaderless
            yield Row(start.as_row())

    def _start_of(self, node: "_Node", is_configured: bool, is_certain: bool) -> NodeStart:
        """is_certain: whether its log.dirs is known."""
        properties = self.properties if is_configured else None
        node_id = node.own[0].start.node_id if node.own and node.own[0].start is not None else None
        start = node_start(node.there, self._metadata(node.there), properties, node_id)
        if not node.own or (is_configured and is_certain):
            return start
        return replace(start, once_apart=node_start(node.own, self._metadata(node.own), properties))

    def _names_one_of(self, directories: Sequence[LoadedDirectory]) -> bool:
        """Whether log.dirs names one of the directories, which means that they are examined where the broker has them."""
        paths = {places.realpath(each.path) for each in directories}
        named = () if self.properties is None else self.properties.log_dirs
        return not paths.isdisjoint(map(places.realpath, named))

    def _configured(self, nodes: "Sequence[_Node]") -> "_Node | None":
        """The node that the properties are of."""
        if self.properties is None:
            return None
        known = [node for node in nodes if any(each.start is not None for each in node.there)]
        wanted = self.properties.node_id
        own = [node for node in known if wanted in node.ids()]
        found = own or known
        return found[0] if len(found) == 1 else None

    def _metadata(self, node: Sequence[LoadedDirectory]) -> str:
        """What is known about the metadata log when the logs are loaded. Also stores what the truncated metadata log says about the
        partitions."""
        asked = [each for each in node if each.start is not None and each.is_loaded]
        is_torn = any(
            each.metadata_log is not None and each.metadata_log.is_of_torn_snapshot for each in node
        )
        if not is_torn and all(each.path in self._certain or not each.partitions for each in asked):
            return WHOLE
        for each in node:
            path = os.path.join(each.path, METADATA_DIRECTORY)
            end_offset = None if each.metadata_log is None else each.metadata_log.log_end_offset
            if end_offset is None and path not in self._gapped:
                continue
            paths = [os.path.join(other.path, name) for other in node for name in other.identified]
            identities = self._identities_after_cut(path, end_offset, paths)
            if identities is None:
                return UNKNOWN
            for path, identity in identities.items():
                self._directory_around(path).identify(os.path.basename(path), identity)
            return WHOLE if end_offset is None else CUT
        return UNKNOWN

    def _take(self, target: TargetStart) -> None:
        path, start = target.path, target.start
        if isinstance(start, PartitionStart):
            folder, _, name = path.rpartition(os.sep)
            if name in ("", os.curdir, os.pardir):
                name = os.path.basename(places.abspath(path))
            self.directory(folder or os.path.dirname(path) or os.curdir).add(name, start)
        else:
            self.directory(path).start = start

    def _add_link(self, path: str, other: str) -> None:
        """Repeat the result of a directory for a link to it in another data directory: `verify` checks it once, a broker loads it twice.
        Either of the two may be the link."""
        if places.realpath(path) != places.realpath(other):
            return
        for link, directory in ((path, other), (other, path)):
            partition = self._directory_around(directory).live.get(os.path.basename(directory))
            if partition is not None:
                self._directory_around(link).live.setdefault(os.path.basename(link), partition)

    def _directory_around(self, partition_path: str) -> LoadedDirectory:
        return self.directory(os.path.dirname(partition_path) or os.curdir)


def _has_something_to_say(directory: LoadedDirectory) -> bool:
    """Whether to report a directory. Among partitions without a known data directory, only those that a load changes are reported."""
    return directory.start is not None or bool(directory.noteworthy or directory.bytes_to_scan)


def _is_within(directory: LoadedDirectory, directories: Sequence[LoadedDirectory]) -> bool:
    """Whether the directory is a subdirectory of another data directory, and so not itself an entry of log.dirs."""
    around = os.path.dirname(directory.path)
    return any(each.path == around and each.start is not None for each in directories)


@dataclass(frozen=True, slots=True)
class _Node:
    """there: the data directories on the node's machine. own: the node's own ones, if those of other nodes are among them."""

    there: Sequence[LoadedDirectory]
    own: Sequence[LoadedDirectory] = ()

    def is_guest_of(self, other: "_Node") -> bool:
        """Whether this node has no machine of its own, only directories on the machine of the other node."""
        own = {each.path for each in self.there}
        return self is not other and own == {each.path for each in other.there}

    def ids(self) -> set[int | None]:
        starts = [each.start for each in self.own or self.there]
        return {start.node_id for start in starts if start is not None}


def _nodes(directories: Sequence[LoadedDirectory], registered: Registered) -> list[_Node]:
    """The data directories of each node (see `node_start`, `mixed_up`). Partitions whose data directory was not checked form a node of
    their own."""
    whole = [each for each in directories if each.start is not None and not _is_within(each, directories)]
    if not any(each.start and each.start.is_directory for each in whole):
        whole = []
    groups: dict[object, list[LoadedDirectory]] = {}
    for each in whole:
        groups.setdefault(_identity(each), []).append(each)
    with_log = [group for group in groups.values() if any(map(_has_metadata_log, group))]
    alone = [_Node([each]) for each in directories if each.start is None]
    are_of_one = len(with_log) == 1 and may_be_one_machine([*map(_mounted, whole)], registered)
    if are_of_one or len(groups) - (None in groups) <= 1:
        return [_Node(whole), *alone] if whole else alone
    by_path = {each.path: each for each in whole}
    mounted = [
        _Node([by_path[each.path] for each in machine.there], [by_path[each.path] for each in machine.own])
        for machine in mixed_up(map(_mounted, whole), registered)
    ]
    taken = {each.path for node in mounted for each in (*node.there, *node.own)}
    rest = ([each for each in group if each.path not in taken] for group in groups.values())
    return [*mounted, *map(_Node, filter(None, rest)), *alone]


def _mounted(directory: LoadedDirectory) -> Mounted:
    start = directory.start
    directory_id = None if start is None else start.directory_id
    return Mounted(directory.path, _identity(directory), directory_id, _has_metadata_log(directory))


def _has_metadata_log(directory: LoadedDirectory) -> bool:
    return directory.start is not None and directory.start.metadata_log


def _identity(directory: LoadedDirectory) -> tuple[str | None, int | None] | None:
    return None if directory.start is None else directory.start.identity
