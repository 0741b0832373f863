"""The committed transactions of a producer that are remembered while its coordinator's log is read: the last few, and the last one in each
partition.

A producer has its transactions in changing partitions (a thread of Kafka Streams commits those of its tasks that had records), and a power
failure may take from a partition what was written before the producer's last hundred transactions. So all partitions count, but not all
transactions, of which a log has millions:

1. The last `_RECENT` records are kept as they are.
2. An older one replaces the older one with the same partitions. They are compared as bytes.
3. Once there are too many different sets of partitions, those go that are the last ones of no partition.
"""

from collections import deque
from collections.abc import Iterator

from kseg.internal_topics.coordinator_log import CoordinatorRecord
from kseg.internal_topics.transactions.load_check import listed_partitions
from kseg.internal_topics.transactions.transaction_log import TopicPartition, partitions_in

_RECENT = 4
_OLDER = 64  # sets of partitions; more if these have more partitions than that


class LastCommits:
    """Records in state PrepareCommit of one producer id."""

    def __init__(self) -> None:
        self._recent: deque[CoordinatorRecord] = deque()
        self._older: dict[bytes, CoordinatorRecord] = {}
        self._limit = _OLDER

    def add(self, record: CoordinatorRecord) -> None:
        """The next record of the log."""
        self._recent.append(record)
        if len(self._recent) > _RECENT:
            self._remember(self._recent.popleft())

    def __iter__(self) -> Iterator[CoordinatorRecord]:
        """In the order of the log."""
        yield from self._older.values()
        yield from self._recent

    def _remember(self, record: CoordinatorRecord) -> None:
        listed = b"" if record.value is None else listed_partitions(record.value)
        self._older.pop(listed, None)  # so that the order is that of the log
        self._older[listed] = record
        if len(self._older) > self._limit:
            self._forget_replaced()

    def _forget_replaced(self) -> None:
        seen: set[TopicPartition] = set()
        kept = []
        for listed, record in reversed(self._older.items()):
            partitions = partitions_in(record)
            if not seen.issuperset(partitions):
                kept.append((listed, record))
                seen.update(partitions)
        self._older = dict(reversed(kept))
        self._limit = max(_OLDER, 2 * len(kept))
