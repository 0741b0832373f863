"""The steps for data directories that do not belong together or to the node that their meta.properties name.

A broker accepts only its own data directories in log.dirs. Those of several nodes are examined together where their disks were collected,
or before the nodes of a cluster start: only then does it show that a replica lacks what another node has. What is wrong within one of them
is determined separately.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace

from kseg.cli.doctor.next_step import NextStep
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.recovery.broker_start.mounting import Machine, Mounted, Registered, mixed_up
from kseg.recovery.repair.meta_properties_repair import META_PROPERTIES, IdentityRepair
from kseg.segment.diagnosis import ReplacedVoter, WrongIdentity
from kseg.segment.findings import Finding
from kseg.segment.terminal import shell_quoted, shown_path
from kseg.segment.values import dataclass

_LOST = ("meta-properties-missing", "meta-properties-corrupt")
_COPIED = "directory-id-twice"
_APART = (_COPIED, "log-dirs-mixed")


@dataclass(frozen=True, slots=True)
class OtherNode:
    """A data directory whose meta.properties names another node than the metadata log."""

    log_dir: str
    in_file: int
    by_metadata: int


@dataclass(slots=True)
class Identities:
    """nodes: the log dirs of each node, by its name; mounted: the log dirs of all of them, registered: by node, the directory ids of its
    registration. apart: log dirs that do not belong with the others, and whether they are copies. of_other_nodes: those that the metadata
    log assigns to another node than their meta.properties. lost: log dirs without a readable meta.properties. values_needed: of such a log
    dir, the values of the file that only the user knows; cluster_ids: that of one that lacks nothing else, according to other nodes. wrong:
    log dirs with a wrong id. replaced_voters: of the quorum. configured: the name of the node that --server-properties is of, if there are
    others."""

    request: Request
    nodes: dict[str, list[str]] = field(default_factory=dict)
    mounted: list[Mounted] = field(default_factory=list)
    registered: Registered = field(default_factory=dict)
    apart: dict[str, bool] = field(default_factory=dict)
    of_other_nodes: list[OtherNode] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    values_needed: dict[str, IdentityRepair] = field(default_factory=dict)
    cluster_ids: dict[str, str] = field(default_factory=dict)
    wrong: list[WrongIdentity] = field(default_factory=list)
    replaced_voters: list[ReplacedVoter] = field(default_factory=list)
    configured: str | None = None

    def takes(self, finding: Finding) -> bool:
        if isinstance(finding.diagnosis, ReplacedVoter):
            self.replaced_voters.append(finding.diagnosis)
            return True
        if isinstance(finding.diagnosis, WrongIdentity):
            self.wrong.append(finding.diagnosis)
            return True
        log_dir, name = os.path.split(finding.path)
        if finding.id in _LOST or (finding.id == "unreadable" and name == META_PROPERTIES):
            self.lost.add(finding.path if finding.id == "meta-properties-missing" else log_dir)
        if finding.id in _APART:
            self.apart[log_dir] = self.apart.get(log_dir, False) or finding.id == _COPIED
        return False

    @property
    def copies(self) -> list[str]:
        """Log dirs with the directory id of another one."""
        return [path for path, is_copy in self.apart.items() if is_copy]

    @property
    def mixed_machines(self) -> list[Machine]:
        """The machines with directories of several nodes."""
        copies = self.copies
        return [*mixed_up([each for each in self.mounted if each.path not in copies], self.registered)]

    @property
    def come_before_start(self) -> bool:
        return bool(self.wrong) or any(
            each.is_quorum_lost or each.foreign_log for each in self.replaced_voters
        )


def set_ids(identities: Identities, server: str) -> Iterator[NextStep]:
    """Correct the ids in meta.properties that contradict the metadata log. server: HOST:PORT of a broker."""
    for wrong in identities.wrong:
        if wrong.is_certain or wrong.key == "cluster.id":
            yield _set_id(wrong, server)
    uncertain = {wrong.log_dir: wrong.right for wrong in identities.wrong if not wrong.is_certain}
    certain = {wrong.log_dir for wrong in identities.wrong if wrong.is_certain}
    for other in identities.of_other_nodes:
        if other.log_dir in certain:
            continue
        right = uncertain.get(other.log_dir)
        copied = (
            ""
            if right is None
            else f" If instead the file was copied from node {other.by_metadata}, write directory.id={right} into it."
        )
        file = os.path.join(other.log_dir, META_PROPERTIES)
        yield NextStep(
            f"{shown_path(file)} says node {other.in_file}, but according to the metadata log the directory "
            f"belongs to node {other.by_metadata}: started as node {other.in_file}, a broker sets aside as stray those of its partitions "
            f"that node {other.in_file} does not have. Mount it on the machine of node {other.by_metadata}, or, if the id was changed by "
            f"mistake, correct it here and in server.properties.{copied}",
            _edited(file, "node.id", str(other.by_metadata)),
        )


def _set_id(wrong: WrongIdentity, server: str) -> NextStep:
    file = os.path.join(wrong.log_dir, META_PROPERTIES)
    stored = f"{shown_path(file)} has the {wrong.key} {wrong.stored}"
    if wrong.right is None:
        return NextStep(
            f"{stored}, and other nodes of the cluster have another one: write the one that the controllers have into all of them. If the "
            "cluster is running, this prints it.",
            f"kafka-cluster.sh cluster-id --bootstrap-server {server}",
        )
    known = (
        "according to the metadata log the directory has"
        if wrong.key == "directory.id"
        else "the other nodes of the cluster have"
    )
    return NextStep(
        f"{stored}, but {known} {wrong.right}: correct it before any node starts.",
        _edited(file, wrong.key, wrong.right),
    )


def add_cluster_ids(identities: Identities) -> Iterator[NextStep]:
    for log_dir, cluster_id in identities.cluster_ids.items():
        file = os.path.join(log_dir, META_PROPERTIES)
        yield NextStep(
            f"{shown_path(file)} has no cluster.id, and the node does not start; the other nodes of the cluster have {cluster_id}: add it.",
            f"sed -i.before {shlex.quote(f'$a cluster.id={cluster_id}')} {shell_quoted(file)}",
        )


def _edited(file: str, key: str, value: str) -> str:
    """The command that sets a property."""
    escaped = re.sub(r"([/&\\])", r"\\\1", value)
    edit = rf"s/^{re.escape(key)} *=.*/{key}={escaped}/"
    return f"sed -i.before {shlex.quote(edit)} {shell_quoted(file)}"


def take_apart(identities: Identities, in_the_way: Iterable[str]) -> Iterator[NextStep]:
    """Examine each node by itself, without copies of its directories. in_the_way: directories that are moved out first."""
    nodes, copies, request = identities.nodes, identities.copies, identities.request
    moved = {*map(os.path.normpath, in_the_way)}
    for log_dir in copies:
        yield NextStep(
            f"{shown_path(log_dir)} is a copy of another data directory: a broker with both in log.dirs does not start. Remove it from "
            f"log.dirs, and examine the rest.{_or_of_absent_node(log_dir, identities)}",
            _examine([path for paths in nodes.values() for path in paths if path not in copies], request),
        )
    yield from _mount_elsewhere(identities.mixed_machines)
    left = {
        name: [path for path in paths if path not in copies and os.path.normpath(path) not in moved]
        for name, paths in nodes.items()
    }
    left = {name: paths for name, paths in left.items() if paths}
    if len(left) < 2:
        return
    first = "A broker with data directories of different nodes or clusters in log.dirs does not start. Examine each node by itself: {}."
    for number, (name, paths) in enumerate(left.items()):
        words = "Examine {} by itself." if number else first
        also = {} if number else {**request.also}
        if identities.configured is not None:
            file = request.also["--server-properties"] if name == identities.configured else None
            also["--server-properties"] = file
        yield NextStep(words.format(name), _examine(paths, replace(request, also=also)))


def _or_of_absent_node(log_dir: str, identities: Identities) -> str:
    """The end of the sentence about a copy, if only one broker of its cluster has no directory here: one of the two may be that broker's,
    with a copy of the file. Where each broker has replicas of the same partitions, nothing in them tells which one."""
    given = {each.directory_id for each in identities.mounted}
    clusters = {each.node[0] for each in identities.mounted if each.path == log_dir and each.node}
    absent = [
        (node_id, ids)
        for (cluster_id, node_id), ids in identities.registered.items()
        if cluster_id in clusters and given.isdisjoint(ids)
    ]
    if len(absent) != 1 or len(absent[0][1]) != 1:
        return ""
    (node_id, (directory_id,)) = absent[0]
    return (
        f" If instead one of the two is the directory of node {node_id}, and only its {META_PROPERTIES} was copied, write node.id={node_id} and "
        f"directory.id={directory_id} into that file, and examine all again."
    )


def node_words(node_id: int | None, cluster_id: str | None) -> str:
    if node_id is None:
        return "what has lost its node id"
    return f"node {node_id}" + ("" if cluster_id is None else f" of cluster {cluster_id}")


def _mount_elsewhere(machines: Iterable[Machine]) -> Iterator[NextStep]:
    """Data directories beside those of another node."""
    seen = set[frozenset[str]]()
    for machine in machines:
        own = machine.there[0]
        for other in machine.there:
            pair = frozenset((own.path, other.path))
            if other.node is None or other.node == machine.node or pair in seen:
                continue
            seen.add(pair)
            theirs, ours = (
                node_words(node_id, cluster_id) for cluster_id, node_id in (other.node, machine.node)
            )
            yield NextStep(
                f"{shown_path(other.path)} belongs to {theirs}, and {shown_path(own.path)} beside it to {ours}. Unless the disks "
                "were only collected here, it is mounted on the wrong machine, and the broker there does not start: mount the data directory "
                "that belongs there in its place. See which node each data directory here belongs to.",
                r"find / -name meta.properties -exec grep -HE '^(cluster|node|directory)\.id' {} +",
            )


def _examine(log_dirs: Sequence[str], request: Request) -> str:
    return command_line("doctor", {}, replace(request, paths=tuple(log_dirs)))
