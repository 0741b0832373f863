"""Overwrite a partition with other batches, by a plan over its files, so that it can be undone.

Replaced and removed files go to the quarantine, and new files are complete before the first old one is removed
(`apply.executor`). The topic id stays, and so does the latest leader epoch, because consumers and followers have seen it.
"""

import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack, suppress

from kseg.change.append.file_writer import FilePiece
from kseg.change.append.partition_writer import OpenPartition
from kseg.change.apply.executor import apply_plan
from kseg.change.apply.scratch_file import ScratchFile
from kseg.change.plan.directory_image import DirectoryImage, steps_between
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan
from kseg.segment import layout as L
from kseg.segment.errors import FormatError, Refused, UnreadableInput
from kseg.segment.files import read_small
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.metadata_files import PartitionMetadata, encode_partition_metadata

_MAX_LOGS = 400  # each is an unnamed file that stays open until the plan is carried out


def replace_partition(
    directory: str,
    partition: OpenPartition,
    batches: Iterable[bytes],
    command: str,
    run_id: str,
    topic_id: str | None,
    now_ms: int,
) -> None:
    """Carry out the replacement. partition: the new, empty one. batches: as for `OpenPartition.append`.

    The caller holds the lock of the log dir. Raises Refused; then nothing was changed, or its message says how to proceed.
    """
    inputs = inputs_of(directory)
    before = DirectoryImage.of(inputs)
    after = DirectoryImage()
    metadata = NAME_BY_ROLE[Role.PARTITION_METADATA]
    if topic_id is not None:
        after.write(metadata, encode_partition_metadata(PartitionMetadata(topic_id)))
    elif metadata in before:
        after.write(metadata, before.content(metadata))
    with ExitStack() as stack:
        logs: dict[str, ScratchFile] = {}

        def put(pieces: Iterable[FilePiece]) -> None:
            for piece in pieces:
                if not piece.name.endswith(L.LOG_SUFFIX):
                    after.write(piece.name, piece.data)
                    continue
                if piece.name not in logs:
                    if len(logs) == _MAX_LOGS:
                        raise Refused(
                            f"{directory} would be replaced by more than {_MAX_LOGS} segments at once; use larger "
                            "segments (segment.bytes) or delete the partition first"
                        )
                    logs[piece.name] = stack.enter_context(ScratchFile(directory))
                logs[piece.name].write(piece.data)

        for batch in batches:
            put(partition.append(batch, now_ms))
        put(partition.close())
        for name, log in logs.items():
            after.write(name, [log.piece])
        why: dict[str, str] = defaultdict(lambda: "the partition is overwritten")
        plan = Plan(
            command=command, directory=directory, inputs=inputs, steps=steps_between(before, after, why)
        )
        if not plan.is_empty:
            apply_plan(plan, journal_id=run_id)


def latest_epoch(directory: str) -> int:
    """The latest leader epoch in the checkpoint of a partition directory, 0 if there is none."""
    path = os.path.join(directory, NAME_BY_ROLE[Role.LEADER_EPOCHS])
    with suppress(FormatError, UnreadableInput):
        return max((entry.epoch for entry in decode_leader_epochs(read_small(path))), default=0)
    return 0
