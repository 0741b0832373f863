"""The rows about the data source `kafka-log`: records per second, and a race against Spark's own Kafka source with a broker.

All contestants read in one session, in turns (bench/source_turn.py); the second run of each counts.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator

from bench import measure, source_turn
from bench.contest import SECONDS, TIMES, Row
from bench.measure import Sample
from bench.tools import Tools, clean_environment

LEAST_RATE, AIM_RATE = 1e6, 2e6  # records per second
RECORDS = 4 * 4_353_100

# by contestant: seconds, and CPU seconds
Runs = dict[str, list[list[float]]]
Fight = Callable[[], Runs]


def source_rows(tools: Tools, fight: Fight | None = None) -> Iterator[Row]:
    """Reading 2 GiB of 100-byte records and discarding them. fight: returns the runs of a duel."""
    duel = _Duel(fight or (lambda: fought(tools)))
    job = "kafka-log: 2 GiB into noop, local[2], second run of a session"
    yield Row(
        "source",
        job,
        lambda: duel.reported(source_turn.OWN, again=True),
        judged_by=SECONDS,
        at_least=RECORDS / LEAST_RATE,
        aim=RECORDS / AIM_RATE,
    )
    for name, own, words in (
        ("source-kafka", source_turn.OWN, "with _meta"),
        ("source-kafka-alike", source_turn.ALIKE, "the same columns"),
    ):
        yield Row(
            name,
            f"{job}, {words}",
            lambda own=own: duel.reported(own, again=True),  # type: ignore[misc]
            judged_by=TIMES,
            rival="Spark's Kafka source, broker",
            rival_turn=lambda: duel.reported(source_turn.RIVAL, again=False),
            at_least=1,
            aim=2,
        )
    yield Row(
        "source-prepared",
        f"{job}, with _meta",
        lambda: duel.reported(source_turn.OWN, again=True),
        judged_by=TIMES,
        rival="a source that returns one prepared batch",
        rival_turn=lambda: duel.reported(source_turn.PREPARED, again=False),
        at_least=0.6,
        aim=0.8,
    )


class _Duel:
    """Gives the figures of a duel to the contestants that ran in it."""

    def __init__(self, fight: Fight) -> None:
        self._fight = fight
        self._runs: Runs = {}

    def reported(self, contestant: str, *, again: bool) -> Sample:
        """The second run of the contestant. again: run a new duel."""
        if again or not self._runs:
            self._runs = self._fight()
        seconds, computed = self._runs[contestant][1]
        return Sample(seconds, {"cpu_s": computed})


def fought(tools: Tools) -> Runs:
    """Run a duel in a separate process. Raises Failed."""
    scratch = tools.scratch / "duel"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    directory = tools.segment("plain-100").parent
    measure.warm(*directory.glob("0*"))
    command = [sys.executable, "-m", "bench.source_turn", str(directory), str(scratch)]
    reported = json.loads(measure.run(command, environment=clean_environment(), keep=True).output)
    if reported["records"] != RECORDS:
        raise measure.Failed(f"the duel was about {reported['records']} records instead of {RECORDS}")
    runs: Runs = reported["runs"]
    return runs
