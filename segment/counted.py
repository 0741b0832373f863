"""Counts of things and ranges of offsets, as text."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """`1 error`, `2 errors`, `2 batches`, `2 directories`. noun: in the singular."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """The plural of a regular English noun, or of a phrase whose last word is one."""
    if noun.endswith("y") and noun[-2:-1] not in tuple("aeiou"):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def shown_of(number: int, most: int) -> int:
    """How many of `number` things to show if `most` are enough: all if only one would be left out, since `1 more` takes as much space."""
    return number if number <= most + 1 else most


def listed(names: Sequence[str], most: int, noun: str = "", number: int | None = None) -> str:
    """`a, b, c and 7 more partitions`. names: at least `most` + 1 of them, or all. number: how many there are, if `names` has only the
    first ones."""
    number = len(names) if number is None else number
    shown = shown_of(number, most)
    more = number - shown
    told = ", ".join(names[:shown])
    if not more:
        return told
    return f"{told} and {counted(more, f'more {noun}') if noun else f'{more:,} more'}"


def offsets_words(first: int, last: int) -> str:
    """`offset 7`, `offsets 7 to 9`: inclusive."""
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def log_range_words(start: int, end: int) -> str:
    """The offsets of a log, whose end offset is the next one to be written: `offsets 0 to 330`, `empty at offset 330`."""
    return f"empty at offset {start}" if start >= end else f"offsets {start} to {end}"
