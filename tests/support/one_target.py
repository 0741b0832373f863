"""Run the work of a command on one target in this process. The commands themselves run it on groups of targets."""

from __future__ import annotations

from collections.abc import Iterator

from kseg.compaction.cleaner import compact as cleaner
from kseg.compaction.cleaner.options import CompactOptions
from kseg.compaction.retention import retain as retention
from kseg.compaction.retention.options import RetainOptions
from kseg.inspection.dump.dump import Dump
from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Event
from kseg.segment.partition.targets import FileTarget, LogTarget


def compact(target: LogTarget, options: CompactOptions) -> Iterator[Event]:
    yield from cleaner.carry_out((yield from cleaner.prepare(target, options)), options)


def retain(target: LogTarget, options: RetainOptions) -> Iterator[Event]:
    yield from retention.carry_out((yield from retention.prepare(target, options)), options)


def dump(target: FileTarget, options: DumpOptions) -> Iterator[Event]:
    return Dump()(target, options)
