"""Plan the file changes that delete segments, in an order that a broker can read after every step.

1. The new empty segment at the log end, when no other would be left: a log without segments begins again at its
   checkpointed start, with offsets that were assigned before. A snapshot of its producers is written with it.
2. Segment by segment from the oldest, as a broker does it: the log, its indexes, and the snapshot of the same number
   get the suffix `.deleted`. Between two of these a broker finds a complete log that begins later, and indexes or
   snapshots without a log, which it removes.
3. The leader epochs are truncated to the log start. A broker truncates stale ones itself when it loads the log.
"""

from collections.abc import Iterator, Sequence

from kseg.change.plan.content import Fresh, content_of
from kseg.change.plan.steps import Remove, Rename, Step, Write
from kseg.compaction.retention.retention_evidence import RetentionEvidence
from kseg.compaction.retention.rules import Decision
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, Refused
from kseg.segment.findings import ERROR, Finding
from kseg.segment.partition.derived_state import producer_state
from kseg.segment.partition.names import NAME_BY_ROLE, Role, segment_file_name
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, encode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.sidecar.snapshot import encode_snapshot

_EPOCHS = NAME_BY_ROLE[Role.LEADER_EPOCHS]


def marking_steps(
    evidence: RetentionEvidence, decision: Decision, reasons: Sequence[str], producer_id_expiration_ms: int
) -> tuple[Step, ...]:
    """Steps in the order above. reasons: one for each deleted segment. Raises Refused when it is uncertain where the new
    segment would begin."""
    steps: list[Step] = []
    if decision.rolls:
        steps += _rolled(evidence, producer_id_expiration_ms)
    for aged, reason in zip(evidence.segments, reasons, strict=False):
        steps += [Rename(name, name + L.DELETED_SUFFIX, reason) for name in aged.names]
    if decision.log_start_offset > evidence.previous_start:
        steps += _epochs(evidence.log, decision.log_start_offset)
    return tuple(steps)


def _rolled(evidence: RetentionEvidence, producer_id_expiration_ms: int) -> Iterator[Step]:
    log, end = evidence.log, evidence.log_to_retain.log_end_offset
    damage = next((finding for finding in log.findings if finding.severity == ERROR), None)
    if damage is not None:
        raise Refused(
            f"every segment would be deleted, but the log end offset is uncertain: {damage.path}: {damage.message}; "
            "run `kseg recover` first"
        )
    if end <= evidence.segments[-1].segment.base_offset:
        raise Refused(
            f"{log.directory}: the last segment contains bytes but no batch; run `kseg recover` first"
        )
    why = f"no other segment would remain, and the log continues at offset {end}"
    stale = segment_file_name(end, L.TXN_INDEX_SUFFIX)
    if stale in evidence.inputs:
        yield Remove(stale, "it belongs to no segment")
    for suffix in (L.LOG_SUFFIX, L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX):
        yield Write(segment_file_name(end, suffix), (), why)
    if end not in log.snapshots:
        state = producer_state(log)
        state.expire(evidence.log_to_retain.now_ms, producer_id_expiration_ms)
        snapshot = content_of([Fresh(encode_snapshot(state.snapshot()))])
        yield Write(segment_file_name(end, L.SNAPSHOT_SUFFIX), snapshot, f"producer state up to offset {end}")


def _epochs(log: PartitionLog, start_offset: int) -> Iterator[Step]:
    data = log.read_side_file(Role.LEADER_EPOCHS)
    if data is None:
        return
    path = log.side_file_path(Role.LEADER_EPOCHS)
    try:
        history = EpochHistory(decode_leader_epochs(data))
    except FormatError as error:
        log.report(Finding("leader-epoch-file-corrupt", path, f"left unchanged: {error}"))
        return
    if history.truncate_from_start(start_offset):
        content = content_of([Fresh(encode_leader_epochs(history.entries))])
        yield Write(_EPOCHS, content, f"the log starts at {start_offset}", _EPOCHS)
