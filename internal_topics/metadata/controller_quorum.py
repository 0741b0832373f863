"""Whether the controllers of a cluster can elect a leader, and which records it will have, if the data directories of several nodes are
examined together.

1. The newest metadata log of the cluster names the voters: in a dynamic quorum (KIP-853) a node together with the directory id of its
   metadata log dir. A data directory that was reformatted has another id: its node is an observer, and is asked for no vote, until it is
   added as a voter. If too few of the former voters are left, no leader is elected, and no node serves requests (Kafka: KafkaRaftClient,
   VoterSet).
2. Voters that lack committed records elect one of themselves if they are a majority (`lacking_controllers`). The others are then truncated
   to the leader's log end: topics that were created since are gone, and brokers rename their partitions as stray.
3. A node whose own metadata log is from before other voters were added may elect itself. It leads those nodes that ask it and know no later
   leader epoch.
4. A node whose metadata log begins above the leader's log end, because it began with a snapshot or has deleted what a snapshot contains,
   cannot be truncated: its high watermark starts at its log start, and KafkaRaftLog.truncateTo throws an IllegalArgumentException below it,
   which ends the process before it loads a log. Only the log start counts: one with the same snapshot and a log from offset 0 is truncated.
5. A node that knows a later leader epoch than that of the elected controller ignores it, and waits. The epoch grows with each election.

Observed with 4.3.1: two of three controllers were restored from a backup, or were reformatted; the only controller was restored.
"""

import os
from collections.abc import Iterator, Mapping, Sequence

from kseg.internal_topics.broker_directories import ends_of
from kseg.internal_topics.metadata.lacking_controllers import (
    Election,
    Lacking,
    VoterLogDir,
    controllers_in,
    known_epoch,
    lacking_controllers,
)
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.internal_topics.metadata.stopped_nodes import StoppedNodes, stopped_nodes
from kseg.segment.counted import listed
from kseg.segment.diagnosis import ReplacedVoter
from kseg.segment.errors import cannot_read
from kseg.segment.findings import Finding
from kseg.segment.partition.names import NAME_BY_ROLE, Role, parse_file_name
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.storage import places
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class RefusedTruncation:
    """A node that cannot truncate its metadata log. start_offset: of that log. end_offset: at which the log of the controller that is
    elected ends before its election, at most."""

    start_offset: int
    end_offset: int


def quorum_findings(nodes: StoppedNodes) -> Iterator[Finding]:
    """Findings about controllers that are no longer voters, and about voters whose metadata logs lack committed records."""
    newest, controllers = nodes.newest, controllers_in(nodes)
    majority = len(newest.voters) // 2 + 1
    replaced = [each for each in controllers if each.is_replaced]
    left = len(newest.voters) - len(replaced)
    for each in replaced:
        yield _replaced(each, newest, left, majority)
    lacking = lacking_controllers(controllers, nodes)
    others = "" if left < majority else _others_words(_by_cluster(lacking), nodes)
    for behind in lacking:
        yield _behind(behind, nodes, others)


def refused_truncations(log_dirs: Sequence[str], finder: MetadataFinder) -> Mapping[str, RefusedTruncation]:
    """By log dir, what ends nodes whose metadata logs begin above the log end of any controller that may be elected. log_dirs: those of the
    run. Raises UnreadableInput for a metadata log that cannot be listed."""
    found = dict[str, RefusedTruncation]()
    for nodes in stopped_nodes(log_dirs, finder):
        controllers = controllers_in(nodes)
        # otherwise no controller can be elected
        if sum(each.is_replaced for each in controllers) < (len(nodes.newest.voters) + 1) // 2:
            found |= _beginning_above(_by_cluster(lacking_controllers(controllers, nodes)), nodes)
    return found


def _by_cluster(lacking: Sequence[Lacking]) -> list[Lacking]:
    """Those of which one is elected by a majority of the cluster's voters."""
    return [each for each in lacking if each.election is Election.BY_CLUSTER]


def replaced_voters(log_dir: str, finder: MetadataFinder) -> Iterator[Finding]:
    """The same for a single node, as far as its own metadata log shows it."""
    image = finder.own_image(log_dir)
    if image is None or not image.is_certain:
        return
    node = finder.node_of(log_dir)
    for voter in image.voters:
        controller = VoterLogDir(voter, log_dir, node.directory_id, image, image.voters)
        if voter.id == node.node_id and controller.is_replaced:
            yield _replaced(
                controller, image, left=len(image.voters) - 1, majority=len(image.voters) // 2 + 1
            )


def _beginning_above(lacking: Sequence[Lacking], nodes: StoppedNodes) -> Mapping[str, RefusedTruncation]:
    end_offset = max((each.end_offset for each in lacking), default=0)
    waiting = _of_later_epoch(lacking, nodes)
    found = {}
    for log_dir, own in _truncated_logs(lacking, nodes):
        start_offset = _log_start(own)
        if start_offset > end_offset and log_dir not in waiting:
            found[log_dir] = RefusedTruncation(start_offset, end_offset)
    return found


def _of_later_epoch(lacking: Sequence[Lacking], nodes: StoppedNodes) -> list[str]:
    """The log dirs of nodes that know a later leader epoch than the first election leads to. Another voter that knows it as well makes the
    others go on to it."""
    if len(lacking) < len(nodes.newest.voters):
        return []
    next_epoch = 1 + max(known_epoch(each.controller.metadata_log, each.controller.own) for each in lacking)
    truncated = _truncated_logs(lacking, nodes)
    return [log_dir for log_dir, own in truncated if known_epoch(own.path, own) > next_epoch]


def _truncated_logs(lacking: Sequence[Lacking], nodes: StoppedNodes) -> Iterator[tuple[str, MetadataImage]]:
    """The metadata logs, with their log dirs, that follow a controller that lacks records; none if no controller lacks any."""
    of_lacking = {each.controller.log_dir for each in lacking}
    for log_dir in nodes.log_dirs if lacking else ():
        own = nodes.finder.own_image(log_dir)
        if log_dir not in of_lacking and own is not None:
            yield log_dir, own


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


def _replaced(controller: VoterLogDir, newest: MetadataImage, left: int, majority: int) -> Finding:
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
    return Finding.about(kind, path, message, about)


def _others_words(lacking: Sequence[Lacking], nodes: StoppedNodes) -> str:
    """Sentences about nodes whose metadata logs are not truncated at once, each after a full stop."""
    refused = "A metadata log that begins above that end cannot be truncated, and its node does not start"
    waiting = "A node that knows a later leader epoch waits until elections reach it, and does not serve"
    found = ""
    for log_dirs, words in (
        (_beginning_above(lacking, nodes), refused),
        (_of_later_epoch(lacking, nodes), waiting),
    ):
        ids = sorted({-1 if (node := nodes.node_id(each)) is None else node for each in log_dirs})
        if ids:
            found += f". {words}: {listed([f'node {each}' for each in ids], 5)}"
    return found


def _behind(lacking: Lacking, nodes: StoppedNodes, others: str) -> Finding:
    """others: what the message says about other nodes in the end."""
    controller, end_offset, newest = lacking.controller, lacking.end_offset, nodes.newest
    there = "is not there" if controller.own is None else f"ends at offset {end_offset} here"
    known = f"up to offset {lacking.committed}"
    if lacking.unknown_topic is not None and end_offset >= lacking.committed:
        known = f"because brokers have applied changes of {lacking.unknown_topic}"
    elif controller.own is not None and end_offset >= lacking.committed:
        there = f"has other records here (up to epoch {controller.own.epoch})"
    message = (
        f"the metadata log {there}, and on node {nodes.newest_node} at offset {newest.end_offset} ({newest.path}), with records that are committed "
        f"{known}. {_election_words(lacking, others)}"
    )
    behind = nodes.behind_newest(end_offset)
    return Finding.about("replica-behind", controller.metadata_log, message, behind)


_TRUNCATED = "truncate their metadata logs to its end, and brokers set aside as stray what was created since"


def _election_words(lacking: Lacking, others: str) -> str:
    if lacking.election is Election.BY_CLUSTER:
        return f"The voters that have them are not a majority: one that lacks them is elected, the other nodes {_TRUNCATED}{others}"
    if lacking.election is Election.NONE:
        return "The voters lack them, and none has a metadata log with which it can be elected: no node of the cluster serves"
    controller = lacking.controller
    if lacking.election in (Election.AS_FORMER_LEADER, Election.BY_OTHERS):
        needed = lacking.election is Election.AS_FORMER_LEADER
        then = (
            "without its vote no leader is elected"
            if needed
            else "it does not start before they have elected another one"
        )
        return (
            f"Other voters remember node {controller.voter.id} as the leader of an epoch that it has lost: its process ends as soon as one of them "
            f"says so (IllegalStateException), and {then}"
        )
    voters = sorted(voter.id for voter in controller.quorum)
    epoch = 1 + known_epoch(controller.metadata_log, controller.own)
    named = (
        f"the only voter is node {voters[0]}"
        if len(voters) == 1
        else f"the voters are nodes {listed(list(map(str, voters)), 5)}"
    )
    return (
        f"According to it {named}: node {controller.voter.id} can be elected without voters that have them, with leader epoch {epoch}. Nodes "
        f"that ask it and know no later one {_TRUNCATED}"
    )
