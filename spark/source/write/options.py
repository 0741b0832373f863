"""Parse the options of a write to `kafka-log`.

Names are Kafka's own for settings of topics and producers (with or without the prefix `kafka.` that Spark's Kafka sink
requires), and Spark's where its sink has the option. Every mistake raises UsageError with one sentence. Nothing here
opens a file or needs Spark.

Spark itself refuses the save modes `errorifexists` and `ignore` for every data source written in Python (4.3.0); the option
`ifExists` of mode `append` means the same.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from kseg.change.append.batching import DEFAULT_BATCH_BYTES
from kseg.change.append.partition_writer import DEFAULT_SEGMENT_BYTES, RollRules
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, UsageError
from kseg.segment.partition.names import is_topic_name
from kseg.segment.sidecar.metadata_files import PartitionMetadata, encode_partition_metadata
from kseg.segment.values import dataclass
from kseg.spark.source.option_parsing import INT_MAX, Words, json_of, paths_of, whole_number
from kseg.spark.source.write.staged_runs import RunRules

APPEND, ERROR, IGNORE = "append", "error", "ignore"
CREATE_TIME, LOG_APPEND_TIME = "createtime", "logappendtime"

WRITE_NAMES: Final = (
    "path",
    "paths",
    "topic",
    "partitions",
    "ifExists",
    "compression.type",
    "batch.size",
    "batchRecords",
    "segment.bytes",
    "segment.ms",
    "segment.index.bytes",
    "index.interval.bytes",
    "message.timestamp.type",
    "keepOffsets",
    "leaderEpoch",
    "topicId",
)
STREAM_WRITE_NAMES: Final = ("checkpointLocation", "queryName", "sinkId")
_UNCOMPRESSED = ("uncompressed", "producer")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The checked options of a write. topic: of all rows, None to take it from the column. partitions: the minimum number for each
    written topic, None for the existing ones. topic_ids: by topic; with key "" for a single topic. append_time: whether rows without a
    timestamp type have LogAppendTime."""

    log_dir: str
    topic: str | None = None
    partitions: int | None = None
    if_exists: str = APPEND
    runs: RunRules = field(default_factory=RunRules)
    rolls: RollRules = field(default_factory=RollRules)
    append_time: bool | None = None
    keep_offsets: bool = True
    leader_epoch: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    checkpoint: str | None = None
    sink_id: str | None = None


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write, or of a streaming one. Raises UsageError."""
    words = _KafkaWords(given)
    words.refuse_unknown((*WRITE_NAMES, *STREAM_WRITE_NAMES))
    paths = paths_of(words)
    if len(paths) > 1:
        raise UsageError("kafka-log writes to a single data directory")
    topic = words.get("topic")
    if topic is not None and not is_topic_name(topic):
        raise UsageError(f"{topic!r} is not a valid topic name")
    return WriteOptions(
        log_dir=paths[0],
        topic=topic,
        partitions=words.number("partitions", INT_MAX),
        if_exists=words.choice("ifExists", (APPEND, ERROR, IGNORE)),
        runs=RunRules(
            codec=_codec(words),
            batch_bytes=words.size_bytes("batch.size", INT_MAX) or DEFAULT_BATCH_BYTES,
            batch_records=words.number("batchRecords", INT_MAX),
        ),
        rolls=RollRules(
            segment_bytes=words.size_bytes("segment.bytes", INT_MAX) or DEFAULT_SEGMENT_BYTES,
            segment_ms=words.duration_ms("segment.ms"),
            segment_index_bytes=words.size_bytes("segment.index.bytes", INT_MAX)
            or L.DEFAULT_SEGMENT_INDEX_BYTES,
            index_interval_bytes=_index_interval(words),
        ),
        append_time=_append_time(words),
        keep_offsets=words.boolean("keepOffsets", True),
        leader_epoch=_leader_epoch(words),
        topic_ids=_topic_ids(words, topic),
        checkpoint=words.get("checkpointLocation"),
        sink_id=words.get("sinkId"),
    )


class _KafkaWords(Words):
    """Options by name, where those of Kafka may have the prefix `kafka.`."""

    def get(self, name: str) -> str | None:
        own = super().get(name)
        return super().get(f"kafka.{name}") if own is None and "." in name else own


def _index_interval(words: Words) -> int:
    size_bytes = words.size_bytes("index.interval.bytes", INT_MAX, 0)
    return L.DEFAULT_INDEX_INTERVAL_BYTES if size_bytes is None else size_bytes


def _leader_epoch(words: Words) -> int | None:
    text = words.get("leaderEpoch")
    value = None if text is None else whole_number(text)
    if text is not None and (value is None or not 0 <= value <= INT_MAX):
        raise UsageError(f"the option leaderEpoch must be a whole number from 0 to {INT_MAX}, not {text!r}")
    return value


def _codec(words: Words) -> int:
    name = words.choice("compression.type", (*L.CODEC_NAMES, *_UNCOMPRESSED))
    return L.NONE if name in _UNCOMPRESSED else L.CODEC_NAMES.index(name)


def _append_time(words: Words) -> bool | None:
    if words.get("message.timestamp.type") is None:
        return None
    return words.choice("message.timestamp.type", (CREATE_TIME, LOG_APPEND_TIME)) == LOG_APPEND_TIME


def _topic_ids(words: Words, topic: str | None) -> dict[str, str]:
    text = words.get("topicId")
    if text is None:
        return {}
    if text.lstrip().startswith("{"):
        ids = json_of(text, "topicId", '{"orders":"AAECAwQFBgcICQoLDA0ODw"}')
        assert isinstance(ids, dict)  # it begins with "{"
    elif topic is None:
        raise UsageError(
            "a single topicId needs the option topic; with a topic column, topicId must be JSON by topic"
        )
    else:
        ids = {topic: text.strip()}
    for name, identity in ids.items():
        try:
            encode_partition_metadata(PartitionMetadata(identity))
        except (FormatError, AttributeError, TypeError) as error:
            raise UsageError(f"{identity!r} is not a valid id for topic {name}: {error}") from None
    return ids
