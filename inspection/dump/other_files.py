"""Dump the text and metadata files of a log dir, in kseg's own line format: Kafka's tool does not print them."""

from collections.abc import Callable, Iterator

from kseg.inspection.dump.side_files import Item, SideFileEntry
from kseg.segment.errors import FormatError
from kseg.segment.findings import Finding
from kseg.segment.partition.names import OFFSET_CHECKPOINT_ROLES, FileName, Role
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, decode_offset_checkpoint
from kseg.segment.sidecar.metadata_files import (
    decode_clean_shutdown,
    decode_meta_properties,
    decode_partition_metadata,
    decode_quorum_state,
)


def other_file(path: str, name: FileName, data: bytes) -> Iterator[Item]:
    """The entries of any file that is not a segment, index or snapshot; if it cannot be read, a finding."""
    try:
        if name.role in OFFSET_CHECKPOINT_ROLES:
            yield from _offsets(path, data)
        elif name.role is Role.LEADER_EPOCHS:
            yield from _epochs(path, data)
        elif name.role in VALUES:
            yield _values(path, name.role, data)
        else:
            yield Finding("unknown-file", path, "not a file type that dump supports")
    except FormatError as error:
        yield Finding(CORRUPT[name.role], path, f"the file cannot be read: {error}")


def _offsets(path: str, data: bytes) -> Iterator[Item]:
    for entry in decode_offset_checkpoint(data):
        yield SideFileEntry(
            f"topic: {entry.topic} partition: {entry.partition} offset: {entry.offset}",
            {
                "type": "checkpoint_entry",
                "file": path,
                "topic": entry.topic,
                "partition": entry.partition,
                "offset": entry.offset,
            },
        )


def _epochs(path: str, data: bytes) -> Iterator[Item]:
    for entry in decode_leader_epochs(data):
        yield SideFileEntry(
            f"epoch: {entry.epoch} startOffset: {entry.start_offset}",
            {
                "type": "leader_epoch_entry",
                "file": path,
                "epoch": entry.epoch,
                "start_offset": entry.start_offset,
            },
        )


# the decoder of a file, and the fields that are printed
VALUES: dict[Role, tuple[Callable[[bytes], object], tuple[str, ...]]] = {
    Role.PARTITION_METADATA: (decode_partition_metadata, ("version", "topic_id")),
    Role.META_PROPERTIES: (decode_meta_properties, ("version", "node_id", "cluster_id", "directory_id")),
    Role.QUORUM_STATE: (decode_quorum_state, ("data_version", "leader_id", "leader_epoch", "voted_id")),
    Role.CLEAN_SHUTDOWN: (decode_clean_shutdown, ("broker_epoch",)),
}
CORRUPT = {
    **dict.fromkeys(OFFSET_CHECKPOINT_ROLES, "checkpoint-corrupt"),
    Role.LEADER_EPOCHS: "leader-epoch-file-corrupt",
    Role.PARTITION_METADATA: "partition-metadata-corrupt",
    Role.META_PROPERTIES: "meta-properties-corrupt",
    Role.QUORUM_STATE: "quorum-state-corrupt",
}


def _values(path: str, role: Role, data: bytes) -> SideFileEntry:
    decode, names = VALUES[role]
    decoded = decode(data)
    values = {name: getattr(decoded, name) for name in names}
    line = " ".join(f"{name}: {value}" for name, value in values.items())
    return SideFileEntry(line, {"type": role.value.replace("-", "_"), "file": path, **values})
