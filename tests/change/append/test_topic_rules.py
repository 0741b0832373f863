"""What of a topic's configuration counts for `append`, beside its options."""

from __future__ import annotations

import pytest

from kseg.change.append.partition_writer import RollRules
from kseg.change.append.topic_rules import WEEK_MS, codec_of, roll_rules, uses_append_time
from kseg.segment import layout as L
from kseg.segment.partition.topic_settings import Setting, Source, TopicSettings

NOTHING = dict.fromkeys(("segment_bytes", "segment_ms", "segment_index_bytes", "index_interval_bytes"))


def topic(**values: str) -> TopicSettings:
    return TopicSettings(
        {name.replace("_", "."): Setting(value, Source.TOPIC) for name, value in values.items()}
    )


def test_rolls_are_those_of_kafka_without_a_configuration() -> None:
    assert roll_rules(topic(), NOTHING) == RollRules(segment_ms=WEEK_MS)


def test_configured_rolls_count_and_options_before_them() -> None:
    configured = topic(
        segment_bytes="2000000", segment_ms="5", segment_index_bytes="800", index_interval_bytes="1"
    )
    assert roll_rules(configured, NOTHING) == RollRules(
        segment_bytes=2_000_000, segment_ms=5, segment_index_bytes=800, index_interval_bytes=1
    )
    given = {**NOTHING, "segment_bytes": 7_000_000, "segment_ms": 0}
    rules = roll_rules(configured, given)
    assert (rules.segment_bytes, rules.segment_ms, rules.index_interval_bytes) == (7_000_000, 0, 1)


def test_internal_segment_bytes_counts_before_segment_bytes() -> None:
    both = topic(segment_bytes="2000000", internal_segment_bytes="6000")
    assert roll_rules(both, NOTHING).segment_bytes == 6000


@pytest.mark.parametrize("value", ["", "-5", "many", "1e6"])
def test_invalid_value_counts_as_not_configured(value: str) -> None:
    assert roll_rules(topic(segment_bytes=value, index_interval_bytes=value), NOTHING) == RollRules(
        segment_ms=WEEK_MS
    )


@pytest.mark.parametrize(
    ("value", "magic", "codec"),
    [
        ("producer", 2, L.NONE),
        ("uncompressed", 2, L.NONE),
        ("zstd", 2, L.ZSTD),
        ("zstd", 1, L.NONE),
        ("snappy", 0, L.SNAPPY),
        ("brotli", 2, L.NONE),
    ],
)
def test_compression_type(value: str, magic: int, codec: int) -> None:
    assert codec_of(topic(compression_type=value), magic) == codec
    assert codec_of(topic(), magic) == L.NONE


def test_append_time() -> None:
    assert uses_append_time(topic(message_timestamp_type="LogAppendTime"))
    assert not uses_append_time(topic(message_timestamp_type="CreateTime"))
    assert not uses_append_time(topic())
