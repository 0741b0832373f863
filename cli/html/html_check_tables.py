"""The tables of a check: `verify` and `doctor`."""

from collections.abc import Iterable, Mapping, Sequence

from kseg.cli.html.html_cells import HtmlColumn, TableForm, Values


def _start_changes(row: Values) -> Iterable[Values]:
    """What a broker's start does to each partition, one row each."""
    for effect in (
        "truncated",
        "shortened",
        "failed",
        "stray",
        "offline",
        "missing",
        "removed",
        "future",
        "unread",
    ):
        found = row.get(f"partitions_{effect}")
        for each in found if isinstance(found, Sequence) else ():
            yield {"effect": effect, **(each if isinstance(each, Mapping) else {"partition": each})}


FINDINGS = TableForm(
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

FAILURES = TableForm(
    "failures",
    "What could not be examined",
    "error",
    (
        HtmlColumn("Path", "path", "name"),
        HtmlColumn("Why", "message"),
        HtmlColumn("Exit status", "exit_status", "number"),
    ),
)

STARTS = TableForm(
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

START_CHANGES = TableForm(
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

VERIFIED = TableForm(
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

COSTS = TableForm(
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
        HtmlColumn("A broker fails with", "costs.kafka.dies_of", "name"),
        HtmlColumn("Doubt", "doubt"),
        HtmlColumn("No plan because", "reason"),
        HtmlColumn("Path", "path", "name"),
    ),
)

HANGING = TableForm(
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

STRANDED = TableForm(
    "stranded",
    "Groups that do not continue where they stopped",
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

RETENTION = TableForm(
    "retention",
    "What retention deletes after the start",
    "retention",
    (
        HtmlColumn("Log dir", "log_dir", "name"),
        HtmlColumn("Partitions", "partitions", "count"),
        HtmlColumn("Segments", "segments", "count"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("Completely", "partitions_emptied", "count"),
        HtmlColumn("Such as", "examples", "list"),
        HtmlColumn("By Kafka's default", "assumes_default", "flag"),
    ),
)

EXPIRING = TableForm(
    "expiring",
    "Committed offsets that expire after the start",
    "expiring_offsets",
    (
        HtmlColumn("Group", "group", "name"),
        HtmlColumn("Type", "group_type"),
        HtmlColumn("Members", "members", "count"),
        HtmlColumn("Topics", "topics", "list"),
        HtmlColumn("Offsets", "offsets", "count"),
        HtmlColumn("Lag", "lag", "number"),
        HtmlColumn("Unused since", "unused_since", "time"),
    ),
)

UNCLEANED = TableForm(
    "uncleaned",
    "Compacted topics that no cleaner cleans",
    "uncleaned",
    (
        HtmlColumn("Partition", "partition", "name"),
        HtmlColumn("Cause", "cause"),
        HtmlColumn("Bytes", "bytes", "bytes"),
        HtmlColumn("Dirty", "dirty_bytes", "bytes"),
        HtmlColumn("A compaction frees", "freed_bytes", "bytes"),
        HtmlColumn("From offset", "first_dirty_offset", "number"),
        HtmlColumn("Last stable offset", "last_stable_offset", "number"),
        HtmlColumn("Dirty since", "dirty_since", "time"),
        HtmlColumn("Path", "path", "name"),
    ),
)

LEFTOVERS = TableForm(
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

LOG_DIRS = TableForm(
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

NODES = TableForm(
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
