"""What an examination notes about producers and consumers: transactions that hang, commits that were lost, and what of
`__transaction_state` cannot be used; and offsets of groups outside their logs, and those that expire soon after a start."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.cli.request import Request
from kseg.jobs.events import Event, Row
from kseg.segment.diagnosis import LostTransactions, TransactionalIdsBehind, UnusableTransactionalIds
from kseg.segment.errors import KsegError
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from kseg.cli.doctor.client_steps import Clients
    from kseg.internal_topics.groups.offset_expiry import ExpiryCheck
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.segment.partition.targets import LogTarget, PartitionTarget


def transaction_events(
    paths: Sequence[str],
    partitions: "Iterable[PartitionTarget]",
    finder: "MetadataFinder | None",
    clients: "Clients",
    over: Callable[..., Iterator[Event]],
) -> Iterator[Event]:
    """The rows and findings about transactions that need a step, which are noted in `clients`; none without a readable
    `__transaction_state`. paths: of the run. finder: of their metadata logs. over: runs work on targets."""
    from kseg.cli.coordinator_evidence import is_of_the_broker, transactions_seen
    from kseg.internal_topics.transactions.transaction_rows import TransactionsOptions, partition_transactions

    seen = transactions_seen(paths, finder)
    if not seen.view.is_known:
        return
    for event in seen.events:
        if isinstance(event, Finding) and isinstance(event.diagnosis, UnusableTransactionalIds):
            clients.unusable_ids += event.diagnosis.ids
            yield event
    options = TransactionsOptions(
        now_ms=clients.now_ms, ended=False, view=seen.view, replicas=seen.replicas, before_a_start=True
    )
    wanted = [target for target in partitions if is_of_the_broker(target)]
    for event in over(partition_transactions, wanted, options):
        if _note(event, clients, wanted, len(seen.view.partitions)):
            yield event


def _note(event: Event, clients: "Clients", partitions: "Sequence[PartitionTarget]", count: int) -> bool:
    """Whether the event needs a step. count: of the partitions of `__transaction_state`."""
    from kseg.internal_topics.transactions.transaction_rows import HangingTransaction, LostCommit

    if isinstance(event, Row):
        if isinstance(event.result, HangingTransaction):
            clients.hanging.append(event.result)
        elif isinstance(event.result, LostCommit):
            clients.lost_commits.append(event.result)
        else:
            return False
        return True
    diagnosis = event.diagnosis if isinstance(event, Finding) else None
    if isinstance(diagnosis, TransactionalIdsBehind):
        _note_ids_behind(diagnosis.ids, clients, partitions, count)
        return True
    if isinstance(event, Finding) and isinstance(diagnosis, LostTransactions) and not diagnosis.is_continued:
        clients.lost_ends.append(event.path)
        return True
    return False


def _note_ids_behind(
    names: Sequence[str], clients: "Clients", partitions: "Sequence[PartitionTarget]", count: int
) -> None:
    """Note which partitions of `__transaction_state` have these transactional ids. count: of the topic's partitions."""
    from kseg.internal_topics.groups.coordinator_partition import partition_for

    for target in partitions:
        name = own_partition_name(target.path)
        if name is None or name.topic != TRANSACTION_STATE_TOPIC:
            continue
        here = [each for each in names if partition_for(each, count) == name.partition]
        if here:
            clients.ids_behind.setdefault(target.path, {}).update(dict.fromkeys(here))


def group_events(
    request: Request,
    metadata: str | None,
    finder: "MetadataFinder | None",
    server: Mapping[str, str] | None,
    expiry_of: "Callable[[Sequence[LogTarget]], ExpiryCheck | None]",
    over: Callable[..., Iterator[Event]],
) -> Iterator[Row | Finding]:
    """The rows of all groups under the paths of the request, and the findings about them; none if its metadata log cannot be used.

    metadata: the log that the user named. finder: of the metadata logs of these paths. server: the content of server.properties. expiry_of:
    how to look for expiring offsets in these partitions. over: runs work on targets.
    """
    from kseg.cli.group_evidence import group_evidence
    from kseg.cli.group_stream import GroupRows
    from kseg.internal_topics.groups.groups import GroupsOptions, is_group_topic, list_groups

    try:
        evidence = group_evidence(request.paths, metadata, finder=finder)
    except KsegError:
        return
    targets = {target.path: target for each in evidence.replicas.values() for target in each}
    wanted = [
        target for path, target in targets.items() if path in evidence.chosen and is_group_topic(target)
    ]
    options = GroupsOptions(
        names=evidence.names,
        replicas=evidence.replicas,
        tiered=evidence.tiered,
        topics=request.topics,
        partition=request.partition,
        expiry=expiry_of(wanted),
    )
    known = None if server is None else (str(request.also["--server-properties"]), server)
    rows = GroupRows(evidence, (), options, keeps_offsets=False, server=known)
    for event in rows.through(over(list_groups, wanted, options)) if wanted else ():
        if isinstance(event, Row | Finding):
            yield event
