"""Replicas that lack committed records and may lead, where the data directories of several nodes are examined together.

A controller knows the nodes that are in sync, not the offsets of their logs. A replica that lost records while its broker was down (a
backup was restored, a directory was emptied, a disk lost its last writes) is elected like every other one in sync, and the followers
truncate their logs to its end (Kafka: ReplicaFetcherThread; observed with 4.3.1). A single data directory does not show this.

1. The newest metadata log of the cluster tells which nodes may lead a partition (`elections`). That of a quorum of its own is none of them.
2. A metadata log that ends before the last registration of its own node is an older copy: a broker's epoch is the offset of its
   registration record, and it leads no partition before it has read that record.
3. A high watermark in replication-offset-checkpoint was reached by every replica that was in sync. The greatest one of a partition counts,
   but no further than the log beside it reaches. That of a log whose last leader epoch is an earlier one does not count: after an unclean
   election the log has diverged, and is truncated.
4. A replica of (1) whose log ends below (3) is behind. So is one in an older copy that ends before another one, and one without a directory
   in the log dir to which it is assigned: checkpoints of followers lag, and nothing shows that these replicas are complete.
5. A log counts as far as it has records. A power loss can leave the name of the newest segment and nothing of the contents of those
   before it: such a log is behind every other one that has records there.
6. High watermarks are written every five seconds (replica.high.watermark.checkpoint.interval.ms), and a power failure takes the ends of
   logs that were acknowledged after the last time. So a replica of (1) whose node was not stopped cleanly is reported as shorter, with
   less certainty, if the log of another node goes on where it ends: a broker that was only killed has lost nothing, and what no other
   one in sync has was not acknowledged with acks=all.
7. Where unclean elections are allowed, a shorter replica that is not one of (1) leads if its node starts before these.
8. A replica that may not lead and has an earlier last leader epoch than the one that leads has diverged from it, and is truncated when its
   broker starts, to the offset that the leader's epochs give (Kafka: KIP-101, LeaderEpochFileCache.endOffsetFor; observed with 4.3.1). It
   is reported if records below its own high watermark are lost: consumers may have read them, and no other log has them.

Log dirs of running brokers are left out: their logs grow between two readings.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain

from kseg.internal_topics.broker_directories import ends_of
from kseg.internal_topics.metadata.controller_quorum import quorum_findings
from kseg.internal_topics.metadata.elections import Elections, elections_after
from kseg.internal_topics.metadata.fetched_metadata import strays_without_metadata
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import (
    Broker,
    ExpectedPartition,
    MetadataImage,
    Partition,
    Placement,
)
from kseg.internal_topics.metadata.missing_replicas import is_promoted, missing_by_other_log
from kseg.internal_topics.metadata.replica_directories import (
    CopyOf,
    copies_on_other_nodes,
    has_segment,
    topic_id_of,
)
from kseg.internal_topics.metadata.stopped_nodes import StoppedNodes, stopped_nodes
from kseg.segment.diagnosis import Lack, ReplicaBehind, ReplicaDiverged
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import partitions_in
from kseg.segment.partition.log_dir_state import LogDirState, read_log_dir_state
from kseg.segment.partition.names import PartitionState, Role
from kseg.segment.partition.partition_epochs import last_epoch_below, partition_epochs
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.leader_epochs import EpochHistory, truncation_offset
from kseg.segment.values import dataclass

_Key = tuple[str, int]  # topic id, number


@dataclass(frozen=True, slots=True)
class _Replica:
    """end_offset, last_epoch: of its log, -1 without a directory. end_of_records: the offset after the last one that it still has.
    high_watermark: as checkpointed, -1 if unknown. is_of_older_copy: whether its log dir is an older copy, or lacks it."""

    node_id: int
    path: str
    end_offset: int
    end_of_records: int
    last_epoch: int
    high_watermark: int
    is_of_older_copy: bool

    @property
    def has_lost_end(self) -> bool:
        return self.end_of_records < self.end_offset

    @property
    def ends_here(self) -> str:
        """A verb phrase about where the log ends."""
        if self.end_offset < 0:
            return "is not here"
        lost = f", but its records end at {self.end_of_records}" if self.has_lost_end else ""
        return f"ends at offset {self.end_offset} here{lost}"


@dataclass(frozen=True, slots=True)
class _Place:
    """One partition of a cluster, and the replicas of it that are known here. name: `topic-number`."""

    name: str
    topic: str
    partition: Partition
    replicas: Sequence[_Replica]


def replicas_behind(
    log_dirs: Sequence[str], finder: MetadataFinder, server: Mapping[str, str] | None = None
) -> Iterator[Finding]:
    """One finding for each replica. log_dirs: those of the run. server: the server.properties of one of the nodes. Raises UnreadableInput
    for a log dir that cannot be listed."""
    for nodes in stopped_nodes(log_dirs, finder):
        older = {log_dir: finding for log_dir in nodes.log_dirs for finding in _older_copy(log_dir, nodes)}
        yield from older.values()
        told = {each.path for each in older.values()}
        for finding in chain(quorum_findings(nodes), strays_without_metadata(nodes)):
            if finding.path not in told:
                told.add(finding.path)
                yield finding
        unknown = [*_unknown_there(nodes)]
        replicas = _replicas(nodes, older, unknown)
        elections = elections_after(nodes, server)
        for topic in sorted(nodes.newest.topics.values(), key=lambda each: each.name):
            for number, partition in sorted(topic.partitions.items()):
                found = replicas.get((topic.id, number), ())
                place = _Place(f"{topic.name}-{number}", topic.name, partition, found)
                yield from _behind(place, elections)
                yield from _diverged(place, elections)
        yield from _nowhere(nodes, replicas, unknown)


def _older_copy(log_dir: str, nodes: StoppedNodes) -> Iterator[Finding]:
    """The finding if a log dir has an older copy of the metadata log."""
    own, broker = nodes.finder.own_image(log_dir), nodes.broker_of(log_dir)
    if own is not None and broker is not None and own.is_certain and own.end_offset <= broker.epoch:
        message = (
            f"it ends at offset {own.end_offset}, but node {broker.id} last registered at offset {broker.epoch}, according to "
            f"{nodes.newest.path} (node {nodes.newest_node}): it is an older copy, and the logs beside it may be too"
        )
        yield Finding.about("metadata-log-outdated", own.path, message, nodes.behind_newest(own.end_offset))


def _replicas(
    nodes: StoppedNodes, older: Collection[str], unknown: Iterable[tuple[str, ExpectedPartition]]
) -> Mapping[_Key, list[_Replica]]:
    """The replicas of the partitions in the newest metadata log: those in the log dirs, and those absent from the log dir to which they are
    assigned. older: log dirs that are older copies. unknown: see `_unknown_there`."""
    image = nodes.newest
    found: dict[_Key, list[_Replica]] = defaultdict(list)
    states = {log_dir: read_log_dir_state(log_dir) for log_dir in nodes.log_dirs}
    for log_dir, state in states.items():
        node_id = nodes.node_id(log_dir)
        assert node_id is not None
        for key, path in _present(log_dir, image).items():
            ends = ends_of(PartitionTarget(path))
            epoch, high_watermark = _last_epoch(path, *ends), _high_watermark(state, image, key)
            found[key].append(_Replica(node_id, path, *ends, epoch, high_watermark, log_dir in older))
    for log_dir, expected in unknown:
        key, node_id = (expected.topic_id, expected.partition), nodes.node_id(log_dir)
        if node_id is not None and all(each.node_id != node_id for each in found[key]):
            path = os.path.join(log_dir, f"{expected.topic}-{expected.partition}")
            found[key].append(_Replica(node_id, path, -1, -1, -1, -1, is_of_older_copy=True))
    return found


def _unknown_there(nodes: StoppedNodes) -> Iterator[tuple[str, ExpectedPartition]]:
    """By log dir, what the newest metadata log expects there and that of its node does not know, because it is older, or is gone since log
    dirs were reformatted. What is missing according to the node's own metadata log is reported as missing."""
    image, finder = nodes.newest, nodes.finder
    for log_dir in nodes.log_dirs:
        own, node, broker = finder.image_for(log_dir), finder.node_of(log_dir), nodes.broker_of(log_dir)
        if own is image or broker is None:
            continue
        of_node = {path: finder.node_of(path).directory_id for path in nodes.log_dirs_of(broker.id)}
        replaced = _replaced(of_node, broker)
        former = replaced.get(log_dir, node.directory_id or "")
        for each in image.partitions_of(broker.id, former):
            is_here = replaced or own is not None or each.placement is Placement.ASSIGNED
            is_known = own is not None and each.topic_id in own.topics
            is_kept = former == node.directory_id and is_promoted(log_dir, each)
            if is_here and not is_known and not is_kept:
                yield log_dir, each


def _replaced(of_node: Mapping[str, str | None], broker: Broker) -> Mapping[str, str]:
    """The directories that a broker has registered, by the log dir that has each or has taken its place; which new log dir took the place
    of which is chosen arbitrarily. Empty if some are not among its log dirs here. of_node: the directory ids of these."""
    there = {path: each for path, each in of_node.items() if each is not None and each in broker.log_dirs}
    new = [path for path in of_node if path not in there]
    gone = [each for each in broker.log_dirs if each not in there.values()]
    return there | dict(zip(new, gone, strict=False)) if len(gone) <= len(new) else {}


def _nowhere(
    nodes: StoppedNodes,
    replicas: Mapping[_Key, Sequence[_Replica]],
    unknown: Iterable[tuple[str, ExpectedPartition]],
) -> Iterator[Finding]:
    """The replicas that are missing according to the metadata log of another node, if none of the nodes here has a replica to compare them
    with."""

    @cache  # so that each log dir is read only once
    def copies(node_id: int) -> CopyOf:
        return copies_on_other_nodes(node_id, nodes.log_dirs, nodes.finder)

    for log_dir, expected in unknown:
        found = replicas[expected.topic_id, expected.partition]
        node_id = nodes.node_id(log_dir)
        path = os.path.join(log_dir, f"{expected.topic}-{expected.partition}")
        are_absent = all(each.end_offset < 0 for each in found)
        if node_id is not None and are_absent and any(each.path == path for each in found):
            around = nodes.log_dirs_of(node_id)
            yield missing_by_other_log(log_dir, around, expected, node_id, nodes.newest, copies(node_id))


def _present(log_dir: str, image: MetadataImage) -> dict[_Key, str]:
    found = {}
    for directory, name in partitions_in(log_dir):
        path = os.path.join(log_dir, directory)
        topic_id = topic_id_of(path).topic_id if name.state is PartitionState.LIVE else None
        topic = None if topic_id is None else image.topics.get(topic_id)
        is_its_own = topic is not None and topic.name == name.topic and name.partition in topic.partitions
        if topic_id is not None and is_its_own and has_segment(path):
            found[topic_id, name.partition] = path
    return found


def _last_epoch(partition: str, end_offset: int, end_of_records: int) -> int:
    """The last leader epoch that begins in the log or at its end; -1 if none is known. Where the end of a log is lost, only the epochs of
    its lost records count: other replicas do not have one without a record."""
    epoch = last_epoch_below(partition, end_offset + (end_of_records == end_offset))
    return -1 if epoch is None else epoch


def _high_watermark(state: LogDirState, image: MetadataImage, key: _Key) -> int:
    offset = state.offset(Role.HIGH_WATERMARKS, image.topics[key[0]].name, key[1])
    return -1 if offset is None else offset


def _behind(place: _Place, elections: Elections) -> Iterator[Finding]:
    name, may_lead = place.name, elections.may_lead(place.partition)
    for replica in place.replicas:
        others = [each for each in place.replicas if each.last_epoch >= replica.last_epoch]
        best = max(others, key=lambda each: (each.end_of_records, each.end_offset))
        committed = max(min(each.high_watermark, each.end_of_records) for each in others)
        lacking = best.end_of_records if replica.is_of_older_copy or replica.has_lost_end else committed
        end = max(replica.end_of_records, 0)
        if replica.node_id not in may_lead:
            yield from _ahead(replica, place, may_lead, elections)
        elif end < lacking:
            mark = "" if committed <= 0 else f", with records that are committed up to offset {committed}"
            message = (
                f"{name} {replica.ends_here}, and on node {best.node_id} at offset {best.end_of_records} ({best.path}){mark}. According to the metadata log (offset "
                f"{elections.image.end_offset}) node {replica.node_id} may lead: it is elected whatever its log has, and the other replicas "
                "then truncate theirs to its end"
            )
            behind = ReplicaBehind(best.path, best.node_id, end, best.end_of_records)
            yield Finding.about("replica-behind", replica.path, message, behind)
        elif end < best.end_of_records and elections.was_killed(replica.node_id):
            message = (
                f"{name} {replica.ends_here}, and on node {best.node_id} at offset {best.end_of_records} ({best.path}). Node {replica.node_id} may lead, and "
                "was not stopped cleanly: if a power failure took the end of its log, the records from there on may have been acknowledged, "
                "and the other replicas truncate them if it leads"
            )
            shorter = ReplicaBehind(best.path, best.node_id, end, best.end_of_records, Lack.DOUBTFUL)
            yield Finding.about("replica-shorter", replica.path, message, shorter)


def _ahead(
    replica: _Replica, place: _Place, may_lead: Collection[int], elections: Elections
) -> Iterator[Finding]:
    """The finding about a replica that an unclean election would make the leader."""
    leaders = [
        each for each in place.replicas if each.node_id in may_lead and each.last_epoch >= replica.last_epoch
    ]
    best = max(leaders, key=lambda each: each.end_of_records, default=None)
    end = max(replica.end_of_records, 0)
    if best is None or best.end_of_records <= end or not elections.are_unclean(place.topic):
        return
    message = (
        f"{place.name} {replica.ends_here}, and on node {best.node_id}, which may lead, at offset {best.end_of_records} ({best.path}). The topic allows unclean "
        f"elections: if node {replica.node_id} starts first, it is elected, and the other replicas truncate theirs to its end"
    )
    is_voter = any(voter.id == replica.node_id for voter in elections.image.voters)
    own_node = -1 if is_voter else replica.node_id
    about = ReplicaBehind(best.path, best.node_id, end, best.end_of_records, Lack.OUT_OF_SYNC, own_node)
    yield Finding.about("unclean-election-ahead", replica.path, message, about)


def _diverged(place: _Place, elections: Elections) -> Iterator[Finding]:
    may_lead = elections.may_lead(place.partition)
    leaders = [each for each in place.replicas if each.node_id in may_lead]
    if not leaders:
        return
    leader = max(leaders, key=lambda each: (each.last_epoch, each.end_of_records))
    for replica in place.replicas:
        if replica in leaders or not 0 <= replica.last_epoch < leader.last_epoch:
            continue
        offset = _truncation_offset(replica, leader)
        committed = min(replica.high_watermark, replica.end_of_records)
        if offset is None or committed <= offset:
            continue
        message = (
            f"{place.name} has offsets {offset} to {replica.end_of_records - 1} with leader epochs up to {replica.last_epoch}, and node {leader.node_id}, "
            f"which leads with epoch {leader.last_epoch}, lacks them ({leader.path}), although they are committed up to offset {committed}: node "
            f"{replica.node_id} truncates its log to offset {offset} when it starts"
        )
        about = ReplicaDiverged(leader.path, leader.node_id, offset, replica.end_of_records)
        yield Finding.about("replica-diverged", replica.path, message, about)


def _truncation_offset(replica: _Replica, leader: _Replica) -> int | None:
    """To which offset a follower truncates its log; None if that is unknown."""
    try:
        here, there = (EpochHistory(partition_epochs(each.path)) for each in (replica, leader))
    except KsegError:
        return None
    for history, each in ((here, replica), (there, leader)):
        history.truncate_from_end(each.end_offset)
    return truncation_offset(here, replica.end_offset, there, leader.end_offset)
