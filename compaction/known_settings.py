"""Topic settings of a partition, as the caller found them in the metadata log or received them from the user.

`options.topics` has the settings of each partition directory by path. Without them (a run without topic settings) the options
apply to every topic.
"""

from collections.abc import Mapping

from kseg.compaction.config import TopicConfig
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.partition.topic_settings import (
    CLEANUP_POLICY,
    Setting,
    SettingsByPath,
    Source,
    TopicSettings,
)


def settings_for(target: PartitionTarget, topics: SettingsByPath | None) -> TopicSettings | None:
    """The settings of a target's topic; None when the run has none."""
    if topics is None:
        return None
    return topics.get(target.path, TopicSettings({}, "nobody has looked", ""))


def as_config(target: PartitionTarget, known: TopicSettings) -> TopicConfig:
    """The settings in the form of a properties file."""
    name = own_partition_name(target.path)
    return config_of(target.path if name is None else name.topic, known)


def config_of(owner: str, known: TopicSettings) -> TopicConfig:
    """`as_config` for the settings of a topic, or of a partition whose name is unknown. owner: its name or path, for errors."""
    pairs = {key: setting.value for key, setting in known.settings.items()}
    return TopicConfig(f"the configuration of {owner}", pairs)


def of_old_format(known: TopicSettings) -> TopicSettings:
    """The settings for a log of Kafka 0.7, which does not support compaction: the policy is always delete."""
    settings = dict(known.settings)
    if CLEANUP_POLICY not in settings:
        settings[CLEANUP_POLICY] = Setting("delete", Source.OLD_FORMAT)
    return TopicSettings(settings)


def unknown_policy(target: PartitionTarget, known: TopicSettings) -> Finding | None:
    """The finding that the partition is left alone because its cleanup.policy is unknown."""
    if not known.unknown:
        return None
    settles = f"; {known.settles} settles it" if known.settles else ""
    message = f"skipped because its topic's cleanup.policy is unknown: {known.unknown}{settles}"
    return Finding("policy-unknown", target.path, message)


def as_values(known: TopicSettings | None) -> Mapping[str, object]:
    """The field `settings` of a result: each setting and its source."""
    return {} if known is None else known.as_values()
