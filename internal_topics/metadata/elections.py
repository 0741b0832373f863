"""Which replicas a controller may elect once stopped nodes start again, whatever their logs have.

1. Those in the ISR or the ELR (KIP-966), and the last known leader if there are none.
2. With eligible.leader.replicas.version 1, a broker that registers without the epoch of its last registration, which a clean stop writes
   into the marker of each of its log dirs, is removed from the ISR and the ELR of all partitions (Kafka: ClusterControlManager,
   BrokerUncleanShutdownHandler). It leads nothing while a node that was stopped cleanly is in one of them. If none is left, the last one
   of the ISR leads, as the last known leader (PartitionChangeBuilder): any node of the ISR, depending on the order of their starts.
3. With unclean.leader.election.enable, every replica: the first node that starts is elected if no node of (1) is running. That of the topic
   counts, else the dynamic one of all brokers, else the one in the controllers' server.properties (ConfigurationControlManager).
4. No node whose replica is assigned to a log dir that it does not register: one that was replaced, removed from log.dirs, or failed. The
   broker assigns the replica to another one, but that is no reason for an election (Kafka: BrokerRegistration.hasOnlineDir,
   ReplicationControlManager.handleAssignReplicasToDirs). A partition without a leader gets one when another broker registers or
   leaders are balanced (leader.imbalance.check.interval.seconds, 300 by default), or from kafka-leader-election.sh.

All of it was observed with three brokers of 4.3.1, and (4) with one as well.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field

from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.metadata_image import MIGRATING, UNASSIGNED, MetadataImage, Partition
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import read_small
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.sidecar.metadata_files import decode_clean_shutdown
from kseg.segment.values import dataclass

_ELR_VERSION = "eligible.leader.replicas.version"
_UNCLEAN = "unclean.leader.election.enable"


def electable(partition: Partition) -> set[int]:
    """The nodes that a controller may elect, regardless of their logs and of how they were stopped."""
    return {*partition.isr, *partition.elr} or {*partition.last_known_elr}


def allows_unclean(topic: str, image: MetadataImage, static: Mapping[str, str] | None = None) -> bool:
    """Whether the first node that starts may be elected. static: properties of a controller."""
    places = (image.topic_configs(topic), image.broker_configs(None), static or {})
    value = next((each[_UNCLEAN] for each in places if _UNCLEAN in each), "false")
    return value.strip().lower() == "true"


def led_by_no_other(node_id: int, image: MetadataImage) -> dict[str, str]:
    """The partitions without a leader that only this node may lead, with the directory id that its replica is assigned to."""
    found = {}
    for topic in image.topics.values():
        for number, partition in topic.partitions.items():
            if partition.leader < 0 and electable(partition) == {node_id}:
                directory_id = partition.directory_of(node_id)
                if directory_id not in (None, MIGRATING, UNASSIGNED):
                    found[f"{topic.name}-{number}"] = directory_id
    return found


@dataclass(frozen=True, slots=True)
class Elections:
    """The elections after a start of all nodes. image: the metadata at that time. are_clean: by node, whether the controller will see that
    it was stopped cleanly; without an entry, that is unknown. static: properties of a controller."""

    image: MetadataImage
    are_clean: Mapping[int, bool]
    static: Mapping[str, str] = field(default_factory=dict)

    def was_killed(self, node_id: int) -> bool:
        """Whether a node has ended in another way than by a clean stop."""
        return self.are_clean.get(node_id) is False

    def may_lead(self, partition: Partition) -> set[int]:
        """The nodes that may lead a partition without an unclean election."""
        found = electable(partition)
        if self.image.features.get(_ELR_VERSION, 0) < 1:
            return found
        left = {node for node in found if not self.was_killed(node)}
        if any(self.are_clean.get(node) for node in left):
            return left
        return found if left else {*partition.isr} or {*partition.last_known_elr} or found

    def are_unclean(self, topic: str) -> bool:
        """Whether a topic allows unclean elections, as far as the metadata and the known properties tell."""
        return allows_unclean(topic, self.image, self.static)


def elections_after(
    log_dirs: Iterable[str], image: MetadataImage, finder: MetadataFinder, server: Mapping[str, str] | None
) -> Elections:
    """log_dirs: those of stopped nodes of one cluster. server: the server.properties of one of them, which count if it is a controller of
    this cluster."""
    epochs: dict[int, list[int | None]] = defaultdict(list)
    for log_dir in log_dirs:
        node_id = finder.node_of(log_dir).node_id
        if node_id is not None and node_id in image.brokers:
            epochs[node_id].append(_epoch_at_stop(log_dir))
    are_clean = {}
    for node_id, found in epochs.items():
        broker = image.brokers[node_id]
        if {*found} != {broker.epoch}:
            are_clean[node_id] = False
        elif len(found) >= len(broker.log_dirs):
            are_clean[node_id] = True
    return Elections(image, are_clean, server if server is not None and _is_voter(server, image) else {})


def _is_voter(server: Mapping[str, str], image: MetadataImage) -> bool:
    node_id = (server.get("node.id") or "").strip()
    roles = {role.strip() for role in server.get("process.roles", "").split(",")}
    return "controller" in roles and any(str(voter.id) == node_id for voter in image.voters)


def _epoch_at_stop(log_dir: str) -> int | None:
    """The broker epoch in the clean-shutdown marker; None if there is no marker or no epoch in it."""
    if not read_log_dir_state(log_dir).is_clean:
        return None
    try:
        data = read_small(os.path.join(log_dir, NAME_BY_ROLE[Role.CLEAN_SHUTDOWN]))
    except UnreadableInput:
        return None
    return decode_clean_shutdown(data).broker_epoch
