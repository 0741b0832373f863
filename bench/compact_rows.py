"""The rows about compaction: kseg raced against the real Cleaner on the same log, and how the cost grows with the log.

The log has 4.4 million records of a million keys in eight closed segments, two per cent of them tombstones, with committed and aborted
transactions (`kseg.oracle.Keyed`). Before each turn the partition is set up again, with hard links for the logs, which both contestants
only rename. The real Cleaner runs in a fresh JVM, or several times in one JVM where only its own time counts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import measure
from bench.contest import RECORDED, TIMES, Limit, Row, Turn
from bench.measure import MIB, Sample
from bench.tools import Tools, clean_environment
from tests.kafka import jars

CLEANER_COLD, CLEANER_WARM = "Cleaner, fresh JVM", "Cleaner, warm"
WARM_SECONDS = 12.0
# late enough for the producers to have expired
NOW_MS = 1_700_000_000_000 + 10 * 86_400_000
RECORDS, KEYS, SEGMENT_BYTES = 4_400_000, 1_000_000, 64 * MIB
MAP_MIB, PRIVATE_MIB = 128, 200
# sizes of the log relative to the raced one: above 2 GiB, 512 MiB, 128 MiB
SERIES = (4, 1, 1 / 4)
JVM = ("-Xmx768M",)


def compact_rows(tools: Tools) -> Iterator[Row]:
    """All rows about compaction, in the order of the table."""
    for codec in ("none", "lz4"):
        name = "plain" if codec == "none" else codec
        corpus = tools.corpus / f"keyed-{name}"
        prepare = _maker(corpus, codec, 1)
        words = f"compact --apply, 4.4 M records of 1 M keys, {name}"
        yield Row(
            f"compact-{name}-cold",
            words,
            _kseg_turn(tools, corpus),
            judged_by=TIMES,
            rival=CLEANER_COLD,
            rival_turn=_cleaner_turn(tools, corpus, seconds=0),
            at_least=4,
            prepare=prepare,
        )
        yield Row(
            f"compact-{name}-warm",
            "the same, start-up taken off",
            _kseg_turn(tools, corpus),
            judged_by=TIMES,
            rival=CLEANER_WARM,
            rival_turn=_cleaner_turn(tools, corpus, seconds=WARM_SECONDS),
            startup=tools.startup_turn(),
            at_least=2,
            aim=4,
            prepare=prepare,
        )
        yield Row(
            f"compact-{name}-two",
            "the same with --jobs 2",
            _kseg_turn(tools, corpus, jobs=2),
            judged_by=TIMES,
            rival=CLEANER_WARM,
            rival_turn=_cleaner_turn(tools, corpus, seconds=WARM_SECONDS),
            startup=tools.startup_turn(),
            at_least=2,
            aim=6,
            prepare=prepare,
        )
    for share in SERIES:
        corpus = tools.corpus / ("keyed-plain" if share == 1 else f"keyed-{share:g}")
        yield Row(
            f"compact-series-{share:g}",
            f"compact, planned, of {share * 512:.0f} MiB",
            _planning_turn(tools, corpus),
            RECORDED,
            limit=Limit("private_bytes", (MAP_MIB + PRIVATE_MIB) * MIB, "MiB private", MIB),
            prepare=_maker(corpus, "none", share),
        )


def _maker(corpus: Path, codec: str, share: float) -> Callable[[], None]:
    """Create the log unless it exists, and read it into the page cache."""

    def make() -> None:
        partition = corpus / "bench-0"
        if not partition.exists():
            corpus.mkdir(parents=True, exist_ok=True)
            numbers = (int(RECORDS * share), int(KEYS * share), SEGMENT_BYTES)
            words = ("kseg.oracle.Keyed", str(partition), *map(str, numbers), codec)
            subprocess.run(jars.java_command(*words), env=jars.java_environment(), check=True)
        measure.warm(*partition.glob("*.log"))

    return make


def _fresh(tools: Tools, corpus: Path) -> Path:
    """A fresh copy of the partition."""
    source, directory = corpus / "bench-0", tools.scratch / "data" / "bench-0"
    shutil.rmtree(directory.parent, ignore_errors=True)
    directory.mkdir(parents=True)
    for file in source.iterdir():
        (os.link if file.suffix == ".log" else shutil.copyfile)(file, directory / file.name)
    return directory


def _kseg_turn(tools: Tools, corpus: Path, jobs: int = 1) -> Turn:
    def turn() -> Sample:
        directory = _fresh(tools, corpus)
        words = (
            "compact",
            "--cleanup-policy",
            "compact",
            "--apply",
            "--quiet",
            "--jobs",
            str(jobs),
            "--now",
            str(NOW_MS),
            directory,
        )
        ran = measure.run([tools.kseg, *words], environment=clean_environment())
        if not list(directory.glob("*.log.deleted")):
            raise measure.Failed("nothing was compacted")
        return Sample(ran.seconds)

    return turn


def _planning_turn(tools: Tools, corpus: Path) -> Turn:
    words = (
        "compact",
        "--cleanup-policy",
        "compact",
        "--quiet",
        "--jobs",
        "1",
        "--now",
        str(NOW_MS),
        "--map-memory",
        f"{MAP_MIB}MiB",
    )
    return tools.kseg_turn(*words, corpus / "bench-0", memory=True, statuses=(0, 1))


def _cleaner_turn(tools: Tools, corpus: Path, seconds: float) -> Turn:
    def turn() -> Sample:
        scratch = tools.scratch / "cleaner"
        scratch.mkdir(exist_ok=True)
        words = ("kseg.oracle.Clean", str(corpus / "bench-0"), str(scratch), str(seconds), str(NOW_MS))
        ran = measure.run([str(tools.java), *JVM, *words], environment=tools.environment, keep=True)
        passes = [json.loads(line) for line in ran.output.splitlines()]
        if len({(each["next_dirty_offset"], each["bytes_after"]) for each in passes}) != 1:
            raise measure.Failed("the real cleaner did not leave the same in each pass")
        return Sample(min(each["seconds"] for each in passes) if seconds else ran.seconds)

    return turn
