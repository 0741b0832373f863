"""The text of `list`: errors, then a line for each topic or partition, or with --verbose a paragraph and every file.

The library returns the files before their total; the text has the total first.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kseg.cli.report import VERBOSE_SHOWS_ALL, Line, Report
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import size_words
from kseg.cli.text.columns import TextColumn, aligned
from kseg.jobs.events import Event, Row
from kseg.segment.counted import counted, log_range_words
from kseg.segment.findings import ERROR, INFO, WARNING
from kseg.segment.moments import moment
from kseg.segment.terminal import shown_path, visible
from kseg.segment.values import dataclass

Values = Mapping[str, Any]
_STATES = {"delete": "marked for deletion; the broker removes it at its next start"}
SUMS = ("partition", "log-dir")


@dataclass(slots=True)
class _Entry:
    """A topic or a partition in the table. lag, group: of the group with the largest lag in one of its partitions."""

    name: str
    state: str = ""
    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    records: int = 0
    earliest_ms: int | None = None
    latest_ms: int | None = None
    offsets: str = ""
    lag: int | None = None
    group: str = ""

    def add(self, values: Values) -> None:
        self.partitions += 1
        self.segments += values["segments"]
        # not `bytes`: the indexes of active segments are preallocated, too
        self.size_bytes += values["log_bytes"] - (values.get("preallocated_bytes") or 0)
        records = values.get("records")
        self.records += (values.get("records_estimated") or 0) if records is None else records
        for each in values.get("groups") or ():
            if self.lag is None or each["lag"] > self.lag:
                self.lag, self.group = each["lag"], str(each["group"])
        earliest, latest = values.get("earliest_timestamp"), values.get("latest_timestamp")
        if earliest is not None:
            self.earliest_ms = earliest if self.earliest_ms is None else min(self.earliest_ms, earliest)
        if latest is not None:
            self.latest_ms = latest if self.latest_ms is None else max(self.latest_ms, latest)


_SORT_KEYS: dict[str, Callable[[_Entry], Any]] = {
    "name": lambda entry: entry.name,
    "size": lambda entry: (-entry.size_bytes, entry.name),
    "time": lambda entry: (-(entry.latest_ms or 0), entry.name),
    "records": lambda entry: (-entry.records, entry.name),
    "lag": lambda entry: (entry.lag is None, -(entry.lag or 0), entry.name),
}


class ListReport(Report):
    """A `Report` with one line for each topic (or partition), below the text of each data directory.

    by_partition: a line for each partition. sort: the value of --sort. is_counted: the number of records is exact. columns: of
    the terminal, None for no limit.
    """

    def __init__(self, by_partition: bool, sort: str, is_counted: bool, columns: int | None) -> None:
        super().__init__()
        self._by_partition = by_partition
        self._sort = sort
        self._is_counted = is_counted
        self._columns = columns
        self._log_dirs: dict[str, Values] = {}
        self._log_dir_bytes: dict[str, int] = {}
        self._entries: dict[str, _Entry] = {}
        self._alone: Values = {}
        self._partitions = 0
        self._missing: dict[str, int] = {}
        self._others: list[str] = []

    def row(self, values: Values) -> None:
        match values.get("type"):
            case "partition":
                self._partition(values)
            case "log-dir":
                self._log_dirs[str(values["directory"])] = values
            case "file" if values.get("partition") is None and self._partitions == 0:
                self._others.append(_entry(values))

    def opening(self, summary: RunSummary) -> Iterator[Line]:
        yield from self._found.lines(ERROR)
        for path, values in self._log_dirs.items():
            yield from map(Line, _log_dir(values, self._log_dir_bytes.get(path, 0)))
        if self._partitions == 1 and not self._log_dirs and "files" in self._alone:
            yield from map(Line, _partition(self._alone))
        elif self._entries:
            yield from map(Line, self._table())
        elif not self._log_dirs:
            yield from map(Line, self._others)
        yield from self._found.lines(WARNING, INFO)
        for what, number in self._missing.items():
            yield Line(f"{counted(number, 'partition')} without {visible(what)} ({VERBOSE_SHOWS_ALL})")

    def _partition(self, values: Values) -> None:
        self._partitions += 1
        self._alone = values
        for suffix in dict.fromkeys(
            name if name.endswith(("metadata", "checkpoint")) else _with_article(name.rpartition(".")[2])
            for name in values["missing"]
        ):
            self._missing[suffix] = self._missing.get(suffix, 0) + 1
        name = str(values["partition"])
        state = "" if values["state"] in ("live", "unnamed") else _state_words(values)
        is_of_topic = values["state"] == "live" and not self._by_partition
        shown = shown_path(name.rpartition("-")[0] if is_of_topic else name)
        key = str(values["directory"]) if self._by_partition else shown
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(shown, state)
        size_bytes = entry.size_bytes
        entry.add(values)
        around = os.path.dirname(str(values["directory"]))
        self._log_dir_bytes[around] = self._log_dir_bytes.get(around, 0) + entry.size_bytes - size_bytes
        if values.get("log_end_offset") is not None:
            entry.offsets = f"{values['log_start_offset']}-{values['log_end_offset']}"

    def _table(self) -> Iterator[str]:
        entries = sorted(self._entries.values(), key=_SORT_KEYS[self._sort])
        about = "" if self._is_counted else "~"
        columns = [
            TextColumn("partition" if self._by_partition else "topic", [entry.name for entry in entries]),
            TextColumn("partitions", [f"{entry.partitions:,}" for entry in entries], right=True, dropped=2),
            TextColumn("segments", [f"{entry.segments:,}" for entry in entries], right=True, dropped=3),
            TextColumn("size", [size_words(entry.size_bytes) for entry in entries], right=True),
            TextColumn("records", [f"{about}{entry.records:,}" for entry in entries], right=True),
            TextColumn("offsets", [entry.offsets for entry in entries], dropped=5),
            TextColumn("from (UTC)", [_minute(entry.earliest_ms) for entry in entries], dropped=4),
            TextColumn("to (UTC)", [_minute(entry.latest_ms) for entry in entries], dropped=1),
            *self._lags(entries),
            TextColumn("", [entry.state for entry in entries]),
        ]
        unwanted = "partitions" if self._by_partition else "offsets"
        kept = [
            column for column in columns if column.head != unwanted and (column.head or any(column.cells))
        ]
        yield from aligned(kept, self._columns)

    @staticmethod
    def _lags(entries: Sequence[_Entry]) -> list[TextColumn]:
        if all(entry.lag is None for entry in entries):
            return []
        lags = ["-" if entry.lag is None else f"{entry.lag:,}" for entry in entries]
        return [
            TextColumn("lag", lags, right=True),
            TextColumn("of group", [visible(entry.group) for entry in entries]),
        ]


def _with_article(suffix: str) -> str:
    return f"{'an' if suffix.startswith(tuple('aeiou')) else 'a'} .{suffix}"


def _state_words(values: Values) -> str:
    state = str(values["state"])
    name = values.get("topic_name")
    is_told = name is None or str(values["partition"]).startswith(f"{name}-")
    return _STATES.get(state, state) + ("" if is_told else f" (topic {visible(str(name))})")


def _minute(time_ms: int | None) -> str:
    if time_ms is None:
        return "-"
    date, _, note = moment(time_ms).partition(" (")
    return note.removesuffix(")") or date[:16].replace("T", " ")


def with_topic_names(events: Iterator[Event], names: Mapping[str, str]) -> Iterator[Event]:
    """The same events, with rows of partitions extended by the topic name that the metadata log has for their id. names: the names
    that were looked up, by directory."""
    for event in events:
        name = names.get(str(event.values.get("directory"))) if names and isinstance(event, Row) else None
        yield (
            Row({**event.values, "topic_name": name})
            if name is not None and isinstance(event, Row)
            else event
        )


def sums_first(events: Iterator[Event]) -> Iterator[Event]:
    """The same events with file rows after the row that sums them up."""
    files: list[Event] = []
    for event in events:
        kind = event.values.get("type") if isinstance(event, Row) else None
        if kind in ("file", "directory"):
            files.append(event)
            continue
        yield event
        if kind in SUMS:
            yield from files
            files.clear()
    yield from files


def inventory_words(values: Values) -> Iterator[str]:
    match values.get("type"):
        case "file" | "directory":
            yield _entry(values)
        case "partition":
            yield from _partition(values)
        case "log-dir":
            yield from _log_dir(values)
        case _:
            yield visible(str(dict(values)))


def _entry(values: Values) -> str:
    size = "" if values.get("size") is None else f"{values['size']:,}"
    when = "" if values.get("mtime") is None else moment(values["mtime"])
    state = "" if values.get("state") in (None, "live") else f" ({values['state']})"
    problem = f": {values['problem']}" if values.get("problem") else ""
    return visible(
        f"  {size:>14}  {when:24}  {values['kind']}{state}  {shown_path(str(values['file']))}{problem}"
    )


def _partition(values: Values) -> Iterator[str]:
    state = f", {_state_words(values)}" if values["state"] != "live" else ""
    topic_id = f", topic id {values['topic_id']}" if values.get("topic_id") else ""
    yield visible(f"{values['partition']} in {shown_path(str(values['directory']))}{state}{topic_id}")
    held = [counted(values["segments"], "segment"), f"{values['log_bytes']:,} bytes of log"]
    if values.get("preallocated_bytes"):
        held[-1] += f" ({values['preallocated_bytes']:,} of them preallocated)"
    if values.get("records") is None and values.get("records_estimated") is not None:
        held.append(f"about {counted(values['records_estimated'], 'record')}")
    elif values.get("records") is not None:
        held.append(f"{counted(values['records'], 'record')} in {counted(values['batches'], 'batch')}")
    elif values.get("batches") is not None:
        held.append(counted(values["batches"], "batch"))
    yield f"  {', '.join(held)}; {counted(values['files'], 'file')} of {values['bytes']:,} bytes"
    if values.get("log_end_offset") is not None:
        yield f"  {_offsets(values)}"
    times = _times(values)
    if times:
        yield f"  {times}"
    for transaction in values.get("open_transactions") or ():
        yield (
            f"  open transaction of producer {transaction['producer_id']} (epoch {transaction['producer_epoch']}) "
            f"since offset {transaction['first_offset']}"
        )
    for each in values.get("groups") or ():
        yield visible(f"  group {each['group']} at {each['offset']:,}, {each['lag']:,} behind")
    yield from _lacks(values)


def _log_dir(values: Values, log_bytes: int | None = None) -> Iterator[str]:
    """log_bytes: the total of the logs in its partitions, if only these were added up."""
    known = [
        f"{name.replace('_', ' ')} {values[name]}"
        for name in ("node_id", "cluster_id", "directory_id")
        if values.get(name) is not None
    ]
    yield visible(
        f"data directory {shown_path(str(values['directory']))}{': ' if known else ''}{', '.join(known)}"
    )
    if values["clean_shutdown"] is None:
        stop = "uploaded by a tiered-storage plugin"
    else:
        stop = "shut down cleanly" if values["clean_shutdown"] else "no clean-shutdown marker"
    size = f"{size_words(values['bytes'])}" if log_bytes is None else f"{size_words(log_bytes)} of log"
    yield (
        f"  {counted(values['partitions'], 'partition')} of {counted(values['topics'], 'topic')}, {size}, {stop}"
    )
    yield from _lacks(values)


def _offsets(values: Values) -> str:
    words = [log_range_words(values["log_start_offset"], values["log_end_offset"])]
    if values.get("last_stable_offset") is not None:
        words.append(f"last stable {values['last_stable_offset']}")
    if values.get("high_watermark") is not None:
        words.append(f"high watermark {values['high_watermark']}")
    if values.get("leader_epochs"):
        epochs = values["leader_epochs"]
        words.append(
            f"leader epochs {epochs[0]} to {epochs[-1]}"
            if epochs[0] != epochs[-1]
            else f"leader epoch {epochs[0]}"
        )
    return ", ".join(words)


def _times(values: Values) -> str:
    words: list[str] = []
    if values.get("earliest_timestamp") is not None:
        earliest, latest = moment(values["earliest_timestamp"]), moment(values["latest_timestamp"])
        words.append(earliest if earliest == latest else f"{earliest} to {latest}")
        if values.get("is_future"):
            words.append("in the future")
    words += values.get("timestamp_types") or ()
    words += ("uncompressed" if codec == "none" else codec for codec in values.get("codecs") or ())
    if values.get("magics"):
        words.append(f"magic {', '.join(map(str, values['magics']))}")
    return ", ".join(words)


def _lacks(values: Values) -> Iterator[str]:
    if values.get("missing"):
        yield visible(f"  missing: {', '.join(values['missing'])}")
    if values.get("unknown_files"):
        yield visible(f"  unknown: {', '.join(values['unknown_files'])}")
