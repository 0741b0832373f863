"""Verify a single file. An index is compared with the `.log` next to it when there is one; nothing else is read."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

from kseg.jobs.events import Advance, Event
from kseg.recovery.verify import names_check
from kseg.recovery.verify.header_plausibility import HeaderContext
from kseg.recovery.verify.index_check import IndexContext, OffsetIndexCheck, TimeIndexCheck
from kseg.recovery.verify.options import VerifyOptions
from kseg.recovery.verify.producer_check import ProducerReplay
from kseg.recovery.verify.records_check import RecordsCheck
from kseg.recovery.verify.segment_check import Consumer, SegmentCheck
from kseg.recovery.verify.small_files import SMALL_FILES, clean_shutdown, small_file
from kseg.recovery.verify.totals import Totals
from kseg.recovery.verify.txn_check import TxnIndexCheck
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import Entry
from kseg.segment.partition.names import INDEX_ROLES, FileName, Role, parse_given_name, segment_file_name
from kseg.segment.partition.targets import FileTarget
from kseg.segment.scanning.prevalidated import skippable_spans
from kseg.segment.scanning.scan import Scanner
from kseg.segment.sidecar.index import OffsetIndex, TimeIndex
from kseg.segment.storage import places
from kseg.segment.terminal import shown_path


def verify_file(target: FileTarget, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
    """Verify one file of any kind. Raises UnreadableInput."""
    path = target.path
    name = parse_given_name(os.path.basename(path))
    if name.is_live and not name.is_well_formed and name.role is not Role.UNKNOWN:
        yield Finding("bad-file-name", path, f"{name.name} is not a file name that Kafka writes")
    if name.role is Role.LOG:
        yield from log_file(path, name, options, totals)
    elif name.role in INDEX_ROLES:
        yield from _index(path, name, options, totals)
    elif name.role in (Role.METADATA_SNAPSHOT, Role.BOOTSTRAP_SNAPSHOT):
        from kseg.recovery.verify.raft_check import snapshot_file

        yield from snapshot_file(path, options, totals)
    elif name.role is Role.KAFKA07_LOG:
        from kseg.recovery.verify.check07 import check_file07

        yield from check_file07(path, options, totals)
    elif name.role in SMALL_FILES:
        yield from small_file(path, name.role, totals)
    elif name.role is Role.CLEAN_SHUTDOWN:
        yield from clean_shutdown(path, totals)
    elif name.role is Role.UNKNOWN:
        size = places.stat(path).st_size
        yield Finding("unknown-file", path, f"{shown_path(name.name)} is not a Kafka file", 0, size)


def log_file(path: str, name: FileName, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
    """Verify a `.log` without the files beside it."""
    base = name.base_offset or 0
    with MappedFile(path, options.drop_cache) as file, ExitStack() as stack:
        blocks = Scanner.blocks
        if options.jobs > 1:
            from kseg.recovery.verify.parallel_scan import ParallelScan, ScannedLog

            scan = ParallelScan([ScannedLog(path, base, file.size_bytes)], options)
            blocks = partial(stack.enter_context(scan).blocks, 0)
        is_deep = options.level == "deep"
        skippable = skippable_spans(options.claims, file, with_records=is_deep)
        records = RecordsCheck(path, file.view) if is_deep else None
        consumers: list[Consumer] = [records] if records is not None else []
        check = SegmentCheck(file, HeaderContext(path, base), options, totals, consumers, skippable, blocks)
        yield from check.events()
        if records is not None:
            totals.records += records.records - check.facts.records
            totals.sets_not_opened -= check.facts.sets_not_opened


def _index(path: str, name: FileName, options: VerifyOptions, totals: Totals) -> Iterator[Event]:
    base = name.base_offset or 0
    log_path = os.path.join(os.path.dirname(path), segment_file_name(base, ".log"))
    with MappedFile(path, options.drop_cache) as file:
        entry = Entry(path, file.size_bytes, file.mtime_ms, name)
        if options.level == "quick" or not places.isfile(log_path):
            totals.account(path, file.size_bytes, file.size_bytes % names_check.SLOT_BYTES[name.role])
            yield from names_check.index_size(entry)
            if not places.isfile(log_path):
                yield Finding("orphan-index", path, f"{name.name} has no matching .log", 0, file.size_bytes)
                yield from _sanity(path, name, file.view, base)
            return
        yield from _beside_log(file, name, log_path, options, totals)


def _sanity(path: str, name: FileName, view: memoryview, base: int) -> Iterator[Finding]:
    """Check an index without its log: only a broker's own sanity check is possible."""
    if name.role is Role.TXN_INDEX or len(view) % names_check.SLOT_BYTES[name.role]:
        return
    index = OffsetIndex(view, base) if name.role is Role.OFFSET_INDEX else TimeIndex(view, base)
    sanity_error = index.sanity_error()
    if sanity_error is not None and index.zero_tail_slots == 0:
        kind, problem = sanity_error
        yield Finding(kind, path, problem, 0, len(view))


def _beside_log(
    index: MappedFile, name: FileName, log_path: str, options: VerifyOptions, totals: Totals
) -> Iterator[Event]:
    """Check an index against the log beside it. Only the index is reported and counted; the log is another target."""
    path, view, base = index.path, index.view, name.base_offset or 0
    with MappedFile(log_path, options.drop_cache) as log:
        context = IndexContext(path, base, unreadable=index.unreadable)
        consumers: list[Consumer] = []
        if name.role is Role.TXN_INDEX:
            replay = ProducerReplay(None, is_exact=False)
            replay.begin(log_path, log.view)
            consumers = [replay, TxnIndexCheck(path, view, base, replay, totals)]
        elif name.role is Role.OFFSET_INDEX:
            consumers = [OffsetIndexCheck(context, view, totals, index.data_end)]
        else:
            consumers = [TimeIndexCheck(context, view, totals, index.data_end)]
        check = SegmentCheck(log, HeaderContext(log_path, base), options, Totals(), consumers)
        for event in check.events():
            if isinstance(event, Advance) or (isinstance(event, Finding) and event.path == path):
                yield event
