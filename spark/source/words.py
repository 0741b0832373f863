"""Options as Spark hands them over, words by name, and what single words may be. Nothing here needs Spark."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final

from kseg.segment.errors import UsageError

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1
MEANINGLESS_NAMES: Final = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
_MEANINGLESS_PREFIX = "kafka."


class Words:
    """Options as they came, asked by name in whatever case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def get(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Raise UsageError for a name that is none of `known` and none that only a connection needs."""
        allowed = {name.lower(): name for name in (*known, *MEANINGLESS_NAMES)}
        for name in self._given:
            if name not in allowed and not name.startswith(_MEANINGLESS_PREFIX):
                raise UsageError(f"kafka-log has no option {name}; it has {', '.join(sorted(known))}")

    def boolean(self, name: str, default: bool) -> bool:
        text = self.get(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise UsageError(f"the option {name} is true or false, not {text!r}")
        return text.strip().lower() == "true"

    def number(self, name: str, most: int = LONG_MAX) -> int | None:
        """A whole number above 0; None when the option was not given."""
        text = self.get(name)
        if text is None:
            return None
        value = whole_number(text)
        if value is None or not 0 < value <= most:
            raise UsageError(f"the option {name} is a whole number from 1 to {most}, not {text!r}")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """One of `choices`; the first when the option was not given."""
        text = self.get(name)
        if text is None:
            return choices[0]
        if text.strip().lower() not in choices:
            raise UsageError(f"the option {name} is {' or '.join(choices)}, not {text!r}")
        return text.strip().lower()


def paths_of(words: Words) -> tuple[str, ...]:
    """What `load` was given, one path or several. Raises UsageError for none, and for a place that is no path."""
    several = words.get("paths")
    if several is not None:
        paths = json_of(several, "paths")
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise UsageError(f"the option paths is a JSON list of paths, not {several!r}")
    else:
        one = words.get("path")
        paths = [] if one is None else [one]
    if not paths or not all(paths):
        raise UsageError("kafka-log needs a path: load(path) of a data directory, a partition or a segment")
    return tuple(_local_path(path) for path in paths)


def _local_path(path: str) -> str:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", path)
    if scheme is None:
        return path
    if scheme[1].lower() != "file":
        raise UsageError(f"kafka-log reads directories that every machine sees as its own, not {path}")
    rest = path[len(scheme[0]) - 1 :]
    return "/" + rest.lstrip("/")


def whole_number(text: str) -> int | None:
    """A decimal number as Java's parsers take it; None when it is none."""
    return int(text) if re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", text, re.ASCII) else None


def is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def json_of(text: str, name: str, example: str = "[...]") -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UsageError(f"the option {name} is JSON like {example}, not {text!r}") from None
