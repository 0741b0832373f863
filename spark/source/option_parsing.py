"""Parse options as Spark passes them: strings by name. Nothing here needs Spark."""

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kseg.segment.errors import UsageError
from kseg.segment.quantities import SIZES, read_duration, read_size, read_time
from kseg.segment.storage.attached import is_elsewhere

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
MEANINGLESS_NAMES: Final = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_MEANINGLESS_PREFIX = "kafka."
# Spark's own suffixes are powers of 1024 as well (JavaUtils.byteStringAs)
_BYTES: Final = SIZES | {
    suffix + end: 1 << 10 * power for power, suffix in enumerate("kmgt", 1) for end in ("", "b")
}
# names of these options in other sources and on the command line
_OTHER_NAMES: Final = {
    "topic": "subscribe",
    "topics": "subscribe",
    "partition": "assign",
    "fromTime": "fromTimestamp",
    "toTime": "toTimestamp",
    "compression": "compression.type",
    "compressionType": "compression.type",
    "mode": "ifExists",
}


class Words:
    """Options as given, looked up case-insensitively."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._spelled = {name.lower(): name for name in given}

    def get(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Raise UsageError for a name that is neither in `known` nor an option for connections."""
        names = tuple(known)
        allowed = {name.lower() for name in (*names, *MEANINGLESS_NAMES)}
        for name, spelled in self._spelled.items():
            if name not in allowed and not name.startswith(_MEANINGLESS_PREFIX):
                meant = _meant(name, names)
                advice = f"it has {', '.join(sorted(names))}" if meant is None else f"did you mean {meant}?"
                raise UsageError(f"kafka-log has no option {spelled} here; {advice}")

    def boolean(self, name: str, default: bool) -> bool:
        text = self.get(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise UsageError(f"the option {name} must be true or false, not {text!r}")
        return text.strip().lower() == "true"

    def names(self, name: str) -> tuple[str, ...]:
        """A list separated by commas; empty if the option was not given."""
        return tuple(text.strip() for text in (self.get(name) or "").split(",") if text.strip())

    def number(self, name: str, most: int = LONG_MAX) -> int | None:
        """A whole number above 0; None when the option was not given."""
        return self._value(name, whole_number, 1, most, f"a whole number from 1 to {most}")

    def size_bytes(self, name: str, most: int = LONG_MAX, least: int = 1) -> int | None:
        """A size in bytes, such as 1048576, 16m or 64MiB; None when the option was not given."""
        words = f"a size such as 1048576, 16m or 64MiB, from {least} to {most} bytes"
        return self._value(name, lambda text: read_size(text, _BYTES), least, most, words)

    def duration_ms(self, name: str) -> int | None:
        """A duration in milliseconds, such as 500, 30s or 7d; None when the option was not given."""
        words = "a duration such as 500 (milliseconds), 30s or 7d"
        return self._value(name, read_duration, 1, math.inf, words)

    def time_ms(self, name: str, least_ms: int = 0) -> int | None:
        """A moment in milliseconds since 1970, such as 1700000000000 or 2024-05-01T12:00:00Z; None when the option was
        not given."""
        text = self.get(name)
        return None if text is None else time_of(text, f"the option {name}", least_ms)

    def offset(self, name: str) -> int | None:
        """A whole number from 0; None when the option was not given."""
        return self._value(name, whole_number, 0, LONG_MAX, "an offset (a whole number from 0)")

    def _value(
        self, name: str, read: Callable[[str], int | None], least: int, most: float, words: str
    ) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        try:
            value = read(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise UsageError(f"the option {name} must be {words}, not {text!r}")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of `choices`; the first if the option was not given."""
        text = self.get(name)
        if text is None:
            return choices[0]
        if text.strip().lower() not in choices:
            meant = difflib.get_close_matches(text.strip().lower(), choices, 1)
            advice = f"; did you mean {meant[0]}?" if meant else ""
            raise UsageError(f"the option {name} must be {' or '.join(choices)}, not {text!r}{advice}")
        return text.strip().lower()


def paths_of(words: Words, *, on_disk_only: bool = True) -> tuple[str, ...]:
    """The paths given to `load`. on_disk_only: refuse object stores and tar archives, which can neither be written nor streamed from.

    Raises UsageError if there is no path, or one is invalid.
    """
    several = words.get("paths")
    if several is not None:
        paths = json_of(several, "paths")
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise UsageError(f"the option paths must be a JSON list of paths, not {several!r}")
    else:
        one = words.get("path")
        paths = [] if one is None else [one]
    if not paths or not all(paths):
        raise UsageError("kafka-log needs a path: load(path) of a data directory, a partition or a segment")
    return tuple(_local_path(path, on_disk_only) for path in paths)


def _local_path(path: str, on_disk_only: bool) -> str:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", path)
    is_local = scheme is None or scheme[1].lower() == "file"
    if not is_local and not on_disk_only and is_elsewhere(path):
        return path
    if not is_local or (on_disk_only and is_elsewhere(path)):
        raise UsageError(
            "kafka-log writes to and streams from local paths, and reads URLs such as s3://bucket/data in batch queries only, "
            f"not {path}"
        )
    if scheme is None:
        return path
    rest = path[len(scheme[0]) - 1 :]
    return "/" + rest.lstrip("/")


def _meant(name: str, known: Iterable[str]) -> str | None:
    """The option that `name` (in lower case) probably misspells; None if none is similar."""
    by_lower = {each.lower(): each for each in known}
    other = {wrong.lower(): right.lower() for wrong, right in _OTHER_NAMES.items()}.get(name)
    if other in by_lower:
        return by_lower[other]
    near = difflib.get_close_matches(name, by_lower, 1, 0.75)
    return by_lower[near[0]] if near else None


def time_of(text: str, what: str, least_ms: int = 0) -> int:
    """A time in milliseconds since 1970. what: its name in the message of a UsageError."""
    try:
        value = read_time(text.strip())
    except (ValueError, OverflowError):
        value = least_ms - 1
    if not least_ms <= value <= LONG_MAX:
        raise UsageError(
            f"{what} must be a number of milliseconds since 1970 or a time such as 2024-05-01T12:00:00Z, not {text!r}"
        )
    return value


def whole_number(text: str) -> int | None:
    """A decimal number as Java's parsers accept it; None if the text is not one."""
    return int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", text, re.ASCII) else None


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def json_of(text: str, name: str, example: str = "[...]") -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"the option {name} must be JSON such as {example}, not {text!r}") from None
