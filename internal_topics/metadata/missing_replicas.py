"""Replicas that the metadata log places in a log dir and that are missing there: without a directory, or with one that has no segment.

At its next start a KRaft broker creates each of them again, empty, and does not report the loss (Kafka:
ReplicaManager.applyDelta, LogManager.getOrCreateLog; observed with 4.3.1). An empty directory is renamed as stray, or begins again
at the log start if partition.metadata is left in it. There are two exceptions. A `-future` log of the same partition is promoted in the
log dir to which the replica is assigned (Kafka: LogManager.recoverAbandonedFutureLogs). A log with its topic id in another log dir of the
node is kept: the broker looks for a log of the partition in every log dir before it creates one (LogManager.getOrCreateLog) and reports
its location (AssignmentsManager), so nothing is lost or missing. A log dir is expected to contain the replicas assigned to its
directory id and, of replicas without an assigned directory, those of a node that has registered only this one, and those in its
checkpoints, which brokers write every minute from the existing logs. What is assigned to a directory that the node does not have any
more, because a disk was replaced, is created in any log dir (Kafka: Partition.createLogInAssignedDirectoryId).
With tiered storage, a broker that leads with an empty log knows none of the leader epochs of the segments in remote storage, and deletes
them at once (Kafka: RemoteLogManager; observed with 4.3.1).
The node of a log dir comes from its meta.properties, or else from the placement of its partitions (`node_by_placement`).
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial

from kseg.change.apply.lock import is_locked
from kseg.change.apply.running_broker import READINGS, SETTLING_S
from kseg.internal_topics.broker_directories import end_offset_of
from kseg.internal_topics.metadata.elections import allows_unclean, electable
from kseg.internal_topics.metadata.metadata_finder import read_again
from kseg.internal_topics.metadata.metadata_image import ExpectedPartition, MetadataImage, Node, Placement
from kseg.internal_topics.metadata.replica_directories import (
    CopyOf,
    Elsewhere,
    PartitionNames,
    has_segment,
    lacks_it,
    left_by_a_move,
    name_of,
    names_in,
    paths_of,
    state_of,
    topic_id_of,
)
from kseg.segment.diagnosis import MissingReplica, ReplicaCopy
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import partition_name
from kseg.segment.partition.log_dir_state import LogDirState, read_log_dir_state
from kseg.segment.partition.names import (
    COPYING_SUFFIX,
    NAME_BY_ROLE,
    PartitionState,
    Role,
    contains_partition_name,
)
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.partition.topic_settings import CLEANUP_POLICY, REMOTE_STORAGE, has_tiers
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_NO_LEADER = -1
# a broker lists a new replica in both within a minute
_NOTED_IN = (Role.RECOVERY_POINTS, Role.HIGH_WATERMARKS)


@dataclass(frozen=True, slots=True)
class _Left:
    """What is left of a missing replica. own: the directory of the node that has its log under another name, None for none. copy, without:
    see `Elsewhere`."""

    own: str | None
    copy: ReplicaCopy | None
    without: Mapping[int, int]

    def words(self) -> str:
        """Clauses of the message."""
        words, own = "", self.own
        state = None if own is None else state_of(own)
        if own is not None and state is PartitionState.FUTURE:
            end_offset = end_offset_of(PartitionTarget(own))
            words = f", and then empties {own}, to which it was being copied (up to offset {end_offset})"
        elif own is not None and state is PartitionState.DELETE:
            end_offset = end_offset_of(PartitionTarget(own))
            words = f"; a minute later it deletes {own}, which has a log of it up to offset {end_offset}"
        elif own is not None and state is not PartitionState.STRAY:
            words = f"; {os.path.basename(own)} has its topic id"
        if self.copy is not None:
            words += (
                f"; node {self.copy.node} has it up to offset {self.copy.end_offset} ({self.copy.directory})"
            )
        return words


def _no_copy(_expected: ExpectedPartition) -> Elsewhere:
    return Elsewhere(None, {})


def missing_replicas(
    log_dir: str,
    node: Node,
    image: MetadataImage,
    others: Callable[[], Sequence[str]],
    gone: Callable[[], Iterable[str]],
    copy_of: CopyOf = _no_copy,
) -> Iterator[Finding]:
    """One finding for each replica. others: the other known log dirs of the node, read only if something is missing; an existing replica is
    not lost, whatever its assigned directory. gone: the directories that the node no longer has, if this log dir is the one to report what
    was assigned to them (`MetadataFinder.gone_from`). While a broker uses the log dir, a replica counts as missing only if it is also
    missing according to the metadata log as it is now: the image may be older than the deletion of a topic, and a new topic is in the
    metadata log before its directories exist. An image of an earlier state is compared as it is. copy_of: finds the replica that another
    node has. Raises UnreadableInput for a log dir that cannot be listed."""
    if not image.is_certain or node.node_id is None:
        return
    present = names_in(log_dir)
    state = cache(partial(read_log_dir_state, log_dir))
    missing = _missing(log_dir, present, image, node, state)
    is_in_use = bool(missing) and not image.is_cut and is_locked(log_dir)
    if is_in_use:
        missing = _still_missing(missing, log_dir, image, node, state)
    else:
        yield from _gone(log_dir, present, image, node.node_id, others, gone(), copy_of)
    if not missing:
        return
    elsewhere = [(other, names_in(other)) for other in others()]
    if is_in_use:
        # a move into this log dir may have ended before the other log dirs were listed
        present = names_in(log_dir)
        missing = [expected for expected in missing if not _has(log_dir, present, expected)]
    renamed = cache(partial(_renamed_by_topic, log_dir, present, image))
    missing_of = Counter(expected.topic_id for expected in missing)
    for expected in missing:
        if not any(_is_kept(other, names, expected) for other, names in elsewhere):
            there = present.get(name_of(expected), {})
            own = _set_aside(log_dir, there, expected)
            if own is None and PartitionState.LIVE not in there:
                candidates = renamed().get(expected.topic_id, ())
                own = _renamed(candidates, expected, is_alone=missing_of[expected.topic_id] == 1)
            own = own or left_by_a_move([(log_dir, present), *elsewhere], expected)
            left = _Left(own, *copy_of(expected))
            found = _finding(log_dir, expected, node.node_id, image, there, state(), left)
            if not (is_in_use and found.id == "replica-unmade"):
                yield found


def _gone(
    log_dir: str,
    present: PartitionNames,
    image: MetadataImage,
    node_id: int,
    others: Callable[[], Sequence[str]],
    directory_ids: Iterable[str],
    copy_of: CopyOf,
) -> Iterator[Finding]:
    """The findings about replicas that are assigned to one of these directories and are in no log dir."""
    for directory_id in sorted(directory_ids):
        around = [(log_dir, present), *((other, names_in(other)) for other in others())]
        for expected in image.partitions_of(node_id, directory_id):
            is_kept = any(_is_kept(other, names, expected) for other, names in around)
            if expected.placement is Placement.ASSIGNED and not is_kept:
                left = _Left(left_by_a_move(around, expected), *copy_of(expected))
                yield _finding(
                    log_dir, expected, node_id, image, {}, _no_checkpoints(log_dir), left, directory_id
                )


def missing_by_other_log(
    log_dir: str,
    around: Iterable[str],
    expected: ExpectedPartition,
    node_id: int,
    image: MetadataImage,
    copy_of: CopyOf,
) -> Finding:
    """The finding about a replica that the metadata log of another node places on this one, and that none of the log dirs here has.
    log_dir: where the broker may create it."""
    left = _Left(left_by_a_move([(each, names_in(each)) for each in around], expected), *copy_of(expected))
    assigned = image.topics[expected.topic_id].partitions[expected.partition].directory_of(node_id)
    gone = assigned if expected.placement is Placement.ASSIGNED else None
    return _finding(log_dir, expected, node_id, image, {}, _no_checkpoints(log_dir), left, gone)


def _no_checkpoints(log_dir: str) -> LogDirState:
    return LogDirState(log_dir, is_clean=False, meta_version=None)


def _missing(
    log_dir: str, present: PartitionNames, image: MetadataImage, node: Node, state: Callable[[], LogDirState]
) -> list[ExpectedPartition]:
    """The replicas that are expected in a log dir and not there, whether or not another log dir of the node has them."""
    return [
        expected
        for expected in image.partitions_of(-1 if node.node_id is None else node.node_id, node.directory_id)
        if not _has(log_dir, present, expected)
        and (_is_here(expected, node, image) or _noted_offset(expected, state()) is not None)
    ]


def _still_missing(
    missing: Sequence[ExpectedPartition],
    log_dir: str,
    image: MetadataImage,
    node: Node,
    state: Callable[[], LogDirState],
) -> list[ExpectedPartition]:
    """Those that are missing whenever the metadata log and the log dir are read again, until a running broker has had time to create
    them."""
    for number in range(1, READINGS):
        if not missing:
            break
        time.sleep(SETTLING_S * number)
        found = _missing(log_dir, names_in(log_dir), read_again(image), node, state)
        now = {(expected.topic_id, expected.partition) for expected in found}
        missing = [expected for expected in missing if (expected.topic_id, expected.partition) in now]
    return [*missing]


def _is_here(expected: ExpectedPartition, node: Node, image: MetadataImage) -> bool:
    """Whether no other log dir of the node can have it."""
    if expected.placement is Placement.ASSIGNED and node.directory_id is not None:
        return True
    broker = image.brokers.get(-1 if node.node_id is None else node.node_id)
    return broker is not None and len(broker.log_dirs) == 1 and node.directory_id in (None, *broker.log_dirs)


def _has(log_dir: str, names: PartitionNames, expected: ExpectedPartition) -> bool:
    """Whether the log dir has the replica, or a `-future` log that will be promoted: one without the topic id becomes stray."""
    if any(has_segment(path) for path in paths_of(log_dir, names, expected, PartitionState.LIVE)):
        return True
    return _is_promoted_in(log_dir, names, expected)


def is_promoted(log_dir: str, expected: ExpectedPartition) -> bool:
    """Whether a broker takes a `-future` log for the replica that is expected in this log dir."""
    return _is_promoted_in(log_dir, names_in(log_dir), expected)


def _is_promoted_in(log_dir: str, names: PartitionNames, expected: ExpectedPartition) -> bool:
    moving = paths_of(log_dir, names, expected, PartitionState.FUTURE)
    return expected.placement is Placement.ASSIGNED and any(_is_of_topic(path, expected) for path in moving)


def _is_kept(log_dir: str, names: PartitionNames, expected: ExpectedPartition) -> bool:
    """Whether a broker uses the replica in another log dir. It uses a `-future` log only in the log dir to which the replica is assigned;
    one with another topic id, or without a partition.metadata, becomes stray."""
    live = paths_of(log_dir, names, expected, PartitionState.LIVE)
    return any(has_segment(path) and _is_of_topic(path, expected) for path in live)


def _is_of_topic(directory: str, expected: ExpectedPartition) -> bool:
    has_file, topic_id, _ = topic_id_of(directory)
    return has_file and topic_id in (None, expected.topic_id)


def _finding(
    log_dir: str,
    expected: ExpectedPartition,
    node_id: int,
    image: MetadataImage,
    there: dict[PartitionState, list[str]],
    around: LogDirState,
    left: _Left,
    gone: str | None = None,
) -> Finding:
    """gone: the log dir that the replica is assigned to, if the node no longer has it."""
    name, noted = name_of(expected), _noted_offset(expected, around)
    is_noted_nowhere = noted is None and all(around.checkpoints.get(role) for role in _NOTED_IN)
    partition = image.topics[expected.topic_id].partitions[expected.partition]
    lost_too = [each for each in partition.replicas if lacks_it(each, left.without, image)]
    others = [each for each in partition.replicas if each not in (node_id, *lost_too)]
    in_sync = [replica for replica in others if replica in {*partition.isr, *partition.elr}]
    may_lead = node_id in electable(partition) or allows_unclean(expected.topic, image)
    is_rival = bool(in_sync) and may_lead
    path = os.path.join(log_dir, name)
    place, start = "this log dir, but there is no such directory", "recreates it empty"
    if gone is not None:
        place = f"log dir {gone}, which the node no longer has"
    if PartitionState.LIVE in there:
        place, start = (
            "this log dir, but its directory has no segment",
            "sets the directory aside as stray and recreates it empty",
        )
        if places.lexists(os.path.join(path, NAME_BY_ROLE[Role.PARTITION_METADATA])):
            start = "starts it with an empty log"
    message = f"the metadata log (offset {image.end_offset}) assigns {name} to {place}: at its next start a KRaft broker {start}"
    kind = "replica-missing"
    if is_rival and left.copy is not None and left.copy.node in in_sync:
        message += (
            f"; node {_listed(in_sync)} may lead as well: started before them, or after all were killed, this broker may lead, and the others "
            "lose what an empty leader does not have"
        )
    elif is_noted_nowhere:
        kind = "replica-unmade"
        message += "; no checkpoint here has it, so it may never have been created"
    elif is_rival and partition.leader == _NO_LEADER:
        message += (
            f"; no node leads it, node {_listed(in_sync)} may lead as well, and the one that starts first does: if that is this broker, the "
            "others lose what an empty leader does not have"
        )
    elif in_sync:
        kind = "replica-fetched-anew"
        message += f", and fetches it from the replicas in sync (node {_listed(in_sync)}), as long as one of them leads"
    elif others and not may_lead:
        message += f"; it is unknown whether node {_listed(others)} has all of its records"
    elif others:
        message += f"; the replicas on node {_listed(others)} are not in sync, and lose what an empty leader does not have"
    elif lost_too:
        message += (
            f"; node {_listed(lost_too)} lacks it too, so its records are gone unless a directory comes back"
        )
    else:
        message += "; it is the only replica, so its records are gone unless the directory comes back"
    if noted is not None:
        message += f" (a checkpoint here has its offset {noted})"
    for state, entries in there.items():
        named = {left.own} if state is PartitionState.DELETE else {None}
        if state is not PartitionState.LIVE:
            aside = (entry for entry in entries if os.path.join(log_dir, entry) not in named)
            message += "".join(f"; {entry} was set aside" for entry in aside)
    message += left.words()
    is_tiered = _is_tiered(expected.topic, image)
    if is_tiered and kind == "replica-missing":
        message += "; if it leads with an empty log, it deletes the partition's segments in remote storage"
    key = (expected.topic, expected.partition, expected.topic_id)
    missing = MissingReplica(*key, noted, left.own, tuple(others), left.copy, is_rival, is_tiered)
    return Finding.about(kind, path, message, missing)


def _is_tiered(topic: str, image: MetadataImage) -> bool:
    configs = image.topic_configs(topic)
    return has_tiers(
        configs.get(REMOTE_STORAGE, "").lower() == "true", configs.get(CLEANUP_POLICY, "").split(",")
    )


def _set_aside(
    log_dir: str, there: dict[PartitionState, list[str]], expected: ExpectedPartition
) -> str | None:
    """The stray directory that has the log of a replica, by its topic id."""
    strays = (os.path.join(log_dir, entry) for entry in there.get(PartitionState.STRAY, ()))
    own = (path for path in strays if has_segment(path) and topic_id_of(path).topic_id == expected.topic_id)
    return next(own, None)


def _renamed_by_topic(log_dir: str, present: PartitionNames, image: MetadataImage) -> dict[str, list[str]]:
    """The directories whose name is not that of any partition of their topic, by the topic id in them. It may not be a partition's name at
    all: `topic-0.bak`."""
    found: dict[str, list[str]] = {}
    live = (entry for by_state in present.values() for entry in by_state.get(PartitionState.LIVE, ()))
    for entry in (*live, *_nameless_in(log_dir)):
        path, name = os.path.join(log_dir, entry), partition_name(entry)
        topic_id = topic_id_of(path).topic_id
        topic = None if topic_id is None else image.topics.get(topic_id)
        if topic_id is None or topic is None:
            continue
        if name is None or name.topic != topic.name or name.partition not in topic.partitions:
            found.setdefault(topic_id, []).append(path)
    return found


def _renamed(candidates: Sequence[str], expected: ExpectedPartition, *, is_alone: bool) -> str | None:
    """The one of these directories that has the log of a replica: by its number, or, where this is the only replica of the topic that is
    missing here, whatever its number."""
    found = [path for path in candidates if has_segment(path)]
    same = [path for path in found if _has_number(os.path.basename(path), expected)]
    chosen = same or (found if is_alone else [])
    return chosen[0] if len(chosen) == 1 else None


def _has_number(entry: str, expected: ExpectedPartition) -> bool:
    name = partition_name(entry)
    if name is None:
        return contains_partition_name(entry, name_of(expected))
    return name.partition == expected.partition


def _nameless_in(log_dir: str) -> list[str]:
    """The directories in a log dir whose names are not those of partitions, without unfinished copies."""
    with suppress(OSError), places.scandir(log_dir) as entries:
        return [
            entry.name
            for entry in entries
            if partition_name(entry.name) is None
            and not entry.name.endswith(COPYING_SUFFIX)
            and entry.is_dir()
        ]
    return []


def _noted_offset(expected: ExpectedPartition, around: LogDirState) -> int | None:
    """The greatest offset of the partition in the checkpoints."""
    found = (around.offset(role, expected.topic, expected.partition) for role in around.checkpoints)
    return max((offset for offset in found if offset is not None), default=None)


def _listed(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))
