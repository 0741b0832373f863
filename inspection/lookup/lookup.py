"""`lookup` for one partition or file: `lookup(target, LookupQuery) -> Iterator[Event]`.

One row for each answer (several only for the history of a key), preceded by the findings of the search. The kinds of lookup:

    offset                            by_offset   like a fetch
    timestamp, max-timestamp          by_time     like ListOffsets
    earliest, latest, leader-epoch    by_end      like ListOffsets, like OffsetForLeaderEpoch
    those of tiered storage           by_end      like ListOffsets
    key                               by_key      no broker answers this, and one with --partitioner searches one partition only
Kafka 0.7 knows byte positions only: `lookup07`.
"""

from collections.abc import Callable, Iterator

from kseg.inspection.lookup.answer import Answer, AnsweredAt, answer_row, lookup_row, not_found
from kseg.inspection.lookup.misplaced_segments import misplaced_segments
from kseg.inspection.query import LOOKUP_KINDS, LookupQuery
from kseg.jobs.events import Event, Row
from kseg.segment.encoding.partitioner import partition_for_key
from kseg.segment.errors import UsageError
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import LogTarget, directory_of

Finder = Callable[[PartitionLog, LookupQuery], Iterator[Answer]]


def lookup(target: LogTarget, query: LookupQuery) -> Iterator[Event]:
    """Findings and `lookup` rows. Damage that does not affect the answer is not searched for.

    Raises UnreadableInput for a target that cannot be read, and UsageError if it does not support this lookup.
    """
    _check(query)
    elsewhere = _other_partition(target, query)
    if elsewhere is not None:
        yield elsewhere
        return
    with PartitionLog(target, log_start_offset=query.log_start_offset, use_index=query.use_index) as log:
        if log.is_kafka07:
            from kseg.inspection.lookup.lookup07 import kafka07_answers

            yield from kafka07_answers(target, query)
            return
        yield from _answers(log, query)


def _check(query: LookupQuery) -> None:
    if query.kind not in LOOKUP_KINDS:
        raise UsageError(f"unknown lookup: {query.kind}")
    operands = {
        "offset": query.offset,
        "timestamp": query.timestamp_ms,
        "leader-epoch": query.leader_epoch,
        "key": query.key,
    }
    operand = operands.get(query.kind)
    if query.kind in operands and operand is None:
        raise UsageError(f"a lookup by {query.kind} needs a value")
    if isinstance(operand, int) and operand < 0:
        raise UsageError(f"a lookup by {query.kind} does not take {operand}")


def _answers(log: PartitionLog, query: LookupQuery) -> Iterator[Event]:
    if not log.segments:
        log.report(Finding("no-segments", log.directory, "the partition directory contains no segments"))
        answers = iter((not_found("the partition has no segments"),))
    else:
        answers = _finder(query.kind)(log, query)
    for answer in answers:
        row = answer_row(log, query, answer)
        for finding in misplaced_segments(log, answer, query.offset if query.kind == "offset" else None):
            log.report(finding)
        yield from _new_findings(log)
        position = None if answer.batch is None else answer.batch.position
        yield Row(row, AnsweredAt(answer.segment, position, answer.offset))
    yield from _new_findings(log)


def _new_findings(log: PartitionLog) -> Iterator[Event]:
    yield from log.findings
    log.findings.clear()


def _finder(kind: str) -> Finder:
    # imported here: a lookup by offset does not need these modules
    match kind:
        case "offset":
            from kseg.inspection.lookup.by_offset import by_offset

            return by_offset
        case "timestamp":
            from kseg.inspection.lookup.by_time import by_timestamp

            return by_timestamp
        case "max-timestamp":
            from kseg.inspection.lookup.by_time import by_max_timestamp

            return by_max_timestamp
        case "key":
            from kseg.inspection.lookup.by_key import by_key

            return by_key
        case _:
            from kseg.inspection.lookup import by_end

            return {
                "earliest": by_end.earliest,
                "earliest-local": by_end.earliest_local,
                "latest-tiered": by_end.latest_tiered,
                "earliest-pending-upload": by_end.earliest_pending_upload,
                "latest": by_end.latest,
                "leader-epoch": by_end.by_leader_epoch,
            }[kind]


def _other_partition(target: LogTarget, query: LookupQuery) -> Row | None:
    """The answer for a partition that is not searched, because the default partitioner maps the key to another one:

        partition = (murmur2(key) & 0x7fffffff) mod partitions          (Kafka: BuiltInPartitioner.partitionForKey)

    Only the user can know that this holds for a topic: librdkafka's default is another hash, a producer may choose the partition itself,
    and adding partitions moves keys. So it is done only on request, and the answer says so. A partition number beyond the
    topic's number of partitions is searched, since it contradicts that number.
    """
    if query.kind != "key" or query.key is None or query.partition_counts is None:
        return None
    name = own_partition_name(directory_of(target))
    count = None if name is None else query.partition_counts.get(name.topic)
    if name is None or count is None or name.partition >= count:
        return None
    selected = partition_for_key(query.key, count)
    if selected == name.partition:
        return None
    reason = f"not searched: the default partitioner sends this key to partition {selected} of {count}"
    row = lookup_row(name.text, directory_of(target), query, not_found(reason), 0, [])
    return Row(row | {"searched": False})
