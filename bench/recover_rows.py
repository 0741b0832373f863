"""The rows about repair: kseg raced against the real log loader on the same logs, without their side files.

Before each turn a fresh data directory is set up: hard links for the logs (neither contestant changes a valid log), no side files, no
marker. So each turn rebuilds every index, snapshot and epoch history from the log alone. The real loader runs in a fresh JVM, or several
times in one JVM where start-up is subtracted.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import measure
from bench.contest import RECORDED, TIMES, Limit, Row, Turn
from bench.measure import MIB, Sample
from bench.tools import JVM_OF_THE_CLASSES, Tools, clean_environment

LOADER_COLD, LOADER_WARM = "LogLoader, fresh JVM", "LogLoader, warm"
WARM_SECONDS = 6.0
PRIVATE_MIB = 200


def recover_rows(tools: Tools) -> Iterator[Row]:
    """All rows about repair, in the order of the table."""
    yield from _against_loader(
        tools,
        "recover",
        "recover --policy kafka --apply, 512 MiB, all side files",
        "plain-100",
        at_least=(4, 1),
    )
    yield from _against_loader(
        tools,
        "recover-many",
        "recover --policy kafka --apply --jobs 2, 200 partitions",
        "many",
        jobs=2,
        at_least=(4, 3),
    )
    yield from _planning(tools)
    yield Row(
        "recover-memory",
        "recover, planned, of a file above 2 GiB",
        tools.kseg_turn("recover", tools.corpus / "big" / "bench-0", memory=True, statuses=(0, 1)),
        RECORDED,
        limit=Limit("private_bytes", PRIVATE_MIB * MIB, "MiB private", MIB),
        prepare=_warmer(tools.corpus / "big"),
    )


def _against_loader(
    tools: Tools, name: str, words: str, logs: str, at_least: tuple[float, float], jobs: int = 1
) -> Iterator[Row]:
    """The race with the real loader in a fresh JVM, and in a warm one. at_least: the required ratios. jobs: also its threads."""
    corpus = tools.corpus / logs
    threads = ", two threads" if jobs == 2 else ""
    for kind, seconds, least in (("cold", 0.0, at_least[0]), ("warm", WARM_SECONDS, at_least[1])):
        is_warm = kind == "warm"
        yield Row(
            f"{name}-{kind}",
            "the same, start-up taken off" if is_warm else words,
            _kseg_turn(tools, corpus, jobs),
            judged_by=TIMES,
            rival=f"{LOADER_WARM if is_warm else LOADER_COLD}{threads}",
            rival_turn=_loader_turn(tools, corpus, jobs, seconds),
            startup=_startup_turn(tools) if is_warm else None,
            at_least=least,
            prepare=_warmer(corpus),
        )


def _planning(tools: Tools) -> Iterator[Row]:
    sound = tools.scratch / "sound"

    def recovered() -> None:
        shutil.rmtree(sound, ignore_errors=True)
        _lay_out(sound, tools.corpus / "plain-100")
        _recover(tools, sound, jobs=1)

    rows: tuple[tuple[str, Path, Callable[[], None]], ...] = (
        ("512 MiB", sound, recovered),
        ("200 partitions", tools.corpus / "many", _warmer(tools.corpus / "many")),
    )
    for words, directory, prepare in rows:
        yield Row(
            f"recover-plan-{directory.name}",
            f"recover of a sound directory, planned, {words}",
            tools.kseg_turn("recover", directory),
            judged_by=TIMES,
            rival="kseg verify --quick",
            rival_turn=tools.kseg_turn("verify", "--quick", directory),
            at_least=1,
            prepare=prepare,
        )


def _partitions(corpus: Path) -> list[Path]:
    return sorted(child for child in corpus.iterdir() if child.is_dir())


def _warmer(corpus: Path) -> Callable[[], None]:
    return lambda: measure.warm(
        *(log for partition in _partitions(corpus) for log in partition.glob("*.log"))
    )


def _lay_out(directory: Path, corpus: Path) -> None:
    """A data directory with the logs of a corpus, and with partition.metadata, without which a broker renames partitions as stray."""
    for partition in _partitions(corpus):
        (directory / partition.name).mkdir(parents=True)
        (directory / partition.name / "partition.metadata").write_text(
            "version: 0\ntopic_id: AAAAAAAAAAUAAAAAAAAABg\n"
        )
        for log in partition.glob("*.log"):
            os.link(log, directory / partition.name / log.name)
    (directory / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")


def _fresh(tools: Tools, corpus: Path) -> Path:
    directory = tools.scratch / "data"
    shutil.rmtree(directory, ignore_errors=True)
    _lay_out(directory, corpus)
    return directory


def _recover(tools: Tools, directory: Path, jobs: int) -> float:
    words = ("recover", "--policy", "kafka", "--apply", "--jobs", str(jobs), directory)
    ran = measure.run([tools.kseg, *words], environment=clean_environment())
    for partition in _partitions(directory):
        if not any(partition.glob("*.index")):
            raise measure.Failed(f"{partition.name} has no index after its recovery")
    return ran.seconds


def _kseg_turn(tools: Tools, corpus: Path, jobs: int) -> Turn:
    return lambda: Sample(_recover(tools, _fresh(tools, corpus), jobs))


def _loader_turn(tools: Tools, corpus: Path, threads: int, seconds: float) -> Turn:
    def turn() -> Sample:
        directory = _fresh(tools, corpus)
        (directory / "meta.properties").unlink()
        words = ("kseg.oracle.Load", str(directory), str(threads), str(seconds))
        ran = measure.run(
            [str(tools.java), *JVM_OF_THE_CLASSES, *words], environment=tools.environment, keep=True
        )
        passes = [json.loads(line) for line in ran.output.splitlines()]
        if len({each["log_end_offsets"] for each in passes}) != 1:
            raise measure.Failed("the real loader did not find the same log end in each pass")
        return Sample(min(each["seconds"] for each in passes) if seconds else ran.seconds)

    return turn


def _startup_turn(tools: Tools) -> Turn:
    empty = tools.scratch / "start-0" / "00000000000000000000.log"
    empty.parent.mkdir(exist_ok=True)
    empty.touch()
    return tools.kseg_turn("recover", "--policy", "kafka", empty.parent, statuses=(0, 1))
