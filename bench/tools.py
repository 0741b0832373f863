"""How the programs of the race are called: kseg, the real tool, the real classes.

The real tool is started as by `kafka-dump-log.sh` (with the heap and collector of `kafka-run-class.sh`), but without a shell. kseg is the
script in the environment of this Python.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import measure
from bench.contest import Turn
from bench.measure import Sample

SEGMENT = "00000000000000000000.log"
WARM_SECONDS = 4.0
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


@dataclass(frozen=True, slots=True)
class Tools:
    """The programs of the race. kseg: the script. java: the command of a JVM. environment: of the JVM.

    corpus: the directory of the corpora. scratch: an empty directory on the same file system.
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
                [self.kseg, *words],
                environment=clean_environment(),
                into=into,
                watch_memory=memory,
                statuses=statuses,
            )
            return Sample(ran.seconds, {"private_bytes": ran.peak_private_bytes} if memory else {})

        return turn

    def lookup_turn(self, *words: str | Path) -> Turn:
        def turn() -> Sample:
            command = [self.kseg, "lookup", "--json", *words]
            ran = measure.run(command, environment=clean_environment(), keep=True)
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


def clean_environment() -> dict[str, str]:
    """The environment without variables that make Python slower than it is for users."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def warm_sample(output: bytes) -> Sample:
    """The best pass of the warm classes. Raises Failed if a pass saw no record or if passes differ."""
    passes = [json.loads(line) for line in output.splitlines()]
    seen = {(each["batches"], each["records"], each["bytes"]) for each in passes}
    if len(seen) != 1 or not passes[0]["records"]:
        raise measure.Failed(f"the warm classes did not read the same records in each pass: {sorted(seen)}")
    seconds = sorted(each["seconds"] for each in passes)
    return Sample(seconds[0], {"median_pass": seconds[len(seconds) // 2], "passes": len(passes)})


def lookup_figures(output: bytes) -> dict[str, float]:
    """The number of bytes that a lookup read. Raises Failed if it found nothing."""
    lines = [json.loads(line) for line in output.splitlines()]
    answers = [line for line in lines if line.get("type") == "lookup"]
    if len(answers) != 1 or not answers[0]["found"] or answers[0]["record"] is None:
        raise measure.Failed("the lookup found nothing")
    return {"bytes_read": answers[0]["bytes_read"]}
