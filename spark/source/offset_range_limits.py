"""The offset range that a query reads from each partition: the options, and their values (Spark: KafkaOffsetRangeLimit)."""

from collections.abc import Mapping
from typing import Literal

from kseg.segment.errors import UsageError
from kseg.segment.layout import INT64_MAX
from kseg.segment.partition.bounds import INT64_MIN, Bounds
from kseg.segment.values import dataclass
from kseg.spark.source.option_parsing import (
    INT_MAX,
    LONG_MAX,
    Words,
    is_whole,
    json_of,
    time_of,
    whole_number,
)

TopicPartition = tuple[str, int]
EARLIEST, LATEST = "earliest", "latest"
EARLIEST_OFFSET, LATEST_OFFSET = -2, -1  # as in the JSON of startingOffsets and endingOffsets


@dataclass(frozen=True, slots=True)
class AtEnd:
    """One end of every log: `earliest` or `latest`."""

    which: Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; EARLIEST_OFFSET and LATEST_OFFSET stand for the ends of its log."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first offset whose timestamp is not below this one, in each partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """As `AtTime`, with a time for each partition."""

    by_partition: Mapping[TopicPartition, int]


Bound = AtEnd | AtOffsets | AtTime | AtTimes


def starting_bound(words: Words, streaming: bool) -> Bound:
    time = _time_bound(words, "starting")
    if time is not None:
        return time
    text = words.get("startingOffsets")
    if text is None:
        return AtEnd("latest" if streaming else "earliest")
    if text.strip().lower() == EARLIEST:
        return AtEnd("earliest")
    if text.strip().lower() == LATEST:
        if not streaming:
            raise UsageError("startingOffsets cannot be latest: a batch query would read nothing")
        return AtEnd("latest")
    offsets = _by_partition(text, "startingOffsets", '{"orders":{"0":23,"1":-2}}', EARLIEST_OFFSET)
    latest = next((where for where, offset in offsets.items() if offset == LATEST_OFFSET), None)
    if latest is not None and not streaming:
        raise UsageError(f"startingOffsets of {shown(latest)} cannot be -1 (latest) in a batch query")
    return AtOffsets(offsets)


def ending_bound(words: Words, streaming: bool) -> Bound:
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if words.get(name) is not None:
                raise UsageError(f"{name} is not supported in a streaming query")
        return AtEnd("latest")
    time = _time_bound(words, "ending")
    if time is not None:
        return time
    text = words.get("endingOffsets")
    if text is None or text.strip().lower() == LATEST:
        return AtEnd("latest")
    if text.strip().lower() == EARLIEST:
        raise UsageError("endingOffsets cannot be earliest: a batch query would read nothing")
    offsets = _by_partition(text, "endingOffsets", '{"orders":{"0":50,"1":-1}}', EARLIEST_OFFSET)
    earliest = next((where for where, offset in offsets.items() if offset == EARLIEST_OFFSET), None)
    if earliest is not None:
        raise UsageError(f"endingOffsets of {shown(earliest)} cannot be -2 (earliest)")
    return AtOffsets(offsets)


def _time_bound(words: Words, side: str) -> AtTime | AtTimes | None:
    """The bound given as a time; `startingTimestamp` takes precedence over `startingOffsetsByTimestamp`, as in Spark's source."""
    timestamp_ms = words.time_ms(f"{side}Timestamp")
    if timestamp_ms is not None:
        return AtTime(timestamp_ms)
    name = f"{side}OffsetsByTimestamp"
    text = words.get(name)
    if text is None:
        return None
    return AtTimes(_by_partition(text, name, '{"orders":{"0":1700000000000}}', 0, are_times=True))


def wanted_bounds(words: Words, streaming: bool) -> Bounds:
    """The filter on records, independent of their partition. Raises UsageError."""
    if streaming:
        for name in ("fromOffset", "toOffset", "fromTimestamp", "toTimestamp"):
            if words.get(name) is not None:
                raise UsageError(
                    f"{name} is for batch queries; streaming queries use startingOffsets and filters"
                )
    from_ms, to_ms = (words.time_ms(name, INT64_MIN) for name in ("fromTimestamp", "toTimestamp"))
    to_offset = words.offset("toOffset")
    return Bounds(
        from_offset=words.offset("fromOffset") or 0,
        to_offset=INT64_MAX if to_offset is None else to_offset,
        from_ms=INT64_MIN if from_ms is None else from_ms,
        to_ms=INT64_MAX if to_ms is None else to_ms,
    )


def _by_partition(
    text: str, name: str, example: str, least: int, *, are_times: bool = False
) -> dict[TopicPartition, int]:
    parsed = json_of(text, name, example)
    wrong = UsageError(f"the option {name} must be JSON such as {example}, not {text!r}")
    if not isinstance(parsed, dict):
        raise wrong
    found: dict[TopicPartition, int] = {}
    for topic, numbers in parsed.items():
        if not isinstance(numbers, dict):
            raise wrong
        for key, number in numbers.items():
            partition = whole_number(key)
            if are_times and isinstance(number, str):
                number = time_of(number, f"{topic} {key} in the option {name}")
            if partition is None or not 0 <= partition <= INT_MAX or not is_whole(number):
                raise wrong
            if not least <= number <= LONG_MAX:
                raise wrong
            found[topic, partition] = number
    return found


def check_order(starting: Bound, ending: Bound) -> None:
    """Raises UsageError if two explicit bounds name different partitions, or one ends before it starts."""
    if not isinstance(starting, AtOffsets | AtTimes) or type(starting) is not type(ending):
        return
    assert isinstance(ending, AtOffsets | AtTimes)
    if starting.by_partition.keys() != ending.by_partition.keys():
        raise UsageError("starting and ending offsets name different partitions")
    for where, start in starting.by_partition.items():
        end = ending.by_partition[where]
        if start > end >= 0:
            raise UsageError(f"{shown(where)} starts at offset {start}, after its end {end}")


def shown(where: TopicPartition) -> str:
    """The name of a partition, as that of its directory."""
    return f"{where[0]}-{where[1]}"
