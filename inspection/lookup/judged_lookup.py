"""`lookup`, with the findings about the headers that an answer hangs on (`header_findings`)."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from kseg.inspection.header_findings import HeaderJudge, altered, is_judged
from kseg.inspection.lookup import lookup
from kseg.inspection.query import LookupQuery
from kseg.jobs.events import Event, Row
from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.layout import ENTRY_OVERHEAD, LOG_SUFFIX
from kseg.segment.partition.names import parse_given_name
from kseg.segment.partition.targets import FileTarget, PartitionTarget, directory_of

Values = Mapping[str, object]

# Around the answer in a larger log only that batch is judged, by those around it.
_MOST_AROUND_BYTES = 16 * 1024 * 1024


def judged_lookup(
    target: PartitionTarget | FileTarget, query: LookupQuery, judge: HeaderJudge
) -> Iterator[Event]:
    """`lookup`, and behind each answer what is wrong with the headers that it hangs on."""
    around = _Around(target, query, judge)
    for event in lookup(target, query):
        yield event
        if isinstance(event, Row):
            yield from around.findings(event.values)


class _Around:
    """What is to be said of the answers to one question, each finding once."""

    def __init__(self, target: PartitionTarget | FileTarget, query: LookupQuery, judge: HeaderJudge) -> None:
        self._target = target
        self._judge = judge
        self._asked = query.offset if query.kind == "offset" else None
        self._of_log: dict[str, list[Finding]] = {}
        self._told: list[Finding] = []

    def findings(self, row: Values) -> Iterator[Finding]:
        """row: of an answer. Nothing where a log cannot be read: the lookup has said so."""
        segment, position = row.get("segment"), row.get("position")
        path = segment if isinstance(segment, str) else _segment_for(self._target, self._asked)
        if path is None or not is_judged(name := parse_given_name(os.path.basename(path))):
            return
        offsets = [each for each in (self._asked, row.get("offset")) if isinstance(each, int)]
        with suppress(UnreadableInput):
            for finding in self._found(path, name.base_offset or 0, position):
                is_asked = finding.position == position or any(_is_about(finding, each) for each in offsets)
                if is_asked and finding not in self._told:
                    self._told.append(finding)
                    yield finding

    def _found(self, path: str, base_offset: int, position: object) -> Sequence[Finding]:
        if path not in self._of_log:
            with MappedFile(path, random_access=True) as file:
                if file.size_bytes > _MOST_AROUND_BYTES:
                    if not isinstance(position, int):
                        return ()
                    size = int.from_bytes(file.view[position + 8 : position + 12], "big")
                    stop = min(position + ENTRY_OVERHEAD + size, file.size_bytes)
                    return [*self._judge(path, base_offset, position, stop)]
            self._of_log[path] = [*altered(path, base_offset, self._judge)]
        return self._of_log[path]


def _segment_for(target: PartitionTarget | FileTarget, offset: int | None) -> str | None:
    """The log in which an offset should lie that was not found."""
    if isinstance(target, FileTarget) or offset is None:
        return target.path if isinstance(target, FileTarget) else None
    directory = directory_of(target)
    with suppress(OSError):
        names = [parse_given_name(name) for name in os.listdir(directory) if name.endswith(LOG_SUFFIX)]
        logs = [(name.base_offset or 0, name.name) for name in names if is_judged(name)]
        floor = max((log for log in logs if log[0] <= offset), default=None)
        return None if floor is None else os.path.join(directory, floor[1])
    return None


def _is_about(finding: Finding, offset: int) -> bool:
    """Whether a batch holds this offset, or seems to."""
    first, last = finding.first_offset, finding.last_offset
    width = 0 if first is None or last is None else last - first
    claims = (first, finding.numbers.get("found_base_offset"))
    return any(isinstance(claim, int) and claim <= offset <= claim + width for claim in claims)
