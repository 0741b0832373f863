"""The options of `kafka-log` have the names of Spark's own Kafka source, and any other is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from kseg.segment.errors import UsageError
from kseg.segment.partition.bounds import Bounds
from kseg.spark.source.offset_range_limits import AtEnd, AtOffsets, AtTime, AtTimes
from kseg.spark.source.options import SourceOptions, Subscription, read_options

PATH = {"path": "/data"}


def options(**given: str) -> SourceOptions:
    return read_options(PATH | {name.replace("_", "."): value for name, value in given.items()})


def test_default_read_options() -> None:
    assert read_options(PATH) == SourceOptions(paths=("/data",))
    reported = options()
    assert (reported.starting, reported.ending) == (AtEnd("earliest"), AtEnd("latest"))
    assert reported.fail_on_data_loss and not reported.read_committed and not reported.include_headers


def test_option_names_are_case_insensitive() -> None:
    given = {
        "PATH": "/data",
        "STARTINGoffsets": "Earliest",
        "FailOnDataLoss": "FALSE",
        "includeheaders": "True",
    }
    assert read_options(given) == SourceOptions(
        paths=("/data",), fail_on_data_loss=False, include_headers=True
    )


@pytest.mark.parametrize(
    ("given", "paths"),
    [
        ({"path": "file:/data/a"}, ("/data/a",)),
        ({"path": "file:///data/a"}, ("/data/a",)),
        ({"path": "relative/a b"}, ("relative/a b",)),
        ({"paths": json.dumps(["/a", "file:/b"])}, ("/a", "/b")),
    ],
)
def test_path_options_are_parsed(given: Mapping[str, str], paths: tuple[str, ...]) -> None:
    assert read_options(given).paths == paths


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({"subscribe": " a, b ,,a"}, Subscription(topics=("a", "b"))),
        ({"subscribePattern": " orders.* "}, Subscription(pattern="orders.*")),
        ({"subscribePattern": r"[\[^]a]\[&&[]b&]"}, Subscription(pattern=r"[\[^]a]\[&&[]b&]")),
        ({"assign": '{"a":[0,2],"b":[1,1]}'}, Subscription(partitions=(("a", 0), ("a", 2), ("b", 1)))),
        ({}, Subscription()),
    ],
)
def test_subscription_options_are_parsed(given: Mapping[str, str], asked: Subscription) -> None:
    assert options(**given).subscription == asked


def test_subscription_accepts_the_selected_partitions() -> None:
    assert Subscription().accepts("a", 0)
    assert [Subscription(topics=("a", "b")).accepts(topic, 5) for topic in ("a", "b", "c")] == [
        True,
        True,
        False,
    ]
    one = Subscription(partitions=(("a", 1),))
    assert [one.accepts("a", partition) for partition in (0, 1)] == [False, True]


def test_offsets_for_each_partition_are_parsed() -> None:
    reported = options(startingOffsets='{"a":{"0":23,"1":-2}}', endingOffsets='{"a":{"0":50,"1":-1}}')
    assert reported.starting == AtOffsets({("a", 0): 23, ("a", 1): -2})
    assert reported.ending == AtOffsets({("a", 0): 50, ("a", 1): -1})


def test_timestamps_override_offsets_like_in_sparks_own_source() -> None:
    reported = options(
        startingTimestamp=" 1000 ",
        startingOffsetsByTimestamp='{"a":{"0":7}}',
        startingOffsets="earliest",
        endingOffsetsByTimestamp='{"a":{"0":2000}}',
        endingOffsets="latest",
        startingOffsetsByTimestampStrategy="latest",
    )
    assert reported.starting == AtTime(1000)
    assert reported.ending == AtTimes({("a", 0): 2000})
    assert reported.latest_when_no_match


@pytest.mark.parametrize("name", ["isolation.level", "kafka.isolation.level"])
def test_isolation_level_option_is_parsed(name: str) -> None:
    assert read_options(PATH | {name: "read_committed"}).read_committed
    assert not read_options(PATH | {name: "read_uncommitted"}).read_committed


def test_connection_options_are_ignored() -> None:
    given = {"kafka.bootstrap.servers": "host:9092", "groupIdPrefix": "g", "fetchOffset.numRetries": "3"}
    assert read_options({**PATH, **given}) == read_options(PATH)


def test_numeric_options_are_parsed() -> None:
    reported = options(
        minPartitions="8",
        maxRecordsPerPartition="1000",
        maxPartitionBytes="1048576",
        maxRecordsPerBatch="100",
        maxBytesPerBatch="65536",
    )
    assert (reported.min_partitions, reported.records_per_partition, reported.partition_bytes) == (
        8,
        1000,
        1 << 20,
    )
    assert (reported.records_per_batch, reported.bytes_per_batch) == (100, 65536)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1048576", 1 << 20),
        ("16m", 16 << 20),
        ("16MB", 16 << 20),
        ("64MiB", 64 << 20),
        (" 1 GiB ", 1 << 30),
        ("512k", 512 << 10),
        ("2g", 2 << 30),
    ],
)
def test_sizes_accept_the_suffixes_of_spark_and_the_command_line(text: str, size_bytes: int) -> None:
    assert options(maxPartitionBytes=text).partition_bytes == size_bytes


@pytest.mark.parametrize(
    "text", ["1714564800000", "2024-05-01T12:00:00Z", "2024-05-01T14:00+02:00", "2024-05-01 12:00"]
)
def test_times_are_parsed_like_on_the_command_line(text: str) -> None:
    noon_ms = 1_714_564_800_000
    assert options(startingTimestamp=text).starting == AtTime(noon_ms)
    assert options(endingOffsetsByTimestamp=json.dumps({"a": {"0": text}})).ending == AtTimes(
        {("a", 0): noon_ms}
    )
    assert options(fromTimestamp=text, toTimestamp=text).wanted == Bounds(from_ms=noon_ms, to_ms=noon_ms)


def test_record_bounds_are_parsed() -> None:
    assert options().wanted == Bounds()
    assert options(fromOffset="5", toOffset="9").wanted == Bounds(5, 9)
    assert options(toTimestamp="0").wanted == Bounds(to_ms=0)
    assert options(fromTimestamp="-5").wanted == Bounds(from_ms=-5)
    for name in ("fromOffset", "toOffset", "fromTimestamp", "toTimestamp"):
        with pytest.raises(UsageError, match=f"{name} is for batch queries"):
            read_options(PATH | {name: "5"}, streaming=True)


def test_stream_starts_at_the_latest_offset_and_has_no_end() -> None:
    assert read_options(PATH, streaming=True).starting == AtEnd("latest")
    started = read_options(PATH | {"startingOffsets": '{"a":{"0":-1}}'}, streaming=True)
    assert started.starting == AtOffsets({("a", 0): -1})
    with pytest.raises(UsageError, match="endingOffsets is not supported in a streaming query"):
        read_options(PATH | {"endingOffsets": "latest"}, streaming=True)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"startingOffset": "earliest"},
            r"has no option startingOffset here; did you mean startingOffsets\?$",
        ),
        ({"topics": "a"}, r"has no option topics here; did you mean subscribe\?$"),
        ({"FailOnDataloss ": "true"}, r"did you mean failOnDataLoss\?$"),
        ({"compression.type": "zstd"}, r"has no option compression.type here; it has .*startingOffsets"),
        ({"colour": "red"}, "has no option colour here; it has .*startingOffsets"),
        ({"isolation.level": "read_comitted"}, r"not 'read_comitted'; did you mean read_committed\?$"),
        (
            {"maxPartitionBytes": "64 apples"},
            "maxPartitionBytes must be a size such as 1048576, 16m or 64MiB",
        ),
        ({"maxPartitionBytes": "0"}, "maxPartitionBytes must be a size such as 1048576, 16m or 64MiB"),
        ({"maxBytesPerBatch": "3g"}, "maxBytesPerBatch must be a size .* to 2147483647 bytes"),
        ({"fromOffset": "-1"}, "fromOffset must be an offset \\(a whole number from 0\\)"),
        (
            {"toTimestamp": "2024-13-01"},
            "toTimestamp must be a number of milliseconds since 1970 or a time such as",
        ),
        (
            {"startingOffsetsByTimestamp": '{"a":{"0":"noon"}}'},
            "a 0 in the option startingOffsetsByTimestamp must be a number of milliseconds .* not 'noon'",
        ),
        (
            {"subscribe": "a", "assign": '{"a":[0]}'},
            "only one of the options subscribe, subscribePattern, assign",
        ),
        ({"subscribe": " , "}, "list of topics"),
        ({"subscribePattern": "("}, "not a valid regular expression"),
        ({"subscribePattern": " "}, "is empty"),
        # java.util.regex.Pattern: `&&` intersects sets, and a nested set is a union
        ({"subscribePattern": "^[a-z&&[^o]]+$"}, "nested character sets"),
        ({"subscribePattern": "orders-[ab[cd]]"}, "nested character sets"),
        ({"subscribePattern": "[]&&a]"}, "nested character sets"),
        ({"assign": "orders"}, "the option assign must be JSON such as"),
        ({"assign": '{"a":0}'}, "the option assign must be JSON such as"),
        ({"assign": '{"a":["0"]}'}, "the option assign must be JSON such as"),
        ({"assign": "{}"}, "the option assign must be JSON such as"),
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, r"startingOffsets of a-0 cannot be -1 \(latest\)"),
        ({"startingOffsets": "first"}, "startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"a":{"x":3}}'}, "startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "startingOffsets must be JSON such as"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, r"cannot be -2 \(earliest\)"),
        ({"endingOffsets": "[" * 100_000}, "endingOffsets must be JSON such as"),
        (
            {"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"0":4}}'},
            "a-0 starts at offset 5, after its end 4",
        ),
        (
            {"startingOffsets": '{"a":{"0":5}}', "endingOffsets": '{"a":{"1":9}}'},
            "name different partitions",
        ),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp must be a number of milliseconds"),
        ({"endingOffsetsByTimestamp": '{"a":{"0":-5}}'}, "endingOffsetsByTimestamp must be JSON such as"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "error or latest"),
        ({"isolation.level": "committed"}, "read_uncommitted or read_committed"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss must be true or false"),
        ({"minPartitions": "0"}, "minPartitions must be a whole number from 1"),
        ({"minPartitions": "many"}, "minPartitions must be a whole number from 1"),
        (
            {"maxRecordsPerBatch": str(2**31)},
            "maxRecordsPerBatch must be a whole number from 1 to 2147483647",
        ),
        (
            {"maxBytesPerBatch": str(2**31)},
            "maxBytesPerBatch must be a size such as .* from 1 to 2147483647 bytes",
        ),
        ({"table": "damage"}, "records or findings"),
        ({"path": "s3a:/bucket/data"}, "not s3a:/bucket/data"),
        ({"path": ""}, "needs a path"),
        ({"paths": "/a,/b"}, "a JSON list of paths|must be JSON such as"),
    ],
)
def test_invalid_options_are_refused_in_one_sentence(given: Mapping[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        read_options({**PATH, **given})
    assert "\n" not in str(refused.value)


def test_object_store_can_be_read_but_not_streamed() -> None:
    given = {"path": "s3://bucket/data"}
    assert read_options(given).paths == ("s3://bucket/data",)
    with pytest.raises(UsageError, match="in batch queries only, not s3://bucket/data"):
        read_options(given, streaming=True)


def test_missing_path_option_is_refused() -> None:
    with pytest.raises(UsageError, match="needs a path"):
        read_options({})


def test_subscribe_pattern_matches_anywhere_in_a_name_like_spark() -> None:
    """Spark: SubscribePatternStrategy.assignedTopicPartitions applies `findFirstIn` to the topics that the admin client lists."""
    somewhere, whole, every = (
        read_options({"path": "/data", "subscribePattern": pattern}).subscription
        for pattern in ("rd", "^orders$", ".*")
    )
    topics = ("orders", "orders-eu", "cards", "bills")
    assert [topic for topic in topics if somewhere.accepts(topic, 0)] == ["orders", "orders-eu", "cards"]
    assert [topic for topic in topics if whole.accepts(topic, 0)] == ["orders"]
    hidden = ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
    assert [topic for topic in (*topics, "__mine", *hidden) if every.accepts(topic, 0)] == [*topics, "__mine"]
    assert read_options({"path": "/data", "subscribe": "__consumer_offsets"}).subscription.accepts(
        hidden[0], 3
    )
    assert all(read_options({"path": "/data"}).subscription.accepts(topic, 0) for topic in hidden)
