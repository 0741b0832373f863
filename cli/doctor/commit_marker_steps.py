"""The step for transactions that were committed, but whose COMMIT markers are lost: write the markers before the brokers start, which then
serve the records (observed with 4.3.1, tests/kafka/test_ids_behind.py).

Only where all replicas are here. The most recent replicas get the same marker, whichever of them becomes the leader; the others fetch it.
On one that lacks records of the last leader, the marker would have the offset of one of them, and if that replica is elected, the replicas
would differ at this offset without a broker noticing it (it compares only where leader epochs end).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.cli.doctor.next_step import NextStep, recovered_first
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.segment.counted import counted, listed

if TYPE_CHECKING:
    from kseg.internal_topics.transactions.transaction_rows import LostCommit

_LISTED = 5  # transactions named in a sentence
_AT_ONCE = 20  # commands in a line


Transaction = tuple[str, int, int]  # topic, partition, producer id


def transaction_of(commit: "LostCommit") -> Transaction:
    return commit.topic, commit.partition, commit.producer_id


def markers_to_write(commits: "Iterable[LostCommit]") -> "dict[Transaction, list[LostCommit]]":
    """The replicas to write to, for each transaction whose marker can be written. commits: of all replicas."""
    replicas: dict[Transaction, list[LostCommit]] = {}
    for each in commits:
        replicas.setdefault(transaction_of(each), []).append(each)
    recent = {transaction: _most_recent(found) for transaction, found in replicas.items()}
    return {key: found for key, found in recent.items() if found and all(each.is_writable for each in found)}


def write_commit_markers(
    markers: "Mapping[Transaction, Sequence[LostCommit]]", now_ms: int
) -> Iterator[NextStep]:
    """now_ms: the timestamp of the markers, which is the same on all replicas."""
    wanted = [*markers.values()]
    for at in range(0, len(wanted), _AT_ONCE):
        some = wanted[at : at + _AT_ONCE]
        places = [
            f"{found[0].topic}-{found[0].partition} from offset {found[0].first_offset}" for found in some
        ]
        transactions = counted(len(some), "transaction")
        yield NextStep(
            f"{transactions} ({listed(places, _LISTED)}) {'was' if len(some) == 1 else 'were'} committed, but the COMMIT "
            f"{'marker is' if len(some) == 1 else 'markers are'} lost: consumers wait there, and an abort loses what was committed. "
            "Before any node starts, write what is missing; `kseg undo` reverts that.",
            " && ".join(_command(each, now_ms) for found in some for each in found),
        )


def _most_recent(found: "Sequence[LostCommit]") -> "list[LostCommit]":
    """None if it is unknown which of several replicas these are."""
    if len(found) > 1 and any(each.progress.leader_epoch < 0 for each in found):
        return []
    best = max(each.progress for each in found)
    return [each for each in found if each.progress == best]


def _command(commit: "LostCommit", now_ms: int) -> str:
    options = {
        "--apply": True,
        "--marker": "commit",
        "--producer-id": commit.producer_id,
        "--producer-epoch": commit.marker_epoch,
        "--now": now_ms,
    }
    append = command_line("append", options, Request((commit.path,)))
    return recovered_first(append, commit.path, is_crashed=commit.is_crashed)
