"""Race kseg against the real Kafka's own tool and classes: `python -m bench.race`.

Creates missing corpora (bench/corpus, about 7 GB), then runs row by row, the contestants of a row in turns: A B A B …. Complete processes
are measured, with a warm page cache. The rows and their targets: bench/rows.py; their evaluation: bench/contest.py. The exit status is 1 if
a row misses its target or could not be raced.
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import kseg
from bench import corpus, report
from bench.contest import Result, Row, race
from bench.measure import Failed, machine
from bench.rows import CODECS, rows, rows_against
from bench.tools import Tools
from tests.kafka import jars

NAMES = (*(f"{codec}-{batch}" for codec in CODECS for batch in (100, 1)), "big", "many")
SEGMENT_MIB, BIG_MIB, PARTITIONS = 512, 2112, 200


def tools(directory: Path, scratch: Path) -> Tools:
    """The programs of this environment, and the corpora in `directory`, which are created if missing."""
    if not all((directory / name).exists() for name in NAMES):
        corpus.make(directory, SEGMENT_MIB << 20, BIG_MIB << 20, PARTITIONS)
    # as after an installation, so that no turn has to compile modules
    package = Path(kseg.__file__).parent
    for room in (package, *(path.resolve() for path in package.iterdir() if path.is_symlink())):
        # compileall does not follow links
        compileall.compile_dir(str(room), quiet=2)
    script = Path(sys.executable).parent / "kseg"
    return Tools(script, Path(jars.tool("java")), jars.java_environment(), directory, scratch)


def run(raced: Iterable[Row], rounds: int, only: Sequence[str]) -> list[Result]:
    """Race the rows whose name contains one of the words in `only` (all rows without words), and print each."""
    results = []
    print(report.heading(), flush=True)
    for row in raced:
        if only and not any(word in row.name for word in only):
            continue
        result = race(row, rounds, Failed)
        print(report.line(result), flush=True)
        results.append(result)
    return results


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.race", description="Race kseg against the real Kafka."
    )
    parser.add_argument("--corpus", type=Path, default=corpus.DEFAULT_DIRECTORY, metavar="DIR")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each contestant (3)")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only rows whose name holds this; repeatable",
    )
    parser.add_argument(
        "--against", type=Path, metavar="KSEG", help="race this script of another version instead of Kafka"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table for docs/speed.md")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="of the Markdown (today)")
    options = parser.parse_args()
    directory = options.corpus.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    here = machine()
    print(f"{here}; {options.rounds} rounds\n")
    with tempfile.TemporaryDirectory(dir=directory, prefix=".race-") as scratch:
        contestants = tools(directory, Path(scratch))
        raced = rows_against(contestants, options.against) if options.against else rows(contestants)
        results = run(raced, options.rounds, options.only)
    print(f"\n{report.sums(results)}")
    if options.markdown:
        options.markdown.write_text(report.markdown(results, here, options.date, options.rounds))
    sys.exit(0 if all(result.passes() is not False for result in results) else 1)


if __name__ == "__main__":
    main()
