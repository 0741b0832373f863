"""`kseg lookup --transactional-id`: the transactions of one transactional id, over all partitions under the PATHs.

Its producer ids come from the records of `__transaction_state`, including superseded ones that compaction has not yet removed. If the
partition of that topic that would have the id is unavailable, the id is unknown rather than absent, and a note says so.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kseg.cli.coordinator_evidence import TransactionEvidence, is_of_the_broker, transactions_seen
from kseg.cli.options import Shown
from kseg.cli.render import Style
from kseg.cli.request import Request
from kseg.cli.run import clock_ms, over_targets
from kseg.cli.streams import complain
from kseg.cli.text.transactions import transaction_words
from kseg.internal_topics.transactions.transaction_rows import (
    TransactionsOptions,
    id_row,
    partition_transactions,
)
from kseg.jobs.events import Event, Row
from kseg.segment.counted import counted
from kseg.segment.partition.targets import Expansion, Target
from kseg.segment.terminal import visible


def lookup_transactional_id(
    name: str,
    *,
    request: Request,
    jobs: int | None,
    json: bool,
    shown: Shown,
) -> int:
    """Show the transactions, and return the exit status: 1 when there is none."""
    answer = _Answer(name)
    style = Style(
        command="lookup",
        json=json,
        **shown,
        words=_words,
        missed=lambda row: row.get("type") == "lookup" and row.get("found") is False,
    )

    def look(
        _targets: Sequence[Target], options: TransactionsOptions
    ) -> tuple[TransactionsOptions, Sequence[Event]]:
        seen = transactions_seen(request.paths)
        findings = answer.know(seen)
        producer_ids = frozenset(answer.producer_ids)
        return replace(options, view=seen.view, replicas=seen.replicas, producer_ids=producer_ids), findings

    return over_targets(
        partition_transactions,
        TransactionsOptions(now_ms=clock_ms()),
        style,
        expand=Expansion.PARTITIONS,
        request=request,
        jobs=jobs,
        look=look,
        wanted=is_of_the_broker,
        through=answer.through,
    )


class _Answer:
    """producer_ids: all that the transactional id has or has had, in order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.producer_ids: list[int] = []
        self._is_known = False

    def know(self, seen: TransactionEvidence) -> Sequence[Event]:
        """Take the state of the coordinators, and return the events about it to show first."""
        view = seen.view
        known = view.ids.get(self._name)
        self._is_known = known is not None
        found = {producer_id for producer_id, owner in view.former.items() if owner == self._name}
        if known is not None:
            found |= {known.producer_id, known.previous_producer_id, known.next_producer_id}
        self.producer_ids = sorted(producer_id for producer_id in found if producer_id >= 0)
        if not view.is_known and not seen.failures:
            complain(
                "kseg lookup: there is no __transaction_state under the given paths, which knows the producer ids"
            )
        elif not found and not view.is_whole:
            complain(
                "kseg lookup: some partitions of __transaction_state are not under the given paths: "
                f"{visible(self._name)} may be known in another"
            )
        return seen.failures if known is None else (*seen.failures, Row(id_row(known)))

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        rows = 0
        for event in events:
            rows += isinstance(event, Row)
            yield event
        yield Row(
            {
                "type": "lookup",
                "partition": None,
                "directory": None,
                "query": {"kind": "transactional-id", "transactional_id": self._name},
                "found": bool(self.producer_ids),
                "producer_ids": self.producer_ids,
                "transactions": rows - self._is_known,  # one row describes the id itself
            }
        )


def _words(values: Mapping[str, Any]) -> Iterator[str]:
    if values.get("type") != "lookup":
        yield from transaction_words(values)
        return
    name = visible(str(values["query"]["transactional_id"]))
    if not values["found"]:
        yield f"{name}: not found"
        return
    ids = ", ".join(map(str, values["producer_ids"]))
    yield f"{name}: {counted(values['transactions'], 'transaction')} of producer {ids}"
