"""`append`: JSON lines become batches at the end of a partition, written the way a broker writes them.

1. Decide what PATH is: an existing partition, a new one, or one of Kafka 0.7. An existing partition is opened as a broker
   opens it after a clean shutdown (`reopen`), or refused.
2. Rehearse: all lines become batches (`json_input`, `batching`); each is encoded and appended to a partition in memory, whose
   segments roll, but nothing is written. An invalid line ends the run here. Without lines, the marker that ends a
   producer's open transaction is the only batch (`--marker`).
3. With `apply`, do the same again from the same input (`append_input`), this time writing the files. The end is a clean
   shutdown: side files, leader epochs, a snapshot at the log end; then the checkpoints of the log dir.

If step 3 fails or is interrupted, everything that was written is rolled back (`append_guard`): either all of the input is
appended, or nothing.
"""

import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any

from kseg.change.append.append_guard import Protection
from kseg.change.append.append_input import AppendInput
from kseg.change.append.append_job import AppendJob, AppendResult
from kseg.change.append.batching import Batcher, BatchRules, MadeBatch, Producer
from kseg.change.append.dumps import Dumps
from kseg.change.append.json_input import COUNTED, BadLine, Numbered, base_offset_of_file, json_rows
from kseg.change.append.objections import Objections
from kseg.change.append.options import AppendOptions
from kseg.change.append.partition_writer import OpenPartition, PartitionWriter
from kseg.change.append.reopen import TakenUp, take_up
from kseg.change.apply.room import Room, refuse_without, rooms_for
from kseg.change.apply.signals import deferring_signals, handling_signals
from kseg.change.apply.unfinished import refuse_half_done
from kseg.change.run.prepared import refuse_unreadable
from kseg.jobs.events import Event, Row
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, KsegError, Refused, UsageError
from kseg.segment.files import is_directory
from kseg.segment.partition.directory import list_partition, own_partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionState, Role
from kseg.segment.partition.recognition import is_log_directory, is_partition_directory
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.unreadable import findings_in

_JOURNAL_BYTES = 16 << 10  # minimum, for an append that creates few files
_DIRECTORIES = 4  # directories created around a journal in a partition


def append_target(path: str) -> PartitionTarget:
    """The partition at PATH, existing or not, with its log dir. Raises UsageError for a file."""
    path = path.rstrip(os.sep) or path
    if os.path.lexists(path) and not is_directory(path):
        raise UsageError(f"{path} is a file; append takes the directory of a partition")
    head, tail = os.path.split(path)
    parent = os.path.join(path, os.pardir) if tail in ("", os.curdir, os.pardir) else head or os.curdir
    return PartitionTarget(path, parent if is_log_directory(parent) else None)


def append(target: PartitionTarget, options: AppendOptions) -> Iterator[Event]:
    """Append the lines of `options.source` to one partition, or plan to; yields progress through the input, and one result.

    Raises BadLine (a UsageError) with the number of the line, Refused or UnreadableInput; then nothing was changed.
    """
    with (
        handling_signals(),
        AppendInput(options.source, is_read_again=options.apply) as source,
        _protected(target, options) as protection,
    ):
        rehearsal = yield from _rehearsed(target, options, source)
        result, journal = rehearsal.result(), None
        if protection is not None and rehearsal.changes_something:
            if not options.accept_unreadable:
                refuse_unreadable(target.path, findings_in(target.path))
            refuse_without(_rooms(target, options, rehearsal), target.path, options.keeping)
            result = yield from _carry_out(target, options, source, protection, result)
            journal = protection.journal
            yield from protection.findings
        applied = options.apply and rehearsal.changes_something
        result = replace(
            result,
            partition=_shown_name(target),
            becomes_stray=_becomes_stray(target, options),
            applied=applied,
            journal=journal,
        )
        yield Row(result.as_row(), result)


def _protected(target: PartitionTarget, options: AppendOptions) -> AbstractContextManager[Protection | None]:
    """The protection of a change. A plan only refuses to start if a change was left incomplete."""
    if options.apply:
        return Protection(target, options.run_id, options.follow_links, options.keeping)
    for directory in (target.log_dir, target.path):
        if directory is not None and os.path.isdir(directory):
            refuse_half_done(directory)
    return nullcontext()


def _rooms(target: PartitionTarget, options: AppendOptions, rehearsal: "AppendJob[Any]") -> tuple[Room, ...]:
    """The space that the append needs: the bytes themselves, copies of the side files that it replaces, and the journal."""
    kept_at = options.keeping.quarantine or target.path
    journal_at = options.keeping.journal_dir or target.path
    needs = [(target.path, length) for length in rehearsal.planned_bytes]
    needs += [(kept_at, length) for length in rehearsal.kept_bytes]
    needs += [(journal_at, length) for length in (_JOURNAL_BYTES, *[1] * _DIRECTORIES)]
    return rooms_for(needs)


def _rehearsed(
    target: PartitionTarget, options: AppendOptions, source: AppendInput
) -> Generator[Event, None, "AppendJob[Any]"]:
    """Carry out the append without writing a byte, and return the job. Raises BadLine for a line that cannot be appended."""
    try:
        job = yield from _taken(target, options, source, source.blocks(), None)
        job.close()
    except BadLine as error:
        raise BadLine(error.number, error.why, source.name) from None
    yield from job.findings
    return job


def _carry_out(
    target: PartitionTarget,
    options: AppendOptions,
    source: AppendInput,
    protection: Protection,
    rehearsed: AppendResult,
) -> Generator[Event, None, AppendResult]:
    """Write what was rehearsed and return the result. Any failure rolls everything back."""
    try:
        source.check_unchanged()
        job = yield from _taken(target, options, source, source.again(), protection)
        with deferring_signals():
            job.close()
            result = job.result()
            # when to flush depends on the clock
            if replace(result, flushes=rehearsed.flushes) != rehearsed:
                raise source.changed()
            protection.finish(job.log_end_offset)
    except BadLine:
        protection.roll_back()
        raise source.changed() from None
    except BaseException as error:
        with deferring_signals():
            try:
                protection.roll_back()
            except Refused as refused:
                why = f"{error}; " if isinstance(error, KsegError) else ""
                raise Refused(
                    f"{why}the append is half done, and could not be taken back: {refused}"
                ) from error
        raise
    return result


def _taken(
    target: PartitionTarget,
    options: AppendOptions,
    source: AppendInput,
    blocks: Iterator[bytes],
    protection: Protection | None,
) -> Generator[Event, None, "AppendJob[Any]"]:
    """A job that has processed all lines, and is still open."""
    rows = json_rows(blocks)
    if options.dumps is not None:
        rows = Dumps(options.dumps, source.name, options.given_up).checked(rows)
    first = _first_lines(rows)
    job = _job(target, options, first, protection)
    try:
        for _ in job.take(chain(first, rows)):
            yield from source.progress()
    except BaseException:
        job.release()
        raise
    return job


def _job(
    target: PartitionTarget, options: AppendOptions, first: Sequence[Numbered], protection: Protection | None
) -> AppendJob[Any]:
    is_there = bool(is_directory(target.path)) and bool(os.listdir(target.path))
    if not is_partition_directory(target.path):
        _refuse_name(target.path)
    if options.kafka07 or (is_there and list_partition(target.path).kafka07_files):
        from kseg.change.append.append07 import Appending07

        if options.batches.marker is not None:
            raise UsageError(f"{target.path} is a partition of Kafka 0.7, which has no transactions")
        return Appending07(target, options, is_there, protection)
    return LogAppending(target, options, first, is_there, protection)


def _first_lines(rows: Iterator[Numbered]) -> tuple[Numbered, ...]:
    """The lines up to the first batch or record, which determines where a new partition begins."""
    read = []
    for numbered in rows:
        read.append(numbered)
        if numbered[1].get("type", "record") in COUNTED:
            break
    return tuple(read)


def _start_offset(first: Iterable[Numbered], options: AppendOptions) -> int | None:
    """Start offset of a new partition: the requested one, otherwise that of the segment or the record in the first line; None if neither
    says it."""
    if options.start_offset is not None:
        return options.start_offset
    for _, row in first:
        if (
            row.get("type", "record") not in COUNTED
            or options.batches.keep_offsets is False
            or "next_offset" in row
        ):
            continue
        segment = base_offset_of_file(row)
        # a batch in an old format has only its last offset, so its segment determines where it begins
        offset = (
            row.get("base_offset", row.get("offset"))
            if row.get("magic", L.MAGIC_V2) == L.MAGIC_V2
            else segment
        )
        if type(offset) is int and 0 <= offset <= L.INT64_MAX:
            return offset if segment is None else min(segment, offset)
    return None


def _shown_name(target: PartitionTarget) -> str:
    name = own_partition_name(target.path)
    return os.path.basename(os.path.abspath(target.path)) if name is None else name.text


def _becomes_stray(target: PartitionTarget, options: AppendOptions) -> bool:
    """Whether a broker renames the partition to -stray when it starts: it has no topic id, and gets none here."""
    name = NAME_BY_ROLE[Role.PARTITION_METADATA]
    has_id = options.topic_id is not None or os.path.exists(os.path.join(target.path, name))
    return target.log_dir is not None and not has_id and not options.kafka07


def _refuse_name(path: str) -> None:
    name = own_partition_name(path)
    if name is None or name.state is not PartitionState.LIVE:
        what = (
            "is a data directory: name one of its partitions"
            if is_log_directory(path)
            else "is not named topic-partition"
        )
        raise UsageError(f"cannot append to {path}: it {what}")


class LogAppending(AppendJob[PartitionWriter]):
    """An append to a partition of 0.8 or later."""

    def __init__(
        self,
        target: PartitionTarget,
        options: AppendOptions,
        first: Iterable[Numbered],
        is_there: bool,
        protection: Protection | None,
    ) -> None:
        super().__init__(target, options, protection)
        now_ms = options.batches.now_ms
        start = _start_offset(first, options)
        self._log_start_offset = start or 0
        self._taken = TakenUp(OpenPartition(self._log_start_offset, options.rolls, now_ms=now_ms))
        if is_there:
            self._taken = take_up(target, options.rolls, self._log_start_offset, now_ms)
            self._log_start_offset = self._taken.log_start_offset
        if not self._taken.grows and start is None and options.topic.is_tiered:
            raise UsageError(
                f"{target.path} has no segment, and its topic has tiered storage: the log begins where the remote segments end, not at 0 "
                "(--start-offset N; kseg list --remote shows them)"
            )
        self._partition = self._taken.partition
        self._first_offset = self._partition.next_offset
        self._objections = Objections(target.path, options.topic, now_ms)
        self._latest_epoch = self._partition.latest_epoch
        leader_epoch = options.batches.leader_epoch
        if leader_epoch is None:
            leader_epoch = max(0, self._latest_epoch)
        producer = _producer(self._partition, options.batches)
        self._transaction_start_offset = (
            None if options.batches.marker is None else _open_transaction(self._partition, target, producer)
        )
        self._batcher = Batcher(options.batches, self._first_offset, leader_epoch, producer)

    @property
    def log_end_offset(self) -> int:
        return self._partition.next_offset

    @property
    def is_new(self) -> bool:
        return not self._taken.existing

    def take(self, rows: Iterable[Numbered]) -> Iterator[None]:
        for made in self._batcher.batches(rows):
            with deferring_signals():
                self._append(made)
            yield
        self.findings = (*self.findings, *self._objections.findings())

    def _append(self, made: MadeBatch) -> None:
        try:
            self._check_epoch(made.batch.leader_epoch)
            size_bytes = self._opened().append(made.batch, self._options.batches.now_ms)
        except (UsageError, FormatError) as error:
            if not made.number:
                raise
            raise BadLine(made.number, str(error)) from None
        if made.batch.magic >= L.MAGIC_V2:
            self.findings = self._taken.against_v2
        self._batches += 1
        self._records += len(made.batch.records)
        self._objections.take(made.batch, size_bytes)

    @property
    def kept_bytes(self) -> Sequence[int]:
        return [os.lstat(os.path.join(self._target.path, name)).st_size for name in self._taken.replaces]

    def _open(self, protection: Protection | None) -> PartitionWriter:
        if protection is not None:
            protection.begin(grows=self._taken.grows, replaces=self._taken.replaces)
        return PartitionWriter(
            self._target.path,
            topic_id=self._options.topic_id,
            fsync=True,
            flush=self._options.flush,
            partition=self._partition,
            existing=self._taken.existing,
            announce=None if protection is None else protection.will_create,
            rehearses=protection is None,
        )

    def _check_epoch(self, leader_epoch: int) -> None:
        """Leader epochs never decrease: a batch with an older one would remove the later ones from the history."""
        if 0 <= leader_epoch < self._latest_epoch:
            latest = self._latest_epoch
            raise UsageError(
                f"leader epoch {leader_epoch} is below {latest}, the latest (--leader-epoch sets it)"
            )
        self._latest_epoch = max(self._latest_epoch, leader_epoch)

    @property
    def ignored(self) -> Mapping[str, int]:
        return self._batcher.ignored

    def result(self) -> AppendResult:
        return replace(
            super().result(),
            batches_left_out=self._batcher.left_out,
            timestamps_replaced=self._batcher.restamped,
            transaction_start_offset=self._transaction_start_offset,
        )


def _producer(partition: OpenPartition, rules: BatchRules) -> Producer:
    """The producer of batches without a header: continues its state in the log, unless the options specify it."""
    if rules.producer_id < 0:
        return Producer()
    known = partition.producers.entry(rules.producer_id)
    epoch = rules.producer_epoch
    if epoch is None:
        epoch = 0 if known is None else max(0, known.producer_epoch)
    sequence = rules.base_sequence
    if sequence is None:
        goes_on = known is not None and known.producer_epoch == epoch and known.last_sequence >= 0
        sequence = L.increment_sequence(known.last_sequence, 1) if goes_on and known is not None else 0
    return Producer(
        rules.producer_id, epoch, sequence, 0 if known is None else max(0, known.coordinator_epoch)
    )


def _open_transaction(partition: OpenPartition, target: PartitionTarget, producer: Producer) -> int:
    """The first offset of the transaction that a marker ends. Raises UsageError for a marker that a broker would not append: a producer
    without an open transaction, or an epoch below that of its last batch (ProducerAppendInfo)."""
    known = partition.producers.entry(producer.producer_id)
    if known is None or known.current_txn_first_offset is None:
        raise UsageError(
            f"producer {producer.producer_id} has no open transaction in {_shown_name(target)} "
            "(kseg transactions lists the open ones)"
        )
    if producer.epoch < known.producer_epoch:
        raise UsageError(
            f"epoch {producer.epoch} is below {known.producer_epoch}, the latest of producer {producer.producer_id} in "
            f"{_shown_name(target)}"
        )
    return known.current_txn_first_offset
