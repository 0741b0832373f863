"""The catalogue of findings: every kind of problem or fact that kseg reports about the state of a file.

A finding is data, not an exception. Its kind (id, severity, sentence, hint) is declared here once; an instance adds the location
and the numbers. `verify` and every planner use only these kinds, and a test keeps the manual in sync with the catalogue.

Severity: `error` is damage (bytes or answers are lost or wrong), `warning` is suspicious or untidy (a broker copes, but an
operator should check it), `info` is worth knowing.
"""

import os
from collections.abc import Mapping
from dataclasses import field, replace

from kseg.segment.diagnosis import Diagnosis, MetadataGap, NumberedDiagnosis, Numbers
from kseg.segment.values import dataclass

ERROR = "error"
WARNING = "warning"
INFO = "info"

_VERIFY = "kseg verify --deep {path}"
_RECOVER = "kseg recover {partition}"
_DUMP = "kseg dump {path}"
_SAID = ""  # the message already names the options that resolve it; no command shows more
_DOCTOR = "kseg doctor {log_dir}"  # for what may keep a broker from starting and no repair can change
_LIST = "kseg list {partition}"
_LIST_DIR = "kseg list {log_dir}"
_RECOVER_DIR = "kseg recover {log_dir}"
_UNREADABLE = "kseg recover --accept-unreadable {partition}"
_REPAIR = "kseg recover"
_SNAPSHOT_SUFFIX = ".checkpoint"  # of a metadata snapshot, and of bootstrap.checkpoint


@dataclass(frozen=True, slots=True)
class FindingKind:
    """An entry of the catalogue. `hint` is the next command to run, with `{path}`, `{partition}`, `{log_dir}`; empty if no command
    helps."""

    id: str
    severity: str
    sentence: str
    hint: str


def _catalogue(*rows: tuple[str, str, str, str]) -> dict[str, FindingKind]:
    by_id = {row[0]: FindingKind(*row) for row in rows}
    if len(by_id) != len(rows):
        raise AssertionError("two findings share an id")
    return by_id


# fmt: off
CATALOGUE: Mapping[str, FindingKind] = _catalogue(
    # --- bytes of a segment
    ("torn-tail", ERROR, "the last batch is truncated: the write was interrupted", _RECOVER),
    ("zero-tail", ERROR, "the file ends in zeros: space was allocated but never written", _RECOVER),
    ("zero-filled", ERROR, "a range of zeros where batches should be", _RECOVER),
    ("bad-crc", ERROR, "the contents of a batch do not match its CRC", _RECOVER),
    ("bad-length", ERROR, "the length field of a batch is invalid", _RECOVER),
    ("foreign-bytes", ERROR, "the bytes are not a batch in any known message format", _RECOVER),
    ("bad-magic", ERROR, "a batch has an unknown magic byte", _RECOVER),
    ("undecodable-batch", ERROR, "a batch has a valid CRC, but its records cannot be decoded", _DUMP),
    ("undecodable-record", ERROR, "a record cannot be read by the decoder that was requested", _DUMP),
    ("record-count-mismatch", ERROR, "a batch contains more or fewer records than its header declares", _DUMP),
    ("offset-outside-batch", ERROR, "a record's offset is outside the range that its batch declares", _DUMP),
    ("offset-not-increasing-in-batch", WARNING, "record offsets do not increase within a batch", _DUMP),
    ("max-timestamp-mismatch", WARNING, "the maximum timestamp of a batch is not the maximum of its records", _DUMP),
    ("unknown-attributes", WARNING, "a batch sets attribute bits that no Kafka version defines", _DUMP),
    ("bad-control-record", ERROR, "a control record cannot be parsed", _DOCTOR),
    ("future-timestamp", WARNING, "a timestamp is in the future; retention by time stops there", _DUMP),
    ("mixed-magic", INFO, "the segment contains batches in several message formats", _DUMP),
    ("unreadable-file", ERROR, "the file cannot be read", _LIST),
    ("changed-while-read", INFO, "a running broker changed or deleted files while they were read", _LIST_DIR),
    ("archive-cut-off", ERROR, "a tar archive ends too early, or cannot be read beyond a position", _LIST),
    ("unreadable", ERROR, "bytes of the file cannot be read: the disk or the file system reports an error", _UNREADABLE),
    ("unreadable-batch", ERROR, "batches contain bytes that cannot be read", _UNREADABLE),
    # --- offsets and neighbours
    ("offset-not-monotonic", ERROR, "a batch starts at or below the last offset of the previous batch", _RECOVER),
    ("altered-base-offset", ERROR, "a base offset contradicts the adjacent batches (the CRC does not cover it)", _RECOVER),
    ("altered-leader-epoch", ERROR, "a leader epoch contradicts the adjacent batches (the CRC does not cover it)", _RECOVER),
    ("leader-epoch-decreases", WARNING, "a batch has a lower leader epoch than the previous batch", _DUMP),
    ("offset-gap", INFO, "offsets are missing between two batches of a segment", _DUMP),
    ("offset-below-segment", ERROR, "a batch has an offset below the base offset in the file name", _RECOVER),
    ("offset-overflow", ERROR, "an offset is too far from the base offset for a 32-bit index entry", _RECOVER),
    ("segment-gap", WARNING, "offsets are missing between two segments", _LIST),
    ("segment-missing", ERROR, "the log of a segment is missing, empty, or that of another segment", _RECOVER),
    ("log-start-gap", WARNING, "offsets before the first segment are missing, although leader epochs still refer to them", _LIST),
    ("remote-gap", WARNING, "offsets before the first segment of a log with tiered storage are not in remote storage either, according to __remote_log_metadata", "kseg list --remote {log_dir}"),
    ("remote-ahead", ERROR, "the log ends before offsets that remote storage has of it: its end was lost, and a broker continues there", _DOCTOR),
    ("segment-overlap", ERROR, "a segment starts below the end offset of the previous segment", _RECOVER),
    ("overlap-resolved", INFO, "the same offsets exist twice; salvage keeps one copy by a documented rule", _VERIFY),
    ("batch-restored", INFO, "a damaged batch is valid again with its original bytes", _VERIFY),
    ("lost-records-restored", INFO, "records lost to damage are restored from a leftover file", _VERIFY),
    ("lost-tail", ERROR, "side files refer to offsets beyond the log end: the last blocks of the log were never written", _RECOVER),
    ("sequence-gap", INFO, "a producer's sequence numbers have a gap within an epoch", _DUMP),
    ("sequence-duplicate", WARNING, "a producer's sequence numbers repeat within an epoch", _DUMP),
    ("oversized-segment", ERROR, "the segment is larger than 2 GiB, the most that a broker can open", _RECOVER),
    # --- offset and time index
    ("index-missing", WARNING, "the segment has no offset index; a broker recovers the segment at its next start", _RECOVER),
    ("time-index-missing", WARNING, "the segment has no time index; lookups by timestamp and retention by time go wrong", _RECOVER),
    ("orphan-index", WARNING, "an index file without a segment; a broker deletes it", _RECOVER),
    ("index-bad-size", ERROR, "the index size is not a multiple of the entry size", _RECOVER),
    ("index-oversized", WARNING, "the index is larger than its segment can need", _RECOVER),
    ("index-zero-tail", WARNING, "the index is preallocated: zeros follow its entries", _RECOVER),
    ("index-not-sorted", ERROR, "index entries do not increase", _RECOVER),
    ("index-entry-mismatch", ERROR, "an index entry does not point to its batch", _RECOVER),
    ("index-entry-old-style", INFO, "an index entry has a different offset than Kafka 4 would write, as from older brokers", _VERIFY),
    ("index-entry-beyond-log", ERROR, "an index entry points beyond the end of the segment", _RECOVER),
    ("index-below-base", ERROR, "the index fails a broker's sanity check: its last offset is below the base offset", _RECOVER),
    ("time-index-mismatch", ERROR, "a time index entry is not the maximum timestamp up to its offset", _RECOVER),
    ("time-index-out-of-order", ERROR, "time index entries do not increase", _RECOVER),
    ("time-index-offset-not-found", ERROR, "the offset of a time index entry is not the last offset of any batch", _RECOVER),
    ("time-index-incomplete", WARNING, "the last time index entry is older than the segment's maximum timestamp", _RECOVER),
    ("time-index-zeros-believed", WARNING, "the time index ends in zeros, which a broker reads as timestamp 0: retention by time deletes the segment", _RECOVER),
    ("index-preallocated", INFO, "the index of the active segment is preallocated, as on a running or crashed broker", _LIST),
    ("segment-preallocated", INFO, "the active segment is preallocated, as on a running or crashed broker: zeros follow its last batch", _LIST),
    # --- transactions, producers, epochs
    ("txn-index-bad-size", ERROR, "the transaction index size is not a multiple of the entry size", _RECOVER),
    ("txn-index-bad-version", ERROR, "a transaction index entry has an unknown version; a broker cannot read it", _RECOVER),
    ("txn-index-not-sorted", ERROR, "transaction index entries do not increase", _RECOVER),
    ("txn-index-below-base", ERROR, "a transaction index entry is below the segment's base offset; a broker recovers the segment", _RECOVER),
    ("txn-index-missing-entry", ERROR, "an aborted transaction is missing from the index; read_committed consumers would read its records", _RECOVER),
    ("txn-index-wrong-entry", ERROR, "a transaction index entry does not match the log; read_committed consumers would read aborted records, or miss committed ones", _RECOVER),
    ("open-transaction", INFO, "a transaction is open; it holds back the last stable offset", _LIST),
    ("transaction-end-lost", WARNING, "the end of a transaction may be among lost offsets; read_committed consumers wait for it", _LIST),
    ("non-transactional-in-transaction", ERROR, "a producer wrote non-transactional records in its open transaction; a broker fails to load the log", _DOCTOR),
    ("transaction-collision", ERROR, "two transactions start at the same offset; a broker fails to load the log", _DOCTOR),
    ("snapshot-corrupt", ERROR, "the producer snapshot cannot be read; a broker deletes it", _RECOVER),
    ("snapshot-mismatch", WARNING, "the producer snapshot does not match a replay of the log", _RECOVER),
    ("snapshot-stray", WARNING, "a producer snapshot that belongs to no segment; a broker deletes it", _RECOVER),
    ("snapshot-leftover", INFO, "a producer snapshot from an earlier shutdown; a broker deletes it at its next start", _LIST),
    ("snapshot-missing", ERROR, "no producer snapshot: a broker that starts cleanly forgets producers and open transactions", _RECOVER),
    ("snapshot-unwritten", INFO, "no producer snapshot yet, as on a running or crashed broker", _LIST),
    ("leader-epoch-file-corrupt", ERROR, "the leader-epoch checkpoint cannot be read", _RECOVER),
    ("leader-epoch-file-mismatch", ERROR, "the leader-epoch checkpoint does not match the batches", _RECOVER),
    ("leader-epoch-file-empty", WARNING, "the leader-epoch checkpoint has no entry, but the batches have epochs", _RECOVER),
    ("leader-epoch-file-missing", WARNING, "the partition has no leader-epoch checkpoint", _RECOVER),
    ("not-writable", ERROR, "a broker cannot write a file that it needs: it is immutable or append-only (chattr), or belongs to another user than the data directory", _DOCTOR),
    ("remote-epochs-lost", ERROR, "the leader epochs of segments in remote storage are lost, and a broker deletes these segments", _RECOVER),
    # --- partition and data directory
    ("partition-metadata-missing", WARNING, "no partition.metadata: a KRaft broker (3.7+) renames the partition to -stray", _RECOVER),
    ("becomes-stray", ERROR, "a broker renames the partition to -stray at its next start, and serves it empty or not at all", _RECOVER),
    ("replica-missing", ERROR, "a replica that the metadata log assigns to this directory is missing: a broker creates it empty", _RECOVER_DIR),
    ("replica-fetched-anew", WARNING, "a replica that the metadata log assigns to this directory is missing: a broker fetches it from other replicas", _RECOVER_DIR),
    ("replica-behind", ERROR, "a replica that may lead lacks records that another node has: if it leads, the other replicas are truncated to its end", _DOCTOR),
    ("moved-log-behind", ERROR, "of two logs of a replica that is moved to another log dir or node, the one that stays has fewer records: a broker deletes or truncates the other one", _DOCTOR),
    ("replica-shorter", WARNING, "a replica that may lead ends before the one of another node, and its node was not stopped cleanly: in a power failure it may have lost records that were acknowledged", _DOCTOR),
    ("unclean-election-ahead", WARNING, "a replica that is not in sync leads if its node starts before one with later records, because its topic allows unclean elections", _DOCTOR),
    ("replica-diverged", WARNING, "a replica has committed records that the leader lacks, as after an unclean election: it truncates them when it starts", _DOCTOR),
    ("quorum-lost", ERROR, "too few voters of the quorum are left: no leader is elected, and no node serves", _DOCTOR),
    ("voter-replaced", WARNING, "a controller whose data directory was reformatted is not a voter of the quorum until it is added", _DOCTOR),
    ("replica-unmade", WARNING, "a replica that the metadata log assigns to this directory is missing, and nothing shows that it ever existed", _RECOVER_DIR),
    ("replica-unfinished", WARNING, "a broker stopped while it created the partition: at its next start it renames the directory to -stray, and no record is lost", _RECOVER),
    ("partition-metadata-corrupt", ERROR, "partition.metadata cannot be read", _RECOVER),
    ("topic-id-conflict", ERROR, "topic ids conflict: one id for two topics, or two ids for one", _LIST_DIR),
    ("meta-properties-missing", WARNING, "the data directory has no meta.properties", _RECOVER_DIR),
    ("meta-properties-corrupt", ERROR, "meta.properties cannot be read; a broker rejects the directory", _RECOVER_DIR),
    ("nested-log-dir", ERROR, "a data directory inside another one; a broker takes it for a partition, or does not start", "kseg list {path}"),
    ("partition-twice", ERROR, "a partition exists in two directories of one node, or is being moved within a data directory; a broker does not start", _DOCTOR),
    ("directory-id-twice", ERROR, "two data directories have the same directory.id; a broker does not start with both", _DOCTOR),
    ("directory-id-wrong", ERROR, "the directory.id is that of another data directory, according to the metadata log; a broker does not start with it", _DOCTOR),
    ("cluster-id-wrong", ERROR, "the cluster.id is not that of the other nodes of the cluster: controllers refuse a node with another one", _DOCTOR),
    ("log-dirs-mixed", WARNING, "data directories of different nodes or clusters; no broker starts with both", _LIST_DIR),
    ("quorum-state-corrupt", ERROR, "quorum-state cannot be read", _DOCTOR),
    ("clean-shutdown-corrupt", INFO, "the clean-shutdown marker has no readable broker epoch", _LIST_DIR),
    ("false-clean-shutdown", ERROR, "a clean-shutdown marker in a directory that was not shut down cleanly", _RECOVER_DIR),
    ("unclean-shutdown", INFO, "no clean-shutdown marker: a broker recovers this directory at its next start", _RECOVER_DIR),
    ("checkpoint-corrupt", ERROR, "a checkpoint file cannot be read; a broker takes the data directory offline", _RECOVER_DIR),
    ("checkpoint-lost", ERROR, "a checkpoint file is empty or missing after a clean shutdown, which writes all of them: its offsets are lost", _RECOVER_DIR),
    ("log-start-lost", ERROR, "the log start offset checkpoint is lost: deleted records reappear", _RECOVER_DIR),
    ("log-start-doubtful", WARNING, "the leader epochs suggest a log start offset that no checkpoint confirms", _LIST),
    ("checkpoint-beyond-log", ERROR, "a checkpoint is beyond the end of its log", _RECOVER_DIR),
    ("checkpoint-below-log", INFO, "a checkpoint is below the start of its log; a broker then begins at the log start", _LIST_DIR),
    ("checkpoint-orphan", INFO, "a checkpoint names a partition that is not in this directory", _LIST_DIR),
    ("log-start-beyond-end", ERROR, "the checkpointed log start offset is beyond the log end offset; a broker deletes the whole log", _RECOVER_DIR),
    ("broker-load-fails", ERROR, "a broker fails to load this log: it does not start, or takes the directory offline", _RECOVER),
    ("no-partitions", INFO, "the data directory contains no partition", _LIST_DIR),
    ("no-segments", WARNING, "the partition directory contains no segment", _LIST),
    ("leftover-deleted", INFO, "a file marked for deletion; a broker deletes it at its next start", "kseg retain --purge {partition}"),
    ("leftover-cleaned", WARNING, "an incomplete file from the cleaner or a segment split; a broker deletes it", _RECOVER),
    ("leftover-swap", WARNING, "a complete replacement that was not swapped in; a broker swaps it in or deletes it", _RECOVER),
    ("leftover-tmp", WARNING, "a temporary file from an interrupted write", _LIST),
    ("stray-directory", WARNING, "a directory that a broker marked as stray", _LIST_DIR),
    ("deleted-directory", INFO, "a partition marked for deletion; the broker removes it at its next start", _LIST_DIR),
    ("future-directory", INFO, "the destination of a move between log directories", _LIST_DIR),
    ("policy-unknown", WARNING, "the topic's cleanup.policy is unknown, so compact and retain skip it", _SAID),
    ("not-retained", INFO, "a log that retention on a broker does not apply to", _LIST),
    ("not-compacted", INFO, "a log that a broker's cleaner does not compact", _LIST),
    ("dirty-offset-reset", WARNING, "the cleaner checkpoint is outside the log; cleaning begins at the log start again", _RECOVER_DIR),
    ("legacy-batch-emptied", INFO, "a batch in an old message format is replaced by an empty one of magic 2", _LIST),
    ("negative-timestamp-rewritten", INFO, "a batch with negative timestamps is rewritten, which a broker's cleaner cannot do", _LIST),
    ("batch-too-large", WARNING, "appended batches are larger than the topic's max.message.bytes: a broker would have rejected them", _SAID),
    ("appended-expired", WARNING, "appended records are older than the topic's retention: a broker deletes them", _SAID),
    ("unkeyed-in-compacted", WARNING, "records without a key are appended to a compacted topic: the cleaner removes them", _SAID),
    ("format-too-new", WARNING, "message format v2 is written to a log, and a broker before 0.11 cannot read it", _SAID),
    ("group-left-alone", WARNING, "damaged segments were not compacted", _RECOVER),
    ("bad-directory-name", ERROR, "a directory that is not a partition; a broker refuses to start", _DOCTOR),
    ("mounted-directory", WARNING, "the directory of a partition is a mount point; a broker can neither rename nor delete it", _DOCTOR),
    ("linked-directory", WARNING, "the directory is a symbolic link; a broker follows it", _SAID),
    ("unknown-file", WARNING, "a file that Kafka does not create", _LIST),
    ("bad-file-name", WARNING, "a file name in a form that Kafka does not write", _LIST),
    ("quorum-snapshot-missing", ERROR, "the metadata log starts above offset 0 and no snapshot reaches its start", _LIST),
    ("metadata-log-doubtful", WARNING, "the metadata log cannot be read to its end: what it says about topics is uncertain", _RECOVER),
    ("metadata-log-outdated", WARNING, "the metadata log is older than the partitions: a node that starts with it sets aside what was created since", _DOCTOR),
    ("remote-log-metadata-unreadable", ERROR, "a record of __remote_log_metadata cannot be used: what is in remote storage is uncertain", _DUMP),
    ("metadata-log-note", INFO, "something unusual in the metadata log", _DUMP),
    ("producer-ids-reissued", ERROR, "the controller allocates producer ids that producers in the logs already have: a broker drops the first records of new producers as duplicates", _DOCTOR),
    ("transactional-id-behind", ERROR, "a partition is ahead of the coordinator of a transactional id: the broker rejects the records of its producer, or its markers", _DOCTOR),
    ("transaction-version-lowered", ERROR, "transactional ids that no producer can use, because the feature transaction.version was lowered to 0", _DOCTOR),
    ("group-protocol-disabled", ERROR, "groups that no client of their protocol can use, because group.version, share.version or streams.version is 0, or server.properties leaves out the protocol", _DOCTOR),
    ("metadata-snapshot-incomplete", ERROR, "a metadata snapshot lacks its header or footer; a broker cannot load it", _DOCTOR),
    ("commit-lost", ERROR, "transactions that were committed to the partition are not in its log: its end was lost", _DOCTOR),
    ("coordinator-load-fails", ERROR, "a coordinator fails to load a partition of its topic: what the partition says is not available", _VERIFY),
    ("coordinator-log-truncated", ERROR, "at its next start a broker truncates a coordinator's log at damage, and drops valid records after it", _RECOVER),
    ("coordinator-log-torn", WARNING, "a coordinator's log ends in damaged bytes: the coordinator loads what is before them", _RECOVER),
    ("coordinator-log-skipped", ERROR, "batches are in the wrong segment of a coordinator's log, and the coordinator does not load them", _RECOVER),
    ("coordinator-record-unknown", INFO, "records of a type that Kafka 4.3.1 skips", _DUMP),
    # --- 0.7
    ("ancient-gap", ERROR, "two .kafka files are not contiguous; a 0.7 broker refuses to start", _RECOVER),
    # --- lookup and indexes in use
    ("index-not-used", INFO, "an index is missing or wrong, so the segment was scanned", _VERIFY),
    # --- the real tool
    ("secrets-shown", INFO, "the output contains secrets of the metadata log or of Kafka Connect", _DUMP),
    ("secrets-redacted", INFO, "values that hold secrets are replaced in the output", _DUMP),
    ("official-tool-stops", INFO, "Kafka's own dump tool stops here with an exception", _VERIFY),
    ("half-done-journal", ERROR, "a change was interrupted here", "kseg undo {path}"),
    ("journal-missing", ERROR, "the journal of a change is missing: the change can be neither undone nor finished", _DOCTOR),
    ("journal-overtaken", ERROR, "files changed since a change was interrupted: it can be neither undone nor finished", _DOCTOR),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding at one location.

    id: key in `CATALOGUE`. path: the file or directory as given by the user. position, length: byte range in `path`, None if the
    finding is not about bytes. first_offset, last_offset: log offsets concerned, None if unknown. message: one sentence with the
    details. numbers: the figures in the message, by name. diagnosis: the conclusion, for code that uses it; not part of the output.
    """

    id: str
    path: str
    message: str
    position: int | None = None
    length: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    numbers: Numbers = field(default_factory=dict)
    diagnosis: Diagnosis | None = field(default=None, compare=False, repr=False)

    @classmethod
    def about(cls, id: str, path: str, message: str, diagnosis: NumberedDiagnosis) -> "Finding":
        """A finding with the numbers of its diagnosis."""
        return cls(id, path, message, numbers=diagnosis.numbers(), diagnosis=diagnosis)

    @property
    def kind(self) -> FindingKind:
        return CATALOGUE[self.id]

    @property
    def severity(self) -> str:
        return CATALOGUE[self.id].severity

    @property
    def hint(self) -> str:
        """The hint of its kind, except where no repair helps: none rewrites a metadata snapshot or fills a gap in the metadata log, and
        a broker fails on a damaged snapshot and often on a gap."""
        hint = CATALOGUE[self.id].hint
        if isinstance(self.diagnosis, MetadataGap):
            return _SAID if self.diagnosis.is_loadable else _DOCTOR
        is_beyond_repair = self.path.endswith(_SNAPSHOT_SUFFIX)
        return _DOCTOR if hint.startswith(_REPAIR) and is_beyond_repair else hint

    def with_numbers(self, **more: int | str | bool | None) -> "Finding":
        return replace(self, numbers={**self.numbers, **more})

    def as_row(self) -> dict[str, object]:
        """The finding as a JSON row: the fixed fields, then each of `numbers` as a field."""
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
    """The finding for a directory that is a symbolic link."""
    message = f"it is a link to {os.path.realpath(path)}, whose contents are changed only with --follow-links"
    return Finding("linked-directory", path, message)


def deleted_directory(path: str, partition: str) -> Finding:
    """The finding for a directory that is marked for deletion. partition: its topic and number."""
    message = f"{partition} is marked for deletion; the broker removes it at its next start"
    return Finding("deleted-directory", path, message)


def no_partitions(log_dir: str) -> Finding:
    """The finding for a data directory without a partition."""
    return Finding("no-partitions", log_dir, f"there is no partition in {log_dir}")
