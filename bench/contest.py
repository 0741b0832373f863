"""The rules of the race: contestants take turns, the turns become figures, the figures are compared with the target.

A row has a kseg and, depending on how it is evaluated:

    TIMES     the rival's time divided by kseg's; `at_least` and `aim` are such ratios
    SHARE     the share of a bandwidth: the rival's time, which has no start-up, over kseg's
    SECONDS   kseg's time itself; `at_least` and `aim` are upper limits
    RECORDED  nothing; the figures are shown

If a row has a `startup`, its time is subtracted from kseg's. The smallest time of the rounds counts, because disturbances only
ever add time; the median is shown as well. A `limit` bounds another figure of kseg's output.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.measure import Sample

TIMES, SHARE, SECONDS, RECORDED = "times", "share", "seconds", "recorded"

Turn = Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure of kseg's turns that must not exceed `most`, in `unit` of `scale`."""

    figure: str
    most: float
    unit: str
    scale: float = 1


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. name: for --only. job: in words. rival: the contestant, in a word."""

    name: str
    job: str
    kseg: Turn
    judged_by: str = RECORDED
    rival: str = ""
    rival_turn: Turn | None = None
    startup: Turn | None = None
    at_least: float | None = None
    aim: float | None = None
    limit: Limit | None = None
    prepare: Callable[[], None] | None = None


@dataclass(slots=True)
class Turns:
    """The turns of one contestant."""

    samples: list[Sample] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(sample.seconds for sample in self.samples)

    @property
    def median(self) -> float:
        return statistics.median(sample.seconds for sample in self.samples)

    def largest(self, figure: str) -> float | None:
        values = [sample.figures[figure] for sample in self.samples if figure in sample.figures]
        return max(values, default=None)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a row. problem: why it could not be raced, else None."""

    row: Row
    kseg: Turns
    rival: Turns
    startup: Turns
    problem: str | None = None

    def seconds(self, *, median: bool = False) -> float:
        """kseg's time, without start-up if the row says so; at least a microsecond."""
        own = self.kseg.median if median else self.kseg.best
        if self.startup.samples:
            own -= self.startup.median if median else self.startup.best
        return max(own, 1e-6)

    def reached(self, *, median: bool = False) -> float | None:
        """The number that is compared with the target; None without a target."""
        if self.problem is not None or self.row.judged_by == RECORDED:
            return None
        if self.row.judged_by == SECONDS:
            return self.seconds(median=median)
        return (self.rival.median if median else self.rival.best) / self.seconds(median=median)

    @property
    def limited(self) -> float | None:
        return self.kseg.largest(self.row.limit.figure) if self.row.limit else None

    def passes(self) -> bool | None:
        """Whether every target is met; None if there is none."""
        if self.problem is not None:
            return False
        verdicts = []
        reached = self.reached()
        if reached is not None and self.row.at_least is not None:
            verdicts.append(_meets(self.row.judged_by, reached, self.row.at_least))
        if self.row.limit:
            verdicts.append(self.limited is not None and self.limited <= self.row.limit.most)
        return all(verdicts) if verdicts else None

    def meets_aim(self) -> bool:
        reached = self.reached()
        return (
            reached is not None
            and self.row.aim is not None
            and _meets(self.row.judged_by, reached, self.row.aim)
        )


def _meets(judged_by: str, reached: float, target: float) -> bool:
    return reached <= target if judged_by == SECONDS else reached >= target


def race(row: Row, rounds: int, failures: type[Exception] | tuple[type[Exception], ...] = ()) -> Result:
    """Let the contestants of a row take turns, `rounds` times. An exception in `failures` becomes the problem of the result."""
    contestants: Sequence[tuple[Turn | None, Turns]] = (
        (row.kseg, kseg := Turns()),
        (row.startup, startup := Turns()),
        (row.rival_turn, rival := Turns()),
    )
    problem = None
    try:
        if row.prepare:
            row.prepare()
        for _ in range(rounds):
            for turn, turns in contestants:
                if turn:
                    turns.samples.append(turn())
    except failures as error:
        problem = str(error)
    return Result(row, kseg, rival, startup, problem)
