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
   ReplicationControlManager.handleAssignReplicasToDirs). If that is so for all nodes of (1) and (2), the partition has no leader at first,
   whatever other replicas there are. It gets one when another broker registers or leaders are balanced
   (leader.imbalance.check.interval.seconds, 300 by default), or from kafka-leader-election.sh.

All of it was observed with three brokers of 4.3.1, and (4) with one as well.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import field

from kseg.internal_topics.metadata.metadata_image import MIGRATING, UNASSIGNED, MetadataImage, Partition
from kseg.internal_topics.metadata.stopped_nodes import StoppedNodes
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

    def led_by_no_other(self, node_id: int, there: Mapping[int, Collection[str | None]]) -> dict[str, str]:
        """The partitions without a leader that only this node may lead, and nodes that have lost the log dirs of their replicas (4), with
        the directory id that its own replica is assigned to. there: by node, the directory ids of its log dirs."""
        found = {}
        for topic in self.image.topics.values():
            for number, partition in topic.partitions.items():
                directory_id = partition.directory_of(node_id)
                if self._keeps_leader(topic.name, partition) or directory_id in (None, MIGRATING, UNASSIGNED):
                    continue
                may_lead = self.may_lead(partition)
                others = may_lead - {node_id}
                if node_id in may_lead and all(self._has_lost(each, partition, there) for each in others):
                    found[f"{topic.name}-{number}"] = directory_id
        return found

    def _keeps_leader(self, topic: str, partition: Partition) -> bool:
        """Whether the leader stays when its node registers again, or another one follows it at once. One that was killed is fenced, or
        leaves the ISR (2), unless it is alone there."""
        may_leave = self.was_killed(partition.leader) and len(partition.isr) > 1
        return partition.leader >= 0 and (not may_leave or self.are_unclean(topic))

    def _has_lost(
        self, node_id: int, partition: Partition, there: Mapping[int, Collection[str | None]]
    ) -> bool:
        """Whether a node has other log dirs than the one that its replica is assigned to, as many as it has registered."""
        ids, broker = there.get(node_id, ()), self.image.brokers.get(node_id)
        assigned = partition.directory_of(node_id)
        are_all = broker is not None and len(ids) >= len(broker.log_dirs) and None not in ids
        return are_all and assigned not in (None, MIGRATING, UNASSIGNED, *ids)

    def are_unclean(self, topic: str) -> bool:
        """Whether a topic allows unclean elections, as far as the metadata and the known properties tell."""
        return allows_unclean(topic, self.image, self.static)


def elections_after(nodes: StoppedNodes, server: Mapping[str, str] | None) -> Elections:
    """server: the server.properties of one of the nodes, which count if it is a controller of this cluster."""
    image = nodes.newest
    epochs: dict[int, list[int | None]] = defaultdict(list)
    for log_dir in nodes.log_dirs:
        broker = nodes.broker_of(log_dir)
        if broker is not None:
            epochs[broker.id].append(_epoch_at_stop(log_dir))
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
