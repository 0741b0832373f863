"""Appending to a partition of Kafka 0.7: JSON lines become messages and message sets.

A line is one message: its `value`. Kafka 0.7 has no keys, headers, timestamps or control records, so a line that has one of these
is refused (a timestamp is dropped). Lines that were dumped from 0.7 (they have `next_offset`) keep their message sets: lines with
the same offset and a compression codec become one compressed entry again. Other lines are batched by the usual rules if a codec is
given.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kseg.change.append.append_guard import Protection
from kseg.change.append.append_job import AppendJob
from kseg.change.append.batching import BatchRules
from kseg.change.append.json_input import BadLine, codec_of, record_line
from kseg.change.append.json_input import Row as Line
from kseg.change.append.options import AppendOptions
from kseg.change.append.writer07 import MessageSet07, Writer07, refuse_unsound
from kseg.change.apply.signals import deferring_signals
from kseg.segment import layout as L
from kseg.segment.errors import UsageError
from kseg.segment.kafka07.log07 import File07, Log07
from kseg.segment.partition.directory import list_partition
from kseg.segment.partition.targets import PartitionTarget


class MessageSets07:
    """Groups lines into message sets. ignored: number of skipped lines by type."""

    def __init__(self, rules: BatchRules) -> None:
        self.rules = rules
        self.ignored: Counter[str] = Counter()
        self._mark: object = None  # the property that the messages of the open set share
        self._messages: list[tuple[bytes, int]] = []
        self._codec = L.NONE
        self._bytes = 0
        self._number = 0

    def sets(self, rows: Iterable[tuple[int, Line]]) -> Iterator[tuple[int, MessageSet07]]:
        """(line number, set) of all lines. Raises BadLine."""
        for number, row in rows:
            kind = row.get("type", "record")
            if kind != "record":
                self.ignored[str(kind)] += 1
                continue
            payload, magic = _message(row, number)
            mark, codec = self._place(row, number)
            if self._messages and (mark is None or mark != self._mark or self._is_full(mark, payload)):
                yield self._close()
            if not self._messages:
                self._mark, self._codec, self._number, self._bytes = mark, codec, number, 0
            self._messages.append((payload, magic))
            self._bytes += len(payload)
        if self._messages:
            yield self._close()

    def _place(self, row: Line, number: int) -> tuple[object, int]:
        """(identity of the set that a line belongs to, None for a set of its own; codec of that set)."""
        codec = self.rules.codec
        if "next_offset" not in row:
            codec = L.NONE if codec is None else codec
            return ("ours" if codec != L.NONE else None), codec
        dumped = codec_of(row, number)
        mark = None if dumped == L.NONE else (row.get("offset"), row["next_offset"])
        return mark, dumped if codec is None else codec

    def _is_full(self, mark: object, payload: bytes) -> bool:
        rules = self.rules
        return mark == "ours" and (
            self._bytes + len(payload) > rules.batch_bytes
            or (rules.batch_records is not None and len(self._messages) >= rules.batch_records)
        )

    def _close(self) -> tuple[int, MessageSet07]:
        messages, self._messages = self._messages, []
        return self._number, MessageSet07(messages, self._codec)


def _message(row: Line, number: int) -> tuple[bytes, int]:
    record = record_line(row, number, 0, 0)
    if record.key is not None or record.headers or "control" in row:
        raise BadLine(number, "Kafka 0.7 has neither keys nor headers nor control records")
    if record.value is None:
        raise BadLine(number, "Kafka 0.7 has no null messages")
    magic = row.get("magic", 1)
    if magic not in (0, 1):
        raise BadLine(number, f"Kafka 0.7 has no messages of magic {magic!r:.40}")
    return record.value, int(magic)


class Appending07(AppendJob[Writer07]):
    """An append to a 0.7 partition. Raises Refused if 0.7 would not open the existing files."""

    def __init__(
        self, target: PartitionTarget, options: AppendOptions, is_there: bool, protection: Protection | None
    ) -> None:
        super().__init__(target, options, protection)
        self._files: Sequence[File07] = ()
        if is_there:
            if list_partition(target.path).segments:
                raise UsageError(f"{target.path} contains segments of Kafka 0.8 or later")
            with Log07(target) as log:
                self._files = log.files
        refuse_unsound(self._files)
        start_offset = options.start_offset or 0
        self._log_start_offset = self._files[0].base_offset if self._files else start_offset
        self._first_offset = self._files[-1].end_offset if self._files else start_offset
        self._sets = MessageSets07(options.batches)

    @property
    def log_end_offset(self) -> int:
        return self._first_offset if self._writer is None else self._writer.end_offset

    @property
    def is_new(self) -> bool:
        return not self._files

    def take(self, rows: Iterable[tuple[int, Line]]) -> Iterator[None]:
        for number, new in self._sets.sets(rows):
            with deferring_signals():
                try:
                    self._opened().append(new)
                except UsageError as error:
                    raise BadLine(number, str(error)) from None
                self._batches += 1
                self._records += len(new.messages)
            yield

    def _open(self, protection: Protection | None) -> Writer07:
        if protection is not None:
            protection.begin(grows=[os.path.basename(file.path) for file in self._files[-1:]])
        return Writer07(
            self._target.path,
            self._files,
            start_offset=self._first_offset,
            roll_bytes=self._options.rolls.segment_bytes,
            flush=self._options.flush,
            announce=None if protection is None else protection.will_create,
            rehearses=protection is None,
        )

    @property
    def ignored(self) -> Mapping[str, int]:
        return self._sets.ignored
