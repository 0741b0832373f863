"""Whether the controllers of a cluster can elect a leader, and which records it will have, if the data directories of several nodes are
examined together.

1. The newest metadata log of the cluster names the voters: in a dynamic quorum (KIP-853) a node together with the directory id of its
   metadata log dir. A data directory that was reformatted has another id: its node is an observer, and is asked for no vote, until it is
   added as a voter. If too few of the former voters are left, no leader is elected, and no node serves requests (Kafka: KafkaRaftClient,
   VoterSet).
2. Records are known to be committed up to the end of the newest snapshot, which contains only committed ones, and up to the last
   registration of a broker, which waits for the response. A log that has another epoch at that offset has other records. A topic is
   committed if a broker has a partition of it: brokers apply nothing else.
3. Voters that lack committed records elect one of themselves if they are a majority, or if the voters that have them are absent. The others
   are then truncated to the leader's log end: topics that were created since are gone, and brokers rename their partitions as stray. A
   voter without a data directory here is assumed to be present, with all records.
4. A node whose metadata log begins above the leader's log end, because it began with a snapshot or has deleted what a snapshot contains,
   cannot be truncated: its high watermark starts at its log start, and KafkaRaftLog.truncateTo throws an IllegalArgumentException below it,
   which ends the process before it loads a log. Only the log start counts: one with the same snapshot and a log from offset 0 is truncated.
5. A node that knows a later leader epoch than that of the elected controller ignores it, and waits. The epoch grows with each election.

Observed with 4.3.1: two of three controllers were restored from a backup, or were reformatted; the only controller was restored.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from kseg.internal_topics.broker_directories import ends_of
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import MetadataImage, Voter
from kseg.internal_topics.metadata.replica_directories import topic_id_of
from kseg.segment.counted import listed
from kseg.segment.diagnosis import ReplacedVoter, ReplicaBehind
from kseg.segment.errors import KsegError, cannot_read
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.names import METADATA_DIRECTORY, NAME_BY_ROLE, Role, parse_file_name
from kseg.segment.partition.partition_epochs import last_epoch_below
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.metadata_files import decode_quorum_state
from kseg.segment.storage import places
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class _Controller:
    """The metadata log dir of a voter's node. directory_id: of the log dir, None if unknown. own: the metadata log in it, None if there
    is none. voters: of the cluster."""

    voter: Voter
    log_dir: str
    directory_id: str | None
    own: MetadataImage | None
    voters: tuple[Voter, ...]

    @property
    def metadata_log(self) -> str:
        return os.path.join(self.log_dir, METADATA_DIRECTORY)

    @property
    def is_replaced(self) -> bool:
        return None not in (self.voter.directory_id, self.directory_id) and (
            self.voter.directory_id != self.directory_id
        )

    @property
    def is_of_another_quorum(self) -> bool:
        """Whether its own metadata log lists it as a voter, but none of the cluster's voters."""
        own = set() if self.own is None else {*self.own.voters}
        return Voter(self.voter.id, self.directory_id) in own and own.isdisjoint(self.voters)


@dataclass(frozen=True, slots=True)
class _Lacking:
    """A controller that lacks records. committed: those below this offset are known to be committed. unknown_topic: see
    `_unknown_topic`."""

    controller: _Controller
    committed: int
    unknown_topic: str | None

    @property
    def end_offset(self) -> int:
        return 0 if self.controller.own is None else self.controller.own.end_offset


@dataclass(frozen=True, slots=True)
class RefusedTruncation:
    """A node that cannot truncate its metadata log. start_offset: of that log. end_offset: at which the log of the controller that is
    elected ends before its election, at most."""

    start_offset: int
    end_offset: int


def quorum_findings(
    log_dirs: Sequence[str], newest: MetadataImage, finder: MetadataFinder
) -> Iterator[Finding]:
    """Findings about controllers that are no longer voters, and about voters whose metadata logs lack committed records. log_dirs: those of
    stopped nodes of one cluster. newest: the newest metadata log in them."""
    found = [_controller(voter, log_dirs, newest, finder) for voter in newest.voters]
    controllers = [each for each in found if each is not None]
    majority = len(newest.voters) // 2 + 1
    replaced = [each for each in controllers if each.is_replaced]
    left = len(newest.voters) - len(replaced)
    for each in replaced:
        yield _replaced(each, newest, left, majority)
    lacking = _lacking(controllers, log_dirs, newest, finder)
    others = "" if left < majority else _others_words(lacking, log_dirs, newest, finder)
    for behind in lacking:
        yield _behind(behind, newest, others, finder)


def refused_truncations(
    log_dirs: Sequence[str], newest: MetadataImage, finder: MetadataFinder
) -> Mapping[str, RefusedTruncation]:
    """By log dir, what ends nodes whose metadata logs begin above the log end of any controller that may be elected. Parameters: as for
    `quorum_findings`. Empty if no controller can be elected. Raises UnreadableInput for a metadata log that cannot be listed."""
    found = (_controller(voter, log_dirs, newest, finder) for voter in newest.voters)
    controllers = [each for each in found if each is not None]
    if sum(each.is_replaced for each in controllers) >= (len(newest.voters) + 1) // 2:
        return {}
    return _beginning_above(_lacking(controllers, log_dirs, newest, finder), log_dirs, newest, finder)


def replaced_voters(log_dir: str, finder: MetadataFinder) -> Iterator[Finding]:
    """The same for a single node, as far as its own metadata log shows it."""
    image = finder.image_for(log_dir)
    if image is None or not image.is_certain or os.path.dirname(image.path) != log_dir:
        return
    node = finder.node_of(log_dir)
    for voter in image.voters:
        controller = _Controller(voter, log_dir, node.directory_id, image, image.voters)
        if voter.id == node.node_id and controller.is_replaced:
            yield _replaced(
                controller, image, left=len(image.voters) - 1, majority=len(image.voters) // 2 + 1
            )


def _controller(
    voter: Voter, log_dirs: Sequence[str], newest: MetadataImage, finder: MetadataFinder
) -> _Controller | None:
    """None if none of these log dirs is, or is certain to be, the metadata log dir of the voter's node."""
    of_node = [log_dir for log_dir in log_dirs if finder.node_of(log_dir).node_id == voter.id]
    chosen = [log_dir for log_dir in of_node if places.isdir(os.path.join(log_dir, METADATA_DIRECTORY))]
    if not chosen and len({*of_node, *(each for one in of_node[:1] for each in finder.others_of(one))}) == 1:
        chosen = of_node
    if len(chosen) != 1:
        return None
    image = finder.image_for(chosen[0])
    own = image if image is not None and os.path.dirname(image.path) == chosen[0] else None
    return _Controller(voter, chosen[0], finder.node_of(chosen[0]).directory_id, own, newest.voters)


def _lacking(
    controllers: Sequence[_Controller],
    log_dirs: Sequence[str],
    newest: MetadataImage,
    finder: MetadataFinder,
) -> list[_Lacking]:
    """The controllers that lack committed records; none if the other voters are a majority."""
    if os.path.dirname(newest.path) not in log_dirs:
        return []  # named by the user, and read instead of those in the log dirs
    committed = _committed_end(newest, log_dirs, finder)
    lacking = [
        _Lacking(each, committed, topic)
        for each in controllers
        if (topic := _unknown_topic(each, newest, log_dirs)) is not None or _lacks(each, newest, committed)
    ]
    return lacking if len(newest.voters) - len(lacking) <= len(newest.voters) // 2 else []


def _beginning_above(
    lacking: Sequence[_Lacking], log_dirs: Sequence[str], newest: MetadataImage, finder: MetadataFinder
) -> Mapping[str, RefusedTruncation]:
    """See `refused_truncations`."""
    end_offset = max((each.end_offset for each in lacking), default=0)
    waiting = _of_later_epoch(lacking, log_dirs, newest, finder)
    found = {}
    for log_dir, own in _truncated_logs(lacking, log_dirs, finder):
        start_offset = _log_start(own)
        if start_offset > end_offset and log_dir not in waiting:
            found[log_dir] = RefusedTruncation(start_offset, end_offset)
    return found


def _of_later_epoch(
    lacking: Sequence[_Lacking], log_dirs: Sequence[str], newest: MetadataImage, finder: MetadataFinder
) -> list[str]:
    """The log dirs of nodes that know a later leader epoch than the first election leads to. Another voter that knows it as well makes the
    others go on to it."""
    if len(lacking) < len(newest.voters):
        return []
    next_epoch = 1 + max(_known_epoch(each.controller.metadata_log, each.controller.own) for each in lacking)
    return [
        log_dir
        for log_dir, own in _truncated_logs(lacking, log_dirs, finder)
        if _known_epoch(own.path, own) > next_epoch
    ]


def _truncated_logs(
    lacking: Sequence[_Lacking], log_dirs: Sequence[str], finder: MetadataFinder
) -> Iterator[tuple[str, MetadataImage]]:
    """The metadata logs, with their log dirs, that follow a controller that lacks records; none if no controller lacks any."""
    of_lacking = {each.controller.log_dir for each in lacking}
    for log_dir in log_dirs if lacking else ():
        own = finder.image_for(log_dir)
        if log_dir not in of_lacking and own is not None and os.path.dirname(own.path) == log_dir:
            yield log_dir, own


def _known_epoch(metadata_log: str, image: MetadataImage | None) -> int:
    """The last leader epoch that a node knows; 0 if it knows none."""
    epoch = 0 if image is None else max(image.epoch, 0)
    with suppress(KsegError):
        path = os.path.join(metadata_log, NAME_BY_ROLE[Role.QUORUM_STATE])
        epoch = max(epoch, decode_quorum_state(read_small(path)).leader_epoch)
    return epoch


def _log_start(image: MetadataImage) -> int:
    """The log start offset with which a node opens a metadata log. It empties a log that ends before the newest snapshot, and begins it
    there (Kafka: KafkaRaftLog.truncateToLatestSnapshot). Raises UnreadableInput."""
    try:
        names = [parse_file_name(name) for name in places.listdir(image.path)]
    except OSError as error:
        raise cannot_read(image.path, error) from error
    bases = [name.base_offset or 0 for name in names if name.role is Role.LOG and name.is_live]
    _, end_of_records = ends_of(PartitionTarget(image.path))
    snapshot = 0
    if image.snapshot is not None:
        snapshot = parse_file_name(os.path.basename(image.snapshot)).base_offset or 0
    return snapshot if not bases or 0 <= end_of_records < snapshot else min(bases)


def _committed_end(newest: MetadataImage, log_dirs: Sequence[str], finder: MetadataFinder) -> int:
    """Records of the newest metadata log below this offset are committed; 0 if that is unknown."""
    images = (finder.image_for(log_dir) for log_dir in log_dirs)
    ends = [broker.epoch + 1 for broker in newest.brokers.values()]
    for image in images:
        if image is not None and image.snapshot is not None and image.is_certain:
            snapshot = parse_file_name(os.path.basename(image.snapshot))
            end_offset = snapshot.base_offset or 0
            if snapshot.epoch == last_epoch_below(newest.path, end_offset):
                ends.append(end_offset)
    return min(max(ends, default=0), newest.end_offset)


def _lacks(controller: _Controller, newest: MetadataImage, committed: int) -> bool:
    own = controller.own
    if own is None:
        return committed > 0
    epoch = last_epoch_below(newest.path, committed)
    return own.end_offset < committed or (epoch is not None and -1 < own.epoch < epoch)


def _unknown_topic(controller: _Controller, newest: MetadataImage, log_dirs: Sequence[str]) -> str | None:
    """A topic that the metadata log of a controller ends before, although there are partitions of it; None if there is none."""
    own = controller.own
    if own is None or own.end_offset >= newest.end_offset:
        return None
    for topic_id in newest.topics.keys() - own.topics.keys():
        topic = newest.topics[topic_id]
        names = [f"{topic.name}-{number}" for number in topic.partitions]
        paths = (os.path.join(log_dir, name) for name in names for log_dir in log_dirs)
        if any(topic_id_of(path)[1] == topic_id for path in paths):
            return topic.name
    return None


def _replaced(controller: _Controller, newest: MetadataImage, left: int, majority: int) -> Finding:
    """left: the number of voters that are left."""
    voter, is_lost = controller.voter, left < majority
    message = (
        f"according to the metadata log (offset {newest.end_offset} of {newest.path}) node {voter.id} is a voter with directory "
        f"{voter.directory_id}, but its directory here is {controller.directory_id}, as if it was reformatted: it is not a voter"
    )
    if is_lost:
        message += (
            f"; {left} of {len(newest.voters)} voters are left, which is not a majority: no leader is elected, and no node of the cluster "
            "serves"
        )
    if controller.is_of_another_quorum:
        message += (
            "; its own metadata log makes it a voter of another quorum, as after a format with --standalone"
        )
    about = ReplacedVoter(
        log_dir=controller.log_dir,
        voter=voter.id,
        directory_id=voter.directory_id or "",
        is_quorum_lost=is_lost,
        foreign_log=controller.metadata_log if controller.is_of_another_quorum else None,
    )
    path = os.path.join(controller.log_dir, NAME_BY_ROLE[Role.META_PROPERTIES])
    kind = "quorum-lost" if is_lost else "voter-replaced"
    return Finding(kind, path, message, numbers=about.numbers(), diagnosis=about)


def _others_words(
    lacking: Sequence[_Lacking], log_dirs: Sequence[str], newest: MetadataImage, finder: MetadataFinder
) -> str:
    """Sentences about nodes whose metadata logs are not truncated at once, each after a full stop."""
    refusing = _beginning_above(lacking, log_dirs, newest, finder)
    waiting = _of_later_epoch(lacking, log_dirs, newest, finder)
    said = (
        (
            refusing,
            "A metadata log that begins above that end cannot be truncated, and its node does not start",
        ),
        (
            waiting,
            "A node that knows a later leader epoch waits until elections reach it, and does not serve",
        ),
    )
    found = ""
    for log_dirs_of, words in said:
        ids = sorted({-1 if (node := finder.node_of(each).node_id) is None else node for each in log_dirs_of})
        if ids:
            found += f". {words}: {listed([f'node {each}' for each in ids], 5)}"
    return found


def _behind(lacking: _Lacking, newest: MetadataImage, others: str, finder: MetadataFinder) -> Finding:
    """others: what the message says about other nodes in the end."""
    controller, end_offset = lacking.controller, lacking.end_offset
    other = finder.node_of(os.path.dirname(newest.path)).node_id
    there = "is not there" if controller.own is None else f"ends at offset {end_offset} here"
    known = f"up to offset {lacking.committed}"
    if lacking.unknown_topic is not None and end_offset >= lacking.committed:
        known = f"because brokers have made partitions of {lacking.unknown_topic}"
    elif controller.own is not None and end_offset >= lacking.committed:
        there = f"has other records here (up to epoch {controller.own.epoch})"
    message = (
        f"the metadata log {there}, and on node {other} at offset {newest.end_offset} ({newest.path}), with records that are committed "
        f"{known}. The voters that have them are not a majority: one that lacks them is elected, the other nodes truncate their "
        f"metadata logs to its end, and brokers set aside as stray what was created since{others}"
    )
    behind = ReplicaBehind(newest.path, -1 if other is None else other, end_offset, newest.end_offset)
    return Finding(
        "replica-behind", controller.metadata_log, message, numbers=behind.numbers(), diagnosis=behind
    )
