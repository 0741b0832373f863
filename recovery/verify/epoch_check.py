"""Check the leader-epoch checkpoint against the batches (fact sheet §5.5).

The file is a step function from offsets to epochs. Batches of one epoch agree with it when the first and the last of them do.
It may start later than the log (recovery rebuilds it from the recovered segments only, an append of an old format
clears it), so offsets below its first entry are not checked; it must not extend beyond the log end.
"""

from collections.abc import Iterator, Sequence

from kseg.recovery.verify.segment_check import Consumer
from kseg.segment import header_tables as C
from kseg.segment import layout as L
from kseg.segment.findings import Finding
from kseg.segment.header_tables import Columns
from kseg.segment.kernel import verify_records
from kseg.segment.sidecar.leader_epochs import EpochEntry, EpochHistory


class EpochCheck(Consumer):
    """A `Consumer` for all segments of a partition. entries, path: of the leader-epoch checkpoint."""

    def __init__(self, path: str, entries: Sequence[EpochEntry]) -> None:
        self._path = path
        self._entries = tuple(entries)
        self._history = EpochHistory(entries)
        self._epoch = L.NO_LEADER_EPOCH
        self._reported_epoch = L.NO_LEADER_EPOCH  # one finding per run of batches is enough
        self._last: int | None = None

    def take(self, table: Columns, first: int, stop: int) -> Iterator[Finding]:
        row = first
        while True:
            row = verify_records.next_epoch(table.cells, table.capacity, row, stop, self._epoch)
            if row > first and table.at(C.LEADER_EPOCH, row - 1) == self._epoch:
                self._last = table.at(C.BASE_OFFSET, row - 1)
            if row >= stop:
                return
            yield from self._end_run()
            self._epoch = table.at(C.LEADER_EPOCH, row)
            yield from self._check_epoch(table.at(C.BASE_OFFSET, row))
            row += 1

    def _end_run(self) -> Iterator[Finding]:
        last, self._last = self._last, None
        if last is not None:
            yield from self._check_epoch(last)

    def _check_epoch(self, offset: int) -> Iterator[Finding]:
        filed = self._history.epoch_for_offset(offset)
        if filed is not None and filed != self._epoch and self._reported_epoch != self._epoch:
            self._reported_epoch = self._epoch
            message = f"the batch at offset {offset} has epoch {self._epoch}, but the checkpoint has {filed}"
            yield Finding(
                "leader-epoch-file-mismatch",
                self._path,
                message,
                first_offset=offset,
                numbers={"filed_epoch": filed, "batch_epoch": self._epoch},
            )

    def end_of_log(
        self, log_start: int, end_offset: int, last_epoch: int, *, is_in_use: bool = False
    ) -> Iterator[Finding]:
        """Findings that need the whole log. last_epoch: that of the last batch. is_in_use: by a broker, which writes an entry before the
        batch (Kafka: UnifiedLog.append).

        Where all records were deleted, a broker that loads the log removes the entry at its end. If it was killed before it wrote the log
        start, the records are back at that load; its next epoch begins at the log end, as if the file had been missing.
        """
        yield from self._end_run()
        if not self._entries and last_epoch >= 0 and log_start < end_offset:
            message = (
                f"the checkpoint has no entry, but the last batch has epoch {last_epoch}; a broker then "
                "knows no leader epoch of the log"
            )
            yield Finding("leader-epoch-file-empty", self._path, message, numbers={"batch_epoch": last_epoch})
        previous: EpochEntry | None = None
        for line, entry in enumerate(self._entries, start=3):
            if previous is not None and (
                entry.epoch <= previous.epoch or entry.start_offset <= previous.start_offset
            ):
                message = (
                    f"line {line} (epoch {entry.epoch}, start offset {entry.start_offset}) does not increase"
                )
                yield self._mismatch(message, entry)
            elif entry.start_offset > end_offset and not is_in_use:
                message = f"epoch {entry.epoch} starts at offset {entry.start_offset}, but the log ends at {end_offset}"
                yield self._mismatch(message, entry)
            previous = entry

    def _mismatch(self, message: str, entry: EpochEntry) -> Finding:
        return Finding(
            "leader-epoch-file-mismatch",
            self._path,
            message,
            first_offset=entry.start_offset,
            numbers={"filed_epoch": entry.epoch},
        )
