"""What `--isolation read_committed` needs to know about a log: its aborted transactions and its last stable offset.

Both come from replaying the batch headers of every segment, not from the `.txnindex` files: those may be missing or wrong, and they
never contain an open transaction. A transaction that began below the first segment, where retention has deleted its beginning,
may be open as well: the snapshot at the start of that segment has it, and a broker's readers stop at the log start (Kafka:
UnifiedLog.maybeIncrementFirstUnstableOffset; observed with 3.9.1).
"""

import os
from contextlib import suppress

from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import MappedFile, read_small
from kseg.segment.partition.names import FileState, Role, parse_file_name
from kseg.segment.sidecar.snapshot import decode_snapshot
from kseg.segment.sidecar.txn_index import AbortedTxn
from kseg.segment.state.producer import ProducerState
from kseg.segment.state.replay import replay_segment
from kseg.segment.state.replay_events import CompletedTransaction
from kseg.segment.storage import places


def transactions_around(path: str) -> tuple[list[AbortedTxn], int | None]:
    """Aborted transactions of the partition of segment `path`, and the first offset of its oldest open transaction (None if all
    are decided)."""
    directory = os.path.dirname(path) or os.curdir
    names = [parse_file_name(entry) for entry in places.listdir(directory)]
    segments = sorted(
        (name.base_offset, name.name)
        for name in names
        if name.role is Role.LOG and name.state is FileState.LIVE and name.base_offset is not None
    )
    begin = segments[0][0] if segments else 0
    before = [
        name.name
        for name in names
        if name.role is Role.PRODUCER_SNAPSHOT
        and name.state is FileState.LIVE
        and name.base_offset == begin > 0
    ]
    state = _state_before(os.path.join(directory, before[0]), begin) if before else ProducerState()
    aborted: list[AbortedTxn] = []
    for base_offset, name in segments:
        with MappedFile(os.path.join(directory, name)) as log:
            for event in replay_segment(log, base_offset, state):
                if isinstance(event, CompletedTransaction) and event.index_entry is not None:
                    aborted.append(event.index_entry)
    return aborted, state.first_undecided_offset


def _state_before(snapshot: str, offset: int) -> ProducerState:
    """The producers of a snapshot; none if it cannot be read."""
    with suppress(FormatError, UnreadableInput):
        return ProducerState.load(decode_snapshot(read_small(snapshot)), offset)
    return ProducerState()
