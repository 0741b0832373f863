"""Read cleaner settings from a properties file: the topic's property takes precedence over the broker's.

Sources: Kafka's TopicConfig, ServerTopicConfigSynonyms, CleanerConfig. `notes_on` reports properties that do not affect the result: the
cleaner compresses a batch with the codec it had, whatever compression.type says, and grows its buffers beyond max.message.bytes.
"""

from dataclasses import replace

from kseg.compaction.cleaner.options import CleanSettings
from kseg.compaction.config import TopicConfig
from kseg.segment.errors import UsageError

_INTEGERS = {
    "delete_retention_ms": ("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    "min_compaction_lag_ms": ("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    "max_compaction_lag_ms": ("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    "segment_bytes": ("internal.segment.bytes", "segment.bytes", "log.segment.bytes"),
    "segment_index_bytes": ("segment.index.bytes", "log.index.size.max.bytes"),
    "index_interval_bytes": ("index.interval.bytes", "log.index.interval.bytes"),
    "map_bytes": ("log.cleaner.dedupe.buffer.size",),
    "producer_id_expiration_ms": ("producer.id.expiration.ms",),
}
_MINIMUM = {"max_compaction_lag_ms": 1}  # if it is not 0
_RATIO = ("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio")
_POLICY = ("cleanup.policy", "log.cleanup.policy")
_IGNORED = ("compression.type", "compression.", "max.message.bytes", "message.max.bytes")
_ALL_NAMES = (*(name for names in _INTEGERS.values() for name in names), *_RATIO, *_POLICY, *_IGNORED)


def configured(config: TopicConfig, settings: CleanSettings) -> CleanSettings:
    """The settings, overridden by those in the file. Raises UsageError for values that Kafka would not accept."""
    for field, names in _INTEGERS.items():
        for name in names:
            value = config.integer(name)
            if value is not None:
                minimum = _MINIMUM.get(field, 0)
                if value < minimum:
                    raise UsageError(f"{config.path}: {name} is {value}, and cannot be less than {minimum}")
                settings = replace(settings, **{field: value})
                break
    for name in _RATIO:
        ratio = config.number(name)
        if ratio is not None:
            if not 0 <= ratio <= 1:
                raise UsageError(f"{config.path}: {name} must be between 0 and 1")
            return replace(settings, min_cleanable_dirty_ratio=ratio)
    return settings


def notes_on(config: TopicConfig) -> tuple[str, ...]:
    """Properties in a file that the cleaner ignores."""
    notes = []
    if not config.named(*_ALL_NAMES):
        notes.append(f"{config.path}: contains no property that compact uses")
    ignored = config.named(*_IGNORED)
    if ignored:
        notes.append(
            f"{config.path}: {', '.join(ignored)}: no effect, as in a broker's cleaner: a batch keeps its codec"
        )
    return tuple(notes)
