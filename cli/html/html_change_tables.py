"""The tables of the commands that change a log or predict its size: `retain`, `compact` and `what-if`."""

from kseg.cli.html.html_cells import HtmlColumn, TableForm, Values


def _of_partition(row: Values) -> bool:
    return "partition" in row and "log_dir" not in row


RETAINED = TableForm(
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

SEGMENTS = TableForm(
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

WHAT_IF = TableForm(
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

MARKS = TableForm(
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

FREE = TableForm(
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

FREE_TOPICS = TableForm(
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

COMPACTED = TableForm(
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

HORIZONS = TableForm(
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

MEASURED_TOPICS = TableForm(
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

TRIED = TableForm(
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
    note="Intervals contain the true number with 95 % confidence; where both ends are the same, it is exact.",
)
