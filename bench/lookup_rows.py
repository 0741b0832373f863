"""The rows about searching for a key. All of the data is decompressed and walked, so the rival is `verify --deep` of the same data.

No record has the key, so nothing ends the search early. The log dirs of `bench.producer_corpus` are used where they were created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bench import measure
from bench.contest import TIMES, Row
from bench.tools import Tools

CODECS = ("plain", "lz4", "zstd", "snappy", "gzip")
LOG_DIRS = (
    ("transactions", "200 partitions of transactions"),
    ("thousand", "1,050 partitions of two segments"),
)
NOBODYS = "nobody's key"
VERIFY = "verify --deep"


def lookup_rows(tools: Tools) -> Iterator[Row]:
    """On one core; then the gain from a second core on a single log, and from a time limit."""
    for codec in CODECS:
        yield _row(tools, f"key-{codec}", codec, tools.corpus / f"{codec}-100" / "bench-0")
    for name, words in LOG_DIRS:
        if (tools.corpus / name).exists():
            yield _row(tools, f"key-{name}", words, tools.corpus / name)
    directory = tools.corpus / "zstd-100" / "bench-0"
    search = ("lookup", "--key", NOBODYS, directory)
    yield Row(
        "key-two-cores",
        "lookup --key in one zstd log with --jobs 2, against --jobs 1",
        tools.kseg_turn(*search, "--jobs", "2", statuses=(0, 1)),
        judged_by=TIMES,
        rival="--jobs 1",
        rival_turn=tools.kseg_turn(*search, "--jobs", "1", statuses=(0, 1)),
        at_least=1,
        aim=1.7,
        prepare=_warm(directory),
    )
    # after the last record, so that every batch is excluded by its header
    late_ms = "1700000004000000"
    yield Row(
        "key-excluded",
        "lookup --key --from-time behind all records, against the same without",
        tools.kseg_turn(*search, "--jobs", "1", "--from-time", late_ms, statuses=(0, 1)),
        judged_by=TIMES,
        rival="without --from-time",
        rival_turn=tools.kseg_turn(*search, "--jobs", "1", statuses=(0, 1)),
        at_least=2,
        prepare=_warm(directory),
    )


def _row(tools: Tools, name: str, words: str, directory: Path) -> Row:
    return Row(
        name,
        f"lookup --key nobody has, one core, {words}",
        tools.kseg_turn("lookup", "--key", NOBODYS, "--jobs", "1", directory, statuses=(0, 1)),
        judged_by=TIMES,
        rival=VERIFY,
        rival_turn=tools.kseg_turn("verify", "--deep", "--jobs", "1", directory, statuses=(0, 1)),
        at_least=1,
        aim=1.2,
        prepare=_warm(directory),
    )


def _warm(directory: Path) -> Callable[[], None]:
    return lambda: measure.warm(*directory.rglob("*.log"))
