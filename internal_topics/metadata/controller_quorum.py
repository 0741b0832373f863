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

Observed with 4.3.1: two of three controllers were restored from a backup, or were reformatted.
"""

import os
from collections.abc import Iterator, Sequence

from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import MetadataImage, Voter
from kseg.internal_topics.metadata.replica_directories import topic_id_of
from kseg.segment.diagnosis import ReplacedVoter, ReplicaBehind
from kseg.segment.findings import Finding
from kseg.segment.partition.names import METADATA_DIRECTORY, NAME_BY_ROLE, Role, parse_file_name
from kseg.segment.partition.partition_epochs import last_epoch_below
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
    if os.path.dirname(newest.path) not in log_dirs:
        return  # named by the user, and read instead of those in the log dirs
    committed = _committed_end(newest, log_dirs, finder)
    unknown = {each.voter: _unknown_topic(each, newest, log_dirs) for each in controllers}
    lacking = [
        each for each in controllers if unknown[each.voter] is not None or _lacks(each, newest, committed)
    ]
    if len(newest.voters) - len(lacking) >= majority:
        return
    for each in lacking:
        yield _behind(each, newest, committed, unknown[each.voter], finder)


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


def _behind(
    controller: _Controller,
    newest: MetadataImage,
    committed: int,
    unknown_topic: str | None,
    finder: MetadataFinder,
) -> Finding:
    other = finder.node_of(os.path.dirname(newest.path)).node_id
    end_offset = 0 if controller.own is None else controller.own.end_offset
    there = "is not there" if controller.own is None else f"ends at offset {end_offset} here"
    known = f"up to offset {committed}"
    if unknown_topic is not None and end_offset >= committed:
        known = f"because brokers have made partitions of {unknown_topic}"
    elif controller.own is not None and end_offset >= committed:
        there = f"has other records here (up to epoch {controller.own.epoch})"
    message = (
        f"the metadata log {there}, and on node {other} at offset {newest.end_offset} ({newest.path}), with records that are committed "
        f"{known}. The voters that have them are not a majority: one that lacks them is elected, the other nodes truncate their "
        "metadata logs to its end, and brokers set aside as stray what was created since"
    )
    behind = ReplicaBehind(newest.path, -1 if other is None else other, end_offset, newest.end_offset)
    return Finding(
        "replica-behind", controller.metadata_log, message, numbers=behind.numbers(), diagnosis=behind
    )
