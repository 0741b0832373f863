"""Findings and results as a DataFrame, for users of kseg as a library on a cluster.

    events(…)     everything: one row for each finding, row and failure, its values as the JSON line of the command
    findings(…)   the findings alone, with a column for each field

The executors produce the rows, which never pass through the driver, so their number is not limited. Like every DataFrame it
is computed on demand, and again on the next action: use it for work that only reads.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from kseg.jobs.events import Event, Failure, Row, Text, Work
from kseg.jobs.guarded import Named
from kseg.segment.findings import Finding
from kseg.segment.json_line import json_line
from kseg.segment.values import dataclass
from kseg.spark import cluster_fanout, scheduling
from kseg.spark import session as sessions
from kseg.spark.options import ClusterOptions
from kseg.spark.scheduling import Share

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT_COLUMNS = "target string, type string, json string"
FINDING_COLUMNS = (
    "target string, id string, severity string, path string, message string, position bigint, length bigint, "
    "first_offset bigint, last_offset bigint, numbers map<string,string>"
)

T = TypeVar("T", bound=Named)
O = TypeVar("O")
RowsOf = Callable[[str, Event], Iterator[tuple[Any, ...]]]


def events(work: Work[T, O], targets: Sequence[T], options: O, cluster: ClusterOptions) -> "DataFrame":
    """A row for each event of `work`, with the columns EVENT_COLUMNS. Raises what `cluster_fanout.run` raises."""
    return _frame(work, targets, options, cluster, _event_rows, EVENT_COLUMNS)


def findings(work: Work[T, O], targets: Sequence[T], options: O, cluster: ClusterOptions) -> "DataFrame":
    """A row for each finding of `work` (for example `verify`), with the columns FINDING_COLUMNS."""
    return _frame(work, targets, options, cluster, _finding_rows, FINDING_COLUMNS)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The function of a task: yields its units' events as rows."""

    rows_of: RowsOf

    def __call__(self, shares: Iterable[Share[Any, Any]]) -> Iterator[tuple[Any, ...]]:
        for share in shares:
            for unit, event in scheduling.events_of(share):
                yield from self.rows_of(unit.target.path, event)


def _frame(
    work: Work[T, O], targets: Sequence[T], options: O, cluster: ClusterOptions, rows_of: RowsOf, columns: str
) -> "DataFrame":
    context = cluster_fanout.ready(cluster)
    run = cluster_fanout.task_run(work, targets, options)
    units = scheduling.weigh(targets)
    groups = scheduling.pack(units, max(1, context.defaultParallelism), scheduling.MAX_SHARE_BYTES)
    shares = [Share(run, group) for group in groups]
    rows = context.parallelize(shares, max(1, len(shares))).mapPartitions(_Rows(rows_of))
    return sessions.get(cluster).createDataFrame(rows, columns, verifySchema=False)


def _event_rows(target: str, event: Event) -> Iterator[tuple[Any, ...]]:
    match event:
        case Row():
            yield target, str(event.values.get("type")), _json(event.values)
        case Finding():
            yield target, "finding", _json(event.as_row())
        case Failure():
            values = {"path": event.path, "message": event.sentence, "exit_status": event.exit_status}
            yield target, "error", _json({"type": "error", **values})
        case Text():
            for line in bytes(event.data).decode("utf-8", "backslashreplace").splitlines():
                yield target, "text", line


def _finding_rows(target: str, event: Event) -> Iterator[tuple[Any, ...]]:
    if isinstance(event, Finding):
        numbers = {name: None if value is None else str(value) for name, value in event.numbers.items()}
        yield (
            target,
            event.id,
            event.severity,
            event.path,
            event.message,
            event.position,
            event.length,
            event.first_offset,
            event.last_offset,
            numbers,
        )


def _json(values: Mapping[str, object]) -> str:
    return json_line(values).decode("utf-8", "backslashreplace").rstrip("\n")
