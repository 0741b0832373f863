"""Human-readable amounts: sizes in binary units, durations in the largest whole unit, estimates rounded to one unit."""

_SIZES = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DURATIONS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def size_words(size_bytes: int) -> str:
    """`594 bytes`, `12.3 KiB`, `1.5 GiB`: three significant digits."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes:,} byte" if size_bytes == 1 else f"{size_bytes:,} bytes"
    power, amount = 0, size_bytes / 1024
    while abs(amount) >= 1023.95 and power + 1 < len(_SIZES):
        power, amount = power + 1, amount / 1024
    return f"{amount:.{0 if abs(amount) >= 99.95 else 1}f} {_SIZES[power]}"


def duration_words(duration_ms: int) -> str:
    """`7d`, `90min`, `1.5s`, `250ms`: the way people write Kafka's settings. -1 is Kafka's `no limit`."""
    if duration_ms < 0:
        return "no limit" if duration_ms == -1 else f"{duration_ms}ms"
    for unit, unit_ms in _DURATIONS:
        if duration_ms >= unit_ms and duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms}{unit}"
    if duration_ms < 1000:
        return f"{duration_ms}ms"
    return f"{duration_ms // 1000}.{duration_ms % 1000:03}".rstrip("0") + "s"


def rough_duration_words(seconds: float) -> str:
    """A rough estimate: `95 s`, `12 min`, `3 h`, never below `1 s`."""
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
