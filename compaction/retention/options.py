"""Options of `retain`: the retention limits, the broker state that they depend on, and what to do with the result."""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from kseg.change.run.options import ChangeOptions
from kseg.compaction.config import TopicConfig
from kseg.segment.errors import UsageError
from kseg.segment.partition.names import (
    CONSUMER_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from kseg.segment.partition.topic_settings import REMOTE_COPY_DISABLE, REMOTE_STORAGE, has_tiers
from kseg.segment.state.producer import DEFAULT_EXPIRATION_MS
from kseg.segment.values import dataclass

DEFAULT_FILE_DELETE_DELAY_MS = 60_000
PRODUCER_ID_EXPIRATION = "producer.id.expiration.ms"

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

POLICY_NAMES = ("cleanup.policy", "log.cleanup.policy")

# Prefixes of the properties that matter here.
_HEEDED = (
    "retention.",
    "log.retention.",
    "local.retention.",
    "log.local.retention.",
    REMOTE_STORAGE,
    REMOTE_COPY_DISABLE,
    *POLICY_NAMES,
    "file.delete.delay.ms",
    "log.segment.delete.delay.ms",
    PRODUCER_ID_EXPIRATION,
)

# with this value, local.retention.ms and local.retention.bytes fall back to retention.ms and retention.bytes
AS_RETENTION = "-2"
_COMPACTED_BY_BROKER = frozenset((CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC))
_KEPT_BY_BROKER = SHARE_GROUP_STATE_TOPIC  # retention.ms=-1


class RetentionPolicy(StrEnum):
    """An element of cleanup.policy."""

    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """retention_ms, retention_bytes: None and negative values are off. policies: those in cleanup.policy; time and size delete only if
    `delete` is among them (no policy at all is Kafka's empty list).

    is_tiered: with remote.storage.enable, a log may start below its first local segment. is_copied: its segments are copied to remote
    storage (remote.log.copy.disable is not set); the limits are then those of local.retention, only what has been copied is deleted, and
    the log keeps its start."""

    retention_ms: int | None = None
    retention_bytes: int | None = None
    policies: frozenset[RetentionPolicy] = frozenset((RetentionPolicy.DELETE,))
    is_tiered: bool = False
    is_copied: bool = False

    def for_topic(self, topic: str) -> "Limits":
        """The limits for a topic that brokers create themselves, whose properties override the broker's own
        (Kafka: GroupCoordinatorService.groupMetadataTopicConfigs, TransactionStateManager.transactionStateTopicConfigs,
        ShareCoordinatorService.shareGroupStateTopicConfigs); those of other topics are not known here."""
        if topic in _COMPACTED_BY_BROKER:
            return replace(self, policies=frozenset((RetentionPolicy.COMPACT,)))
        if topic == _KEPT_BY_BROKER:
            return replace(self, retention_ms=None, policies=frozenset((RetentionPolicy.DELETE,)))
        return self

    @property
    def has_time(self) -> bool:
        return self.retention_ms is not None and self.retention_ms >= 0

    @property
    def has_size(self) -> bool:
        return self.retention_bytes is not None and self.retention_bytes >= 0

    @property
    def deletes(self) -> bool:
        """Whether time and size delete. An empty cleanup.policy is infinite retention, which leaves the local copies to their limits."""
        return RetentionPolicy.DELETE in self.policies or (self.is_copied and not self.policies)

    @property
    def policy_text(self) -> str:
        return ",".join(sorted(self.policies))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainOptions(ChangeOptions):
    """One run of `retain`, which makes no copies.

    now_ms: the clock. log_start_offset: raise it to this first, as DeleteRecords does. high_watermark: None reads the data
    directory. remote_end_offset: the offset after the last one in remote storage, None if unknown. producer_id_expiration_ms: producers
    that were idle for so long are not in the snapshot of a new segment. is_policy_given: the policy of the limits applies to internal
    topics too. purge: delete files that were marked long enough ago; purge_only: do that, and mark no others. free_bytes: choose over all
    partitions of a run what to delete, so that each file system gets this many bytes back. cuts: that choice, as the offset below which
    segments are deleted, by partition directory. unmark: restore marked segments instead. what_if: report what other limits would free.
    """

    limits: Limits
    now_ms: int
    log_start_offset: int | None = None
    high_watermark: int | None = None
    remote_end_offset: int | None = None
    is_policy_given: bool = False
    purge: bool = False
    purge_only: bool = False
    free_bytes: int | None = None
    cuts: Mapping[str, int] | None = None
    unmark: bool = False
    file_delete_delay_ms: int = DEFAULT_FILE_DELETE_DELAY_MS
    producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS
    what_if: bool = False

    @property
    def only_marked(self) -> bool:
        """Whether only files that are already marked are concerned, to which no policy applies."""
        return self.unmark or self.purge_only


NO_LIMITS = Limits(policies=frozenset())


def policies_of(words: tuple[str, ...]) -> frozenset[RetentionPolicy]:
    """The value of cleanup.policy. Raises UsageError for a word that Kafka does not have."""
    try:
        return frozenset(RetentionPolicy(word) for word in words)
    except ValueError:
        raise UsageError(f"cleanup.policy takes delete, compact or both, not {','.join(words)}") from None


def configured_limits(config: TopicConfig) -> Limits:
    """The limits set by a properties file; those it does not name are off. Raises UsageError."""
    retention_bytes = config.integer("retention.bytes")
    if retention_bytes is None:
        retention_bytes = config.integer("log.retention.bytes")
    retention_ms = _retention_ms(config)
    words = next((words for name in POLICY_NAMES if (words := config.words(name)) is not None), None)
    policies = frozenset((RetentionPolicy.DELETE,)) if words is None else policies_of(words)
    is_tiered = has_tiers(_is_set(config, REMOTE_STORAGE), policies)
    is_copied = is_tiered and not _is_set(config, REMOTE_COPY_DISABLE)
    if is_copied:
        retention_ms = _local(config, "local.retention.ms", retention_ms)
        retention_bytes = _local(config, "local.retention.bytes", retention_bytes)
    return Limits(
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        policies=policies,
        is_tiered=is_tiered,
        is_copied=is_copied,
    )


def _is_set(config: TopicConfig, name: str) -> bool:
    return [word.lower() for word in config.words(name) or ()] == ["true"]


def _local(config: TopicConfig, name: str, otherwise: int | None) -> int | None:
    """A limit of the local copies (Kafka: UnifiedLog.localRetentionMs, LogConfig.localRetentionMs)."""
    value = config.integer(name)
    if value is None:
        value = config.integer(f"log.{name}")
    return otherwise if value in (None, int(AS_RETENTION)) else value


def _retention_ms(config: TopicConfig) -> int | None:
    for name, unit_ms in (
        ("retention.ms", 1),
        ("log.retention.ms", 1),
        ("log.retention.minutes", _MINUTE_MS),
        ("log.retention.hours", _HOUR_MS),
    ):
        value = config.integer(name)
        if value is not None:
            if name == "retention.ms" and value < -1:
                raise UsageError(f"{config.path}: {name} is {value}, and cannot be less than -1")
            return value * unit_ms
    return None


def configured_delay_ms(config: TopicConfig) -> int | None:
    """file.delete.delay.ms, or the broker's name for it; None when the file does not say."""
    for name in ("file.delete.delay.ms", "log.segment.delete.delay.ms"):
        value = config.integer(name)
        if value is not None:
            if value < 0:
                raise UsageError(f"{config.path}: {name} cannot be negative")
            return value
    return None


def configured_expiration_ms(config: TopicConfig) -> int | None:
    """producer.id.expiration.ms; None when the file does not say."""
    value = config.integer(PRODUCER_ID_EXPIRATION)
    if value is not None and value < 1:
        raise UsageError(f"{config.path}: {PRODUCER_ID_EXPIRATION} is {value}, and cannot be less than 1")
    return value


def notes_on(config: TopicConfig) -> tuple[str, ...]:
    """Notes about a file whose properties retention ignores."""
    if config.named(*_HEEDED):
        return ()
    return (f"{config.path}: contains no property that retain uses",)
