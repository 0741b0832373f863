"""The text of `lookup`: what was found and where it is. Of many partitions only those that contain it are shown."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.report import VERBOSE_SHOWS_ALL, Line, Report
from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import size_words
from kseg.cli.text.common import plain_words, record_line, timestamp_of
from kseg.segment.counted import counted, listed
from kseg.segment.findings import ERROR, INFO, WARNING
from kseg.segment.moments import moment
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import PartitionState
from kseg.segment.terminal import shown_path, visible

Values = Mapping[str, Any]

_NAMES_SHOWN = 5
_HITS_IN_FULL, _HITS_SHOWN = 8, 40
_CHARACTERS_SHOWN = 500  # characters of a key or a value


class LookupReport(Report):
    """The text of each answer, and a `Report` on the partitions without one.

    explains: whether the files that were read are printed as well. only_hits: partitions without an answer are only counted, and of many
    answers the first ones are printed in full, further ones in a line each, and the rest is counted, unless `shows_all`.
    """

    streams_rows = True

    def __init__(self, explains: bool, only_hits: bool, *, shows_all: bool = False) -> None:
        super().__init__()
        self._explains = explains
        self._most = None if shows_all else _CHARACTERS_SHOWN
        self._only_hits = only_hits
        self._shows_all = shows_all or explains or not only_hits
        self._missed: list[str] = []
        self._misses = self._hits = self._bytes_read = self._not_searched = 0
        self._held_back = ""  # the first answer beyond the limit, shown if it stays the only one

    def words(self, values: Values) -> Iterator[str]:
        if values.get("type") == "record":
            yield record_line(values, self._most)
        elif values.get("type") != "lookup":
            yield from plain_words(values)
        elif self._shows_all or (values.get("found") and self._hits <= _HITS_IN_FULL):
            yield from self._answer_words(values)
        elif values.get("found") and self._hits <= _HITS_SHOWN:
            yield _head(values)
        elif values.get("found") and self._hits == _HITS_SHOWN + 1:
            self._held_back = _head(values)

    def row(self, values: Values) -> None:
        if values.get("type") != "lookup":
            return
        self._bytes_read += values.get("bytes_read") or 0
        if values.get("found"):
            self._hits += 1
            return
        if values.get("searched") is False:
            self._not_searched += 1
            return
        self._misses += 1
        if len(self._missed) <= _NAMES_SHOWN:
            self._missed.append(_name(values))

    def opening(self, _summary: RunSummary) -> Iterator[Line]:
        yield from ()

    def closing(self, _summary: RunSummary) -> Iterator[Line]:
        yield from self._found.lines(ERROR, WARNING, INFO)
        if self._hits == _HITS_SHOWN + 1 and self._held_back:
            yield Line(self._held_back)
        elif self._hits > _HITS_SHOWN and not self._shows_all:
            yield Line(f"… and {counted(self._hits - _HITS_SHOWN, 'more answer')} ({VERBOSE_SHOWS_ALL})")
        if self._only_hits and self._misses:
            names = listed(self._missed, _NAMES_SHOWN, number=self._misses)
            yield Line(f"nothing found in {counted(self._misses, 'partition')}: {names}")
        if self._not_searched:
            yield Line(
                f"not searched: {counted(self._not_searched, 'partition')} to which the default partitioner does not send this key; "
                "without --partitioner they are searched too"
            )
        if self._hits + self._misses > 1:
            yield Line(f"{counted(self._hits, 'answer')}; {size_words(self._bytes_read)} read")

    def _answer_words(self, values: Values) -> Iterator[str]:
        if not values.get("found"):
            reason = f" ({visible(str(values['reason']))})" if values.get("reason") else ""
            yield f"{_name(values)}: nothing found{reason}"
        else:
            yield _head(values)
            place = _place(values)
            if place:
                yield f"  in {place}"
            record = values.get("record")
            if record:
                yield f"  record {record_line(record, self._most)}"
        if self._explains:
            yield f"  {values.get('bytes_read') or 0:,} bytes read"
            for step in values.get("path") or ():
                yield f"    {visible(_step(step))}"


def _head(values: Values) -> str:
    return f"{_name(values)}: {', '.join(_answer(values))}"


def _name(values: Values) -> str:
    """The partition, or the name of a directory that is not the one of its current log (`-future`, `-stray`, `-delete`)."""
    name = own_partition_name(str(values["directory"]))
    if name is None or name.state is PartitionState.LIVE:
        return shown_path(str(values["partition"]))
    return shown_path(os.path.basename(os.path.normpath(str(values["directory"]))))


def _answer(values: Values) -> Iterator[str]:
    if values.get("offset") is not None:
        yield f"offset {values['offset']}"
    if (timestamp_ms := timestamp_of(values)) is not None:
        yield f"timestamp {moment(timestamp_ms)} ({timestamp_ms})"
    if values.get("leader_epoch") is not None:
        yield f"leader epoch {values['leader_epoch']}"
    if values.get("producer_id") is not None:
        yield f"producer {values['producer_id']} (epoch {values['producer_epoch']})"


def _place(values: Values) -> str:
    if values.get("segment") is None:
        return ""
    words = shown_path(str(values["segment"]))
    if values.get("position") is not None:
        words += f" at byte {values['position']}"
    if values.get("batch_base_offset") is not None:
        words += f", batch {values['batch_base_offset']}-{values.get('batch_last_offset')}"
    return words


def _step(step: Any) -> str:
    """`time-index orders-0/….timeindex: slot 2, offset 83`, or `no slot`."""
    if not isinstance(step, Mapping):
        return str(step)
    numbers = ", ".join(
        f"no {name.replace('_', ' ')}" if value is None else f"{name.replace('_', ' ')} {value}"
        for name, value in step.items()
        if name not in ("step", "file")
    )
    head = f"{step.get('step', '')} {step.get('file', '')}".strip()
    return f"{head}: {numbers}" if numbers else head
