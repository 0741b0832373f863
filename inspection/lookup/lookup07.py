"""Look up an offset in a Kafka 0.7 log, where offsets are byte positions and nothing else is stored.

An offset at a message boundary is confirmed by the message there (size, magic, checksum). Any other is found by walking its file
from the start: there is no index. `position` and `batch_…` describe the entry that contains the offset, `record` the first message of
the first entry at or after it.
"""

from collections.abc import Iterator

from kseg.inspection.dump.dump07 import message_row
from kseg.inspection.lookup.answer import Answer, lookup_row, not_found
from kseg.inspection.query import LookupQuery
from kseg.jobs.events import Event, Row
from kseg.segment.errors import FormatError, UsageError
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.kafka07.findings07 import invalid_bytes07, undecodable_words07
from kseg.segment.kafka07.log07 import File07, Log07
from kseg.segment.kafka07.messages07 import Damage07, Entry07, entry_at, messages, walk
from kseg.segment.partition.log_segment import Step
from kseg.segment.partition.targets import LogTarget


def kafka07_answers(target: LogTarget, query: LookupQuery) -> Iterator[Event]:
    """The findings and the row for an offset, earliest or latest; raises UsageError for other lookups."""
    with Log07(target) as log:
        match query.kind:
            case "offset":
                yield from _by_offset(log, query)
            case "earliest":
                yield _row(log, query, Answer(offset=log.start_offset, segment=log.files[0].path))
            case "latest":
                yield _row(log, query, Answer(offset=log.end_offset, segment=log.files[-1].path))
            case _:
                raise UsageError(f"{target.path}: Kafka 0.7 logs do not support a lookup by {query.kind}")


def _row(
    log: Log07,
    query: LookupQuery,
    answer: Answer,
    bytes_read: int = 0,
    path: list[Step] | None = None,
    details: dict[str, object] | None = None,
) -> Row:
    row = lookup_row(log.name, log.directory, query, answer, bytes_read, path or [])
    return Row(row | (details or {}))


def _by_offset(log: Log07, query: LookupQuery) -> Iterator[Event]:
    offset = query.offset
    assert offset is not None
    start = max(log.start_offset, query.log_start_offset or 0)
    if offset < start:
        yield _row(log, query, not_found(f"offset {offset} is below the log start offset {start}"))
        return
    if offset >= log.end_offset:
        where = "the log ends here" if offset == log.end_offset else f"offset {offset} is beyond the log"
        yield _row(log, query, not_found(f"{where}: its end offset is {log.end_offset}"))
        return
    following = [file for file in log.files if file.end_offset > offset]
    search = _Search()
    for file in following:
        position = max(0, offset - file.base_offset)
        search.look(file, log.opened(file), position)
        if search.entry is not None and search.message is not None:
            break
    yield from search.findings
    yield _row(log, query, search.answer(), search.bytes_read, search.path, search.details(query.bytes_mode))


class _Search:
    """What is known so far: the entry that contains the offset, and the first message at or after it."""

    def __init__(self) -> None:
        self.entry: tuple[File07, Entry07] | None = None
        self.message: tuple[File07, memoryview, Entry07] | None = None
        self.findings: list[Finding] = []
        self.path: list[Step] = []
        self.bytes_read = 0

    def look(self, file: File07, opened: MappedFile, position: int) -> None:
        """Search one file from `position` on."""
        view = opened.view
        direct = entry_at(view, position, len(view))
        if isinstance(direct, Entry07) and direct.crc_valid and direct.payload_bytes:
            self.path.append({"step": "boundary", "file": file.path, "position": position})
            self._take(file, view, direct, position)
            return
        end = 0
        for item in walk(view, extents=opened.extents):
            length = item.size_bytes if isinstance(item, Entry07) else item.length
            self.bytes_read += length
            end = item.position + length
            if isinstance(item, Damage07) or not item.crc_valid:
                self._report(file, item, length)
            elif end > position:
                self._take(file, view, item, position)
                if self.message is not None:
                    break
        self.path.append({"step": "scan", "file": file.path, "from": 0, "to": end})

    def _take(self, file: File07, view: memoryview, entry: Entry07, position: int) -> None:
        if self.entry is None:
            self.entry = file, entry
        if entry.position >= position and self.message is None:
            self.message = file, view, entry
            self.bytes_read += entry.size_bytes

    def _report(self, file: File07, item: Entry07 | Damage07, length: int) -> None:
        kind = item.kind if isinstance(item, Damage07) else "bad-crc"
        damage = Damage07(kind, item.position, length)
        self.findings.append(invalid_bytes07(file.path, file.base_offset, damage))

    def answer(self) -> Answer:
        if self.entry is None:
            return not_found("no valid message contains or follows this offset")
        file, entry = self.entry
        return Answer(offset=file.base_offset + entry.position, segment=file.path)

    def details(self, mode: str) -> dict[str, object]:
        """The fields of the row beyond the answer: the entry's location, and the message."""
        if self.entry is None:
            return {}
        file, entry = self.entry
        details: dict[str, object] = {
            "position": entry.position,
            "batch_base_offset": file.base_offset + entry.position,
            "batch_last_offset": file.base_offset + entry.end_position - 1,
        }
        if self.message is None:
            return details
        file, view, entry = self.message
        try:
            first = next(messages(view, entry, file.base_offset), None)
        except FormatError as error:
            return details | {"reason": undecodable_words07(entry, error)}
        return details | {"record": None if first is None else message_row(file.path, entry, first, mode)}
