"""`kseg transactions`, the work on one partition: `partition_transactions(target, TransactionsOptions) -> Iterator[Event]`.

Rows: the completed transactions of the partition, the open ones, its producers, and last the partition itself with their numbers.
The state of the coordinators is in the options, so that each partition can be evaluated on its own, in any process.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache, partial
from typing import Any

from kseg.internal_topics.broker_directories import ReplicaProgress, is_ahead, progress_of
from kseg.internal_topics.transactions.ids_behind import ids_behind
from kseg.internal_topics.transactions.lost_commits import lost_commits
from kseg.internal_topics.transactions.partition_replay import PartitionReplay
from kseg.internal_topics.transactions.transaction_log import CoordinatorView, TransactionalId
from kseg.internal_topics.transactions.transaction_verdicts import HANGING, TransactionVerdict, judge
from kseg.internal_topics.transactions.written_markers import state_of
from kseg.jobs.events import Event, Row, Text
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.json_line import json_line
from kseg.segment.kernel import follow_transactions as T
from kseg.segment.partition.derived_state import was_stopped_cleanly
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget, directory_of
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry
from kseg.segment.state.producer import DEFAULT_EXPIRATION_MS, idle_ms
from kseg.segment.state.transaction_replay import TransactionReplay, UnfinishedTransaction
from kseg.segment.terminal import shell_word
from kseg.segment.values import dataclass

DEFAULT_MAX_TIMEOUT_MS = 900_000

Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsOptions:
    """now_ms: the current time. max_timeout_ms: the brokers' transaction.max.timeout.ms. view: the state of the coordinators.
    replicas: other available replicas, by the path of a partition. ended: also return completed transactions and the
    producers. as_json: completed ones as lines of JSON. before_a_start: see `transaction_verdicts`. producer_ids: only the transactions of
    these; None for all."""

    now_ms: int
    max_timeout_ms: int = DEFAULT_MAX_TIMEOUT_MS
    view: CoordinatorView = field(default_factory=CoordinatorView)
    replicas: Mapping[str, tuple[LogTarget, ...]] = field(default_factory=dict)
    ended: bool = True
    as_json: bool = False
    before_a_start: bool = False
    producer_ids: frozenset[int] | None = None

    def wants(self, producer_id: int) -> bool:
        return self.producer_ids is None or producer_id in self.producer_ids


@dataclass(frozen=True, slots=True)
class LostCommit:
    """The producer of this transaction has committed it, but the partition lacks the marker. As the result of a row: its coordinator
    aborts it, since it has lost the decision, or with the current transaction of the id.

    path: of the partition directory. marker_epoch: the producer epoch of the marker. last_offset: of its data. progress: of
    this replica. is_writable: whether the marker can be appended before the brokers start: all replicas are here, and it would not commit
    anything else. is_crashed: its broker was not stopped cleanly, so that the partition has to be recovered first."""

    path: str
    topic: str
    partition: int
    producer_id: int
    marker_epoch: int
    first_offset: int
    last_offset: int
    progress: ReplicaProgress
    is_writable: bool
    is_crashed: bool


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """The result of a row: this transaction hangs, and the command that aborts it, None when its topic has no name. commit: if
    its producer has committed it. owner: the transactional id whose next transaction in the partition ends it too, None for none."""

    topic: str | None
    partition: int | None
    producer_id: int
    abort_command: str | None
    commit: LostCommit | None = None
    owner: str | None = None


def partition_transactions(target: LogTarget, options: TransactionsOptions) -> Iterator[Event]:
    """The rows of one partition. Raises UnreadableInput."""
    with PartitionLog(target) as log:
        name = log.name
        where = (directory_of(target), None) if name is None else (name.topic, name.partition)
        place: Values = {"topic": None if name is None else name.topic, "partition": where[1]}
        if log.is_kafka07:  # 0.7 has no transactions, and its offsets are byte positions
            yield Row(
                {"type": "partition", **place, **_NOTHING_KNOWN, "path": log.directory, "transactions": _NONE}
            )
            return
        replay = PartitionReplay(log)
        counts = dict(_NONE)
        owned = {**options.view.unloaded, **options.view.by_producer}
        names = {number: owners[0].transactional_id for number, owners in owned.items()}
        # read once, and only for an open transaction or a lost one
        more_recent = cache(partial(_more_recent, target, options))
        is_damaged = False
        for table in replay.ended():
            if isinstance(table, Finding):
                is_damaged = True
                producer_id = table.numbers.get("producer_id")
                if not isinstance(producer_id, int) or options.wants(producer_id):
                    yield table
                continue
            yield from _ended(table, place, options, names, counts)
        for found in replay.state.unfinished():
            if options.wants(found.producer_id):
                verdict = judge(
                    found,
                    (str(place["topic"]), place["partition"] or 0),
                    options.view,
                    now_ms=options.now_ms,
                    max_timeout_ms=options.max_timeout_ms,
                    is_decided=_is_decided(found, more_recent()),
                    before_a_start=options.before_a_start,
                )
                counts["hanging" if verdict.status == HANGING else "open"] += 1
                values = _open(found, place, verdict, replay.started_ms(found.first_offset))
                commit = _lost_commit(found, target, log, replay, options) if verdict.is_committed else None
                yield _open_row(values, found, verdict, commit)
        for found, verdict in (
            *((each, _REPLACED) for each in replay.state.replaced()),
            *((each, _FORGOTTEN) for each in replay.forgotten()),
        ):
            if options.wants(found.producer_id):
                counts["open"] += 1
                yield Row(_open(found, place, verdict, replay.started_ms(found.first_offset)))
        if options.producer_ids is not None:
            return
        yield from ids_behind(log.directory, where, replay.state.entries(), options.view)
        for lost in () if is_damaged else lost_commits(log, replay, options.view):
            if not more_recent():
                yield lost
        if options.ended:
            for entry in replay.state.entries():
                # a negative epoch: only an emptied marker is left of this producer, and a broker that loads the log drops the entry
                if entry.producer_epoch >= 0:
                    yield Row(_producer(entry, place, options.now_ms))
        yield Row(_partition(replay, place, log.directory, counts))


def _partition(replay: PartitionReplay, place: Values, path: str, counts: Mapping[str, int]) -> Values:
    last_stable_offset, holder = replay.last_stable_offset()
    return {
        "type": "partition",
        **place,
        "log_start_offset": replay.start_offset,
        "log_end_offset": replay.end_offset,
        "last_stable_offset": last_stable_offset,
        "held_by_producer_id": holder,
        "path": path,
        "transactions": counts,
    }


_NONE = {"committed": 0, "aborted": 0, "open": 0, "hanging": 0}
_NOTHING_KNOWN = dict.fromkeys(
    ("log_start_offset", "log_end_offset", "last_stable_offset", "held_by_producer_id"), None
)
_REPLACED = TransactionVerdict(
    "open",
    "replaced",
    "the producer snapshot has a later entry of the same producer; no marker ends the transaction, and a broker that has been stopped "
    "cleanly forgets it when it starts",
)
_FORGOTTEN = TransactionVerdict(
    "open",
    "forgotten",
    "the broker's producer state does not know the transaction; it does not hold back the last stable offset",
)


def _is_decided(found: UnfinishedTransaction, more_recent: Iterable[TransactionReplay]) -> bool:
    """Whether a more recent available replica has the transaction's marker."""
    entries: Iterator[ProducerSnapshotEntry | None] = (
        state.entry(found.producer_id) for state in more_recent
    )
    return any(
        entry is not None and entry.current_txn_first_offset != found.first_offset for entry in entries
    )


def _more_recent(target: LogTarget, options: TransactionsOptions) -> list[TransactionReplay]:
    """The producer states of the available replicas that are more recent than this one."""
    others = [each for each in options.replicas.get(target.path, ()) if is_ahead(each, target)]
    return [state for each in others if (state := state_of(each)) is not None]


def _ended(
    table: Columns,
    place: Values,
    options: TransactionsOptions,
    names: Mapping[int, str],
    counts: dict[str, int],
) -> Iterator[Event]:
    if not options.ended and options.producer_ids is None:
        aborted = sum(table.column(T.E_IS_ABORT))
        counts["aborted"] += aborted
        counts["committed"] += table.count - aborted
        return
    rows = zip(*(table.column(each) for each in range(T.ENDED_WIDTH)), strict=True)
    wanted = [row for row in rows if options.wants(row[0])]
    counts["aborted"] += sum(row[-1] for row in wanted)
    counts["committed"] += sum(1 - row[-1] for row in wanted)
    if options.as_json:
        # there may be millions: a mapping for each would take several times as long as the search
        yield Text(b"".join(_json_lines(wanted, place, names)))
        return
    for producer_id, epoch, first, last, timestamp_ms, marker, is_abort in wanted:
        yield Row(
            {
                "type": "transaction",
                "status": "aborted" if is_abort else "committed",
                **place,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "transactional_id": names.get(producer_id),
                "start_offset": first,
                "last_offset": last,
                "last_timestamp": timestamp_ms,
                "marker_offset": marker,
                "abort_command": None,
            }
        )


def _json_lines(rows: Sequence[tuple[int, ...]], place: Values, names: Mapping[int, str]) -> Iterator[bytes]:
    """The rows of completed transactions as `json_line` formats them."""
    heads = [
        json_line({"type": "transaction", "status": status, **place})[:-2].decode()
        for status in ("committed", "aborted")
    ]
    owners: dict[int, str] = {}
    for producer_id, epoch, first, last, timestamp_ms, marker, is_abort in rows:
        owner = owners.get(producer_id)
        if owner is None:
            owner = json_line({"": names.get(producer_id)})[4:-2].decode()
            owners[producer_id] = owner
        yield (
            f'{heads[is_abort]},"producer_id":{producer_id},"producer_epoch":{epoch},"transactional_id":{owner},"start_offset":{first},'
            f'"last_offset":{last},"last_timestamp":{timestamp_ms},"marker_offset":{marker},"abort_command":null}}\n'
        ).encode()


def _open(
    found: UnfinishedTransaction, place: Values, verdict: TransactionVerdict, started_ms: int | None
) -> Values:
    is_ended_by_hand = verdict.status == HANGING and place["topic"] is not None
    return {
        "type": "transaction",
        "status": verdict.status,
        **place,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "transactional_id": verdict.transactional_id,
        "start_offset": found.first_offset,
        "last_offset": found.last_offset,
        "last_timestamp": found.timestamp_ms,
        "marker_offset": None,
        "abort_command": _ending_command(found, place, verdict) if is_ended_by_hand else None,
        "start_timestamp": started_ms,
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "former_transactional_id": verdict.former_id,
        "deadline": verdict.deadline_ms,
    }


def _open_row(
    values: Values, found: UnfinishedTransaction, verdict: TransactionVerdict, commit: LostCommit | None
) -> Row:
    if verdict.status == HANGING:
        owner = verdict.transactional_id if verdict.is_owned else None
        command = values["abort_command"]
        place = values["topic"], values["partition"]
        return Row(values, HangingTransaction(*place, found.producer_id, command, commit, owner))
    return Row(values, commit if verdict.is_to_be_aborted else None)


def _lost_commit(
    found: UnfinishedTransaction,
    target: LogTarget,
    log: PartitionLog,
    replay: PartitionReplay,
    options: TransactionsOptions,
) -> LostCommit | None:
    """A transaction that its producer has committed (of the second protocol, the only one that leaves this evidence)."""
    if log.name is None or found.last_offset is None:
        return None
    # a marker ends everything that the producer has open, other transactions as well
    is_alone = replay.epochs_of(found) == {found.producer_epoch}
    return LostCommit(
        log.directory,
        log.name.topic,
        log.name.partition,
        found.producer_id,
        found.producer_epoch + 1,
        found.first_offset,
        found.last_offset,
        progress_of(target),
        is_writable=is_alone and options.before_a_start and options.view.is_settled,
        is_crashed=not was_stopped_cleanly(log),
    )


def _ending_command(found: UnfinishedTransaction, place: Values, verdict: TransactionVerdict) -> str:
    """The coordinator keeps an ongoing transaction if only its markers are written."""
    if not verdict.is_postponed:
        return abort_command(place, found.first_offset)
    owner = shell_word(verdict.transactional_id or "")
    return f"kafka-transactions.sh --bootstrap-server HOST:PORT forceTerminateTransaction --transactionalId {owner}"


def abort_command(place: Values, start_offset: int) -> str:
    """The command line that aborts a hanging transaction (fact sheet of the internal topics, §6.4)."""
    return (
        "kafka-transactions.sh --bootstrap-server HOST:PORT abort "
        f"--topic {place['topic']} --partition {place['partition']} --start-offset {start_offset}"
    )


def _producer(entry: ProducerSnapshotEntry, place: Values, now_ms: int) -> Values:
    is_idle = idle_ms(entry.timestamp_ms, now_ms) >= DEFAULT_EXPIRATION_MS
    return {
        "type": "producer",
        **place,
        "producer_id": entry.producer_id,
        "producer_epoch": entry.producer_epoch,
        "last_sequence": entry.last_sequence,
        "last_timestamp": entry.timestamp_ms,
        "coordinator_epoch": None if entry.coordinator_epoch < 0 else entry.coordinator_epoch,
        "transaction_start_offset": entry.current_txn_first_offset,
        "expired": is_idle and entry.current_txn_first_offset is None,
    }


def id_row(known: TransactionalId) -> Values:
    return {
        "type": "transactional_id",
        "transactional_id": known.transactional_id,
        "producer_id": known.producer_id,
        "producer_epoch": known.producer_epoch,
        "state": known.state,
        "timeout_ms": known.timeout_ms,
        "start_timestamp": None if known.started_ms < 0 else known.started_ms,
        "partitions": [{"topic": topic, "partition": number} for topic, number in known.partitions],
        "last_update_timestamp": known.updated_ms,
        "client_transaction_version": known.client_version,
        "loaded": known.is_loaded,
    }
