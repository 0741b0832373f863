"""Points in time for people: epoch milliseconds as ISO 8601. JSON output keeps epoch milliseconds."""

CLOCK_DIFFERENCE_MS = 600_000  # tolerated between the clocks of different machines


def moment(timestamp_ms: int) -> str:
    """`2024-05-01T12:00:00.000Z`, in UTC; `no timestamp` for -1; a time outside the calendar stays a number, followed by `(not a date)`."""
    import datetime

    if timestamp_ms == -1:
        return "no timestamp"
    try:
        second = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} (not a date)"
    return second.isoformat(timespec="milliseconds") + "Z"
