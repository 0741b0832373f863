"""Controllers whose metadata logs lack committed records, if the data directories of several nodes are examined together, and whether one
of them may be elected.

1. Records are known to be committed up to the end of the newest snapshot, which contains only committed ones, and up to the last
   registration of a broker, which waits for the response. A log that has another epoch at that offset has other records. A change
   of a partition is committed if a broker has applied it: it has the partition, or its replica there, or the leader epoch.
2. A node is a candidate in the quorum that its own metadata log names, however old that is: the voter of a copy from before others were
   added elects itself. In a dynamic quorum, one without a metadata log is no candidate; it votes for whoever asks for the vote of its
   directory id. A voter votes for a log that ends no earlier than its own (Kafka: KafkaRaftClient.handleVoteRequest), so a controller that
   lacks records is elected only by others that lack them, if these are a majority of its quorum.
3. If no voter that has all records can be elected either, as where none has a metadata log, the others are needed.
4. A controller that has lost the leader epoch in which others remember it as the leader ends as soon as one of them says so, with an
   IllegalStateException (Kafka: KafkaRaftClient.maybeTransition). The others elect a new leader if they are a majority without it, and
   it can start then.
5. A voter without a data directory here is assumed to be present, with all records.

Observed with 4.3.1: of three controllers, two had the state from before they were added, the first one did, or it was removed as a voter
and its old disk was mounted again; of two, the last leader had no metadata log.
"""

import os
from collections.abc import Iterator, Sequence
from enum import StrEnum

from kseg.internal_topics.metadata.metadata_image import MetadataImage, Partition, Voter
from kseg.internal_topics.metadata.quorum_voters import quorum_state
from kseg.internal_topics.metadata.replica_directories import topic_id_of
from kseg.internal_topics.metadata.stopped_nodes import StoppedNodes
from kseg.segment.partition.log_dir_state import has_metadata_log
from kseg.segment.partition.names import METADATA_DIRECTORY, parse_file_name
from kseg.segment.partition.partition_epochs import last_epoch_below
from kseg.segment.values import dataclass


class Election(StrEnum):
    """Whether a controller that lacks records is elected."""

    BY_CLUSTER = "by-cluster"  # it or another one of those, by a majority of the cluster's voters
    ALONE = "alone"  # by the voters in its own metadata log, without those added since
    NONE = "none"  # nobody is
    AS_FORMER_LEADER = "as-former-leader"  # nobody is: it ends when others say that it is the leader
    BY_OTHERS = "by-others"  # another one is, but it ends in the same way before


@dataclass(frozen=True, slots=True)
class VoterLogDir:
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

    @property
    def quorum(self) -> tuple[Voter, ...]:
        """The voters among which it is a candidate; none if it is not."""
        quorum = self.voters
        if any(voter.directory_id is not None for voter in self.voters):
            quorum = () if self.own is None else self.own.voters
        return quorum if not self.is_replaced and self.is_one_of(quorum) else ()

    @property
    def reach(self) -> tuple[int, int]:
        """What voters compare."""
        return (-1, 0) if self.own is None else self.own.reach

    def is_one_of(self, voters: Sequence[Voter]) -> bool:
        return any(
            each.id == self.voter.id and each.directory_id in (None, self.directory_id) for each in voters
        )


@dataclass(frozen=True, slots=True)
class Lacking:
    """A controller that lacks records. committed: those below this offset are known to be committed. unknown_topic: see
    `_unknown_topic`."""

    controller: VoterLogDir
    committed: int
    unknown_topic: str | None
    election: Election

    @property
    def end_offset(self) -> int:
        return 0 if self.controller.own is None else self.controller.own.end_offset


def controllers_in(nodes: StoppedNodes) -> list[VoterLogDir]:
    """The controllers that are voters, as far as their log dirs are known."""
    found = (_controller(voter, nodes) for voter in nodes.newest.voters)
    return [each for each in found if each is not None]


def lacking_controllers(controllers: Sequence[VoterLogDir], nodes: StoppedNodes) -> list[Lacking]:
    """The controllers that lack committed records and may be elected, or without which nobody is. controllers: see `controllers_in`."""
    newest = nodes.newest
    if os.path.dirname(newest.path) not in nodes.log_dirs:
        return []  # named by the user, and read instead of those in the log dirs
    committed = _committed_end(nodes)
    found = {}
    for each in (*controllers, *_former_controllers(nodes)):
        topic = _unknown_topic(each, nodes)
        if topic is not None or _lacks(each, newest, committed):
            found[each.log_dir] = each, topic
    elections = _elections([each for each, _ in found.values()], controllers, newest)
    return [
        Lacking(each, committed, topic, elections[log_dir])
        for log_dir, (each, topic) in found.items()
        if log_dir in elections
    ]


def _elections(
    lacking: Sequence[VoterLogDir], controllers: Sequence[VoterLogDir], newest: MetadataImage
) -> dict[str, Election]:
    """By log dir, of those that may be elected or are needed."""
    majority = len(newest.voters) // 2 + 1
    left = len(newest.voters) - sum(each.is_replaced for each in controllers)
    is_lost = left < majority
    # the steps for a lost quorum give its voters their directory ids back
    voters = [each for each in lacking if each in controllers and (is_lost or not each.is_replaced)]
    elected = [each for each in lacking if _is_elected(each, lacking)]
    found = {each.log_dir: Election.ALONE for each in elected}
    if len(voters) >= majority and (is_lost or any(each in voters for each in elected)):
        found |= {each.log_dir: Election.BY_CLUSTER for each in voters}
    elif len(voters) == left and not is_lost:
        found |= {each.log_dir: Election.NONE for each in voters}
    former = [each for each in voters if each.log_dir not in found and _is_remembered(each, controllers)]
    outcome = Election.BY_OTHERS if left - len(former) >= majority else Election.AS_FORMER_LEADER
    return found | {each.log_dir: outcome for each in former}


def _is_remembered(controller: VoterLogDir, controllers: Sequence[VoterLogDir]) -> bool:
    """Whether another controller remembers this one as the leader of an epoch that it does not know."""
    epoch = known_epoch(controller.metadata_log, controller.own)
    others = (quorum_state(each.metadata_log) for each in controllers if each is not controller)
    return any(
        each is not None and each.leader_id == controller.voter.id and each.leader_epoch > epoch
        for each in others
    )


def known_epoch(metadata_log: str, image: MetadataImage | None) -> int:
    """The last leader epoch that a node knows; 0 if it knows none."""
    state = quorum_state(metadata_log)
    return max(0, -1 if image is None else image.epoch, 0 if state is None else state.leader_epoch)


def _is_elected(candidate: VoterLogDir, lacking: Sequence[VoterLogDir]) -> bool:
    """Whether the votes of controllers that lack records are enough."""
    quorum = candidate.quorum
    votes = sum(each.reach <= candidate.reach and each.is_one_of(quorum) for each in lacking)
    return votes > len(quorum) // 2


def _controller(voter: Voter, nodes: StoppedNodes) -> VoterLogDir | None:
    """None if none of these log dirs is, or may be, the metadata log dir of the voter's node."""
    finder, of_node = nodes.finder, nodes.log_dirs_of(voter.id)
    chosen = [log_dir for log_dir in of_node if has_metadata_log(log_dir)]
    if not chosen and not any(
        map(has_metadata_log, (each for one in of_node for each in finder.others_of(one)))
    ):
        chosen = _without_log(voter, of_node, nodes)
    if len(chosen) != 1:
        return None
    (log_dir,) = chosen
    directory_id, own = finder.node_of(log_dir).directory_id, finder.own_image(log_dir)
    return VoterLogDir(voter, log_dir, directory_id, own, nodes.newest.voters)


def _without_log(voter: Voter, of_node: Sequence[str], nodes: StoppedNodes) -> list[str]:
    """The log dir that was the metadata log dir of a node none of whose log dirs has a metadata log: the one with the directory id of the
    voter, else one that is new and so has replaced it. In a static quorum, where nothing tells which one it was, the first one."""
    if len(of_node) == 1:
        return [*of_node]
    ids = {log_dir: nodes.finder.node_of(log_dir).directory_id for log_dir in of_node}
    own = [log_dir for log_dir in of_node if ids[log_dir] == voter.directory_id is not None]
    broker = nodes.newest.brokers.get(voter.id)
    new = [log_dir for log_dir in of_node if broker is not None and ids[log_dir] not in broker.log_dirs]
    if voter.directory_id is None:
        return [*new, *of_node][:1]
    return own or new


def _former_controllers(nodes: StoppedNodes) -> Iterator[VoterLogDir]:
    """The nodes that are no voters any more, but are according to their own metadata logs."""
    voters = nodes.newest.voters
    ids = {voter.id for voter in voters}
    for log_dir in nodes.log_dirs:
        node, own = nodes.finder.node_of(log_dir), nodes.finder.own_image(log_dir)
        if own is not None and node.node_id is not None and node.node_id not in ids:
            voter = Voter(node.node_id, node.directory_id)
            yield VoterLogDir(voter, log_dir, node.directory_id, own, voters)


def _committed_end(nodes: StoppedNodes) -> int:
    """Records of the newest metadata log below this offset are committed; 0 if that is unknown."""
    newest = nodes.newest
    ends = [broker.epoch + 1 for broker in newest.brokers.values()]
    for image in map(nodes.finder.image_for, nodes.log_dirs):
        if image is not None and image.snapshot is not None and image.is_certain:
            snapshot = parse_file_name(os.path.basename(image.snapshot))
            end_offset = snapshot.base_offset or 0
            if snapshot.epoch == last_epoch_below(newest.path, end_offset):
                ends.append(end_offset)
    return min(max(ends, default=0), newest.end_offset)


def _lacks(controller: VoterLogDir, newest: MetadataImage, committed: int) -> bool:
    own = controller.own
    if own is None:
        return committed > 0
    epoch = last_epoch_below(newest.path, committed)
    return own.end_offset < committed or (epoch is not None and -1 < own.epoch < epoch)


def _unknown_topic(controller: VoterLogDir, nodes: StoppedNodes) -> str | None:
    """A topic of which a broker has applied changes that the metadata log of a controller ends before; None if there is none."""
    own = controller.own
    if own is None or own.end_offset >= nodes.newest.end_offset:
        return None
    for topic in nodes.newest.topics.values():
        earlier = own.topics.get(topic.id)
        for number, partition in topic.partitions.items():
            before = None if earlier is None else earlier.partitions.get(number)
            paths = [os.path.join(log_dir, f"{topic.name}-{number}") for log_dir in nodes.log_dirs]
            for path in paths if partition != before else ():
                node_id = nodes.node_id(os.path.dirname(path))
                if topic_id_of(path).topic_id == topic.id and _is_later(path, node_id, before):
                    return topic.name
    return None


def _is_later(path: str, node_id: int | None, before: Partition | None) -> bool:
    """Whether a replica shows that the partition has changed since this state: it did not exist, or not on this node, or it had an earlier
    leader epoch."""
    if before is None or (node_id is not None and node_id not in before.replicas):
        return True
    epoch = last_epoch_below(path, 2**63 - 1)
    return epoch is not None and epoch > before.leader_epoch
