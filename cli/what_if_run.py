"""One run of `kseg what-if`: choose a sample of each topic, and evaluate the measurements.

1. `look` groups the partitions by topic, sums up the sizes of their logs, and spreads the sample over them
   (`inspection.what_if.log_places`).
2. The sample of each partition is measured (`inspection.what_if.measuring`), here or on a cluster.
3. `through` yields the estimates of each topic, what retention limits would keep (`compaction.retention.limit_survey`), and with
   --compaction the size after a cleaning (from the plan of `compact`, which reads every key).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

from kseg.compaction.retention.limit_survey import SurveyedLog, survey_limits
from kseg.inspection.what_if.candidates import TriedSetting
from kseg.inspection.what_if.estimation import CONFIDENCE, Estimate, estimated
from kseg.inspection.what_if.log_places import Sample, spread
from kseg.inspection.what_if.measuring import MeasuredPartition, MeasureOptions
from kseg.jobs.events import Event, Failure, Row
from kseg.segment import layout as L
from kseg.segment.errors import cannot_read
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import INTERNAL_TOPICS, PartitionState
from kseg.segment.partition.targets import FileTarget, PartitionTarget, Target, only_one_file
from kseg.segment.storage import places
from kseg.segment.values import dataclass

Over = Callable[..., Iterator[Event]]

_DAY_MS = 86_400_000
_DEFAULT_RETENTION_MS = tuple(days * _DAY_MS for days in (1, 3, 7, 30))
_DEFAULT_SHARES = (2, 4)  # 1/2 and 1/4 of the largest partition


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfParameters:
    """place_bytes: how much of the log to measure at each place of the sample. retention_ms, retention_bytes: the limits to evaluate;
    empty for the default ones."""

    candidates: tuple[TriedSetting, ...]
    sample_bytes: int
    place_bytes: int
    retention_ms: Sequence[int]
    retention_bytes: Sequence[int]
    compaction: bool
    now_ms: int


@dataclass(slots=True)
class _Topic:
    """log_bytes, largest_bytes: the log sizes of all partitions, and of the largest one. is_all: everything is measured."""

    name: str
    targets: list[PartitionTarget] = field(default_factory=list)
    log_bytes: int = 0
    largest_bytes: int = 0
    is_all: bool = False
    measured: list[MeasuredPartition] = field(default_factory=list)
    surveyed: list[SurveyedLog] = field(default_factory=list)


class WhatIfRun:
    """over: the executor of work on targets, called like `fanout.run`."""

    def __init__(self, parameters: WhatIfParameters, over: Over) -> None:
        self._parameters = parameters
        self._over = over
        self._topics: dict[str, _Topic] = {}
        self._topic_of: dict[str, _Topic] = {}

    @staticmethod
    def is_wanted(target: Target) -> bool:
        """Whether brokers serve the partition. Raises UsageError for a file."""
        if isinstance(target, FileTarget):
            raise only_one_file(target, "to estimate its size")
        if not isinstance(target, PartitionTarget):
            return False
        name = own_partition_name(target.path)
        return name is not None and name.state is PartitionState.LIVE

    def look(self, targets: Sequence[Target], _: object) -> tuple[MeasureOptions, Sequence[Event]]:
        """Spread the sample of each topic over its logs."""
        logs: dict[str, dict[str, list[tuple[str, int]]]] = {}
        failures = []
        for target in targets:
            name = own_partition_name(target.path)
            if name is None or not isinstance(target, PartitionTarget):
                continue
            topic = self._topics.setdefault(name.topic, _Topic(name.topic))
            self._topic_of[target.path] = topic
            topic.targets.append(target)
            try:
                found = _logs_in(target.path)
            except OSError as error:
                failures.append(Failure.of(target.path, cannot_read(target.path, error)))
                continue
            logs.setdefault(name.topic, {})[target.path] = found
            held = sum(size for _, size in found)
            topic.log_bytes += held
            topic.largest_bytes = max(topic.largest_bytes, held)
        samples: dict[str, Sample] = {}
        for topic_name, of_topic in logs.items():
            spread_out = spread(of_topic, self._parameters.sample_bytes, self._parameters.place_bytes)
            self._topics[topic_name].is_all = all(sample.is_all for sample in spread_out.values())
            samples |= spread_out
        return MeasureOptions(samples, self._parameters.candidates), failures

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        """Pass on all events that are not measurements, then yield the rows of each topic, the largest first."""
        for event in events:
            if isinstance(event, Row) and isinstance(event.result, MeasuredPartition):
                self._topic_of[event.result.directory].measured.append(event.result)
            else:
                yield event
        targets = [target for topic in self._topics.values() for target in topic.targets]
        for event in self._over(survey_limits, targets, self._parameters.now_ms):
            if isinstance(event, Row) and isinstance(event.result, SurveyedLog):
                self._topic_of[event.result.directory].surveyed.append(event.result)
            elif isinstance(event, Failure):
                yield event
        compacted: dict[str, tuple[int, int]] = {}
        if self._parameters.compaction:
            yield from self._compact(targets, compacted)
        for topic in sorted(self._topics.values(), key=lambda each: (-each.log_bytes, each.name)):
            yield from self._rows(topic, compacted)

    # --- compaction

    def _compact(
        self, targets: Sequence[PartitionTarget], compacted: dict[str, tuple[int, int]]
    ) -> Iterator[Failure]:
        """Note (bytes after a cleaning, records without a key) by partition directory, for the partitions that can be cleaned."""
        from kseg.change.run.pipeline import groups_of
        from kseg.compaction.cleaner.compact import compact_group
        from kseg.compaction.cleaner.options import CleanSettings, CompactOptions
        from kseg.compaction.cleaner.rows import CompactResult

        options = CompactOptions(
            settings=CleanSettings(now_ms=self._parameters.now_ms), include_active=True, top_keys=0
        )
        for event in self._over(compact_group, groups_of(targets, len(targets) or 1), options):
            if isinstance(event, Row) and isinstance(event.result, CompactResult):
                compacted[event.result.directory] = event.result.bytes_after, event.result.invalid_records
            elif isinstance(event, Failure):
                yield event

    # --- rows

    def _rows(self, topic: _Topic, compacted: Mapping[str, tuple[int, int]]) -> Iterator[Row]:
        places = [place for partition in topic.measured for place in partition.places]
        now = sum(place.size_bytes for place in places)
        total = now if topic.is_all else topic.log_bytes
        by_codec: dict[str, int] = {}
        for place in places:
            for codec, size in place.by_codec.items():
                by_codec[L.codec_name(codec)] = by_codec.get(L.codec_name(codec), 0) + size
        yield Row(
            {
                "type": "topic",
                "topic": topic.name,
                "partitions": len(topic.targets),
                "bytes": topic.log_bytes,
                "sampled_bytes": now,
                "places": len(places),
                "is_all": topic.is_all,
                "fixed": round(sum(place.fixed_bytes for place in places) / now, 4) if now else 0.0,
                "codecs": {name: round(size / now, 4) for name, size in sorted(by_codec.items())},
            }
        )
        for at, candidate in enumerate(self._parameters.candidates):
            found = estimated([(each.size_bytes, each.candidates[at].size_bytes) for each in places], total, topic.is_all)  # fmt: skip
            if found is None or (candidate.is_rebatched and topic.name in INTERNAL_TOPICS):
                continue  # brokers write the internal topics, so producer settings do not apply
            content = sum(each.candidates[at].content_bytes for each in places)
            cpu_ns = sum(each.candidates[at].cpu_ns for each in places)
            yield _setting_row(
                topic.name,
                "batching" if candidate.is_rebatched else "codec",
                total,
                found,
                candidate.properties,
                "producer" if candidate.is_rebatched else "topic",
                cpu_s_per_gib=round(cpu_ns / 1e9 * (1 << 30) / content, 2) if content else None,
                codec=candidate.codec_name,
                level=candidate.level,
                batch_size=candidate.batch_size,
                linger_ms=candidate.linger_ms,
            )
        yield from self._limits(topic)
        of_topic = [compacted[target.path] for target in topic.targets if target.path in compacted]
        if of_topic and len(of_topic) == len(topic.targets):
            after = sum(size for size, _ in of_topic)
            yield _setting_row(
                topic.name,
                "compaction",
                topic.log_bytes,
                Estimate(after, after, after),
                {"cleanup.policy": "compact"},
                "topic",
                records_without_key=sum(without for _, without in of_topic),
            )

    def _limits(self, topic: _Topic) -> Iterator[Row]:
        if len(topic.surveyed) < len(topic.targets) or not topic.log_bytes:
            return
        sizes = [limit for share in _DEFAULT_SHARES if (limit := _rounded(topic.largest_bytes // share))]
        limits = [("retention.ms", limit) for limit in self._parameters.retention_ms or _DEFAULT_RETENTION_MS]
        limits += [("retention.bytes", limit) for limit in self._parameters.retention_bytes or sizes]
        for name, limit in limits:
            key = "retention_ms" if name == "retention.ms" else "retention_bytes"
            kept = sum(log.kept_bytes(**{key: limit}) for log in topic.surveyed)
            yield _setting_row(
                topic.name,
                "retention",
                topic.log_bytes,
                Estimate(kept, kept, kept),
                {name: str(limit)},
                "topic",
            )


def _setting_row(
    topic: str,
    kind: str,
    now_bytes: int,
    found: Estimate,
    properties: Mapping[str, str],
    where: str,
    **further: object,
) -> Row:
    return Row(
        {
            "type": "setting",
            "topic": topic,
            "kind": kind,
            "bytes_now": now_bytes,
            "bytes": found.size_bytes,
            "bytes_least": found.least_bytes,
            "bytes_most": found.most_bytes,
            "exact": found.is_exact,
            "confidence": None if found.is_exact else CONFIDENCE,
            "properties": dict(properties),
            "where": where,
            **further,
        }
    )


def _logs_in(directory: str) -> list[tuple[str, int]]:
    """(path, size) of the segments, in offset order. Raises OSError."""
    with places.scandir(directory) as entries:
        return sorted(
            (entry.path, entry.stat().st_size)
            for entry in entries
            if entry.name.endswith(L.LOG_SUFFIX) and entry.name[: -len(L.LOG_SUFFIX)].isdigit()
        )


def _rounded(size_bytes: int) -> int:
    """The next lower power of two: a limit that a user would type."""
    return 1 << (size_bytes.bit_length() - 1) if size_bytes else 0
