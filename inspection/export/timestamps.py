"""Format timestamps as Spark's writers do: ISO 8601 in UTC, with a sign on years that do not have four digits.

Arrow's own formatting knows the years −32768 … 32767 only, and a producer that took microseconds for milliseconds is
beyond them. The calendar repeats every 400 years, so a year outside Arrow's range is formatted from the same day near 1970.
"""

import pyarrow as pa
import pyarrow.compute as pc

_UTC_MS = pa.timestamp("ms", tz="UTC")
_CYCLE_YEARS = 400
_CYCLE_MS = 146_097 * 24 * 60 * 60 * 1000
_YEAR_0_MS, _YEAR_10000_MS = -62_167_219_200_000, 253_402_300_800_000


def times(values: pa.Array) -> pa.Array:
    """With milliseconds, which is all that Kafka has; null stays null."""
    return _shown(values, "-%m-%dT%H:%M:%SZ")


def dates(values: pa.Array) -> pa.Array:
    """The days; null stays null."""
    return _shown(values, "-%m-%d")


def _shown(values: pa.Array, behind_year: str) -> pa.Array:
    millis = values.cast(_UTC_MS, safe=False)
    numbers = millis.cast(pa.int64())
    min_ms, max_ms = pc.min_max(numbers).values()
    if not min_ms.is_valid or (min_ms.as_py() >= _YEAR_0_MS and max_ms.as_py() < _YEAR_10000_MS):
        return pc.strftime(millis, f"%Y{behind_year}")
    cycles = [None if number is None else number // _CYCLE_MS for number in numbers.to_pylist()]
    near = pc.subtract(numbers, pa.array([n and n * _CYCLE_MS for n in cycles], pa.int64())).cast(_UTC_MS)
    rows = zip(cycles, pc.year(near).to_pylist(), pc.strftime(near, behind_year).to_pylist(), strict=True)
    return pa.array([None if n is None else _year(year + _CYCLE_YEARS * n) + rest for n, year, rest in rows])


def _year(year: int) -> str:
    return f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
