"""What the configuration of a topic says about records that are appended to it.

A broker rolls segments and adds index entries by the topic's own properties, compresses batches with compression.type, unless that is
`producer`, and overwrites timestamps where message.timestamp.type is LogAppendTime (Kafka: LogConfig, LogValidator). `append` does the
same; an option takes precedence. A value that a broker would not accept counts as not configured.
"""

from collections.abc import Mapping

from kseg.change.append.partition_writer import RollRules
from kseg.segment import layout as L
from kseg.segment.partition.topic_settings import COMPRESSION_TYPE, TIMESTAMP_TYPE, TopicSettings

WEEK_MS = 604_800_000  # Kafka's default of segment.ms
_CODECS = {"uncompressed": L.NONE, **{name: codec for codec, name in enumerate(L.CODEC_NAMES) if codec}}
# the first that is configured counts (Kafka: LogConfig.segmentSize)
_PROPERTIES = {
    "segment_bytes": ("internal.segment.bytes", "segment.bytes"),
    "segment_ms": ("segment.ms",),
    "segment_index_bytes": ("segment.index.bytes",),
    "index_interval_bytes": ("index.interval.bytes",),
}


def roll_rules(topic: TopicSettings, options: Mapping[str, int | None]) -> RollRules:
    """When segments end. options: by the name of the rule, None if not given. Raises UsageError."""
    values = {"segment_ms": WEEK_MS}
    for rule, properties in _PROPERTIES.items():
        configured = (
            number for name in properties if (number := topic.number(name)) is not None and number >= 0
        )
        wanted = next(configured, None) if options[rule] is None else options[rule]
        if wanted is not None:
            values[rule] = wanted
    # so that a cleaner can clean the records in time (Kafka: LogConfig.maxSegmentMs)
    lag_ms = topic.number("max.compaction.lag.ms") or 0
    if options["segment_ms"] is None and lag_ms > 0 and "compact" in topic.policies:
        values["segment_ms"] = min(values["segment_ms"], lag_ms)
    return RollRules(**values)


def codec_of(topic: TopicSettings, magic: int) -> int:
    """The codec of new batches. zstd exists from magic 2 on (KIP-110)."""
    found = topic.settings.get(COMPRESSION_TYPE)
    codec = L.NONE if found is None else _CODECS.get(found.value.strip().lower(), L.NONE)
    return L.NONE if codec == L.ZSTD and magic < L.MAGIC_V2 else codec


def uses_append_time(topic: TopicSettings) -> bool:
    """Whether a broker overwrites the timestamps of new records with its own time."""
    found = topic.settings.get(TIMESTAMP_TYPE)
    return found is not None and found.value.strip() == "LogAppendTime"
