"""Collect what the metadata log says about the partitions and nodes that a run's targets belong to: topic ids and names, missing replicas,
replicas that lack records, voters of the quorum."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from kseg.cli.topic_evidence import finder_for, log_dirs_of, partitions_among, told_of, topic_id_in
from kseg.segment.partition.targets import LogDirTarget, PartitionTarget, Target, log_dir_of
from kseg.segment.storage import places

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.internal_topics.metadata.metadata_image import MetadataImage, Node
    from kseg.segment.findings import Finding
    from kseg.segment.partition.names import PartitionName
    from kseg.segment.partition.topic_identity import TopicIdentity


def topic_identities(
    targets: Sequence[Target], metadata: str | None, finder: "MetadataFinder | None" = None
) -> "tuple[dict[str, TopicIdentity], tuple[Finding, ...]]":
    """What the metadata log says about each partition directory that contradicts it, by path, and the findings about that log.
    The path of a log dir is included when its metadata log is complete. finder: of these targets, if there is one already.

    Raises UsageError, UnreadableInput and Refused for a metadata log that the user named.
    """
    from kseg.segment.partition.directory import own_partition_name
    from kseg.segment.partition.topic_identity import UNKNOWN_IDENTITY, TopicIdentity

    finder = finder or finder_for(targets, metadata)
    at_start = _at_start(log_dirs_of(targets), finder)
    images: dict[str, MetadataImage] = {}
    found = {}
    unsettled = []
    of_image: dict[str, list[str]] = {}
    for target in partitions_among(targets):
        log_dir, name = log_dir_of(target), own_partition_name(target.path)
        image = finder.governing_image(log_dir)
        if image is None or name is None:
            continue
        images[image.path] = image
        of_image.setdefault(image.path, []).append(target.path)
        if image.is_certain:
            found[log_dir] = UNKNOWN_IDENTITY  # checked: a partition without an entry is where it should be
        if name.is_metadata_log:
            if _has_loadable_gap(target.path, image):
                found[target.path] = TopicIdentity(has_loadable_gap=True)
            continue
        image = at_start.get(log_dir, image)
        identity = _identity(target.path, name, image, finder.node_of(log_dir))
        if identity.becomes_stray and _may_learn_of_topic(target.path, image, finder):
            continue
        if identity.finding is not None or identity.topic_id is not None or identity.is_promoted:
            found[target.path] = identity
        if identity.becomes_stray:
            unsettled.append(target)
    outdated = _outdated(images, of_image) if unsettled else ()
    return found | _settled(unsettled, finder), (*told_of(images.values()), *outdated)


def _at_start(log_dirs: Sequence[str], finder: "MetadataFinder") -> "Mapping[str, MetadataImage]":
    """By log dir, the image with which its node will load it, if the log dirs belong to several nodes."""
    if not _are_of_several_nodes(log_dirs, finder):
        return {}
    from kseg.internal_topics.metadata.newer_log import images_at_start

    return images_at_start(log_dirs, finder)


def _may_learn_of_topic(path: str, image: "MetadataImage", finder: "MetadataFinder") -> bool:
    from kseg.internal_topics.metadata.newer_log import may_learn_of_topic

    return may_learn_of_topic(path, image, finder)


def _are_of_several_nodes(log_dirs: Sequence[str], finder: "MetadataFinder") -> bool:
    return len({finder.node_of(log_dir).node_id for log_dir in log_dirs}) > 1


def _outdated(
    images: "Mapping[str, MetadataImage]", partitions: Mapping[str, Sequence[str]]
) -> "Iterator[Finding]":
    from kseg.internal_topics.metadata.newer_log import outdated_log

    for path, image in images.items():
        finding = outdated_log(image, partitions[path])
        if finding is not None:
            yield finding


def _settled(targets: Sequence[PartitionTarget], finder: "MetadataFinder") -> "dict[str, TopicIdentity]":
    """The identities of directories that seem to become stray, once more where a broker runs: it may have been about to delete them, or to
    write partition.metadata. Nothing is known about those that are gone."""
    from kseg.change.apply.running_broker import is_in_use
    from kseg.segment.partition.directory import own_partition_name
    from kseg.segment.partition.topic_identity import UNKNOWN_IDENTITY

    in_use = {target.path: log_dir_of(target) for target in targets if is_in_use(target)}
    if not in_use:
        return {}
    from kseg.internal_topics.metadata.settling import settled

    doubtful = {path: image for path, log_dir in in_use.items() if (image := finder.image_for(log_dir))}

    def judge(path: str, image: "MetadataImage") -> "TopicIdentity":
        name = own_partition_name(path)
        assert name is not None
        return _identity(path, name, image, finder.node_of(in_use[path]))

    found = settled(doubtful, judge, lambda identity: identity.becomes_stray)
    return {path: found.get(path, UNKNOWN_IDENTITY) for path in doubtful}


def _has_loadable_gap(path: str, image: "MetadataImage") -> bool:
    """Whether an image comes from this directory, and a node can start in spite of the records that it lacks."""
    from kseg.segment.diagnosis import MetadataGap

    gaps = [doubt.diagnosis for doubt in image.doubts if isinstance(doubt.diagnosis, MetadataGap)]
    is_own = places.realpath(image.path) == places.realpath(path)
    return is_own and bool(gaps) and all(gap.is_loadable for gap in gaps)


def _identity(path: str, name: "PartitionName", image: "MetadataImage", node: "Node") -> "TopicIdentity":
    from kseg.internal_topics.metadata.strays import Directory, identity_of
    from kseg.recovery.verify.topic_ids import METADATA_FILE

    directory = Directory(
        path=path,
        name=name,
        topic_id=topic_id_in(path),
        has_metadata_file=places.lexists(os.path.join(path, METADATA_FILE)),
        node_id=node.node_id,
        directory_id=node.directory_id,
    )
    return identity_of(directory, image)


def identities_after_cut(
    metadata_log: str, end_offset: int | None, paths: Sequence[str]
) -> "dict[str, TopicIdentity] | None":
    """What the metadata log will say about partition directories after a broker has truncated it at `end_offset`, or, if that is None,
    once its damaged batches are removed. Returns None unless this node is the only voter of its quorum: other voters may have the
    lost records."""
    from kseg.internal_topics.metadata.metadata_finder import node_of
    from kseg.internal_topics.metadata.metadata_log import MetadataReading, read_metadata_log
    from kseg.internal_topics.metadata.quorum_voters import voters_of
    from kseg.segment.errors import KsegError
    from kseg.segment.partition.directory import own_partition_name

    node = node_of(os.path.dirname(metadata_log))
    try:
        image = read_metadata_log(metadata_log, MetadataReading(end_offset=end_offset))
    except KsegError:
        return None
    if end_offset is None:
        image = replace(image, doubts=())
    if not image.is_certain or voters_of(image, [os.path.dirname(metadata_log)]) != {node.node_id}:
        return None
    names = {path: own_partition_name(path) for path in paths}
    nodes = {log_dir: node_of(log_dir) for log_dir in {os.path.dirname(path) for path in paths}}
    return {
        path: _identity(path, name, image, replace(nodes[os.path.dirname(path)], node_id=node.node_id))
        for path, name in names.items()
        if name is not None
    }


def replicas_missing(targets: Sequence[Target], finder: "MetadataFinder") -> "dict[str, tuple[Finding, ...]]":
    """A finding for each replica that the metadata log assigns to a log dir among the targets and that is missing there, by log dir."""
    found = {}
    log_dirs = [target.path for target in targets if isinstance(target, LogDirTarget)]
    for log_dir in log_dirs:
        image = finder.governing_image(log_dir)
        if image is not None:
            from kseg.internal_topics.metadata.missing_replicas import missing_replicas
            from kseg.internal_topics.metadata.replica_directories import copies_on_other_nodes

            others, gone = partial(finder.others_of, log_dir), partial(finder.gone_from, log_dir)
            node = finder.placed_node_of(log_dir)
            of_cluster = [each for each in log_dirs if finder.node_of(each).cluster_id == node.cluster_id]
            copy_of = copies_on_other_nodes(node.node_id, of_cluster, finder)
            missing = missing_replicas(log_dir, node, image, others, gone, copy_of)
            found[log_dir] = _or_why_unknown(log_dir, missing)
    return found


def doubts_of_metadata_logs(targets: Sequence[Target], finder: "MetadataFinder") -> "tuple[Finding, ...]":
    """Why it is uncertain what the metadata logs of the log dirs among the targets say, and so which replicas are missing."""
    log_dirs = [target.path for target in targets if isinstance(target, LogDirTarget)]
    images = {image.path: image for each in log_dirs if (image := finder.governing_image(each))}
    return tuple(doubt for image in images.values() for doubt in image.doubts)


def _or_why_unknown(log_dir: str, findings: "Iterator[Finding]") -> "tuple[Finding, ...]":
    """Findings about the replicas of a log dir, or the one that says which directory cannot be listed, so that nothing is known of them."""
    from kseg.segment.errors import UnreadableInput
    from kseg.segment.findings import Finding

    try:
        return tuple(findings)
    except UnreadableInput as error:
        message = f"{error}: it is unknown whether replicas are missing there or lack records"
        return (Finding("unreadable-file", log_dir, message),)


def behind_in_sync(
    targets: Sequence[Target], finder: "MetadataFinder", server: Mapping[str, str] | None = None
) -> "tuple[Finding, ...]":
    """A finding for each log of a move that replaces a longer one, for each replica that lacks committed records and may lead, where the
    targets are log dirs of several nodes, and for each controller that is no longer a voter. server: the server.properties of one of the
    nodes."""
    whole = [target.path for target in targets if isinstance(target, LogDirTarget)]
    log_dirs = [log_dir for log_dir in whole if not finder.uses_zookeeper(log_dir)]
    if not log_dirs:
        return ()
    from kseg.internal_topics.metadata.moved_logs import moved_logs_behind

    moved = _or_why_unknown(log_dirs[0], moved_logs_behind(log_dirs, finder))
    return (*moved, *_among_nodes(log_dirs, finder, server))


def _among_nodes(
    log_dirs: Sequence[str], finder: "MetadataFinder", server: Mapping[str, str] | None
) -> "tuple[Finding, ...]":
    """The findings of `behind_in_sync` about replicas and controllers."""
    if not _are_of_several_nodes(log_dirs, finder):
        from kseg.internal_topics.metadata.controller_quorum import replaced_voters

        return tuple(chain.from_iterable(replaced_voters(log_dir, finder) for log_dir in log_dirs))
    from kseg.internal_topics.metadata.replicas_behind import replicas_behind

    return _or_why_unknown(log_dirs[0], replicas_behind(log_dirs, finder, server))


def registered_by_node(
    log_dirs: Sequence[str], finder: "MetadataFinder"
) -> "dict[tuple[str | None, int | None], frozenset[str]]":
    """The directory ids that brokers have registered, by cluster id and node id, as the newest metadata log of each cluster has them."""
    images = {finder.node_of(each).cluster_id: list["MetadataImage"]() for each in log_dirs}
    if len(log_dirs) < 2:
        return {}
    for log_dir in log_dirs:
        image = finder.image_for(log_dir)
        if image is not None:
            images[finder.node_of(log_dir).cluster_id].append(image)
    newest = {
        cluster_id: max(found, key=lambda image: image.reach) for cluster_id, found in images.items() if found
    }
    return {
        (cluster_id, node_id): frozenset(broker.log_dirs)
        for cluster_id, image in newest.items()
        for node_id, broker in image.brokers.items()
    }


def led_by_no_other(
    log_dirs: Sequence[str], finder: "MetadataFinder", server: Mapping[str, str] | None
) -> "Iterator[tuple[str, dict[str, str], int]]":
    """For each log dir, the partitions without a leader that no other node will lead (see `Elections.led_by_no_other`), and how many log
    dirs its node has registered. log_dirs: of the run."""
    from kseg.change.apply.lock import is_locked
    from kseg.internal_topics.metadata.elections import elections_after
    from kseg.internal_topics.metadata.stopped_nodes import StoppedNodes, newest_image

    by_cluster = defaultdict[str, list[str]](list)
    for log_dir in log_dirs:
        if not finder.uses_zookeeper(log_dir):
            by_cluster[finder.node_of(log_dir).cluster_id or log_dir].append(log_dir)
    for of_cluster in by_cluster.values():
        image = newest_image(finder, of_cluster)
        if image is None:
            continue
        stopped = [log_dir for log_dir in of_cluster if not is_locked(log_dir)]
        elections = elections_after(StoppedNodes(stopped, image, finder), server)
        there = defaultdict[int, list[str | None]](list)
        for node in map(finder.node_of, stopped):
            there[-1 if node.node_id is None else node.node_id].append(node.directory_id)
        for log_dir in of_cluster:
            node_id = finder.placed_node_of(log_dir).node_id
            if node_id is not None and node_id in image.brokers:
                partitions = elections.led_by_no_other(node_id, there)
                yield log_dir, partitions, len(image.brokers[node_id].log_dirs)


def voters_around(log_dir: str, log_dirs: Sequence[str], finder: "MetadataFinder") -> set[int]:
    """The voters of the quorum of a log dir's node; empty if they are unknown. log_dirs: of the run, where another node of the cluster may
    name them."""
    image = finder.image_for(log_dir)
    if image is None:
        cluster_id = finder.node_of(log_dir).cluster_id
        around = [each for each in log_dirs if finder.node_of(each).cluster_id == cluster_id is not None]
        images = [found for each in around if (found := finder.image_for(each)) is not None]
        image = max(images, key=lambda found: (found.epoch, found.end_offset), default=None)
    if image is None:
        return set()
    from kseg.internal_topics.metadata.quorum_voters import voters_of

    return voters_of(image, [log_dir, os.path.dirname(image.path)])


def voters_present(log_dir: str, log_dirs: Sequence[str], finder: "MetadataFinder") -> set[int]:
    """The other nodes of a log dir's cluster whose metadata logs are known. log_dirs: of the run."""
    own = finder.node_of(log_dir)
    return {
        node.node_id
        for node, image in ((finder.node_of(each), finder.image_for(each)) for each in log_dirs)
        if image is not None and node.cluster_id == own.cluster_id and node.node_id not in (None, own.node_id)
        if node.node_id is not None
    }


def topic_names(targets: Sequence[Target], finder: "MetadataFinder") -> dict[str, str]:
    """The topic names of directories with a suffix (`-delete`, `-stray`), by path, looked up by topic id and including deleted topics.
    The name of such a directory may be truncated, or by now be that of another topic."""
    from kseg.segment.partition.directory import own_partition_name
    from kseg.segment.partition.names import PartitionState

    found = {}
    for target in partitions_among(targets):
        name = own_partition_name(target.path)
        if name is None or name.state is PartitionState.LIVE:
            continue
        image, topic_id = finder.image_for(log_dir_of(target)), topic_id_in(target.path)
        if image is not None and topic_id is not None and topic_id in image.names:
            found[target.path] = image.names[topic_id]
    return found
