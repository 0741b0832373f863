"""Format durations for the reason of a verdict."""

from functools import lru_cache

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


@lru_cache(maxsize=8)  # the same limit appears in the reasons of thousands of segments
def duration_words(length_ms: int) -> str:
    """The two greatest units: `6 d 23 h`, `4 min`, `250 ms`."""
    if length_ms < 0:
        return f"−{duration_words(-length_ms)}"
    for at, (unit, unit_ms) in enumerate(_UNITS):
        if length_ms >= unit_ms:
            words = f"{length_ms // unit_ms:,} {unit}"
            rest = length_ms % unit_ms
            if at + 1 < len(_UNITS) and rest >= _UNITS[at + 1][1]:
                smaller, smaller_ms = _UNITS[at + 1]
                words += f" {rest // smaller_ms} {smaller}"
            return words
    return f"{length_ms} ms"
