"""Committed transactions that a partition does not have: the end of its log was lost, as in a power failure, and the coordinator's was not.

A coordinator writes CompleteCommit only when every partition of the transaction has the COMMIT marker, or will never have it because its
topic is deleted or it has a later epoch of the producer (Kafka: TransactionMarkerChannelManager.tryAppendToLog). In the second protocol
(KIP-890) no other transaction of the producer has the marker's epoch, and epochs only increase. So a partition of the last committed
transactions of a producer in which the producer's epoch is lower has lost the marker, and what was before it. The log itself shows nothing
of that, and a broker serves it (observed with 4.3.1: a Kafka Streams application with exactly_once_v2 counted too little).

The committed transactions of a producer count that `last_commits` remembers, among them its last one in each partition. Nothing is
concluded

- unless the view is settled: otherwise another replica, or a running broker, may have what is missing here;
- of a producer of which neither the broker's state nor the log has anything: it may be from before the log start, or the topic was created
  again. But if nothing was removed from the log since offset 0, and it has a marker from before the commit, then it was there at that time.
  A producer that only the broker has forgotten (producer.id.expiration.ms), so that its snapshots lack it, is taken from the log;
- of an open transaction of the epoch before: its records are here, and only the marker is missing (verdict `unmarked`);
- if the state of the producer precedes what retention or the cleaner has removed.

Once a broker has started on the log, it goes on at the lost offsets, and no copy of it can be put back. `doctor`, which says what to
do before that, then leaves the finding to `transactions`, which reports it until the coordinator forgets the transactional id.
"""

from collections.abc import Iterator, Mapping, Sequence

from kseg.internal_topics.transactions.partition_replay import PartitionReplay
from kseg.internal_topics.transactions.transaction_log import (
    CommittedTransaction,
    CoordinatorView,
    PassedOver,
    TopicPartition,
    Unloadable,
    loaded_record,
)
from kseg.segment.counted import counted
from kseg.segment.diagnosis import LostTransactions
from kseg.segment.findings import Finding
from kseg.segment.moments import moment
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import CONSUMER_OFFSETS_TOPIC, Role
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry
from kseg.segment.state.transaction_replay import TransactionReplay

# by how much clocks of brokers and clients may differ
_CLOCKS_DIFFER_MS = 60_000


def commits_by_place(view: CoordinatorView) -> Mapping[TopicPartition, Sequence[CommittedTransaction]]:
    """The completed transactions of each partition."""
    found: dict[TopicPartition, list[CommittedTransaction]] = {}
    for producer_id, decisions in view.decided.items():
        completed = frozenset(view.committed.get(producer_id, ()))
        for record in decisions.commits if completed else ():
            try:
                name, known = loaded_record(record)
            except (Unloadable, PassedOver):
                continue
            if known is None or known.producer_epoch not in completed:
                continue
            commit = CommittedTransaction(name, producer_id, known.producer_epoch, known.updated_ms)
            for where in known.partitions:
                found.setdefault(where, []).append(commit)
    return found


def lost_commits(log: PartitionLog, replay: PartitionReplay, view: CoordinatorView) -> Iterator[Finding]:
    """The finding about a partition that lacks committed transactions. replay: has read the log, which has no damage."""
    name = log.name
    commits = () if name is None else view.commits.get((name.topic, name.partition), ())
    if name is None or not commits or not view.is_settled:
        return
    complete_from = _complete_from(log, name.topic, name.partition)
    if complete_from is None:
        return
    since_ms = _written_since_ms(replay) if complete_from == 0 else None
    lost = [each for each in commits if _is_lost(each, replay, complete_from, since_ms)]
    if not lost:
        return
    last = max(lost, key=lambda each: each.decided_ms)
    producers = {each.producer_id for each in lost}
    entry = _state_with(last.producer_id, replay).entry(last.producer_id)
    has = "nothing" if entry is None else f"epoch {entry.producer_epoch}"
    effect = (
        "the offsets that they committed are lost, and consumers repeat what they have processed"
        if name.topic == CONSUMER_OFFSETS_TOPIC
        else "their records are lost, and no consumer gets them"
    )
    newest = log.newest_batch
    is_continued = newest is not None and newest.max_timestamp_ms > last.decided_ms + _CLOCKS_DIFFER_MS
    what, since = (
        ("the log had lost its end", ", and was continued since then")
        if is_continued
        else ("the end of the log is lost", "")
    )
    message = (
        f"{what}: at least {counted(len(lost), 'transaction')} of {counted(len(producers), 'producer')} committed here, up to "
        f"{moment(last.decided_ms)} ({last.transactional_id}, producer {last.producer_id}, epoch {last.epoch}), and the log ends at "
        f"{replay.end_offset} with {has} of that producer{since}; {effect}"
    )
    about = LostTransactions(len(lost), last.decided_ms, is_continued)
    yield Finding.about("commit-lost", log.directory, message, about)


def _written_since_ms(replay: PartitionReplay) -> int | None:
    """A time at which the log was there, by the clock of a coordinator: that of the earliest of the producers' last markers; None without
    one."""
    markers = (replay.whole.last_marker(entry.producer_id) for entry in replay.whole.entries())
    return min((marker.timestamp_ms for marker in markers if marker is not None), default=None)


def _is_lost(
    commit: CommittedTransaction, replay: PartitionReplay, complete_from: int, since_ms: int | None
) -> bool:
    """since_ms: a time from which on nothing but its end can be missing in the log, None if there is none."""
    state = _state_with(commit.producer_id, replay)
    entry: ProducerSnapshotEntry | None = state.entry(commit.producer_id)
    if entry is None:
        return since_ms is not None and since_ms + _CLOCKS_DIFFER_MS < commit.decided_ms
    if not 0 <= entry.producer_epoch < commit.epoch:
        return False
    if entry.producer_epoch == commit.epoch - 1 and entry.current_txn_first_offset is not None:
        return False
    known_at = _last_offset(entry, state)
    if state is replay.state:
        known_at = max(known_at, replay.state_from)
    return known_at >= complete_from


def _state_with(producer_id: int, replay: PartitionReplay) -> TransactionReplay:
    """The broker's state, or that of the log if a broker has forgotten the producer."""
    return replay.whole if replay.state.entry(producer_id) is None else replay.state


def _last_offset(entry: ProducerSnapshotEntry, state: TransactionReplay) -> int:
    """The offset of the last batch that is known of a producer."""
    marker = state.last_marker(entry.producer_id)
    return max(entry.last_offset, -1 if marker is None else marker.offset)


def _complete_from(log: PartitionLog, topic: str, partition: int) -> int | None:
    """The offset from which on neither retention nor the cleaner has removed anything; None if it is unknown."""
    if log.log_dir is None:
        return None
    offsets = read_log_dir_state(log.log_dir).checkpoints.get(Role.CLEANER_OFFSETS)
    return None if offsets is None else max(log.start_offset, offsets.get((topic, partition), 0))
