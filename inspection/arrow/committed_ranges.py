"""Find the batches that read_committed hides, and check that the log and its transaction indexes agree on them.

From the log (`from_log`): the batch headers of all segments are replayed (`dump.committed`). An index entry counts only where the
log has no information: its marker is in bytes that are not a valid batch, or was compacted away. Without the entry, the next
marker of that producer would decide two transactions.

From the indexes (`from_indexes`): they and the newest snapshot are trusted, as a broker trusts them. A caller that reads the log
anyway then sees the markers, and reports where they disagree (`MarkerCheck`): the rows are those that a broker would return, and
the log would give others.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from kseg.inspection.arrow.log_ranges import Aborted, LogPiece
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.counted import offsets_words
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.layout import INT64_MAX
from kseg.segment.partition.bounds import Bounds
from kseg.segment.partition.committed import transactions_around
from kseg.segment.partition.derived_state import aborted_transactions, last_stable_offset
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.scanning.decode import Decoder
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.state.replay import marker_of


def from_log(log: PartitionLog) -> tuple[list[Aborted], int]:
    """The aborted transactions, and the last stable offset."""
    replayed, first_open = transactions_around(log.segments[0].path)
    stable_offset = INT64_MAX if first_open is None else first_open
    known = {(each.producer_id, each.last_offset) for each in replayed}
    unseen = [
        each
        for each in _entries(log)
        if (each.producer_id, each.last_offset) not in known
        and not _has_valid_batch_at(log, each.last_offset)
    ]
    if any(each.first_offset <= stable_offset <= each.last_offset for each in unseen):
        stable_offset = last_stable_offset(log)  # the open transaction was decided by a marker that is lost
    return _aborted([*replayed, *unseen]), stable_offset


def from_indexes(log: PartitionLog, bounds: Bounds) -> tuple[list[Aborted], int]:
    """The same. Raises UnreadableInput."""
    stable_offset = last_stable_offset(log)
    return _aborted(
        aborted_transactions(log, bounds.from_offset, min(bounds.to_offset, stable_offset))
    ), stable_offset


def _aborted(found: Sequence[AbortedTxn]) -> list[Aborted]:
    return [Aborted(each.producer_id, each.first_offset, each.last_offset) for each in found]


def _entries(log: PartitionLog) -> Sequence[AbortedTxn]:
    try:
        return aborted_transactions(log, 0, INT64_MAX)
    except (UnreadableInput, FormatError):
        return ()  # the log itself is enough


def _has_valid_batch_at(log: PartitionLog, offset: int) -> bool:
    """Whether a valid batch of the log contains the offset."""
    at = log.floor_index(offset)
    if at < 0:
        return False
    batch = log.segments[at].batch_reaching(offset)
    return batch is not None and batch.base_offset <= offset


class MarkerCheck:
    """Compares what the transaction indexes say about a piece with the markers in it, table by table.

    It only knows its own piece; for a transaction that began before it, it consults the whole log.
    """

    def __init__(self, piece: LogPiece, view: memoryview) -> None:
        self._piece = piece
        self._decoder = Decoder(view, capacity=16)
        self._by_marker = {(each.producer_id, each.marker_offset): each for each in piece.aborted}
        self._markers = sorted({each.marker_offset for each in piece.aborted})
        self._open: dict[int, int] = {}  # by producer: the first offset since its last marker
        self._replayed: set[tuple[int, int]] | None = None

    def table(self, table: Columns) -> Iterator[Finding]:
        """Findings about the index from the batches of a table."""
        magics, attributes = table.column(C.MAGIC), table.column(C.ATTRIBUTES)
        ended: set[tuple[int, int]] = set()
        for row in range(table.count):
            if attributes[row] & L.TRANSACTIONAL_BIT and magics[row] >= L.MAGIC_V2:
                producer_id, offset = table.at(C.PRODUCER_ID, row), table.at(C.BASE_OFFSET, row)
                if not attributes[row] & L.CONTROL_BIT:
                    self._open.setdefault(producer_id, offset)
                    continue
                yield from self._marker(table, row, producer_id, offset, ended)
        if table.count:
            yield from self._misplaced_entries(table, ended)

    def _marker(
        self, table: Columns, row: int, producer_id: int, offset: int, ended: set[tuple[int, int]]
    ) -> Iterator[Finding]:
        first = self._open.pop(producer_id, None)
        marker = marker_of(self._decoder, table, row)
        bounds = self._piece.bounds
        if marker is None:
            return
        ended.add((producer_id, offset))
        if not bounds.from_offset <= offset < bounds.to_offset:
            return
        entry = self._by_marker.get((producer_id, offset))
        if not marker.is_abort:
            if entry is not None:
                yield self._finding(entry, f"it was committed at offset {offset}")
            return
        if entry is None:
            if first is not None or self._is_of_a_transaction(producer_id, offset):
                yield self._missing(producer_id, offset, first)
        elif first is not None and first < entry.first_offset:
            yield self._finding(entry, f"the log has it begin at offset {first}")

    def _is_of_a_transaction(self, producer_id: int, offset: int) -> bool:
        """Whether an abort marker without an index entry ends a transaction with batches before the piece; without any batches there is no
        transaction."""
        if self._replayed is None:
            replayed, _ = transactions_around(self._piece.path)
            self._replayed = {(each.producer_id, each.last_offset) for each in replayed}
        return (producer_id, offset) in self._replayed

    def _misplaced_entries(self, table: Columns, ended: set[tuple[int, int]]) -> Iterator[Finding]:
        """Findings for entries whose marker offset contains something else."""
        bases, ends = table.column(C.BASE_OFFSET), table.column(C.LAST_OFFSET)
        low = bisect_left(self._markers, bases[0])
        for offset in self._markers[low : bisect_left(self._markers, ends[-1] + 1)]:
            row = bisect_left(ends, offset)
            if row == table.count or bases[row] > offset:
                continue  # the cleaner removes markers
            for entry in self._piece.aborted:
                if entry.marker_offset == offset and (entry.producer_id, offset) not in ended:
                    yield self._finding(entry, f"no transaction of this producer ends at offset {offset}")

    def _finding(self, entry: Aborted, why: str) -> Finding:
        message = (
            f"the transaction index says that producer {entry.producer_id} aborted "
            f"{offsets_words(entry.first_offset, entry.marker_offset)}, but {why}; use transactions=log to read them from the log"
        )
        return Finding(
            "txn-index-wrong-entry",
            self._piece.path,
            message,
            first_offset=entry.first_offset,
            last_offset=entry.marker_offset,
            numbers={"producer_id": entry.producer_id},
        )

    def _missing(self, producer_id: int, offset: int, first: int | None) -> Finding:
        message = (
            f"the transaction of producer {producer_id} that was aborted at offset {offset} is not in the transaction "
            "index; use transactions=log to read them from the log"
        )
        return Finding(
            "txn-index-missing-entry",
            self._piece.path,
            message,
            first_offset=first,
            last_offset=offset,
            numbers={"producer_id": producer_id},
        )
