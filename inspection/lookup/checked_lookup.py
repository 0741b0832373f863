"""`lookup`, followed by findings about the headers that an answer depends on (`header_findings`)."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from kseg.inspection.header_findings import HeaderCheck, altered, is_live_log
from kseg.inspection.lookup import lookup
from kseg.inspection.lookup.answer import AnsweredAt
from kseg.inspection.query import LookupQuery
from kseg.jobs.events import Event, Row
from kseg.segment.diagnosis import AlteredBaseOffset
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.layout import ENTRY_OVERHEAD, LOG_SUFFIX
from kseg.segment.partition.names import parse_given_name
from kseg.segment.partition.targets import FileTarget, LogTarget, directory_of
from kseg.segment.storage import places

# In a larger log only the batch of the answer is checked, against adjacent batches.
_MAX_WHOLE_LOG_BYTES = 16 * 1024 * 1024


def checked_lookup(target: LogTarget, query: LookupQuery, header_check: HeaderCheck) -> Iterator[Event]:
    """`lookup`, with each answer followed by findings about the headers that it depends on."""
    answer_findings = _AnswerFindings(target, query, header_check)
    for event in lookup(target, query):
        yield event
        if isinstance(event, Row) and isinstance(event.result, AnsweredAt):
            yield from answer_findings.findings(event.result)


class _AnswerFindings:
    """Header findings for the answers to one query, each finding once."""

    def __init__(self, target: LogTarget, query: LookupQuery, header_check: HeaderCheck) -> None:
        self._target = target
        self._header_check = header_check
        self._requested_offset = query.offset if query.kind == "offset" else None
        self._by_log: dict[str, list[Finding]] = {}
        self._emitted: list[Finding] = []

    def findings(self, answer: AnsweredAt) -> Iterator[Finding]:
        """No findings for a log that cannot be read: the lookup has reported it.

        An answer may be in a later segment than the offset that was asked for: then the batch that should have had it, in the
        segment before, may be the altered one.
        """
        own = answer.segment
        is_another = answer.offset != self._requested_offset
        expected = _segment_for(self._target, self._requested_offset) if own is None or is_another else None
        offsets = [offset for offset in (self._requested_offset, answer.offset) if offset is not None]
        for path in dict.fromkeys(path for path in (own, expected) if path is not None):
            position = answer.position if own in (path, None) else None
            yield from self._findings_about(path, position, offsets)

    def _findings_about(self, path: str, position: int | None, offsets: Sequence[int]) -> Iterator[Finding]:
        if not is_live_log(name := parse_given_name(os.path.basename(path))):
            return
        with suppress(UnreadableInput):
            for finding in self._findings_of_log(path, name.base_offset or 0, position):
                is_relevant = finding.position == position or any(
                    _is_about(finding, offset) for offset in offsets
                )
                if is_relevant and finding not in self._emitted:
                    self._emitted.append(finding)
                    yield finding

    def _findings_of_log(self, path: str, base_offset: int, position: int | None) -> Sequence[Finding]:
        if path not in self._by_log:
            with MappedFile(path, random_access=True) as file:
                if file.size_bytes > _MAX_WHOLE_LOG_BYTES:
                    # finding the adjacent headers takes the whole file, which a lookup does not fetch
                    if position is None or file.is_in_part:
                        return ()
                    size = int.from_bytes(file.view[position + 8 : position + 12], "big")
                    stop = min(position + ENTRY_OVERHEAD + size, file.size_bytes)
                    return [*self._header_check(path, base_offset, position, stop)]
            self._by_log[path] = [*altered(path, base_offset, self._header_check)]
        return self._by_log[path]


def _segment_for(target: LogTarget, offset: int | None) -> str | None:
    """The log that should contain an offset that was not found."""
    if isinstance(target, FileTarget) or offset is None:
        return target.path if isinstance(target, FileTarget) else None
    directory = directory_of(target)
    with suppress(OSError):
        names = [parse_given_name(name) for name in places.listdir(directory) if name.endswith(LOG_SUFFIX)]
        logs = [(name.base_offset or 0, name.name) for name in names if is_live_log(name)]
        floor = max((log for log in logs if log[0] <= offset), default=None)
        return None if floor is None else os.path.join(directory, floor[1])
    return None


def _is_about(finding: Finding, offset: int) -> bool:
    """Whether a batch holds this offset, or seems to."""
    first, last = finding.first_offset, finding.last_offset
    width = 0 if first is None or last is None else last - first
    base_offsets = [] if first is None else [first]
    if isinstance(finding.diagnosis, AlteredBaseOffset):
        base_offsets.append(finding.diagnosis.found)
    return any(base_offset <= offset <= base_offset + width for base_offset in base_offsets)
