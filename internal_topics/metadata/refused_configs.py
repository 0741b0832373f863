"""Topic configurations in the metadata log on which a 4.3.1 node fails at its start.

Before it loads a log, a node builds the configuration of every topic of the cluster from the metadata log, and ends with a ConfigException
at the first value that its definitions do not allow (Kafka: LogManager.fetchTopicConfigOverrides, LogConfig.fromProps). Older versions
allow more: segment.bytes from 14 on, which 4.0 and later reject below 1 MiB. Properties without a definition, such as
message.format.version, are ignored.
"""

import re
import struct
from collections.abc import Callable, Iterator, Mapping

from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.segment import layout as L
from kseg.segment.kernel.message_values import double_text
from kseg.segment.terminal import shortened
from kseg.segment.values import dataclass

_BLANKS = "".join(map(chr, range(0x21)))  # removed by Java's trim
# a long has up to 19 digits; int() refuses to convert thousands of them
_INTEGER = re.compile(r"([+-]?)0*(\d{1,19})")
_DOUBLE = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
_THROTTLED = re.compile(r"([0-9]+:[0-9]+)?")

Check = Callable[[str, str], str]  # name, value -> what the exception says; empty if the value is allowed


@dataclass(frozen=True, slots=True)
class RefusedConfig:
    """message: of the exception."""

    topic: str
    name: str
    value: str
    message: str


def refused_configs(image: MetadataImage) -> Iterator[RefusedConfig]:
    """By topic and property; none if the metadata log may be incomplete."""
    if not image.is_certain:
        return
    for topic in sorted(image.id_by_name):
        for name, value in sorted(image.topic_configs(topic).items()):
            message = why_refused(name, value)
            if message:
                yield RefusedConfig(topic, name, value, message)


def why_refused(name: str, value: str) -> str:
    """The message of the ConfigException; empty if the value is allowed."""
    check = _CHECKS.get(name)
    return "" if check is None else check(name, value.strip(_BLANKS))


def _invalid(name: str, value: str, why: str) -> str:
    return f"Invalid value {shortened(value)} for configuration {name}: {why}"


def _integer(value: str) -> int | None:
    """Of at most 19 digits after leading zeros; None for everything else."""
    parts = _INTEGER.fullmatch(value)
    return None if parts is None else int(parts[1] + parts[2])


def _number(kind: str, largest: int, low: int | None, high: int | None = None) -> Check:
    def check(name: str, value: str) -> str:
        number = _integer(value)
        if number is None or not -largest - 1 <= number <= largest:
            return _invalid(name, value, f"Not a number of type {kind}")
        return _out_of_range(name, str(number), number, low, high)

    return check


def _int(low: int | None, high: int | None = None) -> Check:
    return _number("INT", L.INT32_MAX, low, high)


def _long(low: int | None) -> Check:
    return _number("LONG", L.INT64_MAX, low)


def _out_of_range(name: str, value: str, number: float, low: int | None, high: int | None) -> str:
    if low is not None and number < low:
        return _invalid(name, value, f"Value must be at least {low}")
    if high is not None and number > high:
        return _invalid(name, value, f"Value must be no more than {high}")
    return ""


def _ratio(name: str, value: str) -> str:
    if not _DOUBLE.fullmatch(value):
        return _invalid(name, value, "Not a number of type DOUBLE")
    number = float(value.rstrip("fFdD"))
    shown = double_text(*struct.unpack(">iI", struct.pack(">d", number))).decode().strip('"')
    return _out_of_range(name, shown, number, 0, 1)


def _gzip_level(name: str, value: str) -> str:
    message, level = _int(None)(name, value), _integer(value)
    if message or level == -1 or (level is not None and 1 <= level <= 9):
        return message
    return _invalid(name, str(level), "Value must be between 1 and 9 or equal to -1")


def _flag(name: str, value: str) -> str:
    is_flag = value.lower() in ("true", "false")
    return "" if is_flag else _invalid(name, value, "Expected value to be either true or false")


def _one_of(*allowed: str) -> Check:
    def check(name: str, value: str) -> str:
        words = f"String must be one of: {', '.join(allowed)}"
        return "" if value in allowed else _invalid(name, value, words)

    return check


def _items(value: str) -> list[str]:
    return [item.strip() for item in value.split(",")] if value else []


def _policies(name: str, value: str) -> str:
    items = _items(value)
    if "" in items:
        return f"Configuration '{name}' values must not be empty."
    return next(filter(None, (_one_of("compact", "delete")(name, item) for item in items)), "")


def _throttled(name: str, value: str) -> str:
    items = _items(value)
    if not items or items == ["*"] or all(map(_THROTTLED.fullmatch, items)):
        return ""
    form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    words = f"{name} must be the literal '*' or a list of replicas in the following format: {form}"
    return _invalid(name, f"[{', '.join(items)}]", words)


# as in LogConfig.CONFIG of 4.3.1; tests/kafka/test_refused_configs.py compares them
_CHECKS: Mapping[str, Check] = {
    "cleanup.policy": _policies,
    "compression.gzip.level": _gzip_level,
    "compression.lz4.level": _int(1, 17),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.zstd.level": _int(-131072, 22),
    "delete.retention.ms": _long(0),
    "file.delete.delay.ms": _long(0),
    "flush.messages": _long(1),
    "flush.ms": _long(0),
    "follower.replication.throttled.replicas": _throttled,
    "index.interval.bytes": _int(0),
    "internal.segment.bytes": _int(None),
    "leader.replication.throttled.replicas": _throttled,
    "local.retention.bytes": _long(-2),
    "local.retention.ms": _long(-2),
    "max.compaction.lag.ms": _long(1),
    "max.message.bytes": _int(0),
    "message.timestamp.after.max.ms": _long(0),
    "message.timestamp.before.max.ms": _long(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _ratio,
    "min.compaction.lag.ms": _long(0),
    "min.insync.replicas": _int(1),
    "preallocate": _flag,
    "remote.log.copy.disable": _flag,
    "remote.log.delete.on.disable": _flag,
    "remote.storage.enable": _flag,
    "retention.bytes": _long(None),
    "retention.ms": _long(-1),
    "segment.bytes": _int(1_048_576),
    "segment.index.bytes": _int(4),
    "segment.jitter.ms": _long(0),
    "segment.ms": _long(1),
    "unclean.leader.election.enable": _flag,
}
