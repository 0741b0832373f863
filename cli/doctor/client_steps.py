"""The steps for producers and consumers: write the lost markers of committed transactions before the start; with a running broker, abort
hanging transactions, and save the records of those that a coordinator aborts although they were committed. Those for committed offsets
that consumers should not use: `committed_offset_steps`."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING

from kseg.cli.doctor.commit_marker_steps import (
    Transaction,
    markers_to_write,
    transaction_of,
    write_commit_markers,
)
from kseg.cli.doctor.next_step import ANY_SERVER, NextStep, find_copies_command, likewise
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.segment.counted import listed, shown_of
from kseg.segment.partition.names import CONSUMER_OFFSETS_TOPIC
from kseg.segment.terminal import shell_quoted, shortened, visible
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.internal_topics.groups.group_results import (
        ForgottenState,
        OffsetOfGroup,
        PendingOffset,
        ShareStateOfGroup,
        StatelessPartition,
    )
    from kseg.internal_topics.transactions.transaction_rows import HangingTransaction, LostCommit
    from kseg.segment.diagnosis import UnusableGroups

_LISTED = 5  # transactions and groups with a step of their own


@dataclass(slots=True)
class Clients:
    """now_ms: the time of the run. hanging: transactions that nothing will end. lost_commits: committed ones that a coordinator would
    abort. stranded: committed offsets outside their logs. of_former_topics: those in deleted topics of the same name. of_deleted_topics:
    those in deleted topics of whose name there is none today. unreachable: those in a partition of `__consumer_offsets` where no
    coordinator looks for their groups. stateless: partitions of share groups without a state. ahead: states of share
    groups that are ahead of the log. forgotten: those that their coordinators do not know. pending: offsets in open transactions.
    ids_behind: the transactional ids whose newest records are lost, by the partition that has them. unusable_ids: those that need another
    level of transaction.version. unusable_groups: those whose protocol needs another level of its feature.
    lost_ends: partitions without transactions that were committed to them."""

    request: Request
    now_ms: int = 0
    hanging: "list[HangingTransaction]" = field(default_factory=list)
    lost_commits: "list[LostCommit]" = field(default_factory=list)
    stranded: "list[OffsetOfGroup]" = field(default_factory=list)
    of_former_topics: "list[OffsetOfGroup]" = field(default_factory=list)
    of_deleted_topics: "list[OffsetOfGroup]" = field(default_factory=list)
    unreachable: "list[OffsetOfGroup]" = field(default_factory=list)
    stateless: "list[StatelessPartition]" = field(default_factory=list)
    ahead: "list[ShareStateOfGroup]" = field(default_factory=list)
    forgotten: "list[ForgottenState]" = field(default_factory=list)
    pending: "list[PendingOffset]" = field(default_factory=list)
    ids_behind: dict[str, dict[str, None]] = field(default_factory=dict)
    unusable_ids: list[str] = field(default_factory=list)
    unusable_groups: "list[UnusableGroups]" = field(default_factory=list)
    lost_ends: list[str] = field(default_factory=list)

    @property
    def markers_to_write(self) -> "dict[Transaction, list[LostCommit]]":
        """The transactions whose COMMIT marker can be written before the start."""
        hanging = (each.commit for each in self.hanging if each.commit is not None)
        return markers_to_write((*hanging, *self.lost_commits))

    @property
    def come_before_start(self) -> bool:
        are_forgotten = any(each.log is not None for each in self.forgotten)
        return bool(self.ids_behind or self.lost_ends or self.markers_to_write or are_forgotten)

    def pending_of(self, producer_id: int) -> "list[PendingOffset]":
        return [each for each in self.pending if each.producer_id == producer_id]


def find_lost_ends(clients: Clients) -> Iterator[NextStep]:
    """Nothing that was examined has these records."""
    shown = shown_of(len(clients.lost_ends), _LISTED)
    for directory in clients.lost_ends[:shown]:
        partition = os.path.basename(os.path.normpath(directory))
        name = visible(shortened(partition))
        if partition.startswith(f"{CONSUMER_OFFSETS_TOPIC}-"):
            otherwise = "otherwise consumers repeat what they had processed, and an application that counts it counts it twice"
        else:
            otherwise = "a broker serves the log as it is, and an application that continues does not notice"
        yield NextStep(
            f"What was last committed to {name} is nowhere in these directories. Look for a later copy of it (a replica, a backup, a snapshot "
            f"of the disk) before a broker starts; {otherwise}.",
            find_copies_command([partition]),
        )
    command = command_line("transactions", {}, clients.request)
    yield from likewise(len(clients.lost_ends) - shown, "partition", command)


def write_markers(clients: Clients) -> Iterator[NextStep]:
    yield from write_commit_markers(clients.markers_to_write, clients.now_ms)


def end_transactions(clients: Clients, server: str) -> Iterator[NextStep]:
    ended = clients.markers_to_write
    # by command, since several replicas may contain the same transaction
    hanging: dict[str, HangingTransaction] = {}
    for each in clients.hanging:
        if each.abort_command and (each.commit is None or transaction_of(each.commit) not in ended):
            hanging.setdefault(each.abort_command, each)
    shown = shown_of(len(hanging), _LISTED)
    for command, each in [*hanging.items()][:shown]:
        yield NextStep(
            f"With the broker running, abort the hanging transaction in {each.topic}-{each.partition}."
            f"{_before_abort(each, clients.pending_of(each.producer_id))}",
            command.replace(ANY_SERVER, server),
        )
        if each.commit is not None and each.topic == CONSUMER_OFFSETS_TOPIC:
            yield from _commit_again(clients, each.producer_id, server)
    listing = command_line("transactions", {"--verbose": True}, clients.request)
    yield from likewise(len(hanging) - shown, "transaction", listing, "list the command for each")
    yield from _save_lost_commits(clients, server, listing)


def _before_abort(hanging: "HangingTransaction", pending: "Sequence[PendingOffset]") -> str:
    """What to consider first: the next transaction of the same producer in the partition ends this one with it (observed with 4.3.1). A
    coordinator gives no consumer an offset for which one waits in a transaction (UNSTABLE_OFFSET_COMMIT; observed with 4.3.1)."""
    owner = None if hanging.owner is None else visible(shortened(hanging.owner))
    is_of_groups = hanging.topic == CONSUMER_OFFSETS_TOPIC
    waiting = f" {_consumers(pending)} wait until it ends." if is_of_groups and pending else ""
    if hanging.commit is None:
        what = "offsets" if is_of_groups else "records"
        before = (
            ""
            if owner is None
            else f" Do so before {owner} writes there: its next commit there would commit these {what} too."
        )
        return f"{waiting}{before}"
    if is_of_groups:
        return f"{waiting} Its producer had committed it: its offsets are lost then, so commit them again afterwards."
    words = (
        " Its producer had committed it: read_committed consumers never get its records, so export "
        "them first, and produce them again afterwards."
    )
    if owner is None:
        return words
    return f"{words} Or leave it: if {owner} commits another transaction that writes there, these records are committed with it."


def _consumers(pending: "Sequence[PendingOffset]") -> str:
    groups = [*dict.fromkeys(each.group for each in pending)]
    return f"Consumers of {visible(listed(groups, _LISTED, 'group'))}"


def _commit_again(clients: Clients, producer_id: int, server: str) -> Iterator[NextStep]:
    """Offsets of a committed transaction that its groups will not get. Those of a group that has committed since are out of date."""
    wanted = [each for each in clients.pending_of(producer_id) if each.takes_effect]
    shown = shown_of(len(wanted), _LISTED)
    for each in wanted[:shown]:
        yield NextStep(
            f"Without the consumers of {visible(each.group)} running, preview the commit of what its transaction had for "
            f"{each.topic}-{each.partition}, which would otherwise be consumed again; then replace --dry-run with --execute.",
            f"kafka-consumer-groups.sh --bootstrap-server {server} --group {shell_quoted(each.group)} "
            f"--topic {each.topic}:{each.partition} --reset-offsets --to-offset {each.offset} --dry-run",
        )
    listing = command_line("groups", {"--verbose": True}, clients.request)
    yield from likewise(len(wanted) - shown, "partition", listing)


def _save_lost_commits(clients: Clients, server: str, listing: str) -> Iterator[NextStep]:
    ended = clients.markers_to_write
    lost = [each for each in clients.lost_commits if transaction_of(each) not in ended]
    shown = shown_of(len(lost), _LISTED)
    for each in lost[:shown]:
        if each.topic == CONSUMER_OFFSETS_TOPIC:
            yield from _commit_again(clients, each.producer_id, server)
            continue
        partition = f"{each.topic}-{each.partition}"
        options = {
            "--to": "json",
            "--producer-id": str(each.producer_id),
            "--from-offset": str(each.first_offset),
            "--to-offset": str(each.last_offset + 1),
            "--output": f"{partition}-{each.first_offset}",
        }
        yield NextStep(
            f"The transaction in {partition} from offset {each.first_offset} was committed, but its coordinator does not know that, and aborts "
            "it: read_committed consumers never get its records then. Export them, and produce them again.",
            command_line(
                "export", options, replace(clients.request, paths=(each.path,), topics=(), partition=None)
            ),
        )
    yield from likewise(len(lost) - shown, "transaction", listing)
