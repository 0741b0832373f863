"""Verdict on an open transaction: compares the coordinator's record for its producer id with the state of the partition.

`status` follows the rule of `kafka-transactions.sh find-hanging` (TransactionsCommand): a transaction hangs if its last timestamp is older
than the maximum transaction timeout, and no transactional id with this producer id names it. The tool compares neither epochs nor states,
so `verdict` is more precise (fact sheet of the internal topics, §6.3). For the brokers that start on what is here (`before_a_start`) there
is no reason to wait: where the view is settled, a transaction hangs as soon as its verdict says so, `refused` included.

    ongoing     the id is in state Ongoing with this epoch and names the partition: it will end, or time out at the deadline, which is far
                ahead if the coordinator's clock was when it began
    ending      the decision is made (PrepareCommit, PrepareAbort): the coordinator will write the marker
    stale       an id names the partition in a later transaction: the marker of that one ends this one with it, commit or abort
    refused     an id names the partition, but a partition of the transaction has a later epoch and refuses its marker: the coordinator
                gives up all of them, and the transaction never ends; the tool reports nothing
    orphaned    no id names the partition, and all of the coordinator's log was read: the transaction never ends
    unmarked    the producer has committed this transaction, but the partition lacks the marker: the transaction never ends, or its
                coordinator, which has lost the decision, aborts it; an abort hides committed records
    unloaded    an id names the partition in a record that its coordinator does not load: the transaction never ends
    unknown     no id names the partition, but not all of the coordinator's log is available; or damage before the record that names it
                may have ended the coordinator's load
    decided     another available replica is more recent and has the marker: this one lags behind
    replaced    a later entry of the same producer in the snapshot replaced the one with the transaction: no marker ends it, and it holds
                back the last stable offset until a broker has been stopped cleanly and started
    forgotten   the broker's producer state does not have the transaction: it does not hold back the last stable offset

Whatever the verdict, an open transaction ends together with the next transaction of the same producer id that writes to the partition: a
broker considers only the producer's first open offset, not the epoch (ProducerAppendInfo; observed with 4.3.1, where orphaned records were
committed in this way).

In the second protocol (KIP-890, client version 2) no two transactions of a producer have the same epoch, and a record in state
CompleteCommit has the epoch after that of the transaction that it ended (`CoordinatorView.committed`). Where the decision was lost with the
end of the coordinator's log, another partition of the transaction may have its COMMIT marker (`CoordinatorView.commit_markers`). In the
first protocol the epochs do not show this.

An id explains epoch E in a partition if its own epoch is E in state Ongoing, or E or E + 1 in a Prepare state: the marker of the second
protocol (client version 2), and of a producer that was fenced, has the next epoch.
"""

from kseg.internal_topics.transactions.transaction_log import (
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    CoordinatorView,
    TopicPartition,
    TransactionalId,
)
from kseg.segment.moments import CLOCK_DIFFERENCE_MS
from kseg.segment.partition.names import CONSUMER_OFFSETS_TOPIC
from kseg.segment.state.transaction_replay import UnfinishedTransaction
from kseg.segment.values import dataclass

OPEN, HANGING = "open", "hanging"

_NO_TIMEOUT = 2**31 - 1  # two-phase commit: the coordinator does not abort it


@dataclass(frozen=True, slots=True)
class TransactionVerdict:
    """status: `open` or `hanging`. verdict: see the module. transactional_id: the one that has the producer id now. former_id: the one that
    had it, according to superseded records. deadline_ms: when the coordinator aborts the transaction. is_owned: whether no marker of its
    own will end it, but the next transaction of the id that has its producer id may. is_committed: whether its producer has committed
    it; is_to_be_aborted: and its coordinator aborts it. is_postponed: whether it began in the future, so that its timeout is too late."""

    status: str
    verdict: str
    reason: str
    transactional_id: str | None = None
    former_id: str | None = None
    deadline_ms: int | None = None
    is_owned: bool = False
    is_committed: bool = False
    is_to_be_aborted: bool = False
    is_postponed: bool = False


def judge(
    found: UnfinishedTransaction,
    where: TopicPartition,
    view: CoordinatorView,
    *,
    now_ms: int,
    max_timeout_ms: int,
    is_decided: bool = False,
    before_a_start: bool = False,
) -> TransactionVerdict:
    """The verdict on an open transaction of a partition. is_decided: a more recent replica has its marker. before_a_start: judge it as for
    brokers that start with these logs."""
    owners = view.by_producer.get(found.producer_id, ())
    naming = next((each for each in owners if where in each.partitions), None)
    if is_decided:
        owner = naming or next(iter(owners), None)
        verdict, reason = "decided", "a more recent replica of the partition has its marker"
    elif naming is not None:
        owner = naming
        verdict, reason = _with_doubt(*_named(found, naming, view, _contents(where)), naming)
    else:
        verdict, reason, owner = _unnamed(found, where, view)
    is_old = now_ms - found.timestamp_ms > max_timeout_ms
    is_hanging = is_old and view.is_known and naming is None and not is_decided
    is_hanging |= before_a_start and view.is_settled and _never_ends(verdict, naming)
    deadline_ms = None if naming is None or verdict == "refused" else _deadline_ms(naming)
    is_postponed = verdict == "ongoing" and _is_ahead(deadline_ms, naming, now_ms)
    if is_postponed:
        is_hanging |= before_a_start
        reason += "; by its coordinator's clock it began in the future, and it times out that much later (kafka-transactions.sh forceTerminateTransaction ends it)"
    is_aborting = naming is not None and bool(naming.is_loaded) and naming.state == PREPARE_ABORT
    return TransactionVerdict(
        HANGING if is_hanging else OPEN,
        verdict,
        reason,
        None if owner is None else owner.transactional_id,
        view.former.get(found.producer_id) if owner is None else None,
        deadline_ms,
        # the next producer with a misplaced id gets another producer id
        is_owned=verdict in ("orphaned", "unmarked") and owner is not None and not owner.is_misplaced,
        is_committed=verdict == "unmarked"
        or (verdict == "refused" and _commit_marker(found, view) is not None),
        is_to_be_aborted=verdict == "unmarked" and (deadline_ms is not None or is_aborting),
        is_postponed=is_postponed,
    )


def _never_ends(verdict: str, naming: TransactionalId | None) -> bool:
    return verdict in ("orphaned", "refused") or (verdict == "unmarked" and naming is None)


def _is_ahead(deadline_ms: int | None, naming: TransactionalId | None, now_ms: int) -> bool:
    """Whether a transaction that times out began in the future."""
    return deadline_ms is not None and naming is not None and naming.started_ms > now_ms + CLOCK_DIFFERENCE_MS


def _deadline_ms(naming: TransactionalId) -> int | None:
    """When the coordinator aborts the transaction of an id, None if it does not."""
    is_timed = naming.is_loaded and naming.state == ONGOING and naming.timeout_ms != _NO_TIMEOUT
    return naming.started_ms + naming.timeout_ms if is_timed else None


@dataclass(frozen=True, slots=True)
class _Contents:
    """What an open transaction in a partition contains, in words. lost: what happens to it if the transaction is aborted."""

    noun: str
    lost: str


_RECORDS = _Contents("records", "read_committed consumers never get its records")
_OFFSETS = _Contents(
    "offsets", "the groups never get these offsets, and their consumers repeat what they have processed"
)


def _contents(where: TopicPartition) -> _Contents:
    return _OFFSETS if where[0] == CONSUMER_OFFSETS_TOPIC else _RECORDS


def _named(
    found: UnfinishedTransaction, naming: TransactionalId, view: CoordinatorView, contents: _Contents
) -> tuple[str, str]:
    """Verdict and reason if an id names the partition."""
    record = _record(naming)
    refused = view.refused.get(naming.transactional_id)
    if refused is not None:
        words = f"{refused.where[0]}-{refused.where[1]} {refused.words}"
        place = _commit_marker(found, view)
        also = "" if place is None else f"; {place} has the COMMIT marker of this transaction"
        return (
            "refused",
            f"{record}, but {words}: its coordinator gives up, and no producer can use the id{also}",
        )
    is_committed = found.producer_epoch + 1 in view.committed.get(found.producer_id, ())
    current_epoch = naming.producer_epoch - (naming.state in PREPARED)
    if is_committed and found.producer_epoch < current_epoch and naming.state != PREPARE_COMMIT:
        words = "it committed this transaction, whose marker is missing here; the marker of the current one ends this one as well"
        return (
            "unmarked",
            f"{record}, and {words}: if it is an abort, {contents.lost}",
        )
    if naming.state in PREPARED:
        is_explained = found.producer_epoch >= naming.producer_epoch - 1
        return ("ending", record) if is_explained else ("stale", _stale_words(found, record))
    if found.producer_epoch < naming.producer_epoch:
        return "stale", _stale_words(found, record)
    place = _commit_marker(found, view)
    if place is not None:
        words = (
            f"{place} has the COMMIT marker of this transaction: its coordinator has lost the decision and aborts it at the "
            f"timeout; {contents.lost} then"
        )
        return "unmarked", f"{record}, but {words}"
    return "ongoing", record


def _unnamed(
    found: UnfinishedTransaction, where: TopicPartition, view: CoordinatorView
) -> tuple[str, str, TransactionalId | None]:
    """Verdict, reason and the id of the producer if no coordinator has an id that names the partition."""
    owner, contents = next(iter(view.by_producer.get(found.producer_id, ())), None), _contents(where)
    place = _commit_marker(found, view)
    if place is not None or found.producer_epoch + 1 in view.committed.get(found.producer_id, ()):
        known = _without_owner_words(found, view) if owner is None else _record(owner)
        evidence = (
            "it committed this transaction, and the marker"
            if place is None
            else f"{place} has the COMMIT marker of this transaction, which"
        )
        words = f"{evidence} is missing here; after an abort, {contents.lost}"
        return "unmarked", f"{known}: {words}{_next_words(owner, contents)}", owner
    for unloaded in view.unloaded.get(found.producer_id, ()):
        if where in unloaded.partitions and unloaded.is_misplaced:
            return *_misplaced(unloaded), unloaded
        if where in unloaded.partitions:
            reason = f"{_record(unloaded)} at offset {unloaded.offset} of its partition, which the coordinator does not load"
            return "unloaded", reason, unloaded
    if owner is None:
        return *_without_owner(found, view), None
    reason = f"{_record(owner)} and does not name the partition{_next_words(owner, contents)}"
    return *_with_doubt("orphaned", reason, owner), owner


def _commit_marker(found: UnfinishedTransaction, view: CoordinatorView) -> str | None:
    """The partition with the COMMIT marker of the transaction, None if none is known."""
    where = view.commit_markers.get(found.producer_id, {}).get(found.producer_epoch + 1)
    return None if where is None else f"{where[0]}-{where[1]}"


def _misplaced(known: TransactionalId) -> tuple[str, str]:
    """Verdict and reason for the transaction of an id that is not in its coordinator's partition. The coordinator of the partition that has
    the record still sends the markers of a prepared transaction."""
    reason = f"{_record(known)} in a partition of __transaction_state that is not its coordinator's, because the topic was given more"
    if known.state in PREPARED:
        return "ending", reason
    return "orphaned", f"{reason}: no coordinator ends its transactions"


def _with_doubt(verdict: str, reason: str, owner: TransactionalId) -> tuple[str, str]:
    """The same, unless damage may have kept the coordinator from loading the record of the id."""
    if owner.is_loaded is not None:
        return verdict, reason
    return (
        "unknown",
        f"{reason}; it is unknown whether the coordinator has loaded that record, which follows damage in its log",
    )


def _next_words(owner: TransactionalId | None, contents: _Contents) -> str:
    if owner is None:
        return ""
    return f"; if {owner.transactional_id} commits another one that writes here, these {contents.noun} are committed with it"


def _record(owner: TransactionalId) -> str:
    return f"{owner.transactional_id} is in state {owner.state} with epoch {owner.producer_epoch}"


def _stale_words(found: UnfinishedTransaction, record: str) -> str:
    return f"{record}; epoch {found.producer_epoch} in the partition is older, and the marker of that transaction ends this one as well"


def _without_owner_words(found: UnfinishedTransaction, view: CoordinatorView) -> str:
    former = view.former.get(found.producer_id)
    return "no transactional id has this producer id" + ("" if former is None else f"; {former} had it")


def _without_owner(found: UnfinishedTransaction, view: CoordinatorView) -> tuple[str, str]:
    if not view.is_known:
        return "unknown", "there is no __transaction_state"
    words = _without_owner_words(found, view)
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
