"""Look up an offset: what a fetch from there would return first (Kafka: LocalLog.read, LogSegment.read; fact sheet §4.5).

1. Below the log start or beyond the log end a broker answers OFFSET_OUT_OF_RANGE; at the log end it returns nothing.
2. The segment is chosen by name: the greatest base offset ≤ N. In it the first batch with last offset ≥ N, from the
   position its offset index gives. If there is none (the offsets were compacted away): the first batch of the next one.
3. The record is the first at or after N, in that batch or, if compaction removed its last records, in a later one.
"""

from collections.abc import Generator, Iterator
from contextlib import closing

from kseg.inspection.lookup.answer import Answer, epoch_of, not_found
from kseg.inspection.query import LookupQuery
from kseg.segment import header_tables as C
from kseg.segment.header_tables import Columns
from kseg.segment.model import Batch
from kseg.segment.partition.derived_state import aborted_transactions, is_aborted, last_stable_offset
from kseg.segment.partition.log_segment import LogSegment
from kseg.segment.partition.partition_log import PartitionLog


def by_offset(log: PartitionLog, query: LookupQuery) -> Iterator[Answer]:
    """The answer for `query.offset`."""
    offset = query.offset
    assert offset is not None
    if offset < log.start_offset:
        remote = log.remote_words(offset)
        local = f"offset {offset} is below the log start offset {log.start_offset}"
        if remote:
            local = f"offset {offset} is below the local log, which starts at {log.start_offset}; {remote}"
        yield not_found(local)
        return
    stop = last_stable_offset(log) if query.read_committed else None
    if stop is not None and stop <= offset < log.end_offset:
        yield not_found(f"offset {offset} is not below the last stable offset {stop}")
        return
    with closing(batches_reaching(log, offset)) as batch_places:
        batch_place = next(batch_places, None)
        if batch_place is None:
            answer = not_found(_not_found_reason(log, offset))
        elif stop is not None and batch_place[1].base_offset >= stop:
            answer = not_found(
                f"the next record after offset {offset} is not below the last stable offset {stop}"
            )
        else:
            answer = _with_record(log, batch_place, batch_places, offset, stop)
    yield answer


def batches_reaching(log: PartitionLog, offset: int) -> Generator[tuple[LogSegment, Batch], None, None]:
    """The valid batches of the log, starting with the first one that contains or follows `offset`."""
    for segment in log.from_floor(offset):
        for batch in segment.reaching(offset):
            yield segment, batch


def _with_record(
    log: PartitionLog,
    batch_place: tuple[LogSegment, Batch],
    others: Iterator[tuple[LogSegment, Batch]],
    offset: int,
    stop: int | None,
) -> Answer:
    def is_wanted(records: Columns, at: int) -> bool:
        return records.at(C.R_OFFSET, at) >= offset

    segment, batch = batch_place
    batch = segment.decoded(batch)
    answer = Answer(
        offset=max(offset, batch.base_offset),
        leader_epoch=epoch_of(batch),
        segment=segment.path,
        batch=batch,
    )
    while True:
        record = segment.first_record(batch, is_wanted)
        if record is not None:
            break
        following = next(others, None)
        if following is None or (stop is not None and following[1].base_offset >= stop):
            return answer
        segment, batch = following
    return Answer(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        leader_epoch=answer.leader_epoch,
        segment=answer.segment,
        batch=answer.batch,
        record=record,
        record_file=segment.path,
        record_batch=batch,
        is_aborted=_is_aborted(log, batch) if stop is not None else None,
    )


def _is_aborted(log: PartitionLog, batch: Batch) -> bool:
    aborted = aborted_transactions(log, batch.base_offset, batch.last_offset + 1)
    return is_aborted(batch, aborted)


def _not_found_reason(log: PartitionLog, offset: int) -> str:
    end = log.end_offset
    if offset > end:
        return f"offset {offset} is beyond the log end offset {end}"
    if offset == end:
        return f"the log ends here: its end offset is {end}"
    return f"no batch contains or follows offset {offset}; the log end offset is {end}"
