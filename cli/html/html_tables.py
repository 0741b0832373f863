"""The tables of a report: the columns for each type of JSON line. A table without rows is left out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kseg.cli.html.html_cells import Cell, HtmlColumn, Values, cell

MAX_ROWS = 10_000  # rows of a table: as many as a browser sorts without a pause


class TableForm(NamedTuple):
    """type: of the JSON lines. wanted: selects some of them. parts: turns a line into several rows. is_open: expanded at first."""

    id: str
    title: str
    type: str
    columns: Sequence[HtmlColumn]
    wanted: Callable[[Values], bool] = lambda _: True
    parts: Callable[[Values], Iterable[Values]] | None = None
    is_open: bool = True
    note: str = ""


class HtmlTable(NamedTuple):
    """A table to render. columns: those of its form that hold any value. left_out: the number of rows omitted. filters: indexes of the columns
    with a filter."""

    form: TableForm
    columns: Sequence[HtmlColumn]
    rows: Sequence[Sequence[Cell]]
    left_out: int

    @property
    def filters(self) -> list[int]:
        return [at for at, column in enumerate(self.columns) if column.kind in ("severity", "choice")]


def _start_changes(row: Values) -> Iterable[Values]:
    """What a broker's start does to each partition, one row each."""
    for effect in ("truncated", "failed", "stray", "offline", "missing", "removed", "future", "unread"):
        found = row.get(f"partitions_{effect}")
        for each in found if isinstance(found, Sequence) else ():
            yield {"effect": effect, **(each if isinstance(each, Mapping) else {"partition": each})}


_FINDINGS = TableForm(
    "findings",
    "Findings",
    "finding",
    (
        HtmlColumn("Severity", "severity", "severity"),
        HtmlColumn("Finding", "id", "name"),
        HtmlColumn("What", "message"),
        HtmlColumn("File", "path", "name"),
        HtmlColumn("Position", "position", "number"),
        HtmlColumn("Bytes", "length", "count"),
        HtmlColumn("First offset", "first_offset", "number"),
        HtmlColumn("Last offset", "last_offset", "number"),
    ),
)
_FAILURES = TableForm(
    "failures",
    "What could not be examined",
    "error",
    (
        HtmlColumn("Path", "path", "name"),
        HtmlColumn("Why", "message"),
        HtmlColumn("Exit status", "exit_status", "number"),
    ),
)
_STARTS = TableForm(
    "start",
    "What the next start of a broker does",
    "broker-start",
    (
        HtmlColumn("Node", "node_id", "number"),
        HtmlColumn("Outcome", "outcome", "name"),
        HtmlColumn("Exception", "exception", "name"),
        HtmlColumn("Message", "message"),
        HtmlColumn("Partitions", "partitions", "count"),
        HtmlColumn("Metadata log", "metadata"),
        HtmlColumn("To scan", "bytes_to_scan", "bytes"),
        HtmlColumn("At least", "estimated_s", "seconds"),
        HtmlColumn("On a slow machine", "estimated_s_slow", "seconds"),
    ),
)
_START_CHANGES = TableForm(
    "start-changes",
    "What the next start does to partitions",
    "broker-start",
    (
        HtmlColumn("Partition", "partition", "name"),
        HtmlColumn("Effect", "effect"),
        HtmlColumn("Bytes lost", "bytes_lost", "alarm-bytes"),
        HtmlColumn("Records lost", "records_lost", "alarm"),
        HtmlColumn("Log start", "log_start_offset", "number"),
        HtmlColumn("Log end", "log_end_offset", "number"),
        HtmlColumn("Exception", "exception", "name"),
        HtmlColumn("Log dir", "log_dir", "name"),
    ),
    parts=_start_changes,
)
_VERIFIED = TableForm(
    "verified",
    "Everything that was checked",
    "verified",
    (
        HtmlColumn("Path", "path", "name"),
        HtmlColumn("Kind", "kind"),
        HtmlColumn("Errors", "errors", "alarm"),
        HtmlColumn("Warnings", "warnings", "count"),
        HtmlColumn("Bytes", "bytes_total", "bytes"),
        HtmlColumn("Damaged", "bytes_damaged", "alarm-bytes"),
        HtmlColumn("Padding", "bytes_padding", "bytes"),
        HtmlColumn("Batches", "batches", "count"),
        HtmlColumn("Records", "records", "count"),
        HtmlColumn("Log end", "start.log_end_offset", "number"),
        HtmlColumn("Next start", "start.outcome"),
    ),
)
_COSTS = TableForm(
    "costs",
    "What the damage costs",
    "damage",
    (
        HtmlColumn("Partition", "partition", "name"),
        HtmlColumn("Errors", "errors", "alarm"),
        HtmlColumn("Findings", "findings", "list"),
        HtmlColumn("recover: records lost", "costs.salvage.records", "count"),
        HtmlColumn("recover: bytes lost", "costs.salvage.bytes", "bytes"),
        HtmlColumn("A broker: records lost", "costs.kafka.records", "count"),
        HtmlColumn("A broker: bytes lost", "costs.kafka.bytes", "bytes"),
        HtmlColumn("A broker dies of", "costs.kafka.dies_of", "name"),
        HtmlColumn("Doubt", "doubt"),
        HtmlColumn("No plan because", "reason"),
        HtmlColumn("Path", "path", "name"),
    ),
)
_HANGING = TableForm(
    "hanging",
    "Hanging transactions",
    "transaction",
    (
        HtmlColumn("Topic", "topic", "name"),
        HtmlColumn("Partition", "partition", "number"),
        HtmlColumn("From offset", "start_offset", "number"),
        HtmlColumn("Producer", "producer_id", "number"),
        HtmlColumn("Epoch", "producer_epoch", "number"),
        HtmlColumn("Last written", "last_timestamp", "time"),
        HtmlColumn("Verdict", "verdict"),
        HtmlColumn("Why", "reason"),
        HtmlColumn("To end it", "abort_command", "name"),
    ),
)
_STRANDED = TableForm(
    "stranded",
    "Groups whose offset is not in the log",
    "offset",
    (
        HtmlColumn("Group", "group", "name"),
        HtmlColumn("Topic", "topic", "name"),
        HtmlColumn("Partition", "partition", "number"),
        HtmlColumn("Offset", "offset", "number"),
        HtmlColumn("Status", "status"),
        HtmlColumn("Log start", "log_start_offset", "number"),
        HtmlColumn("Log end", "log_end_offset", "number"),
        HtmlColumn("Committed", "commit_timestamp", "time"),
    ),
)
_LEFTOVERS = TableForm(
    "leftovers",
    "Not in use",
    "leftovers",
    (
        HtmlColumn("Log dir", "log_dir", "name"),
        HtmlColumn("Kind", "kind"),
        HtmlColumn("Number", "count", "count"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("Such as", "examples", "list"),
    ),
)
_LOG_DIRS = TableForm(
    "log-dirs",
    "Data directories",
    "log_dir",
    (
        HtmlColumn("Log dir", "log_dir", "name"),
        HtmlColumn("Node", "node_id", "number"),
        HtmlColumn("Broker running", "broker_running", "flag"),
        HtmlColumn("Clean stop", "clean_shutdown", "flag"),
        HtmlColumn("Free", "free_bytes", "bytes"),
        HtmlColumn("Size", "total_bytes", "bytes"),
        HtmlColumn("File system", "filesystem"),
        HtmlColumn("Mounted at", "mount_point", "name"),
        HtmlColumn("Options", "mount_options", "list"),
        HtmlColumn("Cluster", "cluster_id", "name"),
        HtmlColumn("Directory id", "directory_id", "name"),
    ),
)
_NODES = TableForm(
    "nodes",
    "Nodes",
    "node",
    (
        HtmlColumn("Node", "node_id", "number"),
        HtmlColumn("Cluster", "cluster_id", "name"),
        HtmlColumn("metadata.version", "metadata_version", "name"),
        HtmlColumn("Last record", "metadata_offset", "number"),
        HtmlColumn("Written", "metadata_timestamp", "time"),
        HtmlColumn("Whole", "certain", "flag"),
        HtmlColumn("Metadata log", "metadata_log", "name"),
    ),
)

_PARTITIONS = TableForm(
    "partitions",
    "Partitions",
    "partition",
    (
        HtmlColumn("Partition", "partition", "name"),
        HtmlColumn("State", "state"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("Log", "log_bytes", "bytes"),
        HtmlColumn("Segments", "segments", "count"),
        HtmlColumn("Batches", "batches", "count"),
        HtmlColumn("Records", "records", "count"),
        HtmlColumn("Log start", "log_start_offset", "number"),
        HtmlColumn("Log end", "log_end_offset", "number"),
        HtmlColumn("High watermark", "high_watermark", "number"),
        HtmlColumn("Last stable", "last_stable_offset", "number"),
        HtmlColumn("From", "earliest_timestamp", "time"),
        HtmlColumn("To", "latest_timestamp", "time"),
        HtmlColumn("Codecs", "codecs", "list"),
        HtmlColumn("Epochs", "leader_epochs", "list"),
        HtmlColumn("Open transactions", "open_transactions", "length"),
        HtmlColumn("Missing", "missing", "list"),
        HtmlColumn("Unknown files", "unknown_files", "list"),
        HtmlColumn("Topic id", "topic_id", "name"),
        HtmlColumn("Directory", "directory", "name"),
    ),
)
_ODD_FILES = TableForm(
    "odd-files",
    "Files that are not Kafka's, or not named as Kafka names them",
    "file",
    (
        HtmlColumn("File", "file", "name"),
        HtmlColumn("What", "kind"),
        HtmlColumn("State", "state"),
        HtmlColumn("Bytes", "size", "bytes"),
        HtmlColumn("Changed", "mtime", "time"),
        HtmlColumn("Problem", "problem"),
    ),
    wanted=lambda row: row.get("problem") is not None,
)
_LISTED_DIRS = TableForm(
    "log-dirs",
    "Data directories",
    "log-dir",
    (
        HtmlColumn("Log dir", "directory", "name"),
        HtmlColumn("Node", "node_id", "number"),
        HtmlColumn("Clean stop", "clean_shutdown", "flag"),
        HtmlColumn("Topics", "topics", "count"),
        HtmlColumn("Partitions", "partitions", "count"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("Cluster", "cluster_id", "name"),
        HtmlColumn("Directory id", "directory_id", "name"),
        HtmlColumn("Missing", "missing", "list"),
        HtmlColumn("Unknown files", "unknown_files", "list"),
    ),
)
_REMOTE_PARTITIONS = TableForm(
    "remote-partitions",
    "Partitions in tiered storage",
    "remote_partition",
    (
        HtmlColumn("Topic", "topic", "name"),
        HtmlColumn("Partition", "partition", "number"),
        HtmlColumn("Missing offsets", "missing_offsets", "alarm"),
        HtmlColumn("Segments", "segments", "count"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("Dangling", "dangling", "alarm"),
        HtmlColumn("Unread", "unread", "count"),
        HtmlColumn("Log start", "log_start_offset", "number"),
        HtmlColumn("Local from", "local_log_start_offset", "number"),
        HtmlColumn("Log end", "log_end_offset", "number"),
        HtmlColumn("Being deleted", "delete_state"),
        HtmlColumn("Topic id", "topic_id", "name"),
    ),
)
_DANGLING = TableForm(
    "dangling",
    "Uploads and deletions that were not finished",
    "remote_segment",
    (
        HtmlColumn("Topic", "topic", "name"),
        HtmlColumn("Partition", "partition", "number"),
        HtmlColumn("Segment", "segment_id", "name"),
        HtmlColumn("First offset", "start_offset", "number"),
        HtmlColumn("Last offset", "end_offset", "number"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("State", "state"),
        HtmlColumn("Since", "event_timestamp", "time"),
    ),
    wanted=lambda row: bool(row.get("dangling")),
)


def _of_partition(row: Values) -> bool:
    return "partition" in row and "log_dir" not in row


_RETAINED = TableForm(
    "results",
    "Partitions",
    "result",
    (
        HtmlColumn("Partition", "partition", "name"),
        HtmlColumn("Segments that go", "deleted", "length"),
        HtmlColumn("Log bytes freed", "bytes_freed", "bytes"),
        HtmlColumn("Freed with indexes", "files_bytes", "bytes"),
        HtmlColumn("Segments left", "segments", "count"),
        HtmlColumn("New log start", "log_start_offset", "number"),
        HtmlColumn("Log end", "log_end_offset", "number"),
        HtmlColumn("cleanup.policy", "limits.cleanup_policy"),
        HtmlColumn("retention.ms", "limits.retention_ms", "duration"),
        HtmlColumn("retention.bytes", "limits.retention_bytes", "bytes"),
        HtmlColumn("Purged", "bytes_purged", "bytes"),
        HtmlColumn("Applied", "applied", "flag"),
        HtmlColumn("Journal", "journal", "name"),
        HtmlColumn("Directory", "directory", "name"),
    ),
    wanted=_of_partition,
)
_SEGMENTS = TableForm(
    "judged",
    "Segments, and why they go or stay",
    "segment",
    (
        HtmlColumn("Partition", "partition", "name"),
        HtmlColumn("Base offset", "base_offset", "number"),
        HtmlColumn("Verdict", "verdict", "choice"),
        HtmlColumn("Rule", "rule", "choice"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("Newest record", "largest_timestamp", "time"),
        HtmlColumn("Why", "reason"),
        HtmlColumn("Would go with retention.ms up to", "goes_at.retention_ms", "rough"),
        HtmlColumn("Would go with retention.bytes up to", "goes_at.retention_bytes", "bytes"),
    ),
)
_WHAT_IF = TableForm(
    "what-if",
    "What other limits would free",
    "what_if",
    (
        HtmlColumn("Partition", "partition", "name"),
        HtmlColumn("Limit", "rule"),
        HtmlColumn("Value", "words"),
        HtmlColumn("Segments", "segments", "count"),
        HtmlColumn("Bytes freed", "bytes_freed", "bytes"),
        HtmlColumn("Log start", "log_start_offset", "number"),
    ),
)
_MARKS = TableForm(
    "marks",
    "Files that are marked for deletion",
    "mark",
    (
        HtmlColumn("File", "file", "name"),
        HtmlColumn("Verdict", "verdict", "choice"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("Marked", "marked_at", "time"),
        HtmlColumn("Why", "reason"),
    ),
)
_FREE = TableForm(
    "free",
    "What is freed on each file system",
    "free",
    (
        HtmlColumn("Log dirs", "log_dirs", "list"),
        HtmlColumn("Wanted", "wanted", "bytes"),
        HtmlColumn("Chosen", "chosen_bytes", "bytes"),
        HtmlColumn("Segments", "segments", "count"),
        HtmlColumn("Free now", "available", "bytes"),
        HtmlColumn("Marked before", "marked_bytes", "bytes"),
        HtmlColumn("Could be freed", "freeable_bytes", "bytes"),
        HtmlColumn("Reached", "reached", "flag"),
    ),
)
_FREE_TOPICS = TableForm(
    "free-topics",
    "Which topics lose segments",
    "free_topic",
    (
        HtmlColumn("Topic", "topic", "name"),
        HtmlColumn("Partitions", "partitions", "count"),
        HtmlColumn("Segments", "segments", "count"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("As retention.ms", "retention_ms", "rough"),
        HtmlColumn("As retention.bytes", "retention_bytes", "bytes"),
        HtmlColumn("Log dirs", "log_dirs", "list"),
    ),
)
_COMPACTED = TableForm(
    "results",
    "Partitions",
    "result",
    (
        HtmlColumn("Partition", "partition", "name"),
        HtmlColumn("Bytes before", "bytes_before", "bytes"),
        HtmlColumn("Bytes after", "bytes_after", "bytes"),
        HtmlColumn("Records before", "records_before", "count"),
        HtmlColumn("Records after", "records_after", "count"),
        HtmlColumn("Live keys", "live_keys", "count"),
        HtmlColumn("Dirty", "dirty_ratio", "ratio"),
        HtmlColumn("Superseded", "superseded_records", "count"),
        HtmlColumn("Tombstones kept", "tombstones_kept", "count"),
        HtmlColumn("Tombstones removed", "tombstones_removed", "count"),
        HtmlColumn("Without a key", "invalid_records", "alarm"),
        HtmlColumn("Held by", "held_by"),
        HtmlColumn("Segments before", "segments_before", "count"),
        HtmlColumn("Segments after", "segments_after", "count"),
        HtmlColumn("Applied", "applied", "flag"),
        HtmlColumn("Journal", "journal", "name"),
        HtmlColumn("Directory", "directory", "name"),
    ),
    wanted=_of_partition,
)
_HORIZONS = TableForm(
    "horizons",
    "When tombstones go",
    "horizon",
    (
        HtmlColumn("Partition", "partition", "name"),
        HtmlColumn("From", "delete_horizon_ms", "time"),
        HtmlColumn("In", "wait_ms", "rough"),
        HtmlColumn("Tombstones", "tombstones", "count"),
    ),
)

_WEIGHED = TableForm(
    "weighed",
    "Topics",
    "topic",
    (
        HtmlColumn("Topic", "topic", "name"),
        HtmlColumn("Partitions", "partitions", "count"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("Measured", "sampled_bytes", "bytes"),
        HtmlColumn("Places", "places", "count"),
        HtmlColumn("Codecs", "codecs", "shares"),
    ),
)
_TRIED = TableForm(
    "tried",
    "Settings",
    "setting",
    (
        HtmlColumn("Topic", "topic", "name"),
        HtmlColumn("Tried", "kind", "choice"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("At least", "bytes_least", "bytes"),
        HtmlColumn("At most", "bytes_most", "bytes"),
        HtmlColumn("Now", "bytes_now", "bytes"),
        HtmlColumn("CPU s a GiB", "cpu_s_per_gib", "count"),
        HtmlColumn("Set", "properties", "settings"),
        HtmlColumn("At", "where"),
        HtmlColumn("Records without a key", "records_without_key", "count"),
    ),
    note="Intervals hold the true number with 95 % confidence; where both ends are the same, it is exact.",
)

_COMPARED = TableForm(
    "compared",
    "Partitions",
    "comparison",
    (
        HtmlColumn("Partition", "partition", "name"),
        HtmlColumn("Verdict", "verdict", "choice"),
        HtmlColumn("Diverged at", "differs_at", "number"),
        HtmlColumn("Epochs differ at", "epochs_differ_at", "number"),
        HtmlColumn("Epoch caches differ at", "epoch_caches_differ_at", "number"),
        HtmlColumn("A: log start", "a.log_start_offset", "number"),
        HtmlColumn("B: log start", "b.log_start_offset", "number"),
        HtmlColumn("A: log end", "a.log_end_offset", "number"),
        HtmlColumn("B: log end", "b.log_end_offset", "number"),
        HtmlColumn("A: high watermark", "a.high_watermark", "number"),
        HtmlColumn("B: high watermark", "b.high_watermark", "number"),
        HtmlColumn("Same batches", "same_batches", "count"),
        HtmlColumn("Same records in others", "repacked_batches", "count"),
        HtmlColumn("A lacks records", "a.records_missing", "alarm"),
        HtmlColumn("B lacks records", "b.records_missing", "alarm"),
        HtmlColumn("A: damaged", "a.damaged_bytes", "alarm-bytes"),
        HtmlColumn("B: damaged", "b.damaged_bytes", "alarm-bytes"),
        HtmlColumn("Same topic id", "same_topic_id", "flag"),
        HtmlColumn("A", "a.path", "name"),
        HtmlColumn("B", "b.path", "name"),
    ),
    note="A and B are the two copies in the order in which they were named.",
)

_ABOUT_FILES = (_FINDINGS, _FAILURES)
FORMS: Mapping[str, Sequence[TableForm]] = {
    "verify": (*_ABOUT_FILES, _STARTS, _START_CHANGES, _VERIFIED),
    "doctor": (
        *(_STARTS, _START_CHANGES, *_ABOUT_FILES, _COSTS, _HANGING, _STRANDED),
        *(_LEFTOVERS, _LOG_DIRS, _NODES, _VERIFIED),
    ),
    "diff": (_COMPARED, *_ABOUT_FILES),
    "list": (*_ABOUT_FILES, _PARTITIONS, _LISTED_DIRS, _ODD_FILES, _REMOTE_PARTITIONS, _DANGLING),
    "retain": (*_ABOUT_FILES, _FREE, _FREE_TOPICS, _RETAINED, _SEGMENTS, _WHAT_IF, _MARKS),
    "what-if": (*_ABOUT_FILES, _WEIGHED, _TRIED),
    "compact": (*_ABOUT_FILES, _COMPACTED, _HORIZONS),
}


class RowsByType:
    """The rows of a run that its tables need, bounded: if there are very many of one type, those with errors and the first of the others."""

    def __init__(self, forms: Sequence[TableForm]) -> None:
        self._kept: dict[str, list[Values]] = {form.type: [] for form in forms}
        self._forms = forms
        self._left_out: dict[str, int] = {}

    def add(self, kind: str, row: Values) -> None:
        rows = self._kept.get(kind)
        if rows is None or not any(form.type == kind and form.wanted(row) for form in self._forms):
            return
        limit = MAX_ROWS if not (row.get("errors") or row.get("severity") == "error") else 2 * MAX_ROWS
        if len(rows) < limit:
            rows.append(row)
        else:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1

    def table(self, form: TableForm) -> HtmlTable:
        found: Iterable[Values] = filter(form.wanted, self._kept[form.type])
        if form.parts is not None:
            parts = form.parts
            found = (part for row in found for part in parts(row))
        ordered = sorted(found, key=_badness)
        rows = [[cell(row, column) for column in form.columns] for row in ordered[:MAX_ROWS]]
        used = [at for at in range(len(form.columns)) if any(row[at].text for row in rows)]
        columns = [form.columns[at] for at in used]
        left_out = self._left_out.get(form.type, 0) + len(ordered) - len(rows)
        return HtmlTable(form, columns, [[row[at] for at in used] for row in rows], left_out)


def _badness(row: Values) -> tuple[int, int, int]:
    """Bad rows first; the others keep their order."""
    severity = {"error": 0, "warning": 1}.get(str(row.get("severity")), 2)
    return severity, -_whole(row.get("errors")), -_whole(row.get("warnings"))


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
