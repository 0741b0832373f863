"""The rows about `verify` on data that users have: directories with producers, many partitions, two cores, and the same bytes read by Rust.

Corpora: `bench.producer_corpus`, created if missing. A directory is raced against its bare log: the target limits the cost of its side
files, producers and transactions. Records of all shapes: `bench.shape_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

from bench import measure, producer_corpus, rust_reader
from bench.contest import SECONDS, TIMES, Limit, Row, Turn
from bench.measure import MIB, Sample
from bench.tools import Tools
from kseg.jobs.log_splitting import index_cuts

ONE_CORE = ("--jobs", "1")
LEVELS: tuple[tuple[str, tuple[str, ...], float], ...] = (("", (), 1 / 1.3), ("-deep", ("--deep",), 1 / 1.15))


def verify_rows(tools: Tools) -> Iterator[Row]:
    """All rows, in the order of the table."""
    yield from _directories(tools)
    yield from _against_classes(tools)
    yield from _many_partitions(tools)
    yield from _two_cores(tools)
    yield from _against_rust(tools)


def made(tools: Tools, *names: str) -> Callable[[], None]:
    def make() -> None:
        producer_corpus.make(tools.corpus, names)
        for name in names:
            measure.warm(*(tools.corpus / name).glob("*/*.log"))

    return make


def _directories(tools: Tools) -> Iterator[Row]:
    for name in ("idempotent", "transactional"):
        for suffix, words, least in LEVELS:
            command = ("verify", *words, *ONE_CORE)
            yield Row(
                f"directory-{name}{suffix}",
                f"{' '.join(command)} of a directory, {name} producers",
                tools.kseg_turn(*command, tools.corpus / name / "bench-0"),
                judged_by=TIMES,
                rival="its bare .log",
                rival_turn=tools.kseg_turn(*command, tools.segment(name)),
                at_least=round(least, 2),
                prepare=made(tools, name),
            )


def _against_classes(tools: Tools) -> Iterator[Row]:
    for codec in producer_corpus.CODECS:
        name = f"idempotent{codec}"
        yield Row(
            f"producers-deep{codec}",
            f"verify --deep of a directory, one core, 8 producers{codec.replace('-', ', ')}",
            tools.kseg_turn("verify", "--deep", *ONE_CORE, tools.corpus / name / "bench-0"),
            judged_by=TIMES,
            rival="Kafka classes, warm",
            rival_turn=tools.classes_turn(tools.segment(name)),
            startup=tools.startup_turn(),
            at_least=1.3 if codec == "-zstd" else 1.5,
            prepare=made(tools, name),
        )


def _many_partitions(tools: Tools) -> Iterator[Row]:
    directory = tools.corpus / "transactions"
    for words, most in ((("--quick",), 0.35), ((), 0.8), (("--deep",), 2.2)):
        command = ("verify", *words)
        name = "-".join(("partitions", *(word.strip("-") for word in words)))
        yield Row(
            name,
            f"{' '.join(command)}, 200 partitions with transactions, --jobs 1",
            tools.kseg_turn(*command, *ONE_CORE, directory),
            judged_by=SECONDS,
            at_least=most,
            prepare=made(tools, "transactions"),
        )
        yield Row(
            f"{name}-two",
            f"{' '.join(command)}, 200 partitions with transactions, --jobs 2",
            tools.kseg_turn(*command, "--jobs", "2", directory),
            judged_by=TIMES,
            rival="kseg --jobs 1",
            rival_turn=tools.kseg_turn(*command, *ONE_CORE, directory),
            at_least=1.8,
        )
    fleet = tools.corpus / "ten-thousand"
    retention = ("retain", "--cleanup-policy", "delete", "--retention-ms", "1000")
    for name, command, most in (("verify", ("verify", "--quick"), 12), ("retain", retention, 4)):
        yield Row(
            f"ten-thousand-{name}",
            f"{' '.join(command[:2])}, 10,000 partitions",
            tools.kseg_turn(
                *command, fleet, memory=True, statuses=(0, 1)
            ),  # exit status of a plan with changes
            judged_by=SECONDS,
            at_least=most,
            limit=Limit("private_bytes", 100 * MIB, "MiB private", MIB),
            prepare=made(tools, "ten-thousand"),
        )


def _two_cores(tools: Tools) -> Iterator[Row]:
    for codec in producer_corpus.CODECS:
        file = tools.segment(f"idempotent{codec}")
        yield Row(
            f"two-cores{codec}",
            f"verify --deep --jobs 2 of one log{codec.replace('-', ', ')}",
            tools.kseg_turn("verify", "--deep", "--jobs", "2", file),
            judged_by=TIMES,
            rival="kseg --jobs 1",
            rival_turn=tools.kseg_turn("verify", "--deep", *ONE_CORE, file),
            at_least=1.7,
            prepare=made(tools, f"idempotent{codec}"),
        )
        yield Row(
            f"two-cores-bound{codec}",
            f"the same by two programs, each on half of it{codec.replace('-', ', ')}: what this machine gives",
            _both_halves_turn(tools, file),
            judged_by=TIMES,
            rival="kseg --jobs 1",
            rival_turn=tools.kseg_turn("verify", "--deep", *ONE_CORE, file),
            prepare=made(tools, f"idempotent{codec}"),
        )


def _both_halves_turn(tools: Tools, file: Path) -> Turn:
    def turn() -> Sample:
        commands = [tools.kseg_turn("verify", "--deep", *ONE_CORE, half) for half in _halves(tools, file)]
        with ThreadPoolExecutor(len(commands)) as threads:
            samples = [threads.submit(each) for each in commands]
            return max((sample.result() for sample in samples), key=lambda sample: sample.seconds)

    return turn


def _halves(tools: Tools, file: Path) -> list[Path]:
    """Copies of the two halves of a log, cut between two batches; created once."""
    place = tools.scratch / f"halves-{file.parent.parent.name}"
    if not place.exists():
        cuts = index_cuts(str(file), file.stat().st_size // 2)
        with file.open("rb") as log:
            for number, (start, stop) in enumerate(pairwise([*cuts, file.stat().st_size])):
                log.seek(start)
                data = log.read(stop - start)
                half = place / str(number) / "bench-0" / f"{int.from_bytes(data[:8], 'big'):020d}.log"
                half.parent.mkdir(parents=True)
                half.write_bytes(data)
    return sorted(place.glob("*/bench-0/*.log"))


def _against_rust(tools: Tools) -> Iterator[Row]:
    for codec in producer_corpus.CODECS:
        file = tools.segment(f"idempotent{codec}")

        def prepare(codec: str = codec) -> None:
            rust_reader.build()
            made(tools, f"idempotent{codec}")()

        for mode, level in (("checksums", "--quick"), ("records", "--deep")):
            yield Row(
                f"rust-{mode}{codec}",
                f"verify {level}, one core{codec.replace('-', ', ')}",
                tools.kseg_turn("verify", level, *ONE_CORE, file),
                judged_by=TIMES,
                rival="krabka-protocol (Rust)",
                rival_turn=rust_reader.turn(mode, file),
                startup=tools.startup_turn(),
                at_least=0.8,
                aim=1.0,
                prepare=prepare,
            )
