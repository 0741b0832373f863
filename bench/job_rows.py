"""The rows about one large log on several CPU cores, and about exports against Spark's own writer.

Two jobs race against one, and must never be slower, not even on a busy machine. An export to Parquet races against the same export by
Spark, which reads with `kafka-log`; the start of its session counts, because every single export pays for it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.contest import TIMES, Row, Turn
from bench.tools import Tools

COMPRESSED = ("lz4", "zstd", "snappy", "gzip")
ALONE, SPARK = "kseg --jobs 1", "kseg export --spark"


def job_rows(tools: Tools) -> Iterator[Row]:
    """Dumps of compressed logs, and exports."""
    for codec in COMPRESSED:
        file = tools.segment(f"{codec}-100")
        words = ("dump", "--print-data-log", "--quiet", file)
        yield _shared(
            f"jobs-print-{codec}",
            f"dump --print-data-log, {codec}, --jobs 2",
            tools.kseg_turn(*words, "--jobs", "2"),
            tools.kseg_turn(*words, "--jobs", "1"),
        )
    for form in ("json", "csv"):
        yield _shared(
            f"jobs-export-{form}",
            f"export --to {form}, zstd, --jobs 2",
            _export(tools, "zstd", form, "--jobs", "2"),
            _export(tools, "zstd", form, "--jobs", "1"),
        )
    yield Row(
        "export-spark",
        "export --to parquet, plain, against Spark over the data source",
        _export(tools, "plain", "parquet"),
        judged_by=TIMES,
        rival=SPARK,
        rival_turn=_export(tools, "plain", "parquet", "--spark", "--master", "local[2]"),
        at_least=1,
        aim=5,
    )


def _shared(name: str, job: str, ours: Turn, alone: Turn) -> Row:
    return Row(name, job, ours, judged_by=TIMES, rival=ALONE, rival_turn=alone, at_least=1, aim=1.7)


def _export(tools: Tools, codec: str, form: str, *words: str) -> Turn:
    directory = tools.segment(f"{codec}-100").parent
    how = ("--quiet", "--to", form, "--mode", "overwrite", *words)
    return tools.kseg_turn("export", *how, "--output", tools.scratch / "exported", directory)
