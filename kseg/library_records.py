"""Decode the records of a piece of a log as objects, for `Partition.records`."""

from collections.abc import Callable, Iterator

from kseg.inspection.arrow.log_ranges import LogPiece
from kseg.segment.errors import FormatError
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.kafka07.findings07 import invalid_bytes07, undecodable07
from kseg.segment.kafka07.messages07 import Damage07, messages, walk
from kseg.segment.model import Record
from kseg.segment.scanning.batches import batch_at
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.damage_findings import damage_finding, undecodable
from kseg.segment.scanning.decode import Decoder, record_at
from kseg.segment.scanning.scan import Scanner

OnFinding = Callable[[Finding], object]


def records_of_piece(piece: LogPiece, on_finding: OnFinding) -> Iterator[Record]:
    """The records within the bounds of a piece, without control records and aborted ones. on_finding: called for each damage.

    Raises UnreadableInput.
    """
    if piece.bounds.is_empty:
        return
    with MappedFile(piece.path) as file:
        found = _kafka07(file, piece, on_finding) if piece.is_kafka07 else _records(file, piece, on_finding)
        bounds = piece.bounds
        for record in found:
            if bounds.contain(record.offset, record.timestamp_ms):
                yield record


def _records(file: MappedFile, piece: LogPiece, on_finding: OnFinding) -> Iterator[Record]:
    scanner, decoder = Scanner.over(file, piece.base_offset), Decoder(file.view)
    for block in scanner.blocks(piece.start, None, piece.stop):
        if isinstance(block, Damage):
            on_finding(damage_finding(piece.path, block))
            continue
        decoder.note_sets(block)
        for row in range(block.count):
            batch = batch_at(block, row)
            if not batch.crc_valid or batch.is_control or piece.is_aborted(batch):
                continue
            if batch.last_offset < piece.bounds.from_offset:
                continue
            for chunk in decoder.chunks(block, row, row + 1):
                yield from (record_at(chunk, at) for at in range(chunk.records.count))
                if chunk.problem is not None:
                    on_finding(undecodable(piece.path, block, chunk.problem))


def _kafka07(file: MappedFile, piece: LogPiece, on_finding: OnFinding) -> Iterator[Record]:
    for item in walk(file.view, 0, extents=file.extents):
        if isinstance(item, Damage07):
            on_finding(invalid_bytes07(piece.path, piece.base_offset, item))
            continue
        try:
            for message in messages(file.view, item, piece.base_offset):
                yield Record(offset=message.offset, timestamp_ms=-1, key=None, value=bytes(message.payload))
        except FormatError as error:
            on_finding(undecodable07(piece.path, piece.base_offset, item, error))
