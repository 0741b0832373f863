"""Commit staged runs to the partitions of a log dir: all of them or none.

1. Join: the runs of a partition are concatenated in the order of the tasks; runs whose records have offsets are ordered by offset and
   must not overlap. If runs cannot be joined, the write is refused before anything is changed.
2. Protect: take the lock of the log dir, write a journal there that names every partition, remove the clean-shutdown marker
   (`multi_partition_guard`). A write that was killed earlier is rolled back first.
3. Write. A new partition is created under the name of a partition scheduled for deletion, so that a broker never takes an incomplete
   one for a partition. An existing one grows as with `append`, or is replaced by a plan (`apply`) whose quarantine keeps its contents.
4. Rename the new partitions, update the checkpoints, record what was written, and close the journal.

Any failure rolls everything back. A killed write leaves an unfinished journal: `kseg undo` rolls it back, and so does the next write.
Batches are written as the tasks compressed them; the CRC of each is verified on the way.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

from kseg.change.append.multi_partition_guard import LogDirProtection
from kseg.change.append.partition_writer import OpenPartition, PartitionWriter, RollRules
from kseg.change.append.reopen import take_up
from kseg.change.apply.append_files import create_file, replace_file
from kseg.change.apply.append_journal import Guard
from kseg.change.apply.disk import DISK
from kseg.change.apply.file_operations import give_owner, remove_if_empty, remove_quietly
from kseg.change.apply.journal import Journal, partition_locations
from kseg.change.apply.journal_location import JournalLocation
from kseg.change.apply.journal_scan import id_after, location_of
from kseg.change.apply.journal_writer import discard
from kseg.change.apply.lock import locked
from kseg.change.apply.signals import deferring_signals
from kseg.change.apply.undo import undo
from kseg.change.apply.unfinished import half_done, refuse_half_done
from kseg.segment.errors import FormatError, Refused, UsageError
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.new_files import sync_directory
from kseg.segment.partition.directory import list_partition
from kseg.segment.partition.names import (
    NAME_BY_ROLE,
    STAGED_PREFIX,
    PartitionName,
    PartitionState,
    Role,
    format_partition_directory,
    parse_partition_directory,
)
from kseg.segment.partition.recognition import is_partition_directory
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.metadata_files import decode_partition_metadata
from kseg.segment.values import dataclass
from kseg.spark.source.write.merge import Key, StagedFiles, joined_runs
from kseg.spark.source.write.overwrite import latest_epoch, replace_partition
from kseg.spark.source.write.staged_runs import StagedRun, is_staged_by

COMMAND = "write"
_FORGOTTEN_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """log_dir: the target. run_id: names the journals, unless a later run has changed something there. now_ms: the wall clock.

    replaces: whether the partitions of the written topics are overwritten instead of appended to. partitions: the minimum number of
    partitions by topic (those without records are created empty). topic_ids: for new partitions. leader_epoch: of all batches; None
    takes the partition's latest, else 0. note: (name, content) of a file of the log dir that is written in the same commit.
    keeps_journal: False if the write will not be undone.
    """

    log_dir: str
    run_id: str
    now_ms: int
    replaces: bool = False
    partitions: Mapping[str, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    rolls: RollRules = field(default_factory=RollRules)
    leader_epoch: int | None = None
    note: tuple[str, bytes] | None = None
    keeps_journal: bool = True


@dataclass(frozen=True, slots=True)
class Delivered:
    """journal: for `kseg undo`; None if nothing was written or no journal is kept. log_end_offsets: of every written partition.
    findings: checkpoints of the log dir that could not be read and are unchanged."""

    journal: str | None
    log_end_offsets: Mapping[str, int]
    findings: tuple[Finding, ...] = ()


def deliver(runs: Sequence[StagedRun], delivery: Delivery) -> Delivered:
    """Write the runs to the partitions of the log dir. Their own files are kept (`clear_staged` removes them).

    Raises UsageError if runs cannot be joined; Refused if a broker or another kseg is at work, a partition is damaged, or the disk
    refuses the writes. Then everything is as before.
    """
    joined = joined_runs(runs)
    with LogDirLock(delivery.log_dir), deferring_signals():
        return _Course(joined, delivery).carried_out()


def clear_staged(log_dir: str, run_ids: Iterable[str]) -> None:
    """Remove the files that the tasks of these runs have written, including those of failed attempts."""
    for name in DISK.names(log_dir):
        if any(is_staged_by(name, run_id) for run_id in run_ids):
            with suppress(OSError):
                remove_quietly(DISK, os.path.join(log_dir, name))


def clear_forgotten(log_dir: str, now_ms: int) -> None:
    """Remove the files of killed runs: those that nothing was written to for a day."""
    for name in DISK.names(log_dir):
        path = os.path.join(log_dir, name)
        if name.startswith(STAGED_PREFIX):
            with suppress(OSError):
                status = DISK.status(path)
                if status is not None and status.st_mtime_ns // 1_000_000 < now_ms - _FORGOTTEN_MS:
                    remove_quietly(DISK, path)


def partitions_in(log_dir: str) -> dict[Key, str]:
    """(topic, partition) → directory name of all live partitions; empty if the log dir does not exist."""
    found: dict[Key, str] = {}
    for entry in DISK.names(log_dir):
        with suppress(FormatError):
            name = parse_partition_directory(entry)
            if name.state is PartitionState.LIVE and os.path.isdir(os.path.join(log_dir, entry)):
                found[name.topic, name.partition] = entry
    return found


class LogDirLock:
    """The lock of a log dir, as a context manager. Taking it rolls back an interrupted delivery."""

    def __init__(self, log_dir: str) -> None:
        self._lock = locked([log_dir])
        self._log_dir = log_dir

    def __enter__(self) -> None:
        if not os.path.isdir(self._log_dir):
            raise Refused(
                f"{self._log_dir} does not exist or is not visible to the driver: it must be on a file system that the driver "
                "and executors share"
            )
        if is_partition_directory(self._log_dir):
            raise Refused(f"{self._log_dir} is a partition; the path must be a data directory")
        self._lock.__enter__()
        try:
            for journal in half_done(self._log_dir):
                if journal.command == COMMAND and journal.location.in_log_dir:
                    _take_back(journal)
        except BaseException:
            self._lock.__exit__(None, None, None)
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__(None, None, None)


def _take_back(journal: Journal) -> None:
    undo(journal.location)
    _clear_set_aside(journal)


def _clear_set_aside(journal: Journal) -> None:
    """Remove directories that were created by a run that was killed before it wrote their journals."""
    for place in partition_locations(journal):
        with suppress(FormatError):
            name = parse_partition_directory(os.path.basename(place.directory))
            if name.state is PartitionState.DELETE:
                remove_if_empty(DISK, place.directory)


# --- one delivery


@dataclass(frozen=True, slots=True)
class _Item:
    """One partition to write. name: of its directory. former: whether it already exists."""

    key: Key
    name: str
    former: bool
    runs: Sequence[StagedRun]

    @property
    def partition(self) -> PartitionName:
        return PartitionName(*self.key)

    @property
    def start_offset(self) -> int:
        """The start offset of a new partition."""
        return self.runs[0].first_offset if self.runs and self.runs[0].has_offsets else 0


class _Course:
    """One delivery, from the plan to the last journal line. The caller holds the lock."""

    def __init__(self, joined: Mapping[Key, list[StagedRun]], delivery: Delivery) -> None:
        self._delivery = delivery
        self._there = partitions_in(delivery.log_dir)
        self._items = list(self._items_of(joined))
        changed = (os.path.join(delivery.log_dir, item.name) for item in self._items if item.former)
        self._delivery = replace(delivery, run_id=id_after(delivery.run_id, (delivery.log_dir, *changed)))
        self._ends: dict[PartitionName, int] = {}
        self._set_aside = {
            item.key: format_partition_directory(
                replace(item.partition, state=PartitionState.DELETE, unique_id=os.urandom(16).hex())
            )
            for item in self._items
            if not item.former
        }
        self._files = StagedFiles(delivery.log_dir)

    def carried_out(self) -> Delivered:
        what = self._delivery
        if not self._items and what.note is None:
            return Delivered(None, {})
        for item in self._items:
            if item.former:
                self._check(item)
        with LogDirProtection(what.log_dir, COMMAND, what.run_id) as protection:
            names = [*(item.name for item in self._items), *self._set_aside.values()]
            note = [] if what.note is None else [what.note[0]]
            protection.begin(names, files=note, forgets=what.replaces)
            journal = protection.journal
            try:
                self._write(protection)
                replaced = [item.partition for item in self._items if item.former and what.replaces]
                protection.finish(self._ends, replaced)
            except BaseException:
                protection.roll_back()
                self._clear()
                raise
            finally:
                self._files.close()
        if not what.keeps_journal and journal is not None:
            self._forget(journal)
            journal = None
        ends = {name.text: end for name, end in sorted(self._ends.items(), key=lambda each: each[0].text)}
        return Delivered(journal, ends, tuple(protection.findings))

    def _items_of(self, joined: Mapping[Key, list[StagedRun]]) -> Iterator[_Item]:
        what = self._delivery
        keys = set(joined)
        for topic, count in what.partitions.items():
            keys |= {(topic, partition) for partition in range(count)}
        if what.replaces:
            topics = {topic for topic, _ in keys} | set(what.partitions)
            keys |= {key for key in self._there if key[0] in topics}
        for key in sorted(keys):
            name = self._there.get(key)
            if key in joined or name is None or what.replaces:
                yield _Item(key, name or PartitionName(*key).text, name is not None, joined.get(key, []))

    def _check(self, item: _Item) -> None:
        directory = os.path.join(self._delivery.log_dir, item.name)
        refuse_half_done(directory)
        if list_partition(directory).kafka07_files:
            raise Refused(f"{directory} is a Kafka 0.7 partition; use `kseg append` to write to it")

    def _write(self, protection: LogDirProtection) -> None:
        what = self._delivery
        new = [item for item in self._items if not item.former]
        for item in new:
            self._ends[item.partition] = self._make(item, protection)
        for item in self._items:
            if item.former:
                end = self._replace(item) if what.replaces else self._grow(item, protection)
                self._ends[item.partition] = end
        for item in new:
            target = os.path.join(what.log_dir, item.name)
            if DISK.status(target) is not None:
                raise Refused(f"{target} was created by another process")
            DISK.rename(os.path.join(what.log_dir, self._set_aside[item.key]), target)
        if what.note is not None:
            name, content = what.note
            path = os.path.join(what.log_dir, name)
            (create_file if DISK.status(path) is None else replace_file)(path, content)
        sync_directory(what.log_dir)

    def _make(self, item: _Item, protection: LogDirProtection) -> int:
        """Create a partition under a name with the suffix of deleted ones, which brokers ignore; returns its log end offset."""
        what = self._delivery
        directory = os.path.join(what.log_dir, self._set_aside[item.key])
        try:
            DISK.make_directory(directory)
            give_owner(DISK, directory, os.stat(what.log_dir))
        except OSError as error:
            raise Refused(f"cannot create {directory}: {error.strerror}") from error
        guard = protection.guard(directory, is_new=True)
        writer = PartitionWriter(
            directory,
            topic_id=self._topic_id(item.key[0]),
            start_offset=item.start_offset,
            rules=what.rolls,
            fsync=True,
            announce=guard.will_create,
        )
        return self._append(item, writer, guard)

    def _grow(self, item: _Item, protection: LogDirProtection) -> int:
        """Append to an existing partition; returns its log end offset."""
        what = self._delivery
        directory = os.path.join(what.log_dir, item.name)
        target = PartitionTarget(directory, what.log_dir)
        taken = take_up(target, what.rolls, item.start_offset, what.now_ms)
        guard = protection.guard(directory, grows=taken.grows, replaces=taken.replaces)
        writer = PartitionWriter(
            directory,
            topic_id=self._topic_id(item.key[0]),
            fsync=True,
            partition=taken.partition,
            existing=taken.existing,
            announce=guard.will_create,
        )
        return self._append(item, writer, guard)

    def _append(self, item: _Item, writer: PartitionWriter, guard: Guard) -> int:
        with writer:
            for batch in self._batches(item, writer.partition, max(0, writer.partition.latest_epoch)):
                writer.append(batch, self._delivery.now_ms)
        guard.done()
        return writer.next_offset

    def _replace(self, item: _Item) -> int:
        """Replace the records of an existing partition; returns its log end offset."""
        what = self._delivery
        directory = os.path.join(what.log_dir, item.name)
        partition = OpenPartition(item.start_offset, what.rolls, now_ms=what.now_ms)
        topic_id = what.topic_ids.get(item.key[0])
        batches = self._batches(item, partition, latest_epoch(directory))
        replace_partition(directory, partition, batches, COMMAND, what.run_id, topic_id, what.now_ms)
        return partition.next_offset

    def _topic_id(self, topic: str) -> str | None:
        """The topic id given by the user, else that of another partition of the topic."""
        if topic in self._delivery.topic_ids:
            return self._delivery.topic_ids[topic]
        for (other, _), name in self._there.items():
            path = os.path.join(self._delivery.log_dir, name, NAME_BY_ROLE[Role.PARTITION_METADATA])
            if other == topic and os.path.isfile(path):
                with suppress(FormatError):
                    return decode_partition_metadata(read_small(path)).topic_id
        return None

    # --- batches

    def _batches(self, item: _Item, partition: OpenPartition, latest_epoch: int) -> Iterator[bytes]:
        """The batches with their positions; each is written before the next is requested."""
        epoch = self._delivery.leader_epoch
        if epoch is None:
            epoch = latest_epoch
        elif epoch < latest_epoch:
            raise UsageError(f"{item.name}: leader epoch {epoch} is below {latest_epoch}, the latest")
        for run in item.runs:
            shift = 0 if run.has_offsets else partition.next_offset
            yield from self._files.batches(run, shift, epoch)

    # --- afterwards

    def _clear(self) -> None:
        for name in self._set_aside.values():
            remove_if_empty(DISK, os.path.join(self._delivery.log_dir, name))

    def _forget(self, journal: str) -> None:
        """Remove the journals if they are not kept, that of the log dir last."""
        for item in self._items:
            place = JournalLocation(
                os.path.join(self._delivery.log_dir, item.name), self._delivery.run_id, in_log_dir=False
            )
            discard(place, DISK)
        whole = location_of(journal)
        if whole is not None:
            discard(whole, DISK)
