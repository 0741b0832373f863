"""Lifecycle of a change of several directories: take locks, process the partitions, update the log dirs' own files.

1. Before a change in place (--apply): lock all log dirs concerned, so that no broker is running and none starts, and complete what
   the same command left unfinished there.
2. The partitions, in this process or in others. The run reads their events: only those tell the state of the partitions.
3. Afterwards: each log dir's own files, once, in the process that was called.

A run with attempts in other processes (`attempts`) leaves them their part of each lock. It also has a lock file next to
partitions outside any log dir and next to the copies of --output, and notes which copies existed before.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar, cast

from kseg.change.apply.lock import log_dirs_behind
from kseg.change.run.options import ChangeOptions, SharedRun
from kseg.change.run.prepared import copies_of
from kseg.jobs.events import Event, Failure
from kseg.segment.errors import KsegError, Refused
from kseg.segment.findings import linked_directory
from kseg.segment.partition.recognition import is_log_directory
from kseg.segment.partition.targets import FileTarget, PartitionTarget, Target, directory_of

O = TypeVar("O", bound=ChangeOptions)


class RunLifecycle(ABC, Generic[O]):
    """One run over many targets. command: the name of the command."""

    command: ClassVar[str]

    def __init__(self, options: O) -> None:
        self.options = options
        self.log_dirs: list[str] = []  # data directories whose files this run writes
        self.whole: Sequence[str] = ()  # data directories named as a whole, or below a parent that was named
        self.links: list[str] = []  # directories among the targets, or around them, that are links
        self.is_read_only = False  # whether one of the targets is on a file system that is mounted read-only
        self._is_complete = False
        self.first_events: tuple[Event, ...] = ()  # about the evidence, before anything else

    @abstractmethod
    def note(self, event: Event) -> None:
        """Called with each event of the partitions."""

    @abstractmethod
    def close(self, log_dir: str) -> Iterator[Event]:
        """Called when the partitions are done: update the data directory's own files. Raises KsegError."""

    def partial_log_dirs(self) -> Sequence[str]:
        """Data directories of which only some partitions were processed, and for which `close_partial_log_dir`
        has something to do."""
        return ()

    def close_partial_log_dir(self, log_dir: str) -> Iterator[Event]:
        """Close one of the `partial_log_dirs`. Raises KsegError."""
        yield from ()

    def begin(self, targets: Sequence[Target]) -> None:
        """Called once all locks are held, before anything changes. Raises Refused."""

    def copy_of(self, target: Target) -> str | None:
        """Where the copy of a target goes; None without --output."""
        return None

    def log_dirs_of(self, targets: Sequence[Target]) -> list[str]:
        """The data directories of the targets, each once."""
        found = [
            target.log_dir for target in targets if isinstance(target, PartitionTarget) and target.log_dir
        ]
        return list(dict.fromkeys([*self.whole, *found]))

    def log_dir_around(self, directory: str) -> str | None:
        """The data directory of the run that contains a partition directory."""
        around = os.path.dirname(directory)
        if around in self.log_dirs:  # nearly always, and at no cost
            return around
        # the second one is that of a link from elsewhere
        paths = os.path.abspath(directory), os.path.realpath(directory)
        by_path = {os.path.abspath(each): each for each in self.log_dirs}
        return next((by_path[each] for each in map(os.path.dirname, paths) if each in by_path), None)

    @contextmanager
    def held(self, targets: Sequence[Target]) -> Iterator[O]:
        """Hold the locks while the targets are processed; yields the options to work with. Raises Refused
        when a broker is running."""
        self.log_dirs = self.log_dirs_of(targets)
        # the journal of copies comes first: it records whether their directory was created for them
        with self._copies(), self._locks(targets):
            if self.options.apply:
                # imported only for a change: a plan need not wait for the executor
                from kseg.change.apply.journal_scan import id_after
                from kseg.change.apply.unfinished import complete_unfinished

                for log_dir in self.log_dirs:
                    complete_unfinished(log_dir, self.command)
                changed = dict.fromkeys((*self.log_dirs, *map(directory_of, targets)))
                self._set(run_id=id_after(self.options.run_id, changed))
            self.begin(targets)
            yield self.options_for_work()

    @contextmanager
    def _copies(self) -> Iterator[None]:
        """The journal of the copies of --output. Raises Refused."""
        location = copies_of(self.options)
        if location is None:
            yield
            return
        from kseg.change.apply.lock import claimed
        from kseg.change.run.output_run import begin_copies, end_copies

        begin_copies(location.directory, self.command, location.id)
        try:
            with claimed(location.directory):
                yield
        finally:
            end_copies(location, self._is_complete)

    def _set(self, **fields: object) -> None:
        self.options = cast("O", replace(cast("Any", self.options), **fields))

    def options_for_work(self) -> O:
        """The options with which partitions are processed."""
        return self.options

    def through(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events of the partitions, followed by those of their data directories."""
        yield from self.first_events
        for path in self.links:
            yield linked_directory(path)
        has_failed = False
        for event in events:
            self.note(event)
            has_failed = has_failed or isinstance(event, Failure)
            yield event
        closings = [(log_dir, self.close) for log_dir in self.log_dirs]
        closings += [(log_dir, self.close_partial_log_dir) for log_dir in self.partial_log_dirs()]
        for log_dir, close in closings:
            try:
                yield from close(log_dir)
            except KsegError as error:
                has_failed = True
                yield Failure(log_dir, str(error), error.exit_status)
        self._is_complete = not has_failed
        location = copies_of(self.options)
        if has_failed and location is not None:
            from kseg.change.run.output_run import unfinished_sentence

            sentence = unfinished_sentence(location)
            if sentence:
                yield Failure(location.directory, sentence, Refused.exit_status)

    def _locks(self, targets: Sequence[Target]) -> AbstractContextManager[None]:
        shared = self.options.shared
        if shared is not None and shared.output is not None:
            return self._locks_of_copies(targets, shared, shared.output)
        if not self.options.apply:
            return nullcontext()
        from kseg.change.apply.lock import lock_path, locked, locked_files

        linked = [*log_dirs_behind(targets)]
        if shared is None:
            return locked({*self.log_dirs, *linked, *around_files(targets)})
        files = {*map(lock_path, (*self.log_dirs, *linked)), *map(shared.lock_file, targets)}
        return locked_files(files, part_for=shared.id)

    @contextmanager
    def _locks_of_copies(self, targets: Sequence[Target], shared: SharedRun, output: str) -> Iterator[None]:
        from kseg.change.apply.lock import locked_files

        try:
            copies = {self.copy_of(target) for target in targets}
            there = frozenset(copy for copy in copies if copy is not None and os.path.lexists(copy))
        except OSError as error:
            raise Refused(f"cannot write {output}: {error.strerror}; no copy was written") from error
        self._set(shared=replace(shared, there_before=there))
        with locked_files([shared.lock_of_copies(output)], part_for=shared.id):
            yield


def around_files(targets: Sequence[Target]) -> dict[str, list[FileTarget]]:
    """The data directories of targets that are single segments, each with its segments."""
    found: dict[str, list[FileTarget]] = {}
    for target in targets:
        if isinstance(target, FileTarget):
            log_dir = log_dir_around(target)
            if log_dir is not None:
                found.setdefault(log_dir, []).append(target)
    return found


def log_dir_around(segment: FileTarget) -> str | None:
    """The data directory of a single segment, None if it is in none."""
    log_dir = os.path.join(directory_of(segment), os.pardir)
    if not is_log_directory(log_dir):
        return None
    short = os.path.normpath(log_dir)
    return short if os.path.exists(short) and os.path.samefile(short, log_dir) else log_dir
