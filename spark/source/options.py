"""Parse the options of reads with `kafka-log`.

Names, values and rules are those of Spark's own Kafka source wherever it has the option, so a query only needs another
format, and a path instead of `kafka.bootstrap.servers`. Options for connections (`kafka.…`, `groupIdPrefix`, …) are
accepted and ignored. Any other option is refused, because one that is silently ignored leads to wrong results later.

Names are case-insensitive, as everywhere in Spark. Every mistake raises UsageError with one sentence. Nothing here opens a
file or needs Spark.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Final, TypedDict

from kseg.segment.errors import UsageError
from kseg.segment.partition.bounds import Bounds
from kseg.segment.partition.names import INTERNAL_TOPICS, METADATA_TOPIC
from kseg.segment.values import dataclass
from kseg.spark.source.offset_range_limits import (
    LATEST,
    AtEnd,
    Bound,
    TopicPartition,
    check_order,
    ending_bound,
    starting_bound,
    wanted_bounds,
)
from kseg.spark.source.option_parsing import INT_MAX, Words, is_whole, json_of, paths_of

READ_UNCOMMITTED, READ_COMMITTED = "read_uncommitted", "read_committed"
RECORDS, FINDINGS = "records", "findings"
FROM_LOG, FROM_INDEX = "log", "index"
COLUMNS, JSON = "columns", "json"
FORMATS: Final = (
    *("bytes", "auto", "avro", "protobuf", "json-schema", "json", "string"),
    *("short", "integer", "long", "float", "double"),
)

MIB: Final = 1 << 20
DEFAULT_RECORDS_PER_BATCH = 8192
DEFAULT_BYTES_PER_BATCH = 8 * MIB
DEFAULT_PARTITION_BYTES = 128 * MIB


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read; all if the three fields are None. pattern: matched anywhere in the names of topics that are not internal,
    as by Spark (SubscribePatternStrategy.assignedTopicPartitions)."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None

    def accepts(self, topic: str, partition: int) -> bool:
        if self.topics is not None:
            return topic in self.topics
        if self.pattern is not None:
            return topic not in _UNLISTED and re.search(self.pattern, topic) is not None
        return self.partitions is None or (topic, partition) in self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The checked options of a read. paths: at least one, local. Units are in the names.

    min_partitions, records_per_partition: None when not given. latest_when_no_match: whether a starting time that no record reaches means
    the latest offset (False: it is an error). include_deleted: also records below the log start. trust_transactions: aborted transactions
    are read from the transaction indexes, not from the log. check_headers: batch headers are compared with those of adjacent batches, as in
    `verify`. key_format, value_format: how keys and values are written, "bytes" to leave them undecoded. schemas: where the schemas are,
    None to look for them in and beside the log dirs. decoded_as: COLUMNS of the schemas' types, or JSON text. show_secrets: secrets in
    values are not redacted. connect_topics: globs of further Kafka Connect topics. wanted: a filter on the records between the starting and
    ending offsets.
    """

    paths: tuple[str, ...]
    subscription: Subscription = field(default_factory=Subscription)
    starting: Bound = field(default_factory=lambda: AtEnd("earliest"))
    ending: Bound = field(default_factory=lambda: AtEnd("latest"))
    wanted: Bounds = field(default_factory=Bounds)
    latest_when_no_match: bool = False
    read_committed: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    records_per_partition: int | None = None
    partition_bytes: int = DEFAULT_PARTITION_BYTES
    records_per_batch: int = DEFAULT_RECORDS_PER_BATCH
    bytes_per_batch: int = DEFAULT_BYTES_PER_BATCH
    include_key: bool = True
    include_value: bool = True
    include_headers: bool = False
    include_meta: bool = True
    include_control: bool = False
    include_invalid: bool = False
    include_deleted: bool = False
    use_indexes: bool = True
    check_headers: bool = True
    trust_transactions: bool = False
    key_format: str = FORMATS[0]
    value_format: str = FORMATS[0]
    schemas: str | None = None
    decoded_as: str = COLUMNS
    show_secrets: bool = False
    connect_topics: tuple[str, ...] = ()
    table: str = RECORDS

    def decodes(self, is_key: bool) -> bool:
        return (self.key_format if is_key else self.value_format) != FORMATS[0]

    @property
    def decodes_any(self) -> bool:
        return self.decodes(is_key=True) or self.decodes(is_key=False)


# options in their documented spelling
READ_NAMES: Final = (
    *("path", "paths", "subscribe", "subscribePattern", "assign"),
    *("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
    *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("fromOffset", "toOffset", "fromTimestamp", "toTimestamp"),
    *("isolation.level", "kafka.isolation.level", "failOnDataLoss"),
    *(
        "minPartitions",
        "maxRecordsPerPartition",
        "maxPartitionBytes",
        "maxRecordsPerBatch",
        "maxBytesPerBatch",
    ),
    *("includeKey", "includeValue", "includeHeaders", "includeMeta"),
    *("includeControl", "includeInvalid", "includeDeleted"),
    *("useIndexes", "checkHeaders", "transactions"),
    *("keyFormat", "valueFormat", "schemas", "decodedAs", "showSecrets", "connectTopics", "table"),
)
WITH_SCHEMAS: Final = FORMATS[1:5]  # payloads that refer to schemas
STREAM_NAMES: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
# topics that a broker does not list for a subscription by pattern
_UNLISTED: Final = (
    *INTERNAL_TOPICS,
    METADATA_TOPIC,
)
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")


def read_options(given: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
    """The options of a read. streaming: for a streaming read, which may start at `latest` (and does so by default) and takes no ending
    offsets. Raises UsageError."""
    words = Words(given)
    words.refuse_unknown((*READ_NAMES, *STREAM_NAMES))
    levels = (READ_UNCOMMITTED, READ_COMMITTED)
    level = "isolation.level" if words.get("isolation.level") is not None else "kafka.isolation.level"
    strategy = words.choice("startingOffsetsByTimestampStrategy", ("error", LATEST))
    starting = starting_bound(words, streaming)
    ending = ending_bound(words, streaming)
    check_order(starting, ending)
    return SourceOptions(
        paths=paths_of(words, on_disk_only=streaming),
        subscription=_subscription(words),
        starting=starting,
        ending=ending,
        wanted=wanted_bounds(words, streaming),
        latest_when_no_match=strategy == LATEST,
        read_committed=words.choice(level, levels) == READ_COMMITTED,
        fail_on_data_loss=words.boolean("failOnDataLoss", True),
        min_partitions=words.number("minPartitions", INT_MAX),
        records_per_partition=words.number("maxRecordsPerPartition"),
        partition_bytes=words.size_bytes("maxPartitionBytes") or DEFAULT_PARTITION_BYTES,
        records_per_batch=words.number("maxRecordsPerBatch", INT_MAX) or DEFAULT_RECORDS_PER_BATCH,
        bytes_per_batch=words.size_bytes("maxBytesPerBatch", INT_MAX) or DEFAULT_BYTES_PER_BATCH,
        include_key=words.boolean("includeKey", True),
        include_value=words.boolean("includeValue", True),
        include_headers=words.boolean("includeHeaders", False),
        include_meta=words.boolean("includeMeta", True),
        include_control=words.boolean("includeControl", False),
        include_invalid=words.boolean("includeInvalid", False),
        include_deleted=words.boolean("includeDeleted", False),
        use_indexes=words.boolean("useIndexes", True),
        check_headers=words.boolean("checkHeaders", True),
        trust_transactions=words.choice("transactions", (FROM_LOG, FROM_INDEX)) == FROM_INDEX,
        **_decoding(words, streaming),
        show_secrets=words.boolean("showSecrets", False),
        connect_topics=words.names("connectTopics"),
        table=words.choice("table", (RECORDS, FINDINGS)),
    )


class _Decoding(TypedDict):
    key_format: str
    value_format: str
    schemas: str | None
    decoded_as: str


def _decoding(words: Words, streaming: bool) -> _Decoding:
    asked = _Decoding(
        key_format=words.choice("keyFormat", FORMATS),
        value_format=words.choice("valueFormat", FORMATS),
        schemas=words.get("schemas"),
        decoded_as=words.choice("decodedAs", (COLUMNS, JSON)),
    )
    decodes = (asked["key_format"], asked["value_format"]) != (FORMATS[0], FORMATS[0])
    if decodes and streaming:
        raise UsageError("keyFormat and valueFormat are for batch queries; a stream gives bytes")
    for name in ("schemas", "decodedAs"):
        if not decodes and words.get(name) is not None:
            raise UsageError(f"the option {name} requires valueFormat or keyFormat")
    return asked


# --- partitions


def _subscription(words: Words) -> Subscription:
    given = [name for name in _SUBSCRIPTIONS if words.get(name) is not None]
    if len(given) > 1:
        raise UsageError(f"only one of the options {', '.join(_SUBSCRIPTIONS)} can be given")
    if not given:
        return Subscription()
    text = words.get(given[0]) or ""
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in text.split(",") if topic.strip()))
        if not topics:
            raise UsageError(f"the option subscribe must be a comma-separated list of topics, not {text!r}")
        return Subscription(topics=topics)
    if given[0] == "subscribePattern":
        return Subscription(pattern=_pattern(text.strip()))
    return Subscription(partitions=_assigned(text))


def _pattern(text: str) -> str:
    if _has_sets_in_sets(text):
        raise UsageError(
            f"the option subscribePattern uses nested character sets, which only Java supports: {text!r}"
        )
    try:
        re.compile(text)
    except re.error as error:
        raise UsageError(
            f"the option subscribePattern is not a valid regular expression ({error}): {text!r}"
        ) from None
    if not text:
        raise UsageError("the option subscribePattern is empty")
    return text


def _has_sets_in_sets(pattern: str) -> bool:
    """Whether an expression that Python can read means something else to Spark: `[a-z&&[^x]]` and `[a[b]]` in Java."""
    within = False
    for token in re.findall(r"\\.|\[\^?\]?|&&|.", pattern, re.DOTALL):
        if within and (token[0] == "[" or token == "&&"):
            return True
        within = token[0] == "[" or (within and token != "]")
    return False


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = '{"orders":[0,1]}'
    parsed = json_of(text, "assign", example)
    wrong = UsageError(f"the option assign must be JSON such as {example}, not {text!r}")
    if not isinstance(parsed, dict) or not parsed:
        raise wrong
    found = []
    for topic, partitions in parsed.items():
        if not isinstance(partitions, list):
            raise wrong
        for partition in partitions:
            if not is_whole(partition) or not 0 <= partition <= INT_MAX:
                raise wrong
            found.append((topic, partition))
    if not found:
        raise wrong
    return tuple(dict.fromkeys(found))
