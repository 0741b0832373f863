"""The steps for transactional ids that fail: those whose coordinator has lost the end of its log, which it is made to forget, so that they
get new producer ids, and those that transaction.version is too low for (each step observed with 4.3.1, tests/kafka/test_ids_behind.py)."""

from collections.abc import Iterator, Mapping, Sequence

from kseg.cli.doctor.next_step import NextStep, append_command
from kseg.internal_topics.transactions.ids_behind import tombstone_lines
from kseg.segment.counted import listed
from kseg.segment.terminal import visible

_LISTED = 5  # ids named in a sentence
_AT_ONCE = 50  # lines in a command


def raise_transaction_version(ids: Sequence[str], server: str) -> Iterator[NextStep]:
    """A coordinator that has refused such an id once does not serve it until it is loaded anew."""
    if ids:
        yield NextStep(
            f"transaction.version was lowered to 0, and no producer can use {visible(listed(ids, _LISTED))}. With the broker running, "
            "before producers start, raise it to 1, which is the protocol of 0 as well. If a producer was refused before, restart the broker afterwards.",
            f"kafka-features.sh --bootstrap-server {server} upgrade --feature transaction.version=1",
        )


def forget_ids(behind: Mapping[str, Sequence[str]]) -> Iterator[NextStep]:
    """behind: the ids, by the directory of the partition of `__transaction_state` that has them; each replica is listed."""
    for directory, names in behind.items():
        for at in range(0, len(names), _AT_ONCE):
            some = names[at : at + _AT_ONCE]
            yield NextStep(
                f"Partitions are ahead of the coordinator of {visible(listed(some, _LISTED))}, and reject its markers or the producer's records: "
                "what is committed then stays invisible, and producers with such an id fail, or wait forever. Before any node starts, add the tombstones that make it forget "
                "them and assign them new producer ids; `kseg undo` reverts that.",
                append_command(tombstone_lines(some), directory),
            )
