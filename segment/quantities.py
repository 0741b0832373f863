"""Times, sizes and durations as people write them, to numbers.

    TIME        epoch milliseconds, or ISO 8601 (without a zone it is UTC)
    SIZE        bytes, or a number with a binary suffix (`SIZES`)
    DURATION    milliseconds, or a number with a unit (`DURATIONS_MS`)

All that is wrong raises ValueError with what would be right, such as "takes epoch milliseconds or …".
"""

import re
from collections.abc import Mapping
from typing import Final

from kseg.segment.layout import INT64_MAX

SIZES: Final = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
DURATIONS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AMOUNT = r"([0-9]{1,19})\s*([A-Za-z]*)"
_EPOCH_MS = r"-?[0-9]+"


def read_time(text: str) -> int:
    """TIME to epoch milliseconds."""
    if re.fullmatch(_EPOCH_MS, text):
        return _within_64_bits(int(text))
    import datetime

    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "takes epoch milliseconds or an ISO 8601 time such as 2024-05-01T12:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (moment - epoch) // datetime.timedelta(milliseconds=1)


def amount(text: str, units: Mapping[str, int], complaint: str) -> int:
    """A number with one of `units` (in lower case, "" for none) behind it, in the smallest of them."""
    match = re.fullmatch(_AMOUNT, text.strip(), re.ASCII)
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(complaint)
    return _within_64_bits(int(match[1]) * factor)


def _within_64_bits(number: int) -> int:
    if not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise ValueError("takes a number of at most 64 bits")
    return number
