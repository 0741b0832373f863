"""The findings about a coordinator's load of one partition, in the same words for every coordinator.

1. Damage to the log. After an unclean shutdown, a broker that starts reads the segments from the recovery point on, and truncates the log
   at the first damage, before any coordinator loads it; kseg continues after the damage, since a repair keeps what follows. The effect of
   damage elsewhere depends on the coordinator (`Effects`), except that every coordinator loads what precedes an incomplete batch at the
   end.
2. Records that the coordinator cannot load, or skips.

At most a hundred of each are listed, and the others counted.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field

from kseg.internal_topics.coordinator_log import (
    ENDS_EVERY_LOAD,
    CoordinatorRecord,
    LogProblem,
    failing,
    taken_over,
)
from kseg.internal_topics.coordinator_reading import BEYOND_THE_END, ENDLESS, PASSED_OVER
from kseg.segment.counted import counted
from kseg.segment.findings import Finding
from kseg.segment.values import dataclass

FAILS, TRUNCATED, TORN = "coordinator-load-fails", "coordinator-log-truncated", "coordinator-log-torn"
SKIPPED = "coordinator-log-skipped"
MAX_REPORTED = 100
TORN_TAIL = "torn-tail"


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A record that a coordinator fails to load."""

    offset: int
    reason: str


@dataclass(slots=True)
class CoordinatorLoad:
    """What every load of a partition notes. unknown_types: how many records of each type were skipped. problems: parts that could not be
    read, each with the number of records before it."""

    unknown_types: dict[int, int] = field(default_factory=dict)
    failures: list[FailedRecord] = field(default_factory=list)
    problems: list[tuple[LogProblem, int]] = field(default_factory=list)
    records: int = 0

    def skip(self, type_id: int) -> None:
        """A record of a type that the coordinator skips."""
        self.unknown_types[type_id] = self.unknown_types.get(type_id, 0) + 1

    def meet(
        self, problem: LogProblem, load: "Callable[[Iterable[CoordinatorRecord]], CoordinatorLoad]"
    ) -> None:
        """load: tells whether the records in damaged bytes fail to load by themselves, whatever precedes them."""
        fails = problem.unchecked is not None and bool(load(taken_over(problem)).failures)
        self.problems.append((failing(problem) if fails else problem, self.records))


@dataclass(frozen=True, slots=True)
class Effects:
    """What damage does to a load, as the end of a sentence. ended_by: the kinds of a `LogProblem` at which it ends, whatever the bytes say;
    ends: what the coordinator does there. may_end: its effect if a batch ends beyond the log end. taken_over: if altered records are
    loaded. unchecked: if the effect of the bytes is uncertain."""

    ends: str
    may_end: str
    taken_over: str
    unchecked: str
    ended_by: tuple[str, ...] = ENDS_EVERY_LOAD


class LoadFindings:
    """Call `damage` and `record` in log order. path: of the partition."""

    def __init__(self, path: str, effects: Effects) -> None:
        self._path = path
        self._effects = effects
        self._damages: list[tuple[LogProblem, int]] = []  # with the number of records before each
        self._records: list[Finding] = []
        self._more_records = 0

    def damage(self, problem: LogProblem, records_before: int) -> None:
        self._damages.append((problem, records_before))

    def record(self, finding: Finding) -> None:
        if len(self._records) < MAX_REPORTED:
            self._records.append(finding)
        else:
            self._more_records += 1

    def of_damage(self, records: int) -> Iterator[Finding]:
        """records: how many the log has."""
        is_cut = False
        for problem, before in self._damages[:MAX_REPORTED]:
            if not problem.is_cut:
                yield self._not_cut(problem)
            elif is_cut:
                yield _finding(TRUNCATED, problem, "a broker that starts removes it, and what follows")
            elif records == before:
                yield _finding(
                    TORN,
                    problem,
                    "a broker that starts removes it, and the coordinator loads what is before it",
                )
            else:
                then = (
                    f"a broker that starts truncates the log there, since the last shutdown was not clean, and its coordinator does not load "
                    f"the {counted(records - before, 'record')} after it, which `kseg recover` keeps"
                )
                yield _finding(TRUNCATED, problem, then)
            is_cut |= problem.is_cut
        yield from self._more(len(self._damages) - MAX_REPORTED, "more place")

    def of_records(self) -> Iterator[Finding]:
        yield from self._records
        yield from self._more(self._more_records, "more record")

    def _not_cut(self, problem: LogProblem) -> Finding:
        effects = self._effects
        if problem.damage == TORN_TAIL:
            then = "the coordinator loads what is before it; but a broker that starts without checking the log appends after it, and the next load fails there"
            return _finding(TORN, problem, then)
        if problem.damage == PASSED_OVER:
            return skipped_finding(problem)
        if problem.damage == ENDLESS:
            then = "a coordinator reads it again and again, and does not finish loading the partition, or fails to load it"
            return _finding(FAILS, problem, then)
        if problem.damage in effects.ended_by or (problem.unchecked is not None and problem.unchecked.ends):
            return _finding(FAILS, problem, effects.ends)
        if problem.damage == BEYOND_THE_END:
            return _finding(FAILS, problem, effects.may_end)
        if problem.unchecked is not None:
            return _finding(FAILS, problem, effects.taken_over)
        return _finding(FAILS, problem, effects.unchecked)

    def _more(self, count: int, what: str) -> Iterator[Finding]:
        if count > 0:
            yield Finding(FAILS, self._path, f"… and {counted(count, what)} of this kind")


def skipped_finding(problem: LogProblem) -> Finding:
    """About batches that a coordinator passes over."""
    then = "it does not load them, and kseg shows the state without them, until `kseg recover` has put the batches in order"
    return _finding(SKIPPED, problem, then)


def _finding(kind: str, problem: LogProblem, then: str) -> Finding:
    message = f"{problem.message}; {then}"
    return Finding(kind, problem.path, message, problem.position, first_offset=problem.offset)
