"""The rows of the race: what kseg does, what the real Kafka does, and the required ratio.

Start-up is `kseg verify --quick` of an empty segment. How the programs are called: bench/tools.py; the rows about
repair: bench/recover_rows.py; about searching for a key: bench/lookup_rows.py; about compaction: bench/compact_rows.py;
about retention: bench/retain_rows.py; about internal topics: bench/decode_rows.py; about several cores and exports:
bench/job_rows.py; about `verify`: bench/verify_rows.py; about records of other shapes: bench/shape_rows.py; about the
data source: bench/source_rows.py; about other work with Spark: bench/spark_rows.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from bench import measure, sparse
from bench.compact_rows import compact_rows
from bench.contest import RECORDED, SECONDS, SHARE, TIMES, Limit, Row
from bench.decode_rows import decode_rows
from bench.job_rows import job_rows
from bench.lookup_rows import lookup_rows
from bench.measure import MIB
from bench.recover_rows import recover_rows
from bench.retain_rows import retain_rows
from bench.shape_rows import shape_rows
from bench.source_rows import source_rows
from bench.spark_rows import spark_rows
from bench.tools import SEGMENT, Tools
from bench.verify_rows import verify_rows

CODECS = ("plain", "lz4", "zstd", "snappy", "gzip")
PRIVATE_MIB = 200
# both ends of an answer are verified, and the segment before a timestamp is searched as well
FEW_BATCHES = 12
_IN_SESSIONS = ("source", "spark")  # these run in a session of this environment's Spark
TOOL, CLASSES, TOUCH = "DumpLogSegments", "Kafka classes, warm", "map and touch"


def rows(tools: Tools) -> Iterator[Row]:
    """All rows, in the order of the table."""
    yield from _dumps(tools)
    yield from decode_rows(tools)
    yield from job_rows(tools)
    yield from _one_record_a_batch(tools)
    yield from _quick_rows(tools)
    yield from _deep_rows(tools)
    yield from verify_rows(tools)
    yield from shape_rows(tools)
    yield from _starts(tools)
    yield from _lookups(tools)
    yield from lookup_rows(tools)
    yield from _records_only(tools)
    yield from recover_rows(tools)
    yield from compact_rows(tools)
    yield from retain_rows(tools)
    yield from source_rows(tools)
    yield from spark_rows(tools)


def rows_against(tools: Tools, other: Path) -> Iterator[Row]:
    """The rows that run the script of kseg, against `other`, that of another version: for figures before and after a change."""
    for row, theirs in zip(rows(tools), rows(replace(tools, kseg=other)), strict=True):
        if not row.name.startswith(_IN_SESSIONS):
            yield Row(row.name, row.job, row.kseg, TIMES, "the other kseg", theirs.kseg, prepare=row.prepare)


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
    from kseg.segment.partition.targets import Expansion, resolve_targets

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
    for way, words in (("every", "every byte of it"), ("page", "a byte of each page")):
        yield Row(
            f"quick-{way}",
            f"verify --quick against mapping the file and touching {words}",
            tools.kseg_turn("verify", "--quick", file),
            judged_by=SHARE,
            rival=TOUCH,
            rival_turn=tools.touch_turn(way, file),
            startup=tools.startup_turn(),
            at_least=0.60,
            aim=0.70,
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
            # 1, because no broker opens a segment of this size, which is an error
            tools.kseg_turn(*words, big, memory=True, statuses=(0, 1)),
            RECORDED,
            limit=most,
            prepare=_warmer(big),
        )
