"""`dump`, followed by the header findings of each log (`header_findings`)."""

import os
from collections.abc import Iterator
from contextlib import suppress

from kseg.inspection.dump.dump import Dump
from kseg.inspection.dump.formats import as_java_shows
from kseg.inspection.dump.options import DumpOptions
from kseg.inspection.header_findings import HeaderCheck, altered, is_live_log
from kseg.inspection.record_filter import Selection
from kseg.jobs.events import Event
from kseg.segment.diagnosis import AlteredBaseOffset
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.layout import INT32_MAX
from kseg.segment.partition.names import parse_given_name
from kseg.segment.partition.targets import FileTarget
from kseg.segment.scanning.header_continuity import HeaderContinuity
from kseg.segment.storage import places

# A dump of a few records of a larger log does not walk the whole log.
_MAX_PARTIAL_LOG_BYTES = 64 * 1024 * 1024


class CheckedDump(Dump):
    """`Dump`, with the findings about headers after each log."""

    def __init__(self, header_check: HeaderCheck) -> None:
        super().__init__()
        self._header_check = header_check

    def __reduce__(self) -> tuple[type["CheckedDump"], tuple[HeaderCheck]]:  # type: ignore[override]  # it takes the header check
        return CheckedDump, (self._header_check,)

    def piece(
        self, target: FileTarget, options: DumpOptions, start: int, stop: int | None
    ) -> Iterator[Event]:
        """See `kseg.jobs.log_splitting`; the last piece yields the findings of the whole log."""
        yield from super().piece(target, options, start, stop)
        if stop is None and start:
            yield from _header_findings(target.path, options, self._header_check)

    def __call__(self, target: FileTarget, options: DumpOptions) -> Iterator[Event]:
        self._open_logs.seen = None
        yield from super().__call__(target, options)
        if self._open_logs.seen is not None:  # the dumped file is a log
            yield from _header_findings(target.path, options, self._header_check, self._open_logs.seen)


def _header_findings(
    path: str, options: DumpOptions, header_check: HeaderCheck, seen: HeaderContinuity | None = None
) -> Iterator[Finding]:
    """seen: collected from all headers during the dump."""
    path = as_java_shows(path)
    name = parse_given_name(os.path.basename(path))
    if not is_live_log(name):
        return
    is_part = options.max_bytes != INT32_MAX or not options.selection.selects_everything
    if is_part:
        seen = None
    with suppress(UnreadableInput, OSError):  # the dump has reported it
        if not is_part or places.getsize(path) <= _MAX_PARTIAL_LOG_BYTES:
            for finding in altered(path, name.base_offset or 0, header_check, seen):
                if _concerns(finding, options.selection):
                    yield finding


def _concerns(finding: Finding, selection: Selection) -> bool:
    """Whether a batch has selected offsets: those that it probably had, or those that it claims, which the dump shows."""
    first, last = finding.first_offset, finding.last_offset
    if not selection.leaves_out(first, last):
        return True
    if not isinstance(finding.diagnosis, AlteredBaseOffset) or first is None or last is None:
        return False
    claimed = finding.diagnosis.found
    return not selection.leaves_out(claimed, claimed + last - first)
