"""Verdict on an open transaction: compares the coordinator's record for its producer id with the state of the partition.

`status` follows the rule of `kafka-transactions.sh find-hanging` (TransactionsCommand): a transaction hangs if its last timestamp is older
than the maximum transaction timeout, and no transactional id with this producer id names it. The tool compares neither epochs nor states,
so `verdict` is more precise (fact sheet of the internal topics, §6.3):

    ongoing     the id is in state Ongoing with this epoch and names the partition: it will end, or time out at the deadline
    ending      the decision is made (PrepareCommit, PrepareAbort): the coordinator will write the marker
    stale       an id names the partition, but has moved on to another epoch: the tool reports nothing, and the transaction never ends
    orphaned    no id names the partition, and all of the coordinator's log was read: the transaction never ends
    unmarked    the id has committed this transaction, but the partition lacks the marker: the transaction never ends, and an abort hides
                committed records
    unloaded    an id names the partition in a record that its coordinator does not load: the transaction never ends
    unknown     no id names the partition, but not all of the coordinator's log is available; or damage before the record that names it
                may have ended the coordinator's load
    decided     another available replica is longer and has the marker: this one lags behind
    replaced    a later entry of the same producer in the snapshot replaced the one with the transaction: no marker ends it, and it holds
                back the last stable offset until a broker has been stopped cleanly and started
    forgotten   the broker's producer state does not have the transaction: it does not hold back the last stable offset

In the second protocol (client version 2) an id in state CompleteCommit has the epoch after that of the transaction that it committed,
which no other transaction had. In the first one epochs do not tell.

An id explains epoch E in a partition if its own epoch is E in state Ongoing, or E or E + 1 in a Prepare state: the marker of the second
protocol (client version 2), and of a producer that was fenced, has the next epoch.
"""

from kseg.internal_topics.transactions.transaction_log import (
    COMPLETE_COMMIT,
    ONGOING,
    PREPARED,
    CoordinatorView,
    TopicPartition,
    TransactionalId,
)
from kseg.segment.state.transaction_replay import UnfinishedTransaction
from kseg.segment.values import dataclass

OPEN, HANGING = "open", "hanging"

# the client version since which each transaction has an epoch of its own (KIP-890)
_EPOCH_PER_TRANSACTION = 2
_NO_TIMEOUT = 2**31 - 1  # two-phase commit: the coordinator does not abort it


@dataclass(frozen=True, slots=True)
class TransactionVerdict:
    """status: `open` or `hanging`. verdict: see the module. transactional_id: the one whose current producer id it is. former_id: the one
    that had it, according to superseded records. deadline_ms: when the coordinator aborts the transaction."""

    status: str
    verdict: str
    reason: str
    transactional_id: str | None = None
    former_id: str | None = None
    deadline_ms: int | None = None


def judge(
    found: UnfinishedTransaction,
    where: TopicPartition,
    view: CoordinatorView,
    *,
    now_ms: int,
    max_timeout_ms: int,
    is_decided: bool = False,
) -> TransactionVerdict:
    """The verdict on an open transaction of a partition. is_decided: a longer replica has its marker."""
    owners = view.by_producer.get(found.producer_id, ())
    naming = [each for each in owners if where in each.partitions]
    owner = naming[0] if naming else owners[0] if owners else None
    is_old = now_ms - found.timestamp_ms > max_timeout_ms
    is_hanging = is_old and view.is_known and not naming and not is_decided
    verdict, reason = _verdict(found, owner, bool(naming), view)
    if owner is not None and owner.is_loaded is None:
        verdict, reason = (
            "unknown",
            f"{reason}; whether the coordinator has loaded that, behind damage in its log, is open",
        )
    if not naming:
        unloaded = [each for each in view.unloaded.get(found.producer_id, ()) if where in each.partitions]
        if unloaded:
            owner = unloaded[0]
            verdict, reason = (
                "unloaded",
                f"{_record(owner)} at offset {owner.offset} of its partition, which the coordinator does not load",
            )
    if is_decided:
        verdict, reason = "decided", "a longer replica of the partition has its marker"
    deadline_ms = None
    if (
        naming
        and owner is not None
        and owner.is_loaded
        and owner.state == ONGOING
        and owner.timeout_ms != _NO_TIMEOUT
    ):
        deadline_ms = owner.started_ms + owner.timeout_ms
    return TransactionVerdict(
        HANGING if is_hanging else OPEN,
        verdict,
        reason,
        None if owner is None else owner.transactional_id,
        view.former.get(found.producer_id) if owner is None else None,
        deadline_ms,
    )


def _verdict(
    found: UnfinishedTransaction, owner: TransactionalId | None, is_named: bool, view: CoordinatorView
) -> tuple[str, str]:
    if owner is None:
        return _without_owner(found, view)
    record = _record(owner)
    if not is_named and owner.state == COMPLETE_COMMIT and _is_last(found, owner):
        words = "it committed this transaction, whose marker is missing here; after an abort, read_committed consumers never get its records"
        return "unmarked", f"{record}: {words}"
    if not is_named:
        return "orphaned", f"{record} and does not name the partition"
    if owner.state in PREPARED:
        is_explained = found.producer_epoch >= owner.producer_epoch - 1
        return ("ending", record) if is_explained else ("stale", _stale_words(found, record))
    if found.producer_epoch < owner.producer_epoch:
        return "stale", _stale_words(found, record)
    return "ongoing", record


def _is_last(found: UnfinishedTransaction, owner: TransactionalId) -> bool:
    """Whether a transaction is certain to be the one that the id ended last."""
    return owner.client_version == _EPOCH_PER_TRANSACTION and found.producer_epoch == owner.producer_epoch - 1


def _record(owner: TransactionalId) -> str:
    return f"{owner.transactional_id} is in state {owner.state} with epoch {owner.producer_epoch}"


def _stale_words(found: UnfinishedTransaction, record: str) -> str:
    return f"{record}; epoch {found.producer_epoch} in the partition is older"


def _without_owner(found: UnfinishedTransaction, view: CoordinatorView) -> tuple[str, str]:
    if not view.is_known:
        return "unknown", "there is no __transaction_state"
    words = "no transactional id has this producer id"
    if found.producer_id in view.former:
        words += f"; {view.former[found.producer_id]} had it"
    if view.is_whole:
        return "orphaned", words
    if view.missing:
        listed = ", ".join(map(str, view.missing[:5])) + (", …" if len(view.missing) > 5 else "")
        of = "partition" if len(view.missing) == 1 else "partitions"
        return (
            "unknown",
            f"{words} in the available partitions of __transaction_state; {of} {listed} would tell",
        )
    numbers = ", ".join(map(str, view.partitions[:5])) + (", …" if len(view.partitions) > 5 else "")
    of = "partition" if len(view.partitions) == 1 else "partitions"
    return "unknown", f"{words} in the available part of __transaction_state ({of} {numbers})"
