"""The rows of the race: what kseg does, what the real Kafka does, and what is asked of the ratio.

The real tool is started as `kafka-dump-log.sh` starts it (heap and collector of `kafka-run-class.sh`), without the
shell around it. kseg is the script that the environment of this Python has. Start-up is `kseg verify --quick` of an
empty segment.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import measure, sparse
from bench.contest import RECORDED, SECONDS, SHARE, TIMES, Limit, Row, Turn
from bench.measure import MIB, Sample

CODECS = ("plain", "lz4", "zstd", "snappy", "gzip")
SEGMENT = "00000000000000000000.log"
WARM_SECONDS = 4.0
PRIVATE_MIB = 200
FEW_BATCHES = 12  # both ends of an answer are verified, and the segment before a time is looked at too
JVM_OF_THE_SCRIPTS = (
    *(
        "-Xmx256M",
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
    ),
    *("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
JVM_OF_THE_CLASSES = ("-Xmx512M",)
REAL_TOOL = "org.apache.kafka.tools.DumpLogSegments"
TOOL, CLASSES, TOUCH = "DumpLogSegments", "Kafka classes, warm", "map and touch"


@dataclass(frozen=True, slots=True)
class Tools:
    """How the programs are called. kseg: the script. java: command of a JVM. environment: of the JVM.

    corpus: the made files. scratch: an empty directory on the same file system.
    """

    kseg: Path
    java: Path
    environment: dict[str, str]
    corpus: Path
    scratch: Path

    def segment(self, name: str) -> Path:
        return self.corpus / name / "bench-0" / SEGMENT

    # --- turns

    def kseg_turn(
        self,
        *words: str | Path,
        into: Path | None = None,
        memory: bool = False,
        statuses: Sequence[int] = (0,),
    ) -> Turn:
        def turn() -> Sample:
            ran = measure.run(
                [self.kseg, *words], environment=_clean(), into=into, watch_memory=memory, statuses=statuses
            )
            return Sample(ran.seconds, {"private_bytes": ran.peak_private_bytes} if memory else {})

        return turn

    def lookup_turn(self, *words: str | Path) -> Turn:
        def turn() -> Sample:
            command = [self.kseg, "lookup", "--json", *words]
            ran = measure.run(command, environment=_clean(), keep=True)
            return Sample(ran.seconds, lookup_figures(ran.output))

        return turn

    def tool_turn(self, *words: str, files: Sequence[Path], into: Path | None = None) -> Turn:
        names = ",".join(map(str, files))
        command = [str(self.java), *JVM_OF_THE_SCRIPTS, REAL_TOOL, *words, "--files", names]
        return lambda: Sample(measure.run(command, environment=self.environment, into=into).seconds)

    def classes_turn(self, file: Path) -> Turn:
        command = [str(self.java), *JVM_OF_THE_CLASSES, "kseg.oracle.Warm", str(file), str(WARM_SECONDS)]
        return lambda: warm_sample(measure.run(command, environment=self.environment, keep=True).output)

    def touch_turn(self, way: str, file: Path) -> Turn:
        command = [sys.executable, "-m", "bench.touch", way, str(file)]
        return lambda: Sample(json.loads(measure.run(command, keep=True).output)["seconds"])

    def startup_turn(self) -> Turn:
        empty = self.scratch / "empty-0" / SEGMENT
        empty.parent.mkdir(exist_ok=True)
        empty.touch()
        return self.kseg_turn("verify", "--quick", empty)


def _clean() -> dict[str, str]:
    """The environment without what makes any Python slower than its users have it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def warm_sample(output: bytes) -> Sample:
    """The best pass of the warm classes. Raises Failed when a pass saw no record or passes differ."""
    passes = [json.loads(line) for line in output.splitlines()]
    seen = {(each["batches"], each["records"], each["bytes"]) for each in passes}
    if len(seen) != 1 or not passes[0]["records"]:
        raise measure.Failed(f"the warm classes did not read the same records in each pass: {sorted(seen)}")
    seconds = sorted(each["seconds"] for each in passes)
    return Sample(seconds[0], {"median_pass": seconds[len(seconds) // 2], "passes": len(passes)})


def lookup_figures(output: bytes) -> dict[str, float]:
    """Bytes that a lookup read. Raises Failed when it did not find."""
    lines = [json.loads(line) for line in output.splitlines()]
    answers = [line for line in lines if line.get("type") == "lookup"]
    if len(answers) != 1 or not answers[0]["found"] or answers[0]["record"] is None:
        raise measure.Failed("the lookup found nothing")
    return {"bytes_read": answers[0]["bytes_read"]}


def rows(tools: Tools) -> Iterator[Row]:
    """All rows, in the order of the table."""
    yield from _dumps(tools)
    yield from _one_record_a_batch(tools)
    yield from _quick_rows(tools)
    yield from _deep_rows(tools)
    yield from _starts(tools)
    yield from _lookups(tools)
    yield from _records_only(tools)


def _warmer(*files: Path) -> Callable[[], None]:
    return lambda: measure.warm(*files)


def _dump_row(
    tools: Tools, name: str, job: str, flags: Sequence[str], corpus: str, least: float, aim: float
) -> Row:
    file = tools.segment(corpus)
    return Row(
        name,
        job,
        tools.kseg_turn("dump", *flags, file),
        judged_by=TIMES,
        rival=TOOL,
        rival_turn=tools.tool_turn(*flags, files=[file]),
        at_least=least,
        aim=aim,
        prepare=_warmer(file),
    )


def _dumps(tools: Tools) -> Iterator[Row]:
    for codec in CODECS:
        job = f"dump --deep-iteration, {codec}"
        yield _dump_row(tools, f"deep-{codec}", job, ["--deep-iteration"], f"{codec}-100", 10, 20)
    yield _dump_row(tools, "print", "dump --print-data-log, plain", ["--print-data-log"], "plain-100", 10, 20)
    yield _print_into_file(tools)
    yield _dump_row(tools, "shallow", "dump, 512 MiB", [], "plain-100", 5, 8)
    yield _many(tools)


def _print_into_file(tools: Tools) -> Row:
    file, ours, theirs = tools.segment("plain-100"), tools.scratch / "kseg.txt", tools.scratch / "kafka.txt"
    return Row(
        "print-file",
        "dump --print-data-log, plain, into a file",
        tools.kseg_turn("dump", "--print-data-log", file, into=ours),
        judged_by=TIMES,
        rival=TOOL,
        rival_turn=tools.tool_turn("--print-data-log", files=[file], into=theirs),
        at_least=10,
        aim=20,
        prepare=_warmer(file),
    )


def _many(tools: Tools) -> Row:
    from kseg.segment.targets import Expansion, resolve_targets

    many = tools.corpus / "many"
    files = [Path(target.path) for target in resolve_targets([str(many)], expand=Expansion.FILES)]
    return Row(
        "many",
        f"dump of a directory of 200 partitions ({len(files):,} files), --jobs 1",
        tools.kseg_turn("dump", "--jobs", "1", many),
        judged_by=TIMES,
        rival=TOOL,
        rival_turn=tools.tool_turn(files=files),
        at_least=8,
        aim=12,
        prepare=_warmer(*files),
    )


def _one_record_a_batch(tools: Tools) -> Iterator[Row]:
    yield _dump_row(tools, "single-shallow", "1 record a batch: dump", [], "plain-1", 5, 10)
    file = tools.segment("plain-1")
    yield Row(
        "single-quick",
        "1 record a batch: verify --quick",
        tools.kseg_turn("verify", "--quick", file),
        judged_by=TIMES,
        rival=TOOL,
        rival_turn=tools.tool_turn(files=[file]),
        at_least=5,
        aim=10,
        prepare=_warmer(file),
    )


def _quick_rows(tools: Tools) -> Iterator[Row]:
    file = tools.segment("plain-100")
    # bandwidth means bytes that were read; a byte of each page is only shown beside it
    ways = (("every", "every byte of it", 0.60, 0.70), ("page", "a byte of each page", None, None))
    for way, words, at_least, aim in ways:
        yield Row(
            f"quick-{way}",
            f"verify --quick against mapping the file and touching {words}",
            tools.kseg_turn("verify", "--quick", file),
            judged_by=SHARE,
            rival=TOUCH,
            rival_turn=tools.touch_turn(way, file),
            startup=tools.startup_turn(),
            at_least=at_least,
            aim=aim,
            prepare=_warmer(file),
        )


def _deep_rows(tools: Tools) -> Iterator[Row]:
    for codec in CODECS:
        file = tools.segment(f"{codec}-100")
        yield Row(
            f"verify-deep-{codec}",
            f"verify --deep, one core, {codec}",
            tools.kseg_turn("verify", "--deep", "--jobs", "1", file),
            judged_by=TIMES,
            rival=CLASSES,
            rival_turn=tools.classes_turn(file),
            startup=tools.startup_turn(),
            at_least=1,
            aim=2,
            prepare=_warmer(file),
        )


def _starts(tools: Tools) -> Iterator[Row]:
    yield Row("version", "--version", tools.kseg_turn("--version"), SECONDS, at_least=0.12, aim=0.08)
    small = tools.scratch / "small-0" / SEGMENT

    def cut() -> None:
        small.parent.mkdir(exist_ok=True)
        with tools.segment("plain-100").open("rb") as stream:
            head = stream.read(12)
            small.write_bytes(head + stream.read(int.from_bytes(head[8:12], "big")))

    turn = tools.kseg_turn("dump", small)
    yield Row("one-batch", "dump of one batch", turn, SECONDS, at_least=0.12, aim=0.08, prepare=cut)


def _lookups(tools: Tools) -> Iterator[Row]:
    grid = sparse.grid()
    offset = grid.middle_offset(617)
    questions = (("offset", offset), ("timestamp", sparse.FIRST_MS + offset))
    directory = tools.corpus / "sparse"

    def make() -> None:
        sparse.make(directory)

    for kind, asked in questions:
        yield Row(
            f"lookup-{kind}",
            f"lookup --{kind} among 1,000 segments of 1 GiB",
            tools.lookup_turn(f"--{kind}", str(asked), directory / "sparse-0"),
            judged_by=SECONDS,
            at_least=0.25,
            limit=Limit("bytes_read", FEW_BATCHES * grid.batch_bytes, "KiB read", 1024),
            prepare=make,
        )


def _records_only(tools: Tools) -> Iterator[Row]:
    file, big = tools.segment("plain-100"), tools.segment("big")
    yield Row(
        "json",
        "dump --json --deep-iteration, plain",
        tools.kseg_turn("dump", "--json", "--deep-iteration", file),
        RECORDED,
    )
    yield Row("verify", "verify, plain", tools.kseg_turn("verify", file), RECORDED)
    most = Limit("private_bytes", PRIVATE_MIB * MIB, "MiB private", MIB)
    for words in (("dump",), ("dump", "--print-data-log"), ("verify", "--quick"), ("verify", "--deep")):
        yield Row(
            f"memory-{'-'.join(word.strip('-') for word in words)}",
            f"{' '.join(words)} of a file above 2 GiB",
            # 1: an error is that no broker opens so large a file
            tools.kseg_turn(*words, big, memory=True, statuses=(0, 1)),
            RECORDED,
            limit=most,
            prepare=_warmer(big),
        )
