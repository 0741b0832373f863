"""Transactional ids whose coordinator has lost the end of its log: their producers have reached later epochs, which the partitions know.

A broker rejects batches with an earlier producer epoch than the last one in the partition, and the markers of their transactions. The
coordinator gives the producer the epoch that follows the one in its own log. So the id fails until that epoch has caught up, and for good
as soon as one of its transactions is to be ended (`written_markers`). A tombstone of the id in the coordinator's log makes the coordinator
forget it; the id then gets a new producer id (all observed with 4.3.1).
"""

import base64
from collections.abc import Iterable, Iterator, Sequence

from kseg.internal_topics.transactions.transaction_log import CoordinatorView, TopicPartition, TransactionalId
from kseg.segment.counted import counted
from kseg.segment.diagnosis import TransactionalIdsBehind
from kseg.segment.findings import Finding
from kseg.segment.json_line import compact_json
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry


def ids_behind(
    path: str, where: tuple[str, int | None], entries: Iterable[ProducerSnapshotEntry], view: CoordinatorView
) -> Iterator[Finding]:
    """The finding about a partition that is ahead of any coordinator; none unless the view is settled. entries: of its producers."""
    if not view.is_settled:
        return
    ahead = [
        (known, words)
        for entry in entries
        for known in view.by_producer.get(entry.producer_id, ())
        if known.is_loaded and (words := _behind(known, entry, where, view))
    ]
    if not ahead:
        return
    known, words = ahead[0]
    more = f" (and {counted(len(ahead) - 1, 'more id')} likewise)" if len(ahead) > 1 else ""
    message = f"transactional id {known.transactional_id} is in state {known.state} with epoch {known.producer_epoch}, and {words}{more}"
    about = TransactionalIdsBehind(tuple(each.transactional_id for each, _ in ahead))
    yield Finding.about("transactional-id-behind", path, message, about)


def _behind(
    known: TransactionalId,
    entry: ProducerSnapshotEntry,
    where: tuple[str, int | None] | TopicPartition,
    view: CoordinatorView,
) -> str:
    """In words, empty if the broker refuses nothing. A producer that comes back gets the epoch after the recorded one."""
    refused, epoch = view.refused.get(known.transactional_id), view.epoch_of(known)
    if epoch is not None and entry.coordinator_epoch > epoch:
        return (
            f"its coordinator starts with epoch {epoch}, but the partition has a marker of epoch {entry.coordinator_epoch}, and rejects "
            "the markers that end its next transaction, although a commit succeeds"
        )
    if entry.producer_epoch > known.producer_epoch + 1 or (refused is not None and refused.where == where):
        return (
            f"the end of __transaction_state is lost: its producer already had epoch {entry.producer_epoch} here, and the broker rejects its "
            "records and markers"
        )
    return ""


def tombstone_lines(names: Sequence[str]) -> list[str]:
    """The lines for `kseg append` that make a coordinator forget transactional ids."""
    keys = ((0).to_bytes(2, "big") + len(data).to_bytes(2, "big") + data for data in map(str.encode, names))
    return [
        compact_json({"key": base64.b64encode(key).decode(), "key_encoding": "base64", "value": None})
        for key in keys
    ]
