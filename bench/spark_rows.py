"""The rows about Spark: the overhead of a session on this machine compared with a local run of the same work.

The session's own start is not counted (a JVM and some hundred classes, once per session); everything after it is, including the
first start of the Python workers. The partitions are hard links of one, so 6 GiB of them take 32 MiB of disk.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from bench import measure
from bench.contest import TIMES, Row, Turn
from bench.measure import MIB, Sample
from bench.tools import Tools, clean_environment
from kseg.change.append.partition_writer import PartitionWriter
from kseg.segment.model import NewBatch, Record

PARTITIONS = 200
PARTITION_MIB = 32
RECORD_BYTES, RECORDS_PER_BATCH = 100, 100
# as a multiple of the local run
AT_MOST = 1.5


def spark_rows(tools: Tools) -> Iterator[Row]:
    """Verification of many partitions."""
    directory = tools.corpus / "linked"
    for level in ((), ("--deep",)):
        name = " ".join(("verify", *level))
        yield Row(
            f"spark-{name.replace(' --', '-')}",
            f"{name} --spark, {PARTITIONS} partitions of {PARTITION_MIB} MiB; start of the session taken off",
            _spark_turn(*level, str(directory)),
            judged_by=TIMES,
            rival=f"kseg {name} --jobs 2",
            rival_turn=tools.kseg_turn("verify", "--quiet", *level, "--jobs", "2", directory),
            at_least=1 / AT_MOST,
            aim=1.0,
            prepare=lambda: _make(directory),
        )


def _spark_turn(*words: str) -> Turn:
    def turn() -> Sample:
        command = [sys.executable, "-m", "bench.spark_turn", *words]
        printed = measure.run(command, environment=clean_environment(), keep=True).output
        # the last line, after the output of verify
        reported = json.loads(printed.splitlines()[-1])
        return Sample(
            reported["work_s"], {"session_s": reported["session_s"], "again_s": reported["again_s"]}
        )

    return turn


def _make(directory: Path) -> None:
    """Create the partitions unless they exist."""
    done = directory / "made"
    if done.exists():
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    first = directory / "linked-0"
    with PartitionWriter(first) as writer:
        offset = 0
        while offset * (RECORD_BYTES + 10) < PARTITION_MIB * MIB:
            records = tuple(
                Record(offset + n, 1_700_000_000_000 + offset, b"key-%06d" % n, os.urandom(RECORD_BYTES))
                for n in range(RECORDS_PER_BATCH)
            )
            writer.append(NewBatch(records=records, leader_epoch=0))
            offset += RECORDS_PER_BATCH
    for number in range(1, PARTITIONS):
        shutil.copytree(first, directory / f"linked-{number}", copy_function=os.link)
    done.touch()
