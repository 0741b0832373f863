"""Writes partitions of Kafka 0.7: `.kafka` files that follow each other without a gap (0.7.1: Log.append, Log.roll).

    append   a message set goes to the end of the last file and is never split
    roll     *after* an append: if the file is larger than the limit, an empty one named by the log end is created
    offset   the byte at which an entry begins, counted over all files

There are no side files, so nothing is left to write at the end.
"""

import os
from collections.abc import Callable, Sequence
from itertools import pairwise

from kseg.change.append.flush import FlushCounter, FlushRules
from kseg.change.apply.append_files import GrowingFile, LogFile, NoFile
from kseg.segment import layout as L
from kseg.segment.codecs.codec import compress
from kseg.segment.errors import Refused, UsageError
from kseg.segment.files import MappedFile
from kseg.segment.kafka07.encoding07 import encode_message
from kseg.segment.kafka07.log07 import File07
from kseg.segment.kafka07.messages07 import valid_prefix
from kseg.segment.new_files import ensure_directory, sync_directory
from kseg.segment.partition.names import segment_file_name
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class MessageSet07:
    """Messages that are appended together: (payload, magic) of each; with a codec they become one entry."""

    messages: Sequence[tuple[bytes, int]]
    codec: int = L.NONE


def encode_kafka07_set(new: MessageSet07) -> bytes:
    """The entries of a set. Raises UsageError for a codec or magic that 0.7 did not have."""
    if not new.messages:
        raise UsageError("there is nothing to append")
    entries = b"".join(encode_message(payload, magic) for payload, magic in new.messages)
    if new.codec == L.NONE:
        return entries
    if new.codec not in (L.GZIP, L.SNAPPY):
        raise UsageError(f"Kafka 0.7 has no codec {L.codec_name(new.codec)}")
    return encode_message(compress(new.codec, 1, entries), 1, new.codec)


class Writer07:
    """Appends to a directory of `.kafka` files. directory: created if missing.

    files: the existing ones by offset (`Log07.files`), which must be valid (`refuse_unsound`). start_offset: of the first file if
    there is none. roll_bytes: 0.7's log.file.size. flush: counts messages. announce: called with the name of each new file before
    it is created. rehearses: write nothing. end_offset: the log end offset.
    """

    def __init__(
        self,
        directory: str,
        files: Sequence[File07],
        *,
        start_offset: int,
        roll_bytes: int,
        flush: FlushRules,
        announce: Callable[[str], None] | None,
        rehearses: bool,
    ) -> None:
        self.directory = directory
        self.end_offset = files[-1].end_offset if files else start_offset
        self.messages = 0
        self.segments_rolled = 0
        self.bytes_appended = 0
        self._roll_bytes = roll_bytes
        self._announce = announce
        self._unflushed = FlushCounter(flush, 0)
        self._rehearses = rehearses
        if not rehearses:
            ensure_directory(directory)
        self._file = self._last_file(files[-1]) if files else self._new_file()

    @property
    def planned_bytes(self) -> Sequence[int]:
        """The bytes appended, and the size of a directory entry for each new file."""
        return self.bytes_appended, *[1] * self.segments_rolled

    @property
    def flushes(self) -> int:
        """How often a flush rule synced the file."""
        return self._unflushed.flushes

    def append(self, new: MessageSet07) -> None:
        """Add one set. Raises UsageError for a set that 0.7 could not have written."""
        content = encode_kafka07_set(new)
        if self._file.size_bytes + len(content) > L.INT32_MAX:
            raise UsageError(f"a set of {len(content)} bytes does not fit into the file")
        self._file.write(content)
        self.end_offset += len(content)
        self.bytes_appended += len(content)
        self.messages += len(new.messages)
        if self._unflushed.is_due(self.messages):
            self._file.sync()
            self._unflushed.flushed(self.messages)
        if self._file.size_bytes > self._roll_bytes:
            self._end_file()
            self._file = self._new_file()
            self.segments_rolled += 1

    def close(self) -> None:
        """Sync and close the last file."""
        self._end_file()
        if not self._rehearses:
            sync_directory(self.directory)

    def release(self) -> None:
        """Close the open file without syncing it."""
        self._file.close()

    def _last_file(self, last: File07) -> GrowingFile:
        if self._rehearses:
            return NoFile(last.end_offset - last.base_offset)
        return LogFile(last.path, is_new=False)

    def _new_file(self) -> GrowingFile:
        if self._rehearses:
            return NoFile()
        name = segment_file_name(self.end_offset, L.KAFKA07_SUFFIX)
        if self._announce is not None:
            self._announce(name)
        return LogFile(os.path.join(self.directory, name), is_new=True)

    def _end_file(self) -> None:
        self._file.sync()
        self._file.close()


def refuse_unsound(files: Sequence[File07]) -> None:
    """Raises Refused: 0.7 requires files without a gap, and appending after a torn message would bury it."""
    for before, after in pairwise(files):
        if before.end_offset != after.base_offset:
            why = f"begins at {after.base_offset}, the file before it ends at {before.end_offset}"
            raise Refused(f"{after.path} {why}; nothing was appended (kseg recover says what to do)")
    for last in files[-1:]:
        with MappedFile(last.path) as file:
            end = valid_prefix(file.view)
        if end.cause != "end":
            why = f"is valid up to byte {end.position} only ({end.cause})"
            raise Refused(f"{last.path} {why}; nothing was appended (kseg recover says what to do)")
