"""Parse times, sizes and durations as people write them.

    TIME        epoch milliseconds · ISO 8601 · `14:03`, the last time that a clock showed it · `-1h`, that long ago · `now`.
                A day or a clock time without a zone is UTC; a zone may follow: `+02:00`, `Europe/Berlin`, `local`
    SIZE        bytes, or a number with a suffix (`SIZES`): K, M, G, T and KiB … are binary, KB, MB, GB, TB decimal
    DURATION    milliseconds, or numbers with units (`DURATIONS_MS`), the largest unit first: `7d`, `1h30m`

Before a unit a number may have a fraction (`1.5GiB`, `0.5h`).

Invalid text raises ValueError with a description of valid text, such as "takes epoch milliseconds or …".
"""

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Self

from kseg.segment.layout import INT64_MAX

if TYPE_CHECKING:
    import datetime

SIZES: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}{end}": 1 << 10 * power for power, letter in enumerate("kmgt", 1) for end in ("", "ib")},
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
}
DURATIONS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_PART = r"([0-9]{1,40})(?:\.([0-9]{1,40}))?\s*([A-Za-z]*)\s*"
_EPOCH_MS = r"-?[0-9]+"
_CLOCK = r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,6})?)?"
_ZONE = r"(.*\S)\s+(local|[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)*)"
_TIME_WORDS = "takes epoch milliseconds, an ISO 8601 time such as 2024-05-01T12:00:00Z, a clock time such as 14:03, -1h or now"


class Typed(int):
    """A number and the text from which it was parsed (`7d`), for suggested commands."""

    text: str

    def __new__(cls, number: int, text: str = "") -> Self:
        made = super().__new__(cls, number)
        made.text = text or str(number)
        return made

    def __reduce__(self) -> tuple[type[Self], tuple[int, str]]:
        return type(self), (int(self), self.text)


def read_time(text: str, now_ms: int | None = None) -> int:
    """Parse TIME into epoch milliseconds. now_ms: the reference time, by default the clock."""
    if re.fullmatch(_EPOCH_MS, text):
        return _within_64_bits(int(text))
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if text == "now":
        return now_ms
    if text.startswith("-"):
        return now_ms - _amount(text[1:], DURATIONS_MS, _TIME_WORDS, most_parts=len(DURATIONS_MS))
    import datetime

    zone: datetime.tzinfo | None = datetime.UTC
    named = re.fullmatch(_ZONE, text)
    if named:
        text, zone = named[1], _zone(named[2])
    if re.fullmatch(_CLOCK, text):
        return _last_time_of_day(text, zone, now_ms)
    try:
        moment = datetime.datetime.fromisoformat(text)
        moments = [moment] if moment.tzinfo else _moments(moment, zone)
    except (ValueError, OverflowError):
        raise ValueError(_TIME_WORDS) from None
    if not moments:
        raise ValueError("takes a time that clocks show (in this zone they skip it)")
    if len(moments) > 1:
        either = " or ".join(each.astimezone(zone).isoformat() for each in moments)
        raise ValueError(f"takes {either} (in this zone clocks show it twice)")
    return Typed(_epoch_ms(moments[0]), text if named is None else named[0])


def _zone(name: str) -> "datetime.tzinfo | None":
    """None for the zone of this machine."""
    if name == "local":
        return None
    import zoneinfo

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"does not know the time zone {name!r}; zones are local or names such as Europe/Berlin"
        ) from None


def _moments(shown: "datetime.datetime", zone: "datetime.tzinfo | None") -> "list[datetime.datetime]":
    """When clocks of the zone show a time: twice if they are set back then, never if they are set forward."""
    import datetime

    found: list[datetime.datetime] = []
    for fold in (0, 1):
        local = shown.replace(fold=fold)
        moment = local.astimezone(None) if zone is None else local.replace(tzinfo=zone)
        moment = moment.astimezone(datetime.UTC)
        if moment not in found and moment.astimezone(zone).replace(tzinfo=None) == shown:
            found.append(moment)
    return found


def _last_time_of_day(text: str, zone: "datetime.tzinfo | None", now_ms: int) -> int:
    """The last time, up to now, at which a clock of the zone showed `text`."""
    import datetime

    try:
        clock = datetime.time.fromisoformat(text.rjust(len(text) + (text.index(":") == 1), "0"))
    except ValueError:
        raise ValueError(_TIME_WORDS) from None
    today = datetime.datetime.fromtimestamp(now_ms / 1000, zone).astimezone(zone)
    # clocks that are set forward skip times of a day, or a day
    days = (today.date() - datetime.timedelta(days=days) for days in range(4))
    shown = (_moments(datetime.datetime.combine(day, clock), zone) for day in days)
    return next(
        found for each in shown for moment in reversed(each) if (found := _epoch_ms(moment)) <= now_ms
    )


def _epoch_ms(moment: "datetime.datetime") -> int:
    import datetime

    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (moment - epoch) // datetime.timedelta(milliseconds=1)


def read_size(text: str, units: Mapping[str, int] = SIZES) -> int:
    """Parse SIZE into bytes. units: in bytes, by their names in lower case, "" for none."""
    return _amount(text, units, "takes a size such as 4096, 64KiB, 1.5GiB or 50GB")


def read_duration(text: str) -> int:
    """Parse DURATION into milliseconds."""
    return _amount(
        text, DURATIONS_MS, "takes a duration such as 500, 90s, 1h30m or 7d", most_parts=len(DURATIONS_MS)
    )


def _amount(text: str, units: Mapping[str, int], complaint: str, most_parts: int = 1) -> int:
    """The sum of the numbers followed by `units`, in the smallest of these; a number alone has the unit ""."""
    text = text.strip()
    total, above, at = 0, 0, 0
    while at < len(text) or not at:
        match = re.compile(_PART, re.ASCII).match(text, at)
        if match is None or not most_parts:
            raise ValueError(complaint)
        whole, fraction, unit = match.groups(default="")
        factor = units.get(unit.lower())
        if factor is None:
            raise ValueError(f"{complaint} ({unit} is none of the units {', '.join(filter(None, units))})")
        if not unit and (fraction or match.span() != (0, len(text))):
            lacks = f" ({match[0]} has no unit)" if match.end() == len(text) else ""
            raise ValueError(complaint + lacks)
        if above and factor >= above:
            raise ValueError(f"{complaint} (the largest unit first, each once)")
        total += _scaled(whole, fraction, factor)
        above, at, most_parts = factor, match.end(), most_parts - 1
    return Typed(_within_64_bits(total), text) if unit else _within_64_bits(total)


def _scaled(whole: str, fraction: str, factor: int) -> int:
    """`1.5` times the factor, to the nearest whole number."""
    scale: int = 10 ** len(fraction)
    number: int = int(whole + fraction) * factor
    return (number + scale // 2) // scale


def _within_64_bits(number: int) -> int:
    if not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise ValueError("takes a number of at most 64 bits")
    return number
