"""The rows about records that are not small JSON: large and tiny ones, one a batch and 10,000 a batch, with headers, without values.

Each is raced against the same command on the usual log (100-byte values, 100 a batch), whose time is scaled to the bytes of the shape if
its records are large, and to their number if they are small. Start-up is subtracted from both times. Corpora: `bench.producer_corpus`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bench.contest import TIMES, Row, Turn
from bench.measure import Sample
from bench.tools import Tools
from bench.verify_rows import made

SMALL = ("single", "tiny", "wide", "headers", "keys")
USUAL = "idempotent"
ALONE = ("--quiet", "--jobs", "1")
COMMANDS: dict[str, tuple[str, ...]] = {
    "verify": ("verify", "--jobs", "1"),
    "verify-deep": ("verify", "--deep", "--jobs", "1"),
    "dump": ("dump", "--print-data-log", *ALONE),
    "key": ("lookup", "--key", "nobody's key", "--jobs", "1"),
    "compact": ("compact", "--cleanup-policy", "compact", *ALONE),
}


def shape_rows(tools: Tools) -> Iterator[Row]:
    """All rows, in the order of the table."""
    for shape, measured in (("large", size), *((name, records) for name in SMALL)):
        for name, words in COMMANDS.items():
            yield Row(
                f"shape-{shape}-{name}",
                f"{' '.join(words[:2])}, {shape} records",
                _turn(tools, words, shape),
                judged_by=TIMES,
                rival=f"100-byte values, per {'byte' if measured is size else 'record'}",
                rival_turn=scaled(_turn(tools, words, USUAL), tools, USUAL, shape, measured),
                startup=tools.startup_turn(),
                at_least=0.5,
                prepare=made(tools, USUAL, shape),
            )


def _turn(tools: Tools, words: tuple[str, ...], corpus: str) -> Turn:
    # no record has the key; exit status 1 of a planned compaction means that there is something to do
    return tools.kseg_turn(*words, tools.corpus / corpus / "bench-0", statuses=(0, 1))


def scaled(turn: Turn, tools: Tools, usual: str, shape: str, measured: Callable[[Path], int]) -> Turn:
    """The time for the usual records, scaled to those of the shape, without start-up."""
    startup = tools.startup_turn()

    def take() -> Sample:
        seconds = turn().seconds - startup().seconds
        share = measured(tools.corpus / shape / "bench-0") / measured(tools.corpus / usual / "bench-0")
        return Sample(max(seconds, 1e-6) * share)

    return take


def size(partition: Path) -> int:
    """The size of the corpus's logs."""
    return sum(path.stat().st_size for path in partition.glob("*.log"))


def records(partition: Path) -> int:
    """The log end offset, from the name of the last snapshot; each offset has a record."""
    return max(int(path.stem) for path in partition.glob("*.snapshot"))
