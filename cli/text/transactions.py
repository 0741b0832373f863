"""The text of `transactions`: hanging transactions and the command that aborts each, other transactions that hold back readers, and
totals."""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.report import GOOD, VERBOSE_SHOWS_ALL, Line, Report, severities_words
from kseg.cli.run_summary import RunSummary
from kseg.segment.counted import counted, shown_of
from kseg.segment.findings import ERROR, INFO, WARNING
from kseg.segment.moments import moment
from kseg.segment.terminal import visible

Values = Mapping[str, Any]

_HANGING_SHOWN, _OPEN_SHOWN = 10, 5
_KEPT = 1000
_STATES = ("committed", "aborted", "open", "hanging")
# verdicts on an open transaction that require attention
_DOUBTFUL = ("stale", "refused", "orphaned", "unmarked", "unloaded", "unknown")

# by whether the coordinator loads the record of a transactional id
_LOADED = {
    True: "",
    False: "; the coordinator does not load this record",
    None: "; the coordinator may not have loaded this record",
}


class TransactionsReport(Report):
    """A `Report` with the hanging transactions first; of the others it keeps the first ones and counts the rest. now_ms: the time of the
    run."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._now_ms = now_ms
        self._counts = dict.fromkeys(_STATES, 0)
        self._partitions = self._ids = self._held = 0
        self._hanging: list[Values] = []
        self._open: list[Values] = []
        self._hanging_partitions: set[tuple[Any, Any]] = set()
        self._verdicts: dict[str, int] = {}

    def row(self, values: Values) -> None:
        match values.get("type"):
            case "transaction" if values["status"] == "hanging":
                self._hanging_partitions.add((values["topic"], values["partition"]))
                if len(self._hanging) <= _HANGING_SHOWN:
                    self._hanging.append(values)
            case "transaction" if values["status"] == "open":
                self._verdicts[values["verdict"]] = self._verdicts.get(values["verdict"], 0) + 1
                if len(self._open) < _KEPT:
                    self._open.append(values)
            case "transactional_id":
                self._ids += 1
            case "partition":
                self._partitions += 1
                self._held += values["held_by_producer_id"] is not None
                for state in _STATES:
                    self._counts[state] += values["transactions"][state]

    def opening(self, summary: RunSummary) -> Iterator[Line]:
        yield self._verdict(summary)
        yield from self._found.lines(ERROR)
        shown = shown_of(self._counts["hanging"], _HANGING_SHOWN)
        for values in self._hanging[:shown]:
            yield from map(Line, _hanging_words(values))
        more = self._counts["hanging"] - shown
        if more > 0:
            yield Line(f"  … and {more:,} more ({VERBOSE_SHOWS_ALL})")
        yield from self._open_lines()
        yield from self._found.lines(WARNING, INFO)

    def closing(self, summary: RunSummary) -> Iterator[Line]:
        states = ", ".join(f"{self._counts[state]:,} {state}" for state in _STATES)
        yield Line(
            f"{counted(self._partitions, 'partition')}, {counted(self._ids, 'transactional id')}; transactions: {states}"
        )

    def _verdict(self, summary: RunSummary) -> Line:
        hanging = self._counts["hanging"]
        if hanging:
            where = f"{len(self._hanging_partitions):,} of {counted(self._partitions, 'partition')}"
            return Line(
                f"HANGING: {counted(hanging, 'transaction')} in {where}; read_committed consumers are blocked there",
                ERROR,
            )
        if summary.failed_paths:
            return Line("INCOMPLETE", ERROR)
        doubtful = sum(self._verdicts.get(verdict, 0) for verdict in _DOUBTFUL)
        if doubtful:
            return Line(
                f"DOUBTFUL: {counted(doubtful, 'open transaction')} that no coordinator explains", WARNING
            )
        is_open = self._counts["open"]
        words = f"; {counted(is_open, 'transaction')} in progress" if is_open else ""
        if summary.errors:
            partitions = counted(self._partitions, "partition")
            return Line(
                f"UNCERTAIN: nothing hangs in what can be read of {partitions}{words}; {severities_words(summary)}",
                WARNING,
            )
        return Line(f"NOTHING HANGS in {counted(self._partitions, 'partition')}{words}", GOOD)

    def _open_lines(self) -> Iterator[Line]:
        by_age = sorted(
            self._open,
            key=lambda values: (values["verdict"] not in _DOUBTFUL, values["last_timestamp"]),
        )
        shown = shown_of(self._counts["open"], _OPEN_SHOWN)
        for values in by_age[:shown]:
            yield from map(Line, _open_words(values))
        more = self._counts["open"] - shown
        if more > 0:
            listed = ", ".join(f"{number:,} {verdict}" for verdict, number in sorted(self._verdicts.items()))
            yield Line(f"  … and {more:,} more open ({VERBOSE_SHOWS_ALL}); of all: {listed}")


def transaction_words(values: Values) -> Iterator[str]:
    match values.get("type"):
        case "transaction" if values["status"] == "hanging":
            yield from _hanging_words(values)
        case "transaction" if values["status"] == "open":
            yield from _open_words(values)
        case "transaction":
            owner = f" ({values['transactional_id']})" if values["transactional_id"] else ""
            yield visible(
                f"{_place(values)}: {values['status']} by producer {values['producer_id']}{owner}, epoch {values['producer_epoch']}, "
                f"offsets {values['start_offset']} to {values['last_offset']}, marker at {values['marker_offset']}"
            )
        case "producer":
            open_words = (
                ""
                if values["transaction_start_offset"] is None
                else f", in a transaction since offset {values['transaction_start_offset']}"
            )
            yield visible(
                f"{_place(values)}: producer {values['producer_id']}, epoch {values['producer_epoch']}, last sequence "
                f"{values['last_sequence']}, last written {moment(values['last_timestamp'])}{open_words}"
                f"{', expired: a broker that starts forgets it' if values['expired'] else ''}"
            )
        case "partition" if values["log_end_offset"] is None:
            yield visible(f"{_place(values)}: no transactions in this format")
        case "partition":
            held = values["held_by_producer_id"]
            holder = "" if held is None else f", held by producer {held}"
            yield visible(
                f"{_place(values)}: offsets {values['log_start_offset']} to {values['log_end_offset']}, last stable "
                f"{values['last_stable_offset']}{holder}"
            )
        case "transactional_id":
            where = ", ".join(f"{each['topic']}-{each['partition']}" for each in values["partitions"])
            since = "" if values["start_timestamp"] is None else f" since {moment(values['start_timestamp'])}"
            yield visible(
                f"transactional id {values['transactional_id']}: {values['state']}{since}, producer {values['producer_id']}, epoch "
                f"{values['producer_epoch']}{', in ' + where if where else ''}{_LOADED[values['loaded']]}"
            )
        case _:
            yield visible(str(dict(values)))


def _hanging_words(values: Values) -> Iterator[str]:
    yield visible(
        f"{_place(values)} hangs at offset {values['start_offset']} since {_since(values)}: {_written(values)}"
    )
    yield visible(f"  {values['reason']}")
    if values["abort_command"] is not None:
        yield visible(f"  {values['abort_command']}")


def _open_words(values: Values) -> Iterator[str]:
    deadline = "" if values["deadline"] is None else f", times out at {moment(values['deadline'])}"
    yield visible(
        f"{_place(values)} is {values['verdict']} at offset {values['start_offset']} since {_since(values)}: {_written(values)}"
        f"{deadline}; {values['reason']}"
    )


def _written(values: Values) -> str:
    last = "" if values["last_offset"] is None else f" up to offset {values['last_offset']}"
    return (
        f"producer {values['producer_id']}, epoch {values['producer_epoch']}, wrote{last} until "
        f"{moment(values['last_timestamp'])}"
    )


def _since(values: Values) -> str:
    started = values["start_timestamp"]
    return "before the log start" if started is None else moment(started)


def _place(values: Values) -> str:
    return "partition" if values["topic"] is None else f"{values['topic']}-{values['partition']}"
