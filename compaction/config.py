"""Read topic properties from a file under Kafka's names (Kafka: LogConfig, TopicConfig; broker names: ServerLogConfigs).

A file may be the output of `kafka-configs.sh --describe` for a topic, or a broker's server.properties: the topic's name of a
property takes precedence, then come the broker's names for it, in the order in which a broker looks them up.
"""

import math
import re
from collections.abc import Mapping

from kseg.segment.errors import FormatError, UsageError
from kseg.segment.files import read_small
from kseg.segment.java.java_text import LONG_BITS, parse_integer
from kseg.segment.java.properties import decode_properties

# What ConfigCommand prints after each value: its source, and the values that would apply without it.
_SHOWN_BEHIND = re.compile(r"\s+sensitive=(?:true|false)\s+synonyms=\{.*\}\s*", re.DOTALL)


class TopicConfig:
    """The properties of one file. path: as shown to the user. pairs: all properties, by name."""

    def __init__(self, path: str, pairs: Mapping[str, str]) -> None:
        self.path = path
        self.pairs = pairs

    @classmethod
    def read(cls, path: str) -> "TopicConfig":
        """Read a file. Raises UnreadableInput, and UsageError for a file that is not a properties file."""
        try:
            pairs = decode_properties(read_small(path))
        except FormatError as error:
            raise UsageError(f"{path} is not a properties file: {error}") from error
        return cls(path, {name: _SHOWN_BEHIND.sub("", value) for name, value in pairs.items()})

    def __contains__(self, name: str) -> bool:
        return name in self.pairs

    def integer(self, name: str) -> int | None:
        """A 64-bit integer, None when it is not set. Raises UsageError for anything else."""
        text = self.pairs.get(name)
        if text is None:
            return None
        number = parse_integer(text.strip(), LONG_BITS)
        if number is None:
            raise UsageError(f"{self.path}: {name} is not an integer: {text!r}")
        return number

    def number(self, name: str) -> float | None:
        """A decimal number, None when it is not set. Raises UsageError for anything else."""
        text = self.pairs.get(name)
        if text is None:
            return None
        try:
            number = float(text.strip())
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UsageError(f"{self.path}: {name} is not a number: {text!r}")
        return number

    def words(self, name: str) -> tuple[str, ...] | None:
        """A comma-separated list, None when it is not set."""
        text = self.pairs.get(name)
        if text is None:
            return None
        return tuple(word for word in (part.strip() for part in text.split(",")) if word)

    def named(self, *prefixes: str) -> tuple[str, ...]:
        """The names with one of these prefixes, in order."""
        return tuple(sorted(name for name in self.pairs if name.startswith(prefixes)))
