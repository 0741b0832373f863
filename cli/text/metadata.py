"""The text of `metadata`: the verdict on the directories, counts, the first topics.

A narrowed query (`--topic`, `--kind`, `--node`) prints a table for each kind. `--history` prints a line for each event.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.report import ERRORS_SHOWN, GOOD, VERBOSE_SHOWS_ALL, Line, Report
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.columns import TextColumn, aligned
from kseg.segment.counted import counted, listed, shown_of
from kseg.segment.findings import ERROR, INFO, WARNING
from kseg.segment.moments import moment
from kseg.segment.partition.names import METADATA_TOPIC
from kseg.segment.terminal import shown_path, visible
from kseg.segment.values import dataclass

Values = Mapping[str, Any]

_TOPICS_SHOWN = 20
_DIRECTORIES_SHOWN = 5
_FENCED_SHOWN = 10
_EVENTS_SHOWN, _NARROW_EVENTS_SHOWN = 40, 400
_ODD = "known, but"  # and something is wrong with the directory
_STATUSES = ("known", "missing", "stray", "deleted", "future", None)
_COUNTED = (
    ("config", "configuration"),
    ("quota", "client quota"),
    ("acl", "ACL"),
    ("scram", "SCRAM credential"),
    ("token", "delegation token"),
)


@dataclass(slots=True)
class _TopicLine:
    topic_id: str
    partitions: int
    replication: int = 0
    leaderless: int = 0
    under_replicated: int = 0
    configs: int = 0


class MetadataReport(Report):
    """A `Report` on the rows of `metadata`. columns: of the terminal, None for no limit. is_narrow: the user requested a part, so
    more of it is shown."""

    def __init__(self, columns: int | None, is_narrow: bool = False) -> None:
        super().__init__()
        self._columns = columns
        self._is_narrow = is_narrow
        self._state: Values = {}
        self._topics: dict[str, _TopicLine] = {}
        self._counts: dict[str, int] = {}
        self._statuses: dict[str | None, int] = {}
        self._directories: dict[str | None, list[Values]] = {}
        self._fenced: list[int] = []
        self._events: list[str] = []
        self._event_kinds: dict[str, int] = {}
        self._removed: list[Values] = []

    def row(self, values: Values) -> None:
        kind = str(values["type"])
        self._counts[kind] = self._counts.get(kind, 0) + 1
        match kind:
            case "metadata":
                self._state = values
            case "topic":
                self._topics[values["topic"]] = _TopicLine(values["topic_id"], values["partitions"])
            case "partition":
                self._partition(values)
            case "config" if values["resource_type"] == "TOPIC" and values["resource_name"] in self._topics:
                self._topics[values["resource_name"]].configs += 1
            case "broker" if values["fenced"]:
                self._fenced.append(values["broker_id"])
            case "removed_topic":
                self._removed = [*self._removed[-4:], values]
            case "directory":
                self._directory(values)
            case "event":
                self._event(values)

    def opening(self, summary: RunSummary) -> Iterator[Line]:
        if not self._state:
            return
        if not self._directories:
            yield from self._about_state()
        else:
            yield self._verdict()
            yield from self._wrong_directories()
            yield from self._about_state()
        yield from self._found.lines(ERROR, WARNING, INFO)
        if self._event_kinds:
            yield from self._history()
        elif self._topics:
            yield from map(Line, self._table())
            yield from self._removed_topics()

    # --- collecting

    def _partition(self, values: Values) -> None:
        topic = self._topics.get(values["topic"])
        if topic is not None:
            topic.replication = max(topic.replication, len(values["replicas"]))
            topic.leaderless += values["leader"] < 0
            topic.under_replicated += len(values["isr"]) < len(values["replicas"])

    def _directory(self, values: Values) -> None:
        status = values["status"]
        if values["topic"] == METADATA_TOPIC:
            return  # the metadata log does not list itself
        for each in (status, _ODD) if status == "known" and values["reason"] else (status,):
            self._statuses[each] = self._statuses.get(each, 0) + 1
            first = self._directories.setdefault(each, [])
            if len(first) < ERRORS_SHOWN:
                first.append(values)

    def _event(self, values: Values) -> None:
        kind = values["event"]
        self._event_kinds[kind] = self._event_kinds.get(kind, 0) + 1
        self._events.append(event_line(values))
        most = _NARROW_EVENTS_SHOWN if self._is_narrow else _EVENTS_SHOWN
        if len(self._events) > most:
            del self._events[0]

    # --- printing

    def _verdict(self) -> Line:
        missing, stray = self._statuses.get("missing", 0), self._statuses.get("stray", 0)
        unclear = self._statuses.get(None, 0)
        if self._state["earlier"]:
            words = f"EARLIER STATE: {counted(missing, 'replica')} that the metadata assigned to these directories then "
            words += "is not here today" if missing == 1 else "are not here today"
            return Line(f"{words}, and {counted(stray, 'directory')} here that it did not have", WARNING)
        if missing:
            words = (
                f"MISSING: {counted(missing, 'replica')} that the metadata log assigns to these directories "
            )
            words += "is not there" if missing == 1 else "are not there"
            return Line(words + (f"; {counted(stray, 'directory')} stray" if stray else ""), ERROR)
        if not self._state["certain"]:
            words = "UNCERTAIN: the metadata log cannot be read to its end"
            return Line(
                words + (f"; {counted(unclear, 'directory')} without a verdict" if unclear else ""), ERROR
            )
        if stray:
            return Line(f"STRAY: the metadata has no replica here for {counted(stray, 'directory')}", WARNING)
        if not self._state["compared_log_dirs"]:
            known = self._statuses.get("known", 0)
            return Line(
                f"KNOWN: the metadata log has the replica of {counted(known, 'given directory')}", GOOD
            )
        return Line(
            "COMPLETE: every replica that the metadata log assigns to these directories is there", GOOD
        )

    def _wrong_directories(self) -> Iterator[Line]:
        for status, tone in (("missing", ERROR), ("stray", WARNING), (None, WARNING), (_ODD, WARNING)):
            found, number = self._directories.get(status, ()), self._statuses.get(status, 0)
            shown = number if number <= ERRORS_SHOWN else shown_of(number, _DIRECTORIES_SHOWN)
            for values in found[:shown]:
                yield Line(_directory_line(values), tone)
            more = number - shown
            if more > 0:
                yield Line(f"  … and {more:,} more {status or 'unknown'} ({VERBOSE_SHOWS_ALL})")

    def _about_state(self) -> Iterator[Line]:
        state = self._state
        cluster = f"cluster {state['cluster_id']}" if state["cluster_id"] else "cluster id unknown"
        version = f", metadata.version {state['metadata_version']}" if state["metadata_version"] else ""
        if state["offset"] is None:
            when = "before the first record"
        else:
            time_words = "" if state["timestamp"] is None else f", {moment(state['timestamp'])}"
            when = f"as of offset {state['offset']} (epoch {state['epoch']}{time_words})"
        yield Line(visible(f"{cluster} {when}{version}; {shown_path(state['path'])}"))
        parts = self._parts()
        if parts:
            yield Line(f"  {', '.join(parts)}")
        if self._statuses:
            words = [
                f"{self._statuses[status]:,} {status or 'without a verdict'}"
                for status in _STATUSES
                if status in self._statuses
            ]
            yield Line(f"  directories: {', '.join(words)}")

    def _parts(self) -> list[str]:
        if not self._counts.get("topic") and not self._counts.get("broker"):
            return []
        leaderless = sum(topic.leaderless for topic in self._topics.values())
        under = sum(topic.under_replicated for topic in self._topics.values())
        notes = [f"{leaderless:,} without a leader"] * bool(leaderless)
        notes += [f"{under:,} under-replicated"] * bool(under)
        partitions = counted(self._counts.get("partition", 0), "partition")
        parts = [
            counted(self._counts.get("topic", 0), "topic"),
            partitions + (f" ({', '.join(notes)})" if notes else ""),
        ]
        brokers = counted(self._counts.get("broker", 0), "broker")
        fenced = f" (fenced: {listed([*map(str, self._fenced)], _FENCED_SHOWN)})" if self._fenced else ""
        parts.append(brokers + fenced)
        parts += [counted(self._counts[kind], noun) for kind, noun in _COUNTED if self._counts.get(kind)]
        return parts

    def _table(self) -> Iterator[str]:
        names = sorted(self._topics, key=lambda name: (-self._badness(name), name))
        names = names[: shown_of(len(names), _TOPICS_SHOWN)]
        topics = [self._topics[name] for name in names]
        columns = [
            TextColumn("topic", [visible(name) for name in names]),
            TextColumn("partitions", [f"{each.partitions:,}" for each in topics], right=True, dropped=1),
            TextColumn("replicas", [f"{each.replication:,}" for each in topics], right=True, dropped=2),
            TextColumn("no leader", [f"{each.leaderless:,}" for each in topics], right=True),
            TextColumn("under-replicated", [f"{each.under_replicated:,}" for each in topics], right=True),
            TextColumn("configs", [f"{each.configs:,}" for each in topics], right=True, dropped=3),
            TextColumn("topic id", [each.topic_id for each in topics], dropped=4),
        ]
        yield from aligned(columns, self._columns)
        more = len(self._topics) - len(names)
        if more > 0:
            yield f"… and {counted(more, 'more topic')} (--topic GLOB shows one, {VERBOSE_SHOWS_ALL})"

    def _badness(self, name: str) -> int:
        topic = self._topics[name]
        return 2 * topic.leaderless + topic.under_replicated

    def _removed_topics(self) -> Iterator[Line]:
        number = self._counts.get("removed_topic", 0)
        if not number:
            return
        yield Line(f"{counted(number, 'topic')} deleted as far as the log reaches back, last:")
        for values in reversed(self._removed):
            when = "" if values["timestamp"] is None else f"{moment(values['timestamp'])} "
            name = values["topic"] or "(name unknown)"
            yield Line(visible(f"  {when}offset {values['offset']}: {name}, {values['topic_id']}"))

    def _history(self) -> Iterator[Line]:
        number = self._counts["event"]
        kinds = sorted(self._event_kinds.items(), key=lambda each: -each[1])
        yield Line(f"{counted(number, 'event')}: {', '.join(f'{many:,} {kind}' for kind, many in kinds)}")
        hidden = number - len(self._events)
        if hidden:
            yield Line(f"  the last {len(self._events)}; {hidden:,} earlier ones: {VERBOSE_SHOWS_ALL}")
        yield from map(Line, self._events)


_PARTITION_COLUMNS = ("topic", "partition", "leader", "leader_epoch", "replicas", "isr", "elr", "directories")
_BROKER_COLUMNS = ("broker_id", "epoch", "rack", "fenced", "in_controlled_shutdown", "listeners", "log_dirs")
_LEFT_OUT = {"acl": ("acl_id",), "config": ("sensitive",)}


def tabulated(values: Values) -> Values | None:
    """A row as a line of a table."""
    kind = values["type"]
    match kind:
        case "metadata":
            return None
        case "partition":
            return {"type": kind, **{name: values[name] for name in _PARTITION_COLUMNS}}
        case "broker":
            listeners = [f"{each['name']}://{each['host']}:{each['port']}" for each in values["listeners"]]
            shown = {**values, "listeners": listeners}
            return {"type": kind, **{name: shown[name] for name in _BROKER_COLUMNS}}
        case "removed_topic" | "token":
            return {name: _moment_of(name, value) for name, value in values.items()}
        case "quota":
            return {**values, "entity": _entity(values["entity"])}
    return {name: value for name, value in values.items() if name not in _LEFT_OUT.get(kind, ())}


def _moment_of(name: str, value: object) -> object:
    return moment(value) if name.endswith("timestamp") and isinstance(value, int) and value >= 0 else value


def metadata_words(values: Values) -> Iterator[str]:
    """The lines for one row, with --verbose."""
    match values["type"]:
        case "event":
            yield event_line(values)
        case "directory":
            yield _directory_line(values)
        case kind:
            shown = tabulated(values) or values
            pairs = (
                f"{name.replace('_', ' ')} {_cell(value)}" for name, value in shown.items() if name != "type"
            )
            yield visible(f"{str(kind).replace('_', ' ')}: {', '.join(pairs)}")


def event_line(values: Values) -> str:
    """`2026-11-21T09:41:07.123Z  offset 93  topic-deleted  orders  (3 partitions)`."""
    when = moment(values["timestamp"]) if values["timestamp"] >= 0 else "-"
    where = _where(values)
    details = _details(values)
    words = f"{when}  offset {values['offset']}  {values['event']}"
    return visible(words + (f"  {where}" if where else "") + (f"  {details}" if details else ""))


def _where(values: Values) -> str:
    if values["topic"] is not None or values["topic_id"] is not None:
        name = values["topic"] or values["topic_id"]
        return str(name) if values["partition"] is None else f"{name}-{values['partition']}"
    return "" if values["broker_id"] is None else f"broker {values['broker_id']}"


def _details(values: Values) -> str:
    details = values["details"]
    match values["event"]:
        case "topic-created" | "topic-deleted" | "partitions-created":
            number = details["partitions"]
            shown = "" if number is None else f"{counted(number, 'partition')}, "
            writer = values["controller_id"]
            by = "" if writer is None else f", written by controller {writer}"
            return f"{shown}id {values['topic_id']}{by}"
        case "quota-set" | "quota-removed":
            value = f" = {details['value']}" if values["event"] == "quota-set" else ""
            return f"{_entity(details['entity'])}: {details['key']}{value}"
        case "config-set" | "config-removed":
            resource = (
                ""
                if values["topic"] or values["broker_id"] is not None
                else f"{details['resource_type']} {details['resource_name'] or '(default)'}: "
            )
            former = "" if details["former_value"] is None else f" (was {details['former_value']})"
            value = "" if details["value"] is None else f" = {details['value']}"
            return f"{resource}{details['name']}{value}{former}"
        case _ if "now" in details:
            changes = []
            for name, value in details["now"].items():
                before = details["before"].get(name)
                was = "" if before is None else f"{_cell(before)} → "
                changes.append(f"{name.replace('_', ' ')} {was}{_cell(value)}")
            return ", ".join(changes) + (" (unclean)" if details["unclean"] else "")
    return ", ".join(
        f"{name.replace('_', ' ')} {_cell(value)}" for name, value in details.items() if name != "acl_id"
    )


def _entity(entity: Values) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity.items())


def _cell(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(str, value))}]"
    return "-" if value is None else str(value)


def _directory_line(values: Values) -> str:
    reason = f": {values['reason']}" if values["reason"] else ""
    return visible(f"{shown_path(str(values['path']))}: {values['status'] or 'no verdict'}{reason}")
