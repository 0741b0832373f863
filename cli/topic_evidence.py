"""Collect what the metadata log, server.properties and checkpoints say about the topics of a run's targets. It is passed on as plain
values (`segment.partition.topic_settings`), so that the lower layers do not depend on its sources."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated

from kseg.cli.option_schema import Option
from kseg.segment.partition.targets import LogDirTarget, PartitionTarget, Target, log_dir_of
from kseg.segment.partition.topic_settings import Source, TopicSettings
from kseg.segment.storage import places
from kseg.segment.terminal import shown_path
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.internal_topics.metadata.metadata_image import MetadataImage, Node
    from kseg.internal_topics.topic_configs import Layer, TopicEvidence
    from kseg.segment.findings import Finding
    from kseg.segment.partition.names import PartitionName
    from kseg.segment.partition.topic_identity import TopicIdentity

EVIDENCE = "Cluster metadata and configuration"

MetadataPath = Annotated[
    str | None,
    Option(
        metavar="PATH",
        help="The cluster's metadata log: __cluster_metadata-0, a log dir that has it, or one snapshot. Default: the one in "
        "the log dir, or in another log dir of the same node.",
        panel=EVIDENCE,
    ),
]
ServerProperties = Annotated[
    str | None,
    Option(
        metavar="FILE",
        help="The broker's server.properties, for properties that the topics do not set themselves.",
        panel=EVIDENCE,
    ),
]
NodesProperties = Annotated[
    str | None,
    Option(
        metavar="FILE",
        help="The broker's server.properties, for the forecast of its start: node id, log.dirs, and what the loading of logs depends on.",
        panel=EVIDENCE,
    ),
]
CleanupPolicy = Annotated[
    str | None,
    Option(
        choices=("delete", "compact", "compact,delete"),
        help="Kafka's cleanup.policy, for all given topics. Default: each topic's configuration.",
        panel=EVIDENCE,
    ),
]
TopicProperties = Annotated[
    str | None,
    Option(
        metavar="FILE",
        help="Topic properties under Kafka's names; command-line options take precedence.",
        panel=EVIDENCE,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of the command line that name evidence or settings. server: the content of server_properties, if it was read
    already. options: settings given as options, by topic property. config: the pairs of --config. assumes_defaults: whether unset
    properties have Kafka's defaults. is_of_load: whether the settings are those with which a broker loads logs at its start."""

    metadata: str | None = None
    server_properties: str | None = None
    server: Mapping[str, str] | None = None
    options: Mapping[str, object] | None = None
    config: Mapping[str, str] | None = None
    assumes_defaults: bool = False
    is_of_load: bool = False

    @property
    def layers(self) -> "tuple[Layer, ...]":
        """The settings from the user, highest precedence first."""
        given = {name: str(value) for name, value in (self.options or {}).items() if value is not None}
        return (Source.OPTION, given), (Source.CONFIG_FILE, self.config or {})


def topic_settings(
    targets: Sequence[Target], asked: Asked, finder: "MetadataFinder | None" = None
) -> "tuple[dict[str, TopicSettings], tuple[Finding, ...]]":
    """The settings of each partition by path, and the findings about the evidence. finder: of these targets, if there is one already.

    Raises UsageError, UnreadableInput and Refused for a metadata log or a file that the user named.
    """
    return _Settings(targets, asked, finder).all()


def load_settings(
    targets: Sequence[Target],
    metadata: str | None,
    finder: "MetadataFinder",
    server: "Mapping[str, str] | None" = None,
) -> "dict[str, TopicSettings]":
    """The settings that the loading of a log by a broker depends on, by path of the partition; without partitions for which neither the
    metadata log nor server.properties sets one of them, which is the usual case."""
    from kseg.recovery.policy import LOAD_PROPERTIES

    images = [finder.image_for(log_dir) for log_dir in log_dirs_of(targets)]
    configs = [configs for image in images if image is not None for configs in image.configs.values()]
    if all(LOAD_PROPERTIES.isdisjoint(each) for each in (*configs, server or {})):
        return {}
    asked = Asked(metadata=metadata, server=server, assumes_defaults=True, is_of_load=True)
    return topic_settings(targets, asked, finder)[0]


def server_pairs(server_properties: str | None) -> "Mapping[str, str] | None":
    """The content of the broker's properties file, None when it was not given. Raises UsageError and UnreadableInput."""
    if server_properties is None:
        return None
    from kseg.compaction.config import TopicConfig

    return TopicConfig.read(server_properties).pairs


def finder_for(
    targets: Sequence[Target],
    metadata: str | None,
    server: Mapping[str, str] | None = None,
    left_out: Sequence[str] = (),
) -> "MetadataFinder":
    """The finder of the metadata log of each target's log dir. left_out: log dirs that the node does not have any more."""
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder

    places = [(server or {}).get(name, "") for name in ("metadata.log.dir", "log.dirs", "log.dir")]
    named = [place.strip() for text in places for place in text.split(",") if place.strip()]
    return MetadataFinder(log_dirs_of(targets), metadata, named, left_out)


def log_dirs_of(targets: Sequence[Target]) -> list[str]:
    """The log dirs of targets, each once: those that are targets themselves, and those around partitions."""
    whole = [target.path for target in targets if isinstance(target, LogDirTarget)]
    return list(dict.fromkeys([*whole, *map(log_dir_of, _partitions(targets))]))


def _partitions(targets: Sequence[Target]) -> list[PartitionTarget]:
    return [target for target in targets if isinstance(target, PartitionTarget)]


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
    for target in _partitions(targets):
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
        identity = _identity(target.path, name, at_start.get(log_dir, image), finder.node_of(log_dir))
        if identity.finding is not None or identity.topic_id is not None or identity.is_promoted:
            found[target.path] = identity
        if identity.becomes_stray:
            unsettled.append(target)
    outdated = _outdated(images, of_image) if unsettled else ()
    return found | _settled(unsettled, finder), (*told_of(images.values()), *outdated)


def _at_start(log_dirs: Sequence[str], finder: "MetadataFinder") -> "Mapping[str, MetadataImage]":
    """By log dir, the image with which its node will load it, where these are of several nodes."""
    if len({finder.node_of(log_dir).node_id for log_dir in log_dirs}) < 2:
        return {}
    from kseg.internal_topics.metadata.newer_log import images_at_start

    return images_at_start(log_dirs, finder)


def _outdated(
    images: "Mapping[str, MetadataImage]", partitions: Mapping[str, Sequence[str]]
) -> "Iterator[Finding]":
    from kseg.internal_topics.metadata.outdated_log import outdated_log

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
        topic_id=_topic_id(path),
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
    for log_dir in [target.path for target in targets if isinstance(target, LogDirTarget)]:
        image = finder.governing_image(log_dir)
        if image is not None:
            from kseg.internal_topics.metadata.missing_replicas import missing_replicas

            others, gone = partial(finder.others_of, log_dir), partial(finder.gone_from, log_dir)
            node = finder.placed_node_of(log_dir)
            found[log_dir] = tuple(missing_replicas(log_dir, node, image, others, gone))
    return found


def behind_in_sync(targets: Sequence[Target], finder: "MetadataFinder") -> "tuple[Finding, ...]":
    """A finding for each replica that lacks committed records and may lead, where the targets are log dirs of several nodes, and for each
    controller that is no voter any more."""
    whole = [target.path for target in targets if isinstance(target, LogDirTarget)]
    log_dirs = [log_dir for log_dir in whole if not finder.uses_zookeeper(log_dir)]
    if len({finder.node_of(log_dir).node_id for log_dir in log_dirs}) < 2:
        from kseg.internal_topics.metadata.controller_quorum import replaced_voters

        return tuple(chain.from_iterable(replaced_voters(log_dir, finder) for log_dir in log_dirs))
    from kseg.internal_topics.metadata.replicas_behind import replicas_behind

    return tuple(replicas_behind(log_dirs, finder))


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


def topic_names(targets: Sequence[Target], finder: "MetadataFinder") -> dict[str, str]:
    """The topic names of directories with a suffix (`-delete`, `-stray`), by path, looked up by topic id and including deleted topics.
    The name of such a directory may be truncated, or by now be that of another topic."""
    from kseg.segment.partition.directory import own_partition_name
    from kseg.segment.partition.names import PartitionState

    found = {}
    for target in _partitions(targets):
        name = own_partition_name(target.path)
        if name is None or name.state is PartitionState.LIVE:
            continue
        image, topic_id = finder.image_for(log_dir_of(target)), _topic_id(target.path)
        if image is not None and topic_id is not None and topic_id in image.names:
            found[target.path] = image.names[topic_id]
    return found


def told_of(images: "Iterable[MetadataImage]") -> "tuple[Finding, ...]":
    """The findings about the metadata logs that were read."""
    return tuple(finding for image in images for finding in (*image.doubts, *image.notes))


class _Settings:
    def __init__(
        self, targets: Sequence[Target], asked: Asked, finder: "MetadataFinder | None" = None
    ) -> None:
        self._targets = _partitions(targets)
        self._layers = asked.layers
        self._assumes_defaults = asked.assumes_defaults
        self._is_of_load = asked.is_of_load
        self._server = server_pairs(asked.server_properties) if asked.server is None else asked.server
        self._finder = finder or finder_for(targets, asked.metadata, self._server)
        self._images: dict[str, MetadataImage] = {}
        self._known: dict[tuple[str, str | None, str], TopicSettings] = {}

    def all(self) -> "tuple[dict[str, TopicSettings], tuple[Finding, ...]]":
        found = {target.path: self._of(target) for target in self._targets}
        return found, told_of(self._images.values())

    def _of(self, target: PartitionTarget) -> TopicSettings:
        from kseg.internal_topics.topic_configs import settings_of
        from kseg.segment.partition.directory import own_partition_name

        log_dir, name = log_dir_of(target), own_partition_name(target.path)
        image = self._finder.governing_image(log_dir)
        if image is not None:
            self._images[image.path] = image
        doubt = "" if image is None else _doubt(image, name, target.path)
        key = log_dir, None if name is None else name.topic, doubt
        if key not in self._known:
            self._known[key] = settings_of(self._evidence(log_dir, name, image, doubt))
        return self._known[key]

    def _evidence(
        self, log_dir: str, name: "PartitionName | None", image: "MetadataImage | None", doubt: str
    ) -> "TopicEvidence":
        from kseg.internal_topics.topic_configs import TopicEvidence

        topic = None if name is None else name.topic
        if image is None or doubt or topic is None:
            is_compacted = image is None and topic is not None and _is_compacted(log_dir, topic)
            return TopicEvidence(
                topic=topic,
                given=self._layers,
                doubt=doubt,
                server=self._server,
                is_compacted=is_compacted,
                assumes_defaults=self._assumes_defaults,
                is_of_load=self._is_of_load,
            )
        node_id = self._finder.node_of(log_dir).node_id
        own = {} if node_id is None else image.broker_configs(node_id)
        return TopicEvidence(
            topic=topic,
            given=self._layers,
            topic_configs=image.topic_configs(topic),
            brokers=((Source.BROKER, own), (Source.DEFAULT_BROKER, image.broker_configs(None))),
            server=self._server,
            is_compacted=_is_compacted(log_dir, topic),
            assumes_defaults=self._assumes_defaults,
            is_of_load=self._is_of_load,
        )


def _doubt(image: "MetadataImage", name: "PartitionName | None", path: str) -> str:
    """Why the metadata log cannot tell the settings of a partition's topic; empty if it can."""
    if name is None:
        return "the directory is not named topic-partition"
    if not image.is_certain:
        return f"the metadata log {image.path} is incomplete ({image.doubts[0].message})"
    topic_id = image.id_by_name.get(name.topic)
    if topic_id is None:
        return f"the metadata log {image.path} has no topic {shown_path(name.topic)}"
    own_id = _topic_id(path)
    if own_id not in (None, topic_id):
        return f"the directory has topic id {own_id}, but in the metadata log {name.topic} has {topic_id}"
    return ""


def _topic_id(path: str) -> str | None:
    from kseg.recovery.verify.topic_ids import topic_id_of

    return topic_id_of(path)


def _is_compacted(log_dir: str, topic: str) -> bool:
    """Whether the cleaner's checkpoint lists the topic."""
    from kseg.segment.partition.log_dir_state import read_log_dir_state
    from kseg.segment.partition.names import Role

    noted = read_log_dir_state(log_dir).checkpoints.get(Role.CLEANER_OFFSETS, {})
    return any(listed == topic for listed, _ in noted)
