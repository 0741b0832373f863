"""Every command on thousands of damaged files: no exception, no hang, no memory growth, no byte lost.

KSEG_FUZZ_FILES is the number of files (default 480), KSEG_FUZZ_SEED the first seed (default: the same one each time). A failure names its
seed; `KSEG_FUZZ_SEED=<seed> KSEG_FUZZ_FILES=1` repeats it.
"""

from __future__ import annotations

import os
import random
import resource
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.segment.state.kraft_messages import KINDS
from tests.support.fuzzing import Stage

pytestmark = pytest.mark.slow

FILES = int(os.environ.get("KSEG_FUZZ_FILES", "480"))
FIRST_SEED = int(os.environ.get("KSEG_FUZZ_SEED", "0"))
PARTS = 4
# files of a part before its memory is measured
WARM_UP = 100
GROWTH_KIB = 60 * 1024
PEAK_BYTES = 48 * 1024 * 1024
EVERYTHING = {
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    ".kafka",
    ".checkpoint",
    ".metadata",
    ".properties",
    ".kafka_cleanshutdown",
    "quorum-state",
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
}


@pytest.fixture(scope="module")
def stage(
    tmp_path_factory: pytest.TempPathFactory, capture_small: Path, legacy_small: Path, ancient_small: Path
) -> Stage:
    """A data directory with files of every type and format."""
    place = tmp_path_factory.mktemp("fuzz")
    made, real = healthy.log_dir(place / "made"), capture_small / "data"
    old = legacy_small / "data"
    partitions = [
        ("metro-0", made / "metro-0"),
        ("gates.old-0", made / "gates.old-0"),
        *((name, real / name) for name in ("fares-0", "stations-0", "metro-zstd-0", "__cluster_metadata-0")),
        ("comb.gzip-0", old / "1.1.1" / "3-format-1.1" / "comb.gzip-0"),
        ("comb.lz4-0", old / "0.10.2.2" / "3-compacted" / "comb.lz4-0"),
        ("comb.snappy-0", old / "0.9.0.1" / "2-compacted" / "comb.snappy-0"),
        ("lamp.codecs-0", old / "0.7" / "1-written" / "lamp.codecs-0"),
        ("lamp.nested-0", old / "0.7" / "1-written" / "lamp.nested-0"),
        ("taps-0", ancient_small / "taps-0"),
    ]
    own = [file for file in sorted(made.iterdir()) if file.is_file()] + [real / "bootstrap.checkpoint"]
    return Stage(place / "stage", own, partitions)


def rss_kib() -> int:
    """Peak resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_fuzz_stage_has_every_type_of_file(stage: Stage) -> None:
    names = {Path(name).suffix or Path(name).name for name in stage.names}
    assert names >= EVERYTHING
    # these include the control records of KRaft, which are in __cluster_metadata
    assert KINDS


@pytest.mark.parametrize("part", range(min(PARTS, FILES)))
def test_damaged_files_harm_no_command(part: int, stage: Stage) -> None:
    count = FILES // PARTS + (part < FILES % PARTS)
    first = FIRST_SEED + part * (FILES // PARTS + 1)
    print(f"seeds {first} to {first + count - 1}")
    before, seen = 0, Counter[str]()
    for seed in range(first, first + count):
        if seed - first == WARM_UP:
            before = rss_kib()
        try:
            act = stage.act(random.Random(seed))
        except BaseException as error:
            error.add_note(f"repeat with KSEG_FUZZ_FILES=1 KSEG_FUZZ_SEED={seed}")
            raise
        seen[Path(act.file).suffix or act.file] += 1
    assert before or count <= WARM_UP
    if before and Path("/proc/self/status").exists():
        assert rss_kib() - before < GROWTH_KIB, "memory grows with the number of files"
    stage.check_nothing_was_added()


def test_commands_on_damaged_files_use_bounded_memory(stage: Stage) -> None:
    """The largest files here have 40 kB, but the lengths in them may claim terabytes."""
    for seed in range(FIRST_SEED + 10**6, FIRST_SEED + 10**6 + min(60, FILES)):
        tracemalloc.start()
        try:
            act = stage.act(random.Random(seed))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < PEAK_BYTES, (seed, act)
