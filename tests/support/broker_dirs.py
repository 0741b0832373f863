"""A log dir of any size as a running broker has it: topics in the metadata log, checkpoints, preallocated indexes.

Every partition contains the same log (`fixtures.healthy.partition`), so a thousand of them take seconds to create.
"""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

from fixtures.healthy import partition
from kseg.segment.java.uuids import uuid_text
from kseg.segment.sidecar.checkpoint import CheckpointEntry, encode_offset_checkpoint
from tests.internal_topics.metadata_logs import T0, config, topic, write_log, write_meta_properties

INDEX_BYTES = 10 << 20
# at least the leader epochs in the logs
LEADER_EPOCH = 5
MARKER = b'{"version":0,"brokerEpoch":17}'


def broker_dir(
    directory: Path, topics: int, partitions: int, *, running: bool = True, linked: bool = False
) -> Path:
    """Create a log dir of `topics` × `partitions` partitions.

    running: as under a running broker (active indexes are preallocated, the recovery point is at the last roll, no clean-shutdown marker).
    Otherwise as after a clean shutdown. linked: the partitions share their files except partition.metadata, which is faster; a test that
    changes one must first break the link.
    """
    write_meta_properties(directory)
    template = partition(directory.parent / f"{directory.name}.template")
    ends = sorted(int(path.stem) for path in template.glob("*.snapshot"))
    active = max(int(path.stem) for path in template.glob("*.log"))
    names, made = [], []
    for number in range(topics):
        topic_id = uuid_text(bytes([1 + number % 250, number // 250] + [9] * 14))
        made.append([*topic(f"orders.{number:02d}", topic_id, partitions, leaderEpoch=LEADER_EPOCH)])
        made.append([config(f"orders.{number:02d}", "retention.ms", "-1")])
        for each in range(partitions):
            folder = directory / f"orders.{number:02d}-{each}"
            shutil.copytree(template, folder, copy_function=os.link if linked else shutil.copy2)
            (folder / "partition.metadata").unlink(missing_ok=True)
            (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
            names.append((f"orders.{number:02d}", each))
            if running:
                for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
                    size_bytes = INDEX_BYTES // entry_bytes * entry_bytes
                    os.truncate(folder / f"{active:020d}{suffix}", size_bytes)
                (folder / f"{ends[-1]:020d}.snapshot").unlink()
    metadata = directory / "__cluster_metadata-0"
    write_log(metadata, *made)
    # the entry names the last offset of the batch with the greatest timestamp, which holds the first topic and its partitions
    for suffix, entry in ((".index", b""), (".timeindex", struct.pack(">qi", T0, partitions))):
        (metadata / f"{0:020d}{suffix}").write_bytes(entry)
        os.truncate(metadata / f"{0:020d}{suffix}", INDEX_BYTES // 24 * 24 if running else len(entry))
    (metadata / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
    for name, offset in (
        ("recovery-point-offset-checkpoint", active if running else ends[-1]),
        ("replication-offset-checkpoint", ends[-1]),
    ):
        entries = [CheckpointEntry(*each, offset) for each in names]
        (directory / name).write_bytes(encode_offset_checkpoint(entries))
    for name in ("log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        (directory / name).write_bytes(encode_offset_checkpoint([]))
    if not running:
        (directory / ".kafka_cleanshutdown").write_bytes(MARKER)
    shutil.rmtree(template)
    return directory
