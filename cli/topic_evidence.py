"""Collect what the metadata log, server.properties and checkpoints say about the topics of a run's targets. It is passed on as plain
values (`segment.partition.topic_settings`), so that the lower layers do not depend on its sources."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from kseg.cli.option_schema import Option
from kseg.segment.partition.targets import LogDirTarget, PartitionTarget, Target, log_dir_of
from kseg.segment.partition.topic_settings import Source, TopicSettings
from kseg.segment.terminal import shown_path
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.internal_topics.metadata.metadata_image import MetadataImage
    from kseg.internal_topics.topic_configs import Layer, TopicEvidence
    from kseg.segment.findings import Finding
    from kseg.segment.partition.names import PartitionName

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
    images = [finder.image_for(log_dir) for log_dir in log_dirs_of(targets)]
    configs = [configs for image in images if image is not None for configs in image.configs.values()]
    if not configs and not server:
        return {}
    from kseg.recovery.policy import LOAD_PROPERTIES

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
    """The finder of the metadata log of each target's log dir. left_out: log dirs that the node no longer has."""
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder

    places = [(server or {}).get(name, "") for name in ("metadata.log.dir", "log.dirs", "log.dir")]
    named = [place.strip() for text in places for place in text.split(",") if place.strip()]
    return MetadataFinder(log_dirs_of(targets), metadata, named, left_out)


def log_dirs_of(targets: Sequence[Target]) -> list[str]:
    """The log dirs of targets, each once: those that are targets themselves, and those around partitions."""
    whole = [target.path for target in targets if isinstance(target, LogDirTarget)]
    return list(dict.fromkeys([*whole, *map(log_dir_of, partitions_among(targets))]))


def partitions_among(targets: Sequence[Target]) -> list[PartitionTarget]:
    """The partitions that are targets themselves."""
    return [target for target in targets if isinstance(target, PartitionTarget)]


def told_of(images: "Iterable[MetadataImage]") -> "tuple[Finding, ...]":
    """The findings about the metadata logs that were read."""
    return tuple(finding for image in images for finding in (*image.doubts, *image.notes))


class _Settings:
    def __init__(
        self, targets: Sequence[Target], asked: Asked, finder: "MetadataFinder | None" = None
    ) -> None:
        self._targets = partitions_among(targets)
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
    own_id = topic_id_in(path)
    if own_id not in (None, topic_id):
        return f"the directory has topic id {own_id}, but in the metadata log {name.topic} has {topic_id}"
    return ""


def topic_id_in(path: str) -> str | None:
    """The topic id of a partition directory; None without a readable partition.metadata."""
    from kseg.recovery.verify.topic_ids import topic_id_of

    return topic_id_of(path)


def _is_compacted(log_dir: str, topic: str) -> bool:
    """Whether the cleaner's checkpoint lists the topic."""
    from kseg.segment.partition.log_dir_state import read_log_dir_state
    from kseg.segment.partition.names import Role

    noted = read_log_dir_state(log_dir).checkpoints.get(Role.CLEANER_OFFSETS, {})
    return any(listed == topic for listed, _ in noted)
