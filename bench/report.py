"""The figures of a race as a table: on the screen while it runs, and in Markdown for docs/speed.md."""

from __future__ import annotations

from collections.abc import Sequence

from bench.contest import RECORDED, SECONDS, SHARE, Result
from bench.measure import Machine

COLUMNS = (
    "job",
    "against",
    "it (s)",
    "kseg (s)",
    "start-up (s)",
    "reached",
    "by medians",
    "at least",
    "aim",
    "",
)
WIDTHS = (58, 20, 9, 9, 13, 11, 11, 9, 7, 6)


def cells(result: Result) -> tuple[str, ...]:
    """The cells of a result, one for each of COLUMNS. Times are the best of the rounds."""
    row = result.row
    startup, rival = result.startup.samples, result.rival.samples
    return (
        row.job,
        row.rival,
        _seconds(result.rival.best) if rival else "",
        _seconds(result.kseg.best) if result.kseg.samples else "",
        _seconds(result.startup.best) if startup else "",
        " · ".join(filter(None, (_number(result, result.reached()), _limited(result)))),
        _number(result, result.reached(median=True)),
        " · ".join(filter(None, (_number(result, row.at_least, target=True), _limit(result)))),
        _number(result, row.aim, target=True),
        verdict(result),
    )


def verdict(result: Result) -> str:
    """aim, yes, NO, or a dash if there is no target."""
    passes = result.passes()
    if passes is None:
        return "–"
    if not passes:
        return "NO"
    return "aim" if result.meets_aim() else "yes"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}" if seconds < 10 else f"{seconds:.1f}"


def _number(result: Result, number: float | None, target: bool = False) -> str:
    if number is None:
        return ""
    if result.row.judged_by == SECONDS:
        return f"{number:g} s" if target else f"{number:.3f} s"
    if result.row.judged_by == SHARE:
        return f"{number:.0%}"
    return f"{number:g} ×" if target else f"{number:.1f} ×"


def _limited(result: Result) -> str:
    limit, reached = result.row.limit, result.limited
    return f"{reached / limit.scale:.0f} {limit.unit}" if limit and reached is not None else ""


def _limit(result: Result) -> str:
    limit = result.row.limit
    return f"≤ {limit.most / limit.scale:.0f} {limit.unit}" if limit else ""


def heading() -> str:
    """The first line of the table on the screen."""
    return _line(COLUMNS)


def line(result: Result) -> str:
    """A line of the table on the screen."""
    if result.problem is not None:
        return f"{result.row.job}: not raced: {result.problem}"
    return _line(cells(result))


def _line(texts: Sequence[str]) -> str:
    return " ".join(f"{text:<{width}}" for text, width in zip(texts, WIDTHS, strict=True)).rstrip()


def markdown(results: Sequence[Result], machine: Machine, date: str, rounds: int) -> str:
    """The table for docs/speed.md, with the machine on which it was measured."""
    shown = (0, 1, 2, 3, 5, 7, 8)
    lines = [
        f"Measured on {date}, {machine}; best of {rounds} rounds in turns, page cache warm, whole processes,",
        "start-up included except in the rows of `verify --quick` against touching and of `verify --deep`.",
        "",
        "| " + " | ".join(COLUMNS[n] for n in shown) + " |",
        "|" + "---|" * len(shown),
    ]
    for result in results:
        if result.problem is None:
            texts = cells(result)
            lines.append("| " + " | ".join(texts[n] for n in shown) + " |")
    return "\n".join(lines) + "\n"


def sums(results: Sequence[Result]) -> str:
    """A sentence about how many rows meet their targets."""
    judged = [result for result in results if result.passes() is not None]
    met = sum(1 for result in judged if result.passes())
    recorded = sum(1 for result in results if result.row.judged_by == RECORDED and result.row.limit is None)
    return f"{met} of {len(judged)} rows meet their target; {recorded} are only recorded"
