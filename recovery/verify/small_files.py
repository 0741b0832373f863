"""Check the small files of a data directory and of a partition: is each readable, and are its values possible?"""

from collections.abc import Callable, Iterator
from typing import TypeVar

from kseg.jobs.events import Event
from kseg.recovery.verify.totals import Totals
from kseg.segment.errors import FormatError, NotPermitted, UnreadableInput
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.names import OFFSET_CHECKPOINT_ROLES, Role
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, decode_offset_checkpoint
from kseg.segment.sidecar.leader_epochs import EpochHistory
from kseg.segment.sidecar.metadata_files import (
    decode_clean_shutdown,
    decode_meta_properties,
    decode_partition_metadata,
    decode_quorum_state,
)
from kseg.segment.sidecar.snapshot import decode_snapshot

T = TypeVar("T")


def _decode_identity(data: bytes) -> object:
    identity = decode_meta_properties(data)
    if identity.problem:
        raise FormatError(identity.problem)
    return identity


def _decode_epochs(data: bytes) -> object:
    return EpochHistory(decode_leader_epochs(data))


SMALL_FILES: dict[Role, tuple[Callable[[bytes], object], str]] = {
    Role.PRODUCER_SNAPSHOT: (decode_snapshot, "snapshot-corrupt"),
    Role.LEADER_EPOCHS: (_decode_epochs, "leader-epoch-file-corrupt"),
    Role.PARTITION_METADATA: (decode_partition_metadata, "partition-metadata-corrupt"),
    Role.QUORUM_STATE: (decode_quorum_state, "quorum-state-corrupt"),
    Role.META_PROPERTIES: (_decode_identity, "meta-properties-corrupt"),
    **dict.fromkeys(OFFSET_CHECKPOINT_ROLES, (decode_offset_checkpoint, "checkpoint-corrupt")),
}


def small_file(path: str, role: Role, totals: Totals) -> Iterator[Finding]:
    """Check a small file by decoding it whole."""
    decode, kind = SMALL_FILES[role]
    found = decoded(path, read_small(path), decode, kind, totals)
    if isinstance(found, Finding):
        yield found


def decoded(path: str, data: bytes, decode: Callable[[bytes], T], kind: str, totals: Totals) -> T | Finding:
    """The content of a small file, or the finding of this kind that it cannot be decoded."""
    try:
        content = decode(data)
    except FormatError as error:
        totals.account(path, len(data), len(data))
        return Finding(kind, path, str(error), 0, len(data))
    totals.account(path, len(data))
    return content


def clean_shutdown(path: str, totals: Totals) -> Iterator[Finding]:
    data = read_small(path)
    totals.account(path, len(data))
    if data and decode_clean_shutdown(data).broker_epoch is None:
        yield Finding("clean-shutdown-corrupt", path, "it has no readable broker epoch", 0, len(data))


def unreadable_file(path: str, error: UnreadableInput) -> Finding:
    """The finding about a file that cannot be read. Raises `error` if this user merely lacks permission, which is no damage."""
    if isinstance(error, NotPermitted):
        raise error
    return Finding("unreadable-file", path, str(error))


def readable(path: str, check: Iterator[Event]) -> Iterator[Event]:
    """The events of `check`; an unreadable file becomes a finding, so that the caller can continue with others."""
    try:
        yield from check
    except UnreadableInput as error:
        yield unreadable_file(path, error)
