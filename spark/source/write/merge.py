"""Merge staged runs: determine their order in a partition, and give their batches final offsets.

Runs are ordered by task, or by offset if the records have offsets; then they must not overlap. Only the base offset and the leader
epoch of a batch change, which its checksum does not cover.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise

from kseg.change.apply.disk import DISK
from kseg.segment import layout as L
from kseg.segment.errors import Refused, UsageError
from kseg.segment.files import MappedFile
from kseg.segment.partition.names import METADATA_TOPIC
from kseg.spark.source.write.staged_runs import StagedRun

Key = tuple[str, int]  # topic and partition

_HEAD = struct.Struct(">qii")  # base offset, length, leader epoch
_COUNT = struct.Struct(">i")
_COUNT_POSITION = L.BATCH_HEADER - _COUNT.size


def joined_runs(runs: Iterable[StagedRun]) -> dict[Key, list[StagedRun]]:
    """The runs of each partition, in writing order. Raises UsageError for runs that cannot be joined."""
    found: dict[Key, list[StagedRun]] = {}
    for run in runs:
        found.setdefault((run.topic, run.partition), []).append(run)
    for (topic, partition), ours in found.items():
        if topic == METADATA_TOPIC:
            raise UsageError(f"{topic} is the cluster metadata log and cannot be written to")
        if len({run.has_offsets for run in ours}) > 1:
            raise UsageError(f"{topic}-{partition}: some records have an offset and some do not")
        if ours[0].has_offsets:
            ours.sort(key=lambda run: run.first_offset)
            for earlier, later in pairwise(ours):
                if later.first_offset < earlier.end_offset:
                    raise UsageError(
                        f"{topic}-{partition}: offsets {later.first_offset} and {earlier.end_offset - 1} come from "
                        "different tasks in the wrong order; repartition by topic and partition, or by range of "
                        "offset, and sort the rows within partitions"
                    )
    return found


class StagedFiles:
    """The files that tasks have written into a log dir. Every method raises Refused for a file that has changed since."""

    def __init__(self, log_dir: str) -> None:
        self._log_dir = log_dir
        self._name = ""
        self._file: MappedFile | None = None

    def batches(self, run: StagedRun, shift: int, leader_epoch: int) -> Iterator[bytes]:
        """The batches of a run, with offsets increased by `shift`; they are validated when they are appended.

        Raises UsageError if the offsets would exceed the largest one."""
        if run.end_offset + shift > L.INT64_MAX:
            raise UsageError(
                f"{run.topic}-{run.partition}: its offsets would exceed {L.INT64_MAX - 1}, the largest offset"
            )
        view = self._view(run.file)
        count = 0
        for position, length in run.chunks:
            end = position + length
            while position < end:
                if min(end, len(view)) - position < L.BATCH_HEADER:
                    raise self._changed(run)
                base_offset, rest, _ = _HEAD.unpack_from(view, position)
                size_bytes = L.ENTRY_OVERHEAD + rest
                if size_bytes < L.BATCH_HEADER or size_bytes > min(end, len(view)) - position:
                    raise self._changed(run)
                batch = bytearray(view[position : position + size_bytes])
                _HEAD.pack_into(batch, 0, base_offset + shift, rest, leader_epoch)
                count += _COUNT.unpack_from(batch, _COUNT_POSITION)[0]
                yield bytes(batch)
                position += size_bytes
        if count != run.records:
            raise self._changed(run)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _changed(self, run: StagedRun) -> Refused:
        return Refused(f"{os.path.join(self._log_dir, run.file)} is not what its task has written")

    def _view(self, name: str) -> memoryview:
        path = os.path.join(self._log_dir, name)
        if self._file is None or self._name != name:
            self.close()
            if DISK.status(path) is None:
                raise Refused(
                    f"{path} does not exist: the data directory must be on a file system that driver and executors share"
                )
            self._file, self._name = MappedFile(path), name
        return self._file.view
