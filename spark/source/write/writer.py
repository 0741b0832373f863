"""`df.write.format("kafka-log")` for batch and streaming queries: writes valid partitions, all of them or none.

1. The driver checks columns and options, and counts the existing partitions of the topics.
2. Each attempt of a task writes its rows as complete batches into a file of its own in the data directory, under a name
   that brokers and other attempts ignore (`spark.source.write.staged_runs`). A task that is killed, retried or run twice
   leaves another file.
3. The driver learns which attempts count, one for each task, and merges their runs in the order of the tasks
   (`spark.source.write.commit`). Partitions change only there, under the lock of the data directory and a journal.
4. The files of all attempts are removed.

A streaming query must write each micro-batch once, even if its driver is killed between writing a batch and recording that in the
checkpoint. So the commit also writes the number of the batch into the data directory, atomically with the partitions and under the
id of the query, which is in its checkpoint. A batch whose number is already there is not written again.
"""

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from kseg.change.apply.disk import DISK
from kseg.change.apply.file_operations import make_directories
from kseg.change.apply.journal_location import new_run_id
from kseg.segment.errors import Refused, UnreadableInput, UsageError
from kseg.segment.files import read_small
from kseg.segment.partition.names import STREAM_PREFIX
from kseg.segment.values import dataclass
from kseg.spark.source.write.commit import (
    Delivery,
    LogDirLock,
    clear_forgotten,
    clear_staged,
    deliver,
    partitions_in,
)
from kseg.spark.source.write.options import ERROR, IGNORE, WriteOptions, write_options
from kseg.spark.source.write.rows import RowColumns, RowWriter
from kseg.spark.source.write.staged_runs import RunWriter, StagedRun, staged_name
from kseg.spark.visibility import DirectorySample, check_directory_sample, directory_sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

_LOG = logging.getLogger("kseg.spark")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The output of one attempt. task: the number of its task. run_id: of the write."""

    task: int
    run_id: str
    runs: tuple[StagedRun, ...]


@dataclass(frozen=True, slots=True)
class WriteJob:
    """One write, shared by driver and tasks. counts: the partition counts by topic before the write. directory_sample: the data
    directory as the driver sees it, which tasks compare."""

    options: WriteOptions
    columns: RowColumns
    run_id: str
    counts: "Mapping[str, int]"
    directory_sample: DirectorySample

    @classmethod
    def of(cls, schema: "StructType", given: "Mapping[str, str]") -> "WriteJob":
        """Raises UsageError for invalid options or columns."""
        options = write_options(given)
        counts: dict[str, int] = {}
        for topic, partition in partitions_in(options.log_dir):
            counts[topic] = max(counts.get(topic, 0), partition + 1)
        columns = RowColumns.of(schema, options)
        return cls(options, columns, new_run_id(_now_ms()), counts, directory_sample(options.log_dir))

    def write(self, batches: "Iterator[RecordBatch]") -> Written:
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        log_dir = self.options.log_dir
        check_directory_sample(self.directory_sample)
        name = staged_name(self.run_id, task)
        with RunWriter(log_dir, name, self.options.runs) as writer:
            rows = RowWriter(writer, self.columns, self.options, self.counts, task)
            for batch in batches:
                if batch.num_rows:
                    _make(log_dir)
                    rows.write([batch])
            return Written(task, self.run_id, writer.close())

    def delivery(self, runs: Sequence[StagedRun], run_id: str) -> Delivery:
        options = self.options
        topics = {run.topic for run in runs} | ({options.topic} if options.topic is not None else set())
        return Delivery(
            log_dir=options.log_dir,
            run_id=run_id,
            now_ms=_now_ms(),
            # the other partitions of an existing topic may be in another data directory, or on another broker
            partitions={
                topic: 0 if topic in self.counts else options.partitions or 0 for topic in sorted(topics)
            },
            topic_ids=options.topic_ids,
            rolls=options.rolls,
            leader_epoch=options.leader_epoch,
        )

    def clear(self, run_ids: set[str]) -> None:
        """Remove the files of these runs, and old ones that killed jobs have left."""
        clear_staged(self.options.log_dir, run_ids)
        clear_forgotten(self.options.log_dir, _now_ms())


class KafkaLogWriter(DataSourceArrowWriter):
    """A batch write. replaces: mode overwrite. Raises UsageError for invalid options or columns."""

    def __init__(self, schema: "StructType", given: "Mapping[str, str]", replaces: bool) -> None:
        self._job = WriteJob.of(schema, given)
        self._replaces = replaces
        self._is_ignored = False
        options = self._job.options
        if replaces and options.if_exists in (ERROR, IGNORE):
            raise UsageError("ifExists is supported with mode append only")
        if options.if_exists in (ERROR, IGNORE) and self._is_there():
            if options.if_exists == ERROR:
                raise Refused(self._there_already())
            self._is_ignored = True

    def write(self, iterator: "Iterator[RecordBatch]") -> Written:
        if self._is_ignored:
            return Written(0, self._job.run_id, ())
        return self._job.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        runs, _ = _of_tasks(messages)
        job = self._job
        delivery = job.delivery(runs, job.run_id)
        try:
            empties = self._replaces and job.options.topic in job.counts
            if self._is_ignored or not any((runs, empties, *delivery.partitions.values())):
                return
            _make(job.options.log_dir)
            with LogDirLock(job.options.log_dir):
                if job.options.if_exists in (ERROR, IGNORE) and self._is_there():
                    if job.options.if_exists == ERROR:
                        raise Refused(self._there_already())
                    return
                if self._replaces:
                    self._tell_of_empty(delivery, runs)
                deliver(runs, replace(delivery, replaces=self._replaces))
        finally:
            job.clear({job.run_id})

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._job.clear({self._job.run_id})

    def _tell_of_empty(self, delivery: Delivery, runs: Sequence[StagedRun]) -> None:
        """Warn about partitions that were overwritten with nothing: they are kept, because a topic never loses partitions."""
        written = {(run.topic, run.partition) for run in runs}
        emptied = sorted(
            where
            for where in partitions_in(self._job.options.log_dir)
            if where[0] in delivery.partitions and where not in written
        )
        if emptied:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in emptied)
            _LOG.warning(
                "overwrite has no records for %s: left empty, with what they held in quarantine; a topic never has fewer "
                "partitions",
                names,
            )

    def _is_there(self) -> bool:
        """Whether the target exists: the topic, or without the option `topic` any partition."""
        options = self._job.options
        there = partitions_in(options.log_dir)
        return any(options.topic in (None, topic) for topic, _ in there)

    def _there_already(self) -> str:
        options = self._job.options
        what = "partitions" if options.topic is None else f"partitions of {options.topic}"
        return f"{options.log_dir} holds {what} already"


class KafkaLogStreamWriter(DataSourceStreamArrowWriter):
    """The write of a streaming query. Raises UsageError for invalid options or columns."""

    def __init__(self, schema: "StructType", given: "Mapping[str, str]", replaces: bool) -> None:
        if replaces:
            raise UsageError("kafka-log supports the output modes append and update only")
        self._job = WriteJob.of(schema, given)
        if self._job.options.if_exists in (ERROR, IGNORE):
            raise UsageError("ifExists is supported in batch writes only")
        self._sink = _sink_id(self._job.options)

    def write(self, iterator: "Iterator[RecordBatch]") -> Written:
        return self._job.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        runs, run_ids = _of_tasks(messages)
        job = self._job
        log_dir = job.options.log_dir
        name = f"{STREAM_PREFIX}{self._sink}.json"
        _make(log_dir)
        try:
            with LogDirLock(log_dir):
                if batchId > _last_batch(os.path.join(log_dir, name)):
                    note = json.dumps({"query": self._sink, "batch": batchId}).encode() + b"\n"
                    delivery = job.delivery(runs, new_run_id(_now_ms()))
                    deliver(runs, replace(delivery, note=(name, note), keeps_journal=False))
        finally:
            job.clear(run_ids)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._job.clear(_of_tasks(messages)[1])


def _make(log_dir: str) -> None:
    """Create the data directory and its missing parents, as Spark's own sinks do. Raises Refused."""
    try:
        make_directories(os.path.abspath(log_dir), DISK)
    except OSError as error:
        raise Refused(f"cannot create {log_dir}: {error.strerror}") from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _of_tasks(messages: Sequence[WriterCommitMessage | None]) -> tuple[list[StagedRun], set[str]]:
    """The runs in the order of the tasks, and the run ids in the names of their files."""
    written = sorted(
        (message for message in messages if isinstance(message, Written)), key=lambda each: each.task
    )
    return [run for each in written for run in each.runs], {each.run_id for each in written}


def _sink_id(options: WriteOptions) -> str:
    """The id under which the data directory knows a streaming query: the query's own, which its checkpoint keeps."""
    found: object = options.sink_id
    if found is None and options.checkpoint is not None:
        path = os.path.join(options.checkpoint.removeprefix("file:"), "metadata")
        try:
            found = json.loads(read_small(path)).get("id")
        except (UnreadableInput, ValueError, AttributeError) as error:
            raise UsageError(
                f"the id of the query cannot be read from {path} ({error}); set the option sinkId to a value "
                "that no other query has used with this data directory"
            ) from None
    if found is None:
        raise UsageError("a streaming write needs the option checkpointLocation, or sinkId")
    if not isinstance(found, str) or _ID.fullmatch(found) is None:
        raise UsageError(f"{found!r} cannot be part of a file name")
    return found


def _last_batch(path: str) -> int:
    """The number of the micro-batch that was written last, -1 for none."""
    if not os.path.lexists(path):
        return -1
    try:
        number = json.loads(read_small(path))["batch"]
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path} does not contain the last batch: {error}") from None
    if not isinstance(number, int):
        raise Refused(f"{path} does not contain the last batch")
    return number
