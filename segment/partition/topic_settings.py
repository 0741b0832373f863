"""The known settings of a topic, as plain values for the commands that apply them.

Settings have the names of topic properties (`retention.ms`), even if they were found under another name (`log.retention.hours`).
"""

from collections.abc import Collection, Mapping
from dataclasses import field
from enum import StrEnum

from kseg.segment.partition.remote_span import RemoteCopy
from kseg.segment.values import dataclass

CLEANUP_POLICY = "cleanup.policy"
COMPRESSION_TYPE = "compression.type"
TIMESTAMP_TYPE = "message.timestamp.type"
TIMESTAMP_AFTER_MAX = "message.timestamp.after.max.ms"
DEFAULT_TIMESTAMP_AFTER_MAX_MS = 3_600_000
MAX_MESSAGE_BYTES = "max.message.bytes"
DEFAULT_MAX_MESSAGE_BYTES = (1 << 20) + 12
REMOTE_STORAGE = "remote.storage.enable"
REMOTE_COPY_DISABLE = "remote.log.copy.disable"


def has_tiers(is_enabled: bool, policies: Collection[str]) -> bool:
    """Whether a broker moves segments to remote storage (Kafka: UnifiedLog.isRemoteLogEnabled). is_enabled: remote.storage.enable is
    true."""
    return is_enabled and "compact" not in policies


class Source(StrEnum):
    """The source of a setting, in Kafka's order of precedence; kseg's own sources come before and after those."""

    OPTION = "option"  # of the command line
    CONFIG_FILE = "config-file"  # --config
    TOPIC = "topic-config"  # of the topic itself, in the metadata log
    BROKER = "broker-config"  # of this broker, in the metadata log
    DEFAULT_BROKER = "default-broker-config"  # of all brokers, in the metadata log
    SERVER_PROPERTIES = "server-properties"
    INTERNAL_TOPIC = "internal-topic"  # set by a broker for a topic that it creates itself
    CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"  # a cleaner has compacted it
    OLD_FORMAT = "old-format"  # 0.7 supports only deletion
    BUILT_IN = "built-in-default"

    @property
    def words(self) -> str:
        """The source as text within a sentence."""
        return _WORDS[self]


_WORDS = {
    Source.OPTION: "option",
    Source.CONFIG_FILE: "--config",
    Source.TOPIC: "topic config",
    Source.BROKER: "dynamic broker config",
    Source.DEFAULT_BROKER: "dynamic default broker config",
    Source.SERVER_PROPERTIES: "server.properties",
    Source.INTERNAL_TOPIC: "internal topic",
    Source.CLEANER_CHECKPOINT: "cleaner-offset-checkpoint",
    Source.OLD_FORMAT: "Kafka 0.7",
    Source.BUILT_IN: "Kafka's default",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """value: as text, as Kafka writes it."""

    value: str
    source: Source


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """settings: by the topic property's name, only known ones. unknown: why the cleanup.policy is unknown,
    empty if it is known. settles: the options that would specify it. remote_epochs: of one partition, the leader epochs of its segments in
    remote storage with their start offsets, if the partition itself has lost them. remote_end_offset: of one partition, the offset after
    the last one in remote storage, None if that is unknown. remote_copies: the segments there that retention considers, in its order, None
    if they are unknown. after_load: settings that have other values once the broker, which loads its
    logs with these, has read its dynamic properties. has_configs: the topic's own configuration is known."""

    settings: Mapping[str, Setting] = field(default_factory=dict)
    unknown: str = ""
    settles: str = ""
    remote_epochs: tuple[tuple[int, int], ...] = ()
    remote_end_offset: int | None = None
    remote_copies: tuple[RemoteCopy, ...] | None = None
    after_load: Mapping[str, Setting] = field(default_factory=dict)
    has_configs: bool = False

    @property
    def policies(self) -> frozenset[str]:
        """The values of cleanup.policy; empty if it is unknown or empty."""
        found = self.settings.get(CLEANUP_POLICY)
        words = "" if found is None else found.value
        return frozenset(word for word in (part.strip() for part in words.split(",")) if word)

    def number(self, name: str) -> int | None:
        """The value of a setting; None if it is not known, or no integer, which a broker would not accept."""
        found = self.settings.get(name)
        try:
            return None if found is None else int(found.value)
        except ValueError:
            return None

    @property
    def is_tiered(self) -> bool:
        """Whether the topic has tiered storage, as far as known."""
        found = self.settings.get(REMOTE_STORAGE)
        return has_tiers(found is not None and found.value.strip().lower() == "true", self.policies)

    @property
    def may_be_tiered(self) -> bool:
        """Whether nothing says that the topic has no tiered storage."""
        return self.is_tiered or not (self.has_configs or REMOTE_STORAGE in self.settings)

    def log_start(self, checkpointed: int, first_base_offset: int) -> int:
        """The log start offset after a load: with tiered storage it may be below the first local segment (Kafka: LogLoader.load)."""
        return checkpointed if self.is_tiered else max(checkpointed, first_base_offset)

    def as_values(self) -> dict[str, dict[str, str]]:
        """The settings as a member of a JSON line."""
        return {
            name: {"value": setting.value, "source": setting.source.value}
            for name, setting in sorted(self.settings.items())
        }


SettingsByPath = Mapping[str, TopicSettings]  # by the path of a partition directory, as shown to the user
