"""The tables of `list` and `diff`."""

from kseg.cli.html.html_cells import HtmlColumn, TableForm

PARTITIONS = TableForm(
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

ODD_FILES = TableForm(
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

LISTED_DIRS = TableForm(
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

REMOTE_PARTITIONS = TableForm(
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

DANGLING = TableForm(
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

COMPARED = TableForm(
    "compared",
    "Partitions",
    "comparison",
    (
        HtmlColumn("Partition", "partition", "name"),
        HtmlColumn("Verdict", "verdict", "choice"),
        HtmlColumn("Diverged at", "differs_at", "number"),
        HtmlColumn("Epochs differ at", "epochs_differ_at", "number"),
        HtmlColumn("Epoch caches differ at", "epoch_caches_differ_at", "number"),
        HtmlColumn("A lacks records", "a.records_missing", "alarm"),
        HtmlColumn("B lacks records", "b.records_missing", "alarm"),
        HtmlColumn("A: damaged", "a.damaged_bytes", "alarm-bytes"),
        HtmlColumn("B: damaged", "b.damaged_bytes", "alarm-bytes"),
        HtmlColumn("A: log start", "a.log_start_offset", "number"),
        HtmlColumn("B: log start", "b.log_start_offset", "number"),
        HtmlColumn("A: log end", "a.log_end_offset", "number"),
        HtmlColumn("B: log end", "b.log_end_offset", "number"),
        HtmlColumn("A: high watermark", "a.high_watermark", "number"),
        HtmlColumn("B: high watermark", "b.high_watermark", "number"),
        HtmlColumn("Same batches", "same_batches", "count"),
        HtmlColumn("Same records in others", "repacked_batches", "count"),
        HtmlColumn("Same topic id", "same_topic_id", "flag"),
        HtmlColumn("A", "a.path", "name"),
        HtmlColumn("B", "b.path", "name"),
    ),
    note="A and B are the two copies in the order in which they were named.",
)
