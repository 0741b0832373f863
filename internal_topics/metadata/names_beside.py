"""Topic names by id, for a log that is shown by itself: from the metadata log in its own log dir or in another one of the same node.

All names that the log and its snapshots ever contained count, including those of deleted topics: ids are unique. Records of other kinds are
skipped by their second byte, so a large metadata log costs little.
"""

import os
from collections.abc import Iterator, Mapping
from functools import lru_cache

from kseg.internal_topics.decoding import decode_framed
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder, node_of
from kseg.internal_topics.metadata.metadata_log import METADATA_LOG_ROLES
from kseg.segment import header_tables as C
from kseg.segment.errors import FormatError, KsegError
from kseg.segment.files import MappedFile
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import METADATA_DIRECTORY, METADATA_TOPIC, parse_file_name
from kseg.segment.scanning.damage import Damage
from kseg.segment.scanning.decode import Decoder
from kseg.segment.scanning.scan import Scanner
from kseg.segment.storage import places

_TOPIC_RECORD = b"\x01\x02"  # frame version and type

_Signature = tuple[tuple[str, int, int], ...]


def topic_names_beside(path: str, topic: str) -> Mapping[str, str]:
    """For a log file of that topic; empty if no metadata log is found or it cannot be read. A file of a metadata log outside a
    metadata log directory is its own source."""
    directory = os.path.dirname(path) or os.curdir
    if topic == METADATA_TOPIC:
        name = own_partition_name(directory)
        is_in_log = name is not None and name.topic == METADATA_TOPIC
        return _names_in(directory, _signature(directory, None if is_in_log else os.path.basename(path)))
    log_dir = os.path.join(directory, os.pardir)
    beside = os.path.join(log_dir, METADATA_DIRECTORY)
    if not places.isdir(beside):
        log_dir = places.abspath(log_dir)
        if node_of(log_dir).node_id is None:
            return {}  # neighbouring directories may belong to another node
        try:
            image = MetadataFinder().image_for(log_dir)
        except KsegError:
            image = None
        if image is None:
            return {}
        beside = image.path
    return _names_in(beside, _signature(beside))


def _signature(directory: str, only: str | None = None) -> _Signature:
    """A value that changes when a file of the metadata log does (or its only file that counts)."""
    found = []
    try:
        with places.scandir(directory) as entries:
            for entry in entries:
                if entry.name == only or (
                    only is None and parse_file_name(entry.name).role in METADATA_LOG_ROLES
                ):
                    status = entry.stat()
                    found.append((entry.name, status.st_size, status.st_mtime_ns))
    except OSError:
        return ()
    return tuple(sorted(found))


@lru_cache(maxsize=8)
def _names_in(directory: str, files: _Signature) -> Mapping[str, str]:
    """Cached for all segments of a partition, as long as nothing has changed."""
    names: dict[str, str] = {}
    for name, _, _ in files:
        try:
            names.update(_names_of(os.path.join(directory, name)))
        except KsegError:
            continue
    return names


def _names_of(path: str) -> Iterator[tuple[str, str]]:
    with MappedFile(path) as file:
        decoder = Decoder(file.view)
        for block in Scanner(file.view, parse_file_name(os.path.basename(path)).base_offset or 0).blocks():
            for chunk in () if isinstance(block, Damage) else decoder.chunks(block):
                body, records = memoryview(chunk.body), chunk.records
                if chunk.control:
                    continue
                columns = records.column(C.R_VALUE_START), records.column(C.R_VALUE_LENGTH)
                for start, length in zip(*columns, strict=True):
                    if length >= 2 and start >= 0 and body[start : start + 2] == _TOPIC_RECORD:
                        try:
                            values = decode_framed(bytes(body[start : start + length])).values
                        except FormatError:
                            continue
                        yield values["topicId"], values["name"]
