"""The catalogue of findings: everything kseg can say about the state of a file.

A finding is data, not an exception. Its kind lives here once (id, severity, sentence, hint); an instance adds
where it was seen and the numbers. `verify` and every planner use only these kinds; a test keeps the manual in
step with this list.

Severity: `error` is damage (bytes or answers are lost or wrong), `warning` is suspicious or untidy (a broker
would cope, a human should look), `info` is worth knowing.
"""

import os
from collections.abc import Mapping
from dataclasses import field

from kseg.segment.values import dataclass

ERROR = "error"
WARNING = "warning"
INFO = "info"

_VERIFY = "kseg verify --deep {path}"
_RECOVER = "kseg recover {partition}"
_REBUILD = "kseg recover --rebuild {partition}"
_DUMP = "kseg dump {path}"
_LIST = "kseg list {partition}"
_UNREADABLE = "kseg recover --accept-unreadable {partition}"


@dataclass(frozen=True, slots=True)
class FindingKind:
    """One entry of the catalogue; `hint` is the next command to type, with `{path}`, `{partition}`, `{log_dir}`."""

    id: str
    severity: str
    sentence: str
    hint: str


def _catalogue(*kinds: FindingKind) -> dict[str, FindingKind]:
    by_id = {kind.id: kind for kind in kinds}
    if len(by_id) != len(kinds):
        raise AssertionError("two findings share an id")
    return by_id


CATALOGUE: Mapping[str, FindingKind] = _catalogue(
    # --- bytes of a segment
    FindingKind("torn-tail", ERROR, "the last batch is cut off: its writer stopped in the middle", _RECOVER),
    FindingKind("zero-tail", ERROR, "the file ends in zeros that were allocated but never written", _RECOVER),
    FindingKind("zero-filled", ERROR, "a block of zeros lies where batches should be", _RECOVER),
    FindingKind("bad-crc", ERROR, "a batch does not match its checksum", _RECOVER),
    FindingKind("bad-length", ERROR, "the length field of a batch cannot be true", _RECOVER),
    FindingKind("foreign-bytes", ERROR, "bytes that are no batch of any known format", _RECOVER),
    FindingKind("bad-magic", ERROR, "the magic byte of a batch is none that Kafka writes", _RECOVER),
    FindingKind(
        "undecodable-batch", ERROR, "the records of a batch with a good checksum cannot be decoded", _DUMP
    ),
    FindingKind(
        "record-count-mismatch", ERROR, "a batch holds more or fewer records than its header says", _DUMP
    ),
    FindingKind(
        "offset-outside-batch", ERROR, "a record's offset lies outside the range its batch declares", _DUMP
    ),
    FindingKind(
        "offset-not-increasing-in-batch", WARNING, "record offsets inside a batch do not increase", _DUMP
    ),
    FindingKind(
        "max-timestamp-mismatch", WARNING, "a batch's maximum timestamp is not that of its records", _DUMP
    ),
    FindingKind(
        "unknown-attributes", WARNING, "a batch sets attribute bits that no Kafka version defines", _DUMP
    ),
    FindingKind("bad-control-record", ERROR, "a control record cannot be parsed", _DUMP),
    FindingKind(
        "future-timestamp", WARNING, "a timestamp lies in the future; time retention stops there", _DUMP
    ),
    FindingKind("mixed-magic", INFO, "the segment holds batches of several message formats", _DUMP),
    FindingKind("unreadable-file", ERROR, "the file cannot be read", _LIST),
    FindingKind(
        "unreadable",
        ERROR,
        "bytes of the file cannot be read: the disk or the file system fails",
        _UNREADABLE,
    ),
    FindingKind("unreadable-batch", ERROR, "batches hold bytes that cannot be read", _UNREADABLE),
    # --- offsets and neighbours
    FindingKind(
        "offset-not-monotonic", ERROR, "a batch starts at or below the end of the one before it", _RECOVER
    ),
    FindingKind(
        "altered-base-offset",
        ERROR,
        "a base offset contradicts its neighbours (it lies outside the CRC)",
        _RECOVER,
    ),
    FindingKind(
        "altered-leader-epoch",
        ERROR,
        "a leader epoch contradicts its neighbours (it lies outside the CRC)",
        _RECOVER,
    ),
    FindingKind(
        "leader-epoch-decreases", WARNING, "a batch has a lower leader epoch than the one before it", _DUMP
    ),
    FindingKind("offset-gap", INFO, "offsets are missing between two batches of a segment", _DUMP),
    FindingKind(
        "offset-below-segment", ERROR, "a batch lies below the base offset in the file's name", _RECOVER
    ),
    FindingKind(
        "offset-overflow",
        ERROR,
        "an offset is too far from the base offset for a 32-bit index entry",
        _RECOVER,
    ),
    FindingKind("segment-gap", WARNING, "offsets are missing between two segments", _LIST),
    FindingKind("segment-overlap", ERROR, "a segment starts below the end of the one before it", _RECOVER),
    FindingKind(
        "overlap-resolved",
        INFO,
        "offsets are held twice; salvage keeps one copy by a stated rule",
        _VERIFY,
    ),
    FindingKind(
        "lost-records-restored",
        INFO,
        "records that damage has taken are taken from a file that was left over",
        _VERIFY,
    ),
    FindingKind(
        "lost-tail",
        ERROR,
        "files beside the log know offsets behind its end: the last blocks were never written",
        _RECOVER,
    ),
    FindingKind("sequence-gap", INFO, "a producer's sequence numbers jump within an epoch", _DUMP),
    FindingKind("sequence-duplicate", WARNING, "a producer's sequence numbers repeat within an epoch", _DUMP),
    FindingKind(
        "oversized-segment", ERROR, "the segment is larger than the 2 GiB a broker can open", _RECOVER
    ),
    # --- offset and time index
    FindingKind(
        "index-missing",
        WARNING,
        "the segment has no offset index; a broker recovers the segment at its next start",
        _REBUILD,
    ),
    FindingKind(
        "time-index-missing",
        WARNING,
        "the segment has no time index; lookups by time and time retention go wrong",
        _REBUILD,
    ),
    FindingKind("orphan-index", WARNING, "an index file without its segment; a broker deletes it", _RECOVER),
    FindingKind("index-bad-size", ERROR, "the index size is not a whole number of entries", _REBUILD),
    FindingKind("index-oversized", WARNING, "the index is larger than its segment can need", _REBUILD),
    FindingKind(
        "index-zero-tail", WARNING, "the index is preallocated: entries are followed by zeros", _REBUILD
    ),
    FindingKind("index-not-sorted", ERROR, "index entries do not increase", _REBUILD),
    FindingKind("index-entry-mismatch", ERROR, "an index entry does not point at its batch", _REBUILD),
    FindingKind(
        "index-entry-old-style",
        INFO,
        "an index entry names another offset than Kafka 4 would, as older brokers did",
        _VERIFY,
    ),
    FindingKind(
        "index-entry-beyond-log", ERROR, "an index entry points behind the end of the segment", _REBUILD
    ),
    FindingKind(
        "index-below-base",
        ERROR,
        "the index fails a broker's sanity check: last offset below the base offset",
        _REBUILD,
    ),
    FindingKind(
        "time-index-mismatch",
        ERROR,
        "a time index entry is not the maximum timestamp up to its offset",
        _REBUILD,
    ),
    FindingKind("time-index-out-of-order", ERROR, "time index entries do not increase", _REBUILD),
    FindingKind(
        "time-index-offset-not-found",
        ERROR,
        "a time index entry names an offset that ends no batch",
        _REBUILD,
    ),
    FindingKind(
        "time-index-incomplete",
        WARNING,
        "the last time index entry is older than the segment's maximum timestamp",
        _REBUILD,
    ),
    FindingKind(
        "time-index-zeros-believed",
        WARNING,
        "the time index ends in zeros that a broker takes for timestamp 0: time retention deletes the segment",
        _REBUILD,
    ),
    FindingKind(
        "index-preallocated",
        INFO,
        "the index of the active segment is preallocated, as on a running or crashed broker",
        _LIST,
    ),
    # --- transactions, producers, epochs
    FindingKind(
        "txn-index-bad-size", ERROR, "the transaction index size is not a whole number of entries", _REBUILD
    ),
    FindingKind(
        "txn-index-bad-version",
        ERROR,
        "a transaction index entry has an unknown version; a broker fails on it",
        _REBUILD,
    ),
    FindingKind("txn-index-not-sorted", ERROR, "transaction index entries do not increase", _REBUILD),
    FindingKind(
        "txn-index-below-base",
        ERROR,
        "a transaction index entry lies below the segment; a broker recovers the segment",
        _REBUILD,
    ),
    FindingKind(
        "txn-index-missing-entry",
        ERROR,
        "an aborted transaction is missing from the index; its records would be read",
        _REBUILD,
    ),
    FindingKind(
        "txn-index-wrong-entry", ERROR, "a transaction index entry does not agree with the log", _REBUILD
    ),
    FindingKind(
        "open-transaction", INFO, "a transaction is open; the last stable offset waits for it", _LIST
    ),
    FindingKind(
        "transaction-end-lost",
        WARNING,
        "the end of a transaction may be among lost offsets; readers of committed data wait for it",
        _LIST,
    ),
    FindingKind(
        "non-transactional-in-transaction",
        ERROR,
        "a producer wrote outside its open transaction; a broker's load fails on it",
        _DUMP,
    ),
    FindingKind(
        "transaction-collision",
        ERROR,
        "two transactions begin at the same offset; a broker's load fails on it",
        _DUMP,
    ),
    FindingKind(
        "snapshot-corrupt", ERROR, "the producer snapshot cannot be read; a broker deletes it", _REBUILD
    ),
    FindingKind(
        "snapshot-mismatch",
        WARNING,
        "the producer snapshot does not agree with a replay of the log",
        _REBUILD,
    ),
    FindingKind(
        "snapshot-stray",
        WARNING,
        "a producer snapshot that belongs to no segment; a broker deletes it",
        _RECOVER,
    ),
    FindingKind(
        "snapshot-leftover",
        INFO,
        "a producer snapshot of an earlier stop; a broker deletes it at its next start",
        _LIST,
    ),
    FindingKind(
        "snapshot-missing",
        ERROR,
        "there is no producer snapshot: a broker that starts cleanly forgets producers and open transactions",
        _RECOVER,
    ),
    FindingKind(
        "snapshot-unwritten",
        INFO,
        "there is no producer snapshot yet, as on a running or crashed broker",
        _LIST,
    ),
    FindingKind("leader-epoch-file-corrupt", ERROR, "the leader-epoch checkpoint cannot be read", _REBUILD),
    FindingKind(
        "leader-epoch-file-mismatch",
        ERROR,
        "the leader-epoch checkpoint does not agree with the batches",
        _REBUILD,
    ),
    FindingKind(
        "leader-epoch-file-missing", WARNING, "the partition has no leader-epoch checkpoint", _REBUILD
    ),
    # --- partition and data directory
    FindingKind(
        "partition-metadata-missing",
        WARNING,
        "no partition.metadata: a KRaft broker (3.7+) sets the partition aside as stray",
        _RECOVER,
    ),
    FindingKind(
        "becomes-stray",
        ERROR,
        "a broker sets the partition aside as stray at its next start, and serves it empty or not at all",
        _RECOVER,
    ),
    FindingKind(
        "replica-missing",
        ERROR,
        "a replica that the metadata log places here is missing: a broker makes it anew, empty",
        "kseg list {log_dir}",
    ),
    FindingKind(
        "replica-fetched-anew",
        WARNING,
        "a replica that the metadata log places here is missing: a broker fetches it from the other replicas",
        "kseg list {log_dir}",
    ),
    FindingKind(
        "replica-unmade",
        WARNING,
        "a replica that the metadata log places here is missing, and nothing says that it ever was here",
        "kseg list {log_dir}",
    ),
    FindingKind("partition-metadata-corrupt", ERROR, "partition.metadata cannot be read", _RECOVER),
    FindingKind(
        "topic-id-conflict",
        ERROR,
        "topic ids contradict each other: one id for two topics, or two for one",
        "kseg list {log_dir}",
    ),
    FindingKind(
        "meta-properties-missing", WARNING, "the data directory has no meta.properties", "kseg list {log_dir}"
    ),
    FindingKind(
        "meta-properties-corrupt",
        ERROR,
        "meta.properties cannot be read; a broker refuses the directory",
        "kseg list {log_dir}",
    ),
    FindingKind(
        "nested-log-dir",
        ERROR,
        "a data directory lies inside another one; a broker takes it for a partition, or does not start",
        "kseg list {path}",
    ),
    FindingKind(
        "partition-twice",
        ERROR,
        "a partition lies in two data directories of one node; a broker does not start",
        "kseg list {partition}",
    ),
    FindingKind(
        "directory-id-twice",
        ERROR,
        "two data directories have one directory.id; a broker does not start with both",
        "kseg list {log_dir}",
    ),
    FindingKind(
        "log-dirs-mixed",
        WARNING,
        "data directories of different nodes or clusters side by side; no broker starts with both",
        "kseg list {log_dir}",
    ),
    FindingKind("quorum-state-corrupt", ERROR, "quorum-state cannot be read", "kseg list {log_dir}"),
    FindingKind(
        "clean-shutdown-corrupt",
        INFO,
        "the clean-shutdown marker has no readable broker epoch",
        "kseg list {log_dir}",
    ),
    FindingKind(
        "false-clean-shutdown",
        ERROR,
        "a clean-shutdown marker lies in a directory that was not shut down cleanly",
        "kseg recover {log_dir}",
    ),
    FindingKind(
        "unclean-shutdown",
        INFO,
        "no clean-shutdown marker: a broker recovers this directory when it starts",
        "kseg recover {log_dir}",
    ),
    FindingKind(
        "checkpoint-corrupt",
        ERROR,
        "a checkpoint file cannot be read; a broker takes the data directory out of service",
        "kseg recover {log_dir}",
    ),
    FindingKind(
        "checkpoint-lost",
        ERROR,
        "a checkpoint file is empty or missing after a clean stop, which writes all of them: its offsets are forgotten",
        "kseg recover {log_dir}",
    ),
    FindingKind(
        "log-start-lost",
        ERROR,
        "the checkpoint of the log start is lost: deleted records come back",
        "kseg recover {log_dir}",
    ),
    FindingKind(
        "log-start-doubtful",
        WARNING,
        "the leader epochs begin where a log start would be, and no checkpoint names one",
        _LIST,
    ),
    FindingKind(
        "checkpoint-beyond-log",
        ERROR,
        "a checkpoint lies behind the end of its log",
        "kseg recover {log_dir}",
    ),
    FindingKind(
        "checkpoint-below-log",
        WARNING,
        "a checkpoint lies below the start of its log",
        "kseg recover {log_dir}",
    ),
    FindingKind(
        "checkpoint-orphan",
        INFO,
        "a checkpoint names a partition that is not in this directory",
        "kseg list {log_dir}",
    ),
    FindingKind(
        "log-start-beyond-end",
        ERROR,
        "the checkpointed log start lies behind the log end; a broker deletes the whole log",
        "kseg recover {log_dir}",
    ),
    FindingKind(
        "broker-load-fails",
        ERROR,
        "a broker's load of this log ends with an exception: it does not start, or takes the directory offline",
        _RECOVER,
    ),
    FindingKind("no-segments", WARNING, "the partition directory holds no segment", _LIST),
    FindingKind(
        "leftover-deleted",
        INFO,
        "a file marked for deletion; a broker removes it at its next start",
        "kseg retain --purge {partition}",
    ),
    FindingKind(
        "leftover-cleaned",
        WARNING,
        "an unfinished file of the cleaner or of a split; a broker removes it",
        _RECOVER,
    ),
    FindingKind(
        "leftover-swap",
        WARNING,
        "a finished replacement that was not swapped in; a broker completes or drops it",
        _RECOVER,
    ),
    FindingKind("leftover-tmp", WARNING, "a temporary file of an aborted write", "kseg list {partition}"),
    FindingKind(
        "stray-directory", WARNING, "a directory that the broker set aside as stray", "kseg list {log_dir}"
    ),
    FindingKind("deleted-directory", INFO, "a partition scheduled for deletion", "kseg list {log_dir}"),
    FindingKind(
        "future-directory", INFO, "the target of a move between log directories", "kseg list {log_dir}"
    ),
    FindingKind(
        "policy-unknown",
        WARNING,
        "nobody knows the topic's cleanup.policy, so compact and retain leave it alone",
        _LIST,
    ),
    FindingKind("not-retained", INFO, "a log that a broker's retention leaves alone", _LIST),
    FindingKind("not-compacted", INFO, "a log that a broker's cleaner leaves alone", _LIST),
    FindingKind("dirty-offset-reset", WARNING, "the cleaner's checkpoint lies outside of the log", _LIST),
    FindingKind(
        "legacy-batch-emptied", INFO, "a batch of an old format stays as an empty one of magic 2", _LIST
    ),
    FindingKind("group-left-alone", WARNING, "segments with damage were not compacted", _RECOVER),
    FindingKind(
        "bad-directory-name",
        ERROR,
        "a directory that is no partition; a broker refuses to start",
        "kseg list {log_dir}",
    ),
    FindingKind(
        "linked-directory",
        WARNING,
        "a directory that is a link; a broker follows it",
        "kseg list {log_dir}",
    ),
    FindingKind("unknown-file", WARNING, "a file that is none of Kafka's", "kseg list {partition}"),
    FindingKind(
        "bad-file-name",
        WARNING,
        "a name that is not written the way Kafka writes it",
        "kseg list {partition}",
    ),
    FindingKind(
        "quorum-snapshot-missing",
        ERROR,
        "the metadata log starts above 0 and no snapshot reaches its start",
        "kseg list {partition}",
    ),
    FindingKind(
        "metadata-log-doubtful",
        WARNING,
        "the metadata log cannot be read to its end: what it says about topics is not certain",
        _RECOVER,
    ),
    FindingKind("metadata-log-note", INFO, "something unusual in the metadata log", _DUMP),
    FindingKind(
        "metadata-snapshot-incomplete",
        ERROR,
        "a metadata snapshot lacks its header or footer; a broker cannot load it",
        _DUMP,
    ),
    # --- 0.7
    FindingKind(
        "ancient-gap", ERROR, "two .kafka files do not join; a 0.7 broker refuses to start", _RECOVER
    ),
    # --- lookup and indexes in use
    FindingKind("index-not-used", INFO, "an index is absent or wrong, so the segment was scanned", _VERIFY),
    # --- the real tool
    FindingKind("official-tool-stops", INFO, "Kafka's own dump tool stops here with an exception", _VERIFY),
    FindingKind("half-done-journal", ERROR, "a repair was interrupted here", "kseg undo {path}"),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation.

    id: key of `CATALOGUE`. path: the file or directory as the user named it. position, length: byte range in
    `path`, null when the finding is not about bytes. first_offset, last_offset: the log offsets concerned, null
    when unknown. message: one sentence with the particulars. numbers: the figures of the message, by name.
    """

    id: str
    path: str
    message: str
    position: int | None = None
    length: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    numbers: Mapping[str, int | str | bool | None] = field(default_factory=dict)

    @property
    def kind(self) -> FindingKind:
        return CATALOGUE[self.id]

    @property
    def severity(self) -> str:
        return CATALOGUE[self.id].severity

    def as_row(self) -> dict[str, object]:
        """The JSON line of the finding: the fixed fields first, then `numbers` as fields of their own."""
        row: dict[str, object] = {
            "type": "finding",
            "id": self.id,
            "severity": self.severity,
            "path": self.path,
            "position": self.position,
            "length": self.length,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "message": self.message,
        }
        return row | {name: value for name, value in self.numbers.items() if name not in row}


def linked_directory(path: str) -> Finding:
    """Of a directory that is a link."""
    message = f"it is a link to {os.path.realpath(path)}; what lies there is changed with --follow-links only"
    return Finding("linked-directory", path, message)
