"""Ids in meta.properties that contradict what the metadata logs say about the data directory, as after the file was copied from another
directory or edited.

1. cluster.id is in no record. Two data directories are of one cluster if their metadata logs have a topic id in common, or the directory id
   of one is registered in the metadata log of the other, and one of them has no such log. Where two of these have different cluster ids,
   the one of most nodes is right, and of as many the one of most controllers. A controller refuses each fetch, vote and registration with
   another cluster id (INCONSISTENT_CLUSTER_ID). A broker ends once initial.broker.registration.timeout.ms has passed; a controller waits.
2. directory.id is registered by one node. A directory of another node, by its node.id, that has it was given it by mistake if another
   directory examined has it as well, if both nodes are voters, or if more of its partitions were placed on the node that it names; if not,
   its node.id may be wrong instead. Likewise one of two of the same node, if a registered directory is missing and most of its partitions
   were placed there. The controller refuses the registration of a second broker with the directory id, whether or not the first one runs.
   By then the broker has loaded its logs. It ends as in (1).

Both were observed with 4.3.1. A cluster that was copied has the node and directory ids of the original; (1) leaves out what is
there twice.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, replace

from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import MetadataImage, Node
from kseg.internal_topics.metadata.node_by_placement import node_by_placement
from kseg.internal_topics.metadata.quorum_voters import voters_of
from kseg.segment.diagnosis import WrongIdentity
from kseg.segment.findings import Finding
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.values import dataclass

_ENDS = "ends once initial.broker.registration.timeout.ms (a minute) has passed"


@dataclass(frozen=True, slots=True)
class Unregistered:
    """A broker that the controllers do not register. reason: theirs. is_loaded: whether it loads its logs before it ends."""

    reason: str
    is_loaded: bool


@dataclass(frozen=True, slots=True)
class WrongIdentities:
    """findings: one for each log dir with a wrong id. unregistered: by log dir, the brokers that are not registered."""

    findings: list[Finding] = field(default_factory=list)
    unregistered: dict[str, Unregistered] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _LogDir:
    """A log dir whose meta.properties can be read. image: of the metadata log in it."""

    path: str
    node: Node
    image: MetadataImage | None

    def is_of_cluster_of(self, other: "_LogDir") -> bool:
        if self.image is None or other.image is None:
            return self._registers(other) or other._registers(self)
        return not self.image.topics.keys().isdisjoint(other.image.topics)

    def _registers(self, other: "_LogDir") -> bool:
        image, directory_id = self.image, other.node.directory_id
        return image is not None and any(directory_id in ids for ids in _registered(image).values())


def wrong_identities(log_dirs: Sequence[str], finder: MetadataFinder) -> WrongIdentities:
    """log_dirs: those of the run."""
    found = WrongIdentities()
    known = [_log_dir(path, finder) for path in log_dirs]
    known = [each for each in known if None not in (each.node.node_id, each.node.cluster_id)]
    for group in _clusters(known):
        _add_wrong_clusters(group, found)
    by_cluster = defaultdict[str | None, list[_LogDir]](list)
    for each in known:
        by_cluster[each.node.cluster_id].append(each)
    for of_cluster in by_cluster.values():
        images = [each.image for each in of_cluster if each.image is not None and each.image.is_certain]
        if images:
            _add_wrong_directories(of_cluster, max(images, key=lambda image: image.reach), found)
    return found


def cluster_id_of(log_dir: str, log_dirs: Sequence[str], finder: MetadataFinder) -> str | None:
    """The cluster id of a log dir whose meta.properties has none: that of the others of its cluster, if all have the same."""
    own = _log_dir(log_dir, finder)
    others = [_log_dir(path, finder) for path in log_dirs if path != log_dir]
    found = {each.node.cluster_id for each in others if own.is_of_cluster_of(each)} - {None}
    return found.pop() if len(found) == 1 else None


def _log_dir(path: str, finder: MetadataFinder) -> _LogDir:
    return _LogDir(path, finder.node_of(path), finder.own_image(path))


def _registered(image: MetadataImage) -> Mapping[int, AbstractSet[str]]:
    """The directory ids of each node: those that it has registered as a broker, and the one that it has as a voter."""
    found = defaultdict[int, set[str]](set)
    for broker in image.brokers.values():
        found[broker.id].update(broker.log_dirs)
    for voter in image.voters:
        if voter.directory_id is not None:
            found[voter.id].add(voter.directory_id)
    return found


def _finding(
    kind: str, log_dir: _LogDir, message: str, stored: str, right: str | None, *, is_certain: bool
) -> Finding:
    key = "cluster.id" if kind == "cluster-id-wrong" else "directory.id"
    wrong = WrongIdentity(log_dir.path, key, stored, right, is_certain)
    path = os.path.join(log_dir.path, NAME_BY_ROLE[Role.META_PROPERTIES])
    return Finding.about(kind, path, message, wrong)


# --- cluster ids


def _clusters(known: Sequence[_LogDir]) -> list[list[_LogDir]]:
    """The log dirs of each cluster that has several cluster ids."""
    copies = Counter((each.node.node_id, each.node.directory_id) for each in known)
    left = [each for each in known if copies[each.node.node_id, each.node.directory_id] == 1]
    found = []
    while len({each.node.cluster_id for each in left}) > 1:
        group = [left.pop(0)]
        for member in group:  # it grows
            joined = [each for each in left if member.is_of_cluster_of(each)]
            group += joined
            left = [each for each in left if each not in joined]
        if len({each.node.cluster_id for each in group}) > 1:
            found.append(group)
    return found


def _add_wrong_clusters(group: Sequence[_LogDir], found: WrongIdentities) -> None:
    nodes = defaultdict[str, set[int]](set)
    voters, brokers = set[int](), set[int]()
    for each in group:
        nodes[each.node.cluster_id or ""].add(-1 if each.node.node_id is None else each.node.node_id)
        if each.image is not None:
            voters |= voters_of(each.image, [each.path])
            brokers |= each.image.brokers.keys()
    weights = {cluster_id: (len(ids), len(ids & voters)) for cluster_id, ids in nodes.items()}
    heaviest = [each for each in nodes if weights[each] == max(weights.values())]
    right = heaviest[0] if len(heaviest) == 1 else None
    most = max(map(len, nodes.values()))
    weighed = "nodes" if sum(len(ids) == most for ids in nodes.values()) == 1 else "controllers"
    known = "which of them is right cannot be told here"
    if right is not None:
        known = f"{right} is that of more {weighed}"
    # a majority of the controllers elects a leader, whatever the others have
    serving = next((each for each in nodes if 2 * len(nodes[each] & voters) > len(voters)), right)
    for each in group:
        node_id, own = each.node.node_id, each.node.cluster_id or ""
        is_broker = node_id in brokers or node_id not in voters
        if own != serving and serving is not None and is_broker:
            reason = f"the cluster.id {own} of the node is not {serving}, that of the controllers (INCONSISTENT_CLUSTER_ID)"
            found.unregistered[each.path] = Unregistered(reason, is_loaded=False)
        if own == right:
            continue
        wanted = right or next(each for each in nodes if each != own)
        other = next(one for one in group if one.node.cluster_id == wanted)
        message = (
            f"the cluster.id here is {own}, and that of node {other.node.node_id} {wanted} ({other.path}), although according to their "
            f"metadata logs they are of one cluster; {known}"
        )
        if node_id in nodes[wanted]:
            message += ". A node with two directories of different cluster ids does not start"
        elif serving is not None:
            message += f". {_consequence(is_serving=own == serving, is_broker=is_broker)}"
        found.findings.append(
            _finding("cluster-id-wrong", each, message, own, right, is_certain=right is not None)
        )


def _consequence(*, is_serving: bool, is_broker: bool) -> str:
    """What becomes of a node with a wrong cluster id. is_serving: whether the controllers that elect a leader have it, too."""
    if is_serving:
        return (
            "The controllers that elect a leader have the same, and refuse the other nodes: a broker there does not register, and "
            f"{_ENDS}"
        )
    if is_broker:
        return f"The controllers refuse it: its broker does not register, and {_ENDS}"
    return "The other controllers refuse it: it neither votes for their leader nor follows it"


# --- directory ids


def _add_wrong_directories(
    of_cluster: Sequence[_LogDir], newest: MetadataImage, found: WrongIdentities
) -> None:
    registered = _registered(newest)
    given = [each.node.directory_id for each in of_cluster]
    for each in of_cluster:
        node_id, directory_id = each.node.node_id, each.node.directory_id
        holders = [holder for holder, ids in registered.items() if directory_id in ids]
        if node_id is None or node_id not in registered or directory_id is None or len(holders) != 1:
            continue
        (holder,) = holders
        there = {one.node.directory_id for one in of_cluster if one.node.node_id == node_id}
        right = _missing_one(each, registered[node_id] - there, newest)
        if holder == node_id:
            if right is None or not _is_one_of_two(each, of_cluster, newest):
                continue
            is_certain, then = True, "a node with two directories of one id does not start"
        else:
            is_twice = given.count(directory_id) > 1
            is_certain = right is not None and (is_twice or _is_of_its_node(each, holder, newest))
            then = f"node {node_id} is no voter with it"
        voters = {voter.id for voter in newest.voters}
        is_broker = node_id in newest.brokers or node_id not in voters
        if holder not in (node_id, *(voters - newest.brokers.keys())) and is_broker:
            reason = f"Broker {holder} is already registered with directory {directory_id}"
            found.unregistered[each.path] = Unregistered(reason, is_loaded=True)
            then = f"the controller refuses to register node {node_id} with it, and the broker {_ENDS}"
        was = f"; that of this directory was {right}" if is_certain else f", and the node.id {node_id}"
        message = f"the directory.id here is {directory_id}, which node {holder} has registered{was}: {then}"
        found.findings.append(
            _finding("directory-id-wrong", each, message, directory_id, right, is_certain=is_certain)
        )


def _missing_one(log_dir: _LogDir, missing: AbstractSet[str], image: MetadataImage) -> str | None:
    """Which of the registered directories of its node that are not among those given a log dir is."""
    if len(missing) < 2:
        return next(iter(missing), None)
    return _placed(log_dir, missing, image).directory_id


def _placed(log_dir: _LogDir, among: AbstractSet[str], image: MetadataImage) -> Node:
    """The directory among these, of any node, in which most partitions of a log dir were placed."""
    taken = {each for ids in _registered(image).values() for each in ids} - among
    unknown = replace(log_dir.node, node_id=None, directory_id=None)
    return node_by_placement(log_dir.path, unknown, image, taken, is_own=False)


def _is_one_of_two(log_dir: _LogDir, of_cluster: Sequence[_LogDir], image: MetadataImage) -> bool:
    """Whether another directory of the node has the same id, and most partitions of this one, but not of the other, were placed in
    another one that is registered."""
    node = log_dir.node
    same = [each for each in of_cluster if each.node == node]
    ids = _registered(image)[-1 if node.node_id is None else node.node_id]
    elsewhere = [
        each for each in same if _placed(each, ids, image).directory_id not in (None, node.directory_id)
    ]
    return len(same) > 1 and elsewhere == [log_dir]


def _is_of_its_node(log_dir: _LogDir, holder: int, image: MetadataImage) -> bool:
    """Whether the node id of a log dir is right, and not the directory id, which is that of another node."""
    node_id = log_dir.node.node_id
    if {node_id, holder} <= {voter.id for voter in image.voters if voter.directory_id is not None}:
        return True
    registered = _registered(image)
    among = registered[holder] | registered[-1 if node_id is None else node_id]
    return _placed(log_dir, among, image).node_id == node_id
