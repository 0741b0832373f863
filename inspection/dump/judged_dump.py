"""`dump`, with the findings about headers behind each log (`header_findings`)."""

import os
from collections.abc import Iterator
from contextlib import suppress

from kseg.inspection.dump.dump import Dump
from kseg.inspection.dump.formats import as_java_shows
from kseg.inspection.dump.options import DumpOptions
from kseg.inspection.header_findings import HeaderJudge, altered, is_judged
from kseg.jobs.events import Event
from kseg.segment.errors import UnreadableInput
from kseg.segment.findings import Finding
from kseg.segment.layout import INT32_MAX
from kseg.segment.partition.names import parse_given_name
from kseg.segment.partition.targets import FileTarget
from kseg.segment.scanning.steadiness import Steadiness

# A dump that wants a few records of a larger log does not walk over all of it.
_MOST_BESIDE_BYTES = 64 * 1024 * 1024


class JudgedDump(Dump):
    """`Dump`, with the findings about headers behind each log."""

    def __init__(self, judge: HeaderJudge) -> None:
        super().__init__()
        self._judge = judge

    def __reduce__(self) -> tuple[type["JudgedDump"], tuple[HeaderJudge]]:  # type: ignore[override]  # it takes the judge
        return JudgedDump, (self._judge,)

    def piece(
        self, target: FileTarget, options: DumpOptions, start: int, stop: int | None
    ) -> Iterator[Event]:
        """See `kseg.jobs.log_splitting`; the last piece tells of the whole log."""
        yield from super().piece(target, options, start, stop)
        if stop is None and start:
            yield from _of_dumped(target.path, options, self._judge)

    def __call__(self, target: FileTarget, options: DumpOptions) -> Iterator[Event]:
        yield from super().__call__(target, options)
        yield from _of_dumped(target.path, options, self._judge, self._desk.seen)


def _of_dumped(
    path: str, options: DumpOptions, judge: HeaderJudge, seen: Steadiness | None = None
) -> Iterator[Finding]:
    """seen: what was seen of all headers in passing."""
    path = as_java_shows(path)
    name = parse_given_name(os.path.basename(path))
    if not is_judged(name):
        return
    is_part = options.max_bytes != INT32_MAX or not options.selection.selects_everything
    if is_part:
        seen = None
    with suppress(UnreadableInput, OSError):  # the dump has said so
        if not is_part or os.path.getsize(path) <= _MOST_BESIDE_BYTES:
            yield from altered(path, name.base_offset or 0, judge, seen)
