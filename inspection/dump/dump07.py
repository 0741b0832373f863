"""Dump a Kafka 0.7 `.kafka` file: the lines of 0.7's own DumpLogSegments, or rows.

    Starting offset: 0
    offset: 94 isvalid: true payloadsize: 23 magic: 1 compresscodec: NoCompressionCodec
    payload:⇥…                                                       with --print-data-log (or deep iteration)

Offsets are byte positions. 0.7's tool shows a compressed set as one line with its raw payload; with deep iteration the
messages of a set follow it, each on a line that begins with `|`, as in newer formats.
"""

from collections.abc import Iterator

from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Event, Row, Text
from kseg.segment.counted import counted
from kseg.segment.errors import FormatError
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.json_rows import show_bytes
from kseg.segment.kafka07.findings07 import bad_crc07, undecodable07
from kseg.segment.kafka07.messages07 import Damage07, Entry07, Message07, messages, walk
from kseg.segment.layout import codec_name

CODECS = {0: "NoCompressionCodec", 1: "GZIPCompressionCodec", 2: "SnappyCompressionCodec"}


def dump_kafka07(path: str, base_offset: int, options: DumpOptions) -> Iterator[Event]:
    """The entries of one file (and with deep iteration the messages), continuing after damage."""
    if options.format == "kafka":
        yield Text(f"Starting offset: {base_offset}\n".encode())
    with MappedFile(path, options.drop_cache) as file:
        left = options.selection.limit
        for item in walk(file.view, 0, file.unreadable, file.extents):
            if isinstance(item, Damage07):
                yield _damage(path, item)
            elif _selected(item, base_offset, options):
                if left is not None and left <= 0:
                    return
                left = None if left is None else left - 1
                yield from _entry(path, file.view, item, base_offset, options)


def _selected(entry: Entry07, base_offset: int, options: DumpOptions) -> bool:
    want, offset = options.selection, base_offset + entry.position
    above = want.from_offset is None or offset >= want.from_offset
    return above and (want.to_offset is None or offset < want.to_offset)


def _damage(path: str, damage: Damage07) -> Finding:
    return Finding(
        damage.kind,
        path,
        f"no valid message in the {counted(damage.length, 'byte')} at position {damage.position}",
        position=damage.position,
        length=damage.length,
    )


def _entry(
    path: str, view: memoryview, entry: Entry07, base_offset: int, options: DumpOptions
) -> Iterator[Event]:
    if not entry.crc_valid:
        yield bad_crc07(path, base_offset, entry)
    deep = options.deep_iteration or options.print_data_log
    if options.format == "kafka":
        payload = bytes(entry.payload(view)) if options.print_data_log else None
        yield Text(_entry_line(entry, base_offset + entry.position, payload))
        if not deep or not entry.codec:
            return
    try:
        for message in messages(view, entry, base_offset):
            if options.format == "kafka":
                yield Text(_message_line(message, options.print_data_log))
            else:
                yield Row(message_row(path, entry, message, options.bytes_mode))
    except FormatError as error:
        yield undecodable07(path, base_offset, entry, error)


def _entry_line(entry: Entry07, offset: int, payload: bytes | None) -> bytes:
    valid = "true" if entry.crc_valid else "false"
    codec = CODECS.get(entry.codec, f"unknown({entry.codec})")
    line = (
        f"offset: {offset} isvalid: {valid} payloadsize: {entry.payload_bytes} magic: {entry.magic} "
        f"compresscodec: {codec}\n"
    )
    return line.encode() + (b"" if payload is None else b"payload:\t" + payload + b"\n")


def _message_line(message: Message07, with_payload: bool) -> bytes:
    valid = "true" if message.crc_valid else "false"
    line = f"| offset: {message.offset} isvalid: {valid} payloadsize: {len(message.payload)} magic: {message.magic}"
    payload = b" payload: " + bytes(message.payload) if with_payload else b""
    return line.encode() + payload + b"\n"


def message_row(path: str, entry: Entry07, message: Message07, mode: str) -> dict[str, object]:
    """The line `{"type":"record", …}` of a 0.7 message: no key, no timestamp, offsets that are byte positions."""
    value, encoding = show_bytes(bytes(message.payload), mode)
    return {
        "type": "record",
        "file": path,
        "position": entry.position,
        "offset": message.offset,
        "next_offset": message.next_offset,
        "timestamp": None,
        "timestamp_type": None,
        "sequence": None,
        "key": None,
        "value": value,
        "headers": [],
        "key_encoding": None,
        "value_encoding": encoding,
        "magic": message.magic,
        "compression": codec_name(entry.codec),
        "crc": message.crc,
        "valid": message.crc_valid,
    }
