"""The settings of a topic as a broker would have them, each with its source.

A broker takes a property from the topic's own configuration, else from its own: what is set for this broker, else for all
brokers, else in server.properties, else the built-in default. Broker properties have other names, and several for one topic property:
the first that is set anywhere counts (Kafka: ServerTopicConfigSynonyms, KafkaConfig.logRetentionTimeMillis), so
`log.retention.ms` in server.properties takes precedence over a dynamic `log.retention.hours`.

The broker's own file is known only if the user specifies it. Then properties missing from it have their built-in values; without it only
cleanup.policy is assumed to be built in (delete), unless the cleaner's checkpoint contradicts that. A limit that is configured nowhere is
never assumed.
"""

from collections.abc import Mapping
from dataclasses import replace

from kseg.segment.partition.names import (
    CONSUMER_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from kseg.segment.partition.topic_settings import (
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    MAX_MESSAGE_BYTES,
    REMOTE_COPY_DISABLE,
    REMOTE_STORAGE,
    TIMESTAMP_AFTER_MAX,
    TIMESTAMP_TYPE,
    Setting,
    Source,
    TopicSettings,
)
from kseg.segment.terminal import shell_word
from kseg.segment.values import dataclass

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

# By topic property: the broker's names for it (the first that is set counts) and their units.
_BROKER_NAMES: Mapping[str, tuple[tuple[str, int], ...]] = {
    CLEANUP_POLICY: (("log.cleanup.policy", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ),
    "retention.bytes": (("log.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS)),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "producer.id.expiration.ms": (("producer.id.expiration.ms", 1),),
    COMPRESSION_TYPE: ((COMPRESSION_TYPE, 1),),
    MAX_MESSAGE_BYTES: (("message.max.bytes", 1),),
    TIMESTAMP_AFTER_MAX: (("log.message.timestamp.after.max.ms", 1),),
    TIMESTAMP_TYPE: (("log.message.timestamp.type", 1),),
}
# A broker loads its logs with the values of server.properties: it reads dynamic broker properties only afterwards (Kafka:
# BrokerMetadataPublisher.initializeManagers; observed with 4.3.1).
_STATIC_AT_LOAD = frozenset(("index.interval.bytes", "segment.index.bytes", "producer.id.expiration.ms"))
_TOPIC_ONLY = ("internal.segment.bytes", REMOTE_STORAGE, REMOTE_COPY_DISABLE)
_BUILT_IN = {CLEANUP_POLICY: "delete", "retention.ms": "604800000", "retention.bytes": "-1"}

# Topics that a broker creates itself, with properties that override its own (Kafka: groupMetadataTopicConfigs,
# transactionStateTopicConfigs, shareGroupStateTopicConfigs).
_INTERNAL: Mapping[str, Mapping[str, str]] = {
    CONSUMER_OFFSETS_TOPIC: {CLEANUP_POLICY: "compact"},
    TRANSACTION_STATE_TOPIC: {CLEANUP_POLICY: "compact"},
    SHARE_GROUP_STATE_TOPIC: {CLEANUP_POLICY: "delete", "retention.ms": "-1"},
}

_OF_USER = (Source.OPTION, Source.CONFIG_FILE)
_NOBODY = Setting("", Source.BUILT_IN)

Layer = tuple[Source, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEvidence:
    """What is known about one topic.

    given: settings from the user, under topic or broker property names, highest precedence first. topic_configs: from the
    metadata log, None if it has none that are reliable. doubt: the reason, in words. brokers: dynamic properties, this broker's
    first. server: server.properties, None if it was not given. is_compacted: the cleaner's checkpoint lists the topic.
    assumes_defaults: properties that are set nowhere have their built-in values. is_of_load: the settings are those with which a broker
    loads logs at its start.
    """

    topic: str | None
    given: tuple[Layer, ...] = ()
    topic_configs: Mapping[str, str] | None = None
    doubt: str = ""
    brokers: tuple[Layer, ...] = ()
    server: Mapping[str, str] | None = None
    is_compacted: bool = False
    assumes_defaults: bool = False
    is_of_load: bool = False


def settings_of(evidence: TopicEvidence) -> TopicSettings:
    """All known settings, by topic property."""
    found: dict[str, Setting] = {}
    for name in (*_BROKER_NAMES, *_TOPIC_ONLY):
        setting = _setting(name, evidence)
        if setting is not None:
            found[name] = setting
    if found.get("segment.bytes", _NOBODY).source in _OF_USER:
        # internal.segment.bytes would take precedence (Kafka: LogConfig.segmentSize)
        found.pop("internal.segment.bytes", None)
    after_load = _after_load(found, evidence)
    policy = found.get(CLEANUP_POLICY)
    by_name = "" if evidence.topic is None else f"--topic {shell_word(evidence.topic)} "
    narrowed = f"{by_name}--cleanup-policy delete|compact"
    if policy is None:
        unknown = evidence.doubt or "there is no metadata log here that knows the topic"
        return TopicSettings(found, unknown, f"--metadata PATH, or {narrowed}", after_load=after_load)
    if _is_contradicted(policy, evidence):
        del found[CLEANUP_POLICY]
        unknown = (
            "the topic has no cleanup.policy of its own, and a cleaner has compacted it (cleaner-offset-checkpoint): "
            "the broker's default is not known"
        )
        return TopicSettings(
            found, unknown, f"--server-properties FILE, or {narrowed}", after_load=after_load
        )
    return TopicSettings(found, after_load=after_load, has_configs=evidence.topic_configs is not None)


def _after_load(found: Mapping[str, Setting], evidence: TopicEvidence) -> dict[str, Setting]:
    """The settings that a broker applies only after it has loaded its logs."""
    if not evidence.is_of_load:
        return {}
    later = replace(evidence, is_of_load=False)
    values = {name: _setting(name, later) for name in _STATIC_AT_LOAD}
    return {name: each for name, each in values.items() if each is not None and each != found.get(name)}


def _setting(name: str, evidence: TopicEvidence) -> Setting | None:
    for source, pairs in evidence.given:
        value = _under(name, pairs)
        if value is not None:
            return Setting(value, source)
    internal = _INTERNAL.get(evidence.topic or "", {}).get(name)
    if evidence.topic_configs is not None:
        if name in evidence.topic_configs:
            return Setting(evidence.topic_configs[name], Source.TOPIC)
        if name in _TOPIC_ONLY:
            return None
        return _of_broker(name, evidence)
    if internal is not None:
        return Setting(internal, Source.INTERNAL_TOPIC)
    if name == CLEANUP_POLICY:
        # the topic may have a policy of its own that is not visible here: a default must not decide what may be deleted
        if evidence.is_compacted:
            return Setting("compact", Source.CLEANER_CHECKPOINT)
        return _of_broker(name, evidence) if evidence.assumes_defaults else None
    return None if name in _TOPIC_ONLY else _of_broker(name, evidence)


def _of_broker(name: str, evidence: TopicEvidence) -> Setting | None:
    layers = [] if evidence.is_of_load and name in _STATIC_AT_LOAD else list(evidence.brokers)
    if evidence.server is not None:
        layers.append((Source.SERVER_PROPERTIES, evidence.server))
    for broker_name, unit in _BROKER_NAMES[name]:
        for source, pairs in layers:
            if broker_name in pairs:
                return Setting(_in_units(pairs[broker_name], unit), source)
    is_all_known = evidence.server is not None or evidence.assumes_defaults or name == CLEANUP_POLICY
    return Setting(_BUILT_IN[name], Source.BUILT_IN) if is_all_known and name in _BUILT_IN else None


def _under(name: str, pairs: Mapping[str, str]) -> str | None:
    """A property in a file of topic or broker properties: the topic's name for it takes precedence."""
    if name in pairs:
        return pairs[name].strip()
    for broker_name, unit in _BROKER_NAMES.get(name, ()):
        if broker_name in pairs:
            return _in_units(pairs[broker_name], unit)
    return None


def _in_units(text: str, unit: int) -> str:
    """Hours and minutes as milliseconds; text that is not a number is kept, and the reader rejects it. A negative time is no
    limit (Kafka: logRetentionTimeMillis)."""
    text = text.strip()
    if unit == 1:
        return text
    try:
        return str(max(-1, int(text) * unit))
    except ValueError:
        return text


def _is_contradicted(policy: Setting, evidence: TopicEvidence) -> bool:
    """Whether a cleaner has compacted a topic that should not be compacted, and the broker's default is unknown."""
    is_guess = policy.source is Source.BUILT_IN and evidence.server is None
    return is_guess and evidence.is_compacted
