"""The last step of a load: partition.metadata, if present, must be readable, and that of the metadata log must have its topic id (Kafka:
UnifiedLog, PartitionMetadataFile)."""

from kseg.recovery.loading.kafka_exceptions import (
    ILLEGAL_ARGUMENT,
    INCONSISTENT_TOPIC_ID,
    NULL_POINTER,
    STORAGE,
    BrokerException,
    unreadable_file,
)
from kseg.recovery.loading.load_state import LoadState
from kseg.segment.errors import FormatError
from kseg.segment.java import uuids
from kseg.segment.java.java_text import INT_BITS, parse_integer, read_lines
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.sidecar.metadata_files import check_topic_id, decode_partition_metadata, split_named

FILE_NAME = NAME_BY_ROLE[Role.PARTITION_METADATA]


def check_partition_metadata(load_state: LoadState) -> None:
    """Raises BrokerException when a broker cannot read the file. A missing one is not checked."""
    if FILE_NAME not in load_state.image:
        return
    data = bytes(load_state.view(FILE_NAME))
    try:
        metadata = decode_partition_metadata(data)
    except FormatError as error:
        raise unreadable_file(_exception_of(data), FILE_NAME, error) from error
    name = own_partition_name(load_state.directory)
    try:
        check_topic_id(metadata, is_metadata_log=name is not None and name.is_metadata_log)
    except FormatError as error:
        raise BrokerException(INCONSISTENT_TOPIC_ID, str(error)) from error


def _exception_of(data: bytes) -> str:
    """Most faults are an IOException, which Kafka wraps; a missing line and an invalid UUID are not."""
    try:
        lines = read_lines(data)
    except FormatError:
        return STORAGE
    if not lines:
        return NULL_POINTER
    first = split_named(lines[0])
    version = parse_integer(first[1], INT_BITS) if len(first) == 2 else None
    if version is None or version < 0:
        return STORAGE
    if len(lines) < 2:
        return NULL_POINTER
    second = split_named(lines[1])
    return ILLEGAL_ARGUMENT if len(second) == 2 and not uuids.is_uuid(second[1]) else STORAGE
