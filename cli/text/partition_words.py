"""The names of partitions in a text. With the data directories of several nodes, two of them can have the same name."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from kseg.segment.terminal import shown_path

Place = tuple[str, str]  # the name of a partition and its directory


def place_of(values: Mapping[str, Any]) -> Place:
    """The place that a row is about."""
    return str(values["partition"]), str(values.get("directory") or values.get("path") or values["partition"])


def partition_words(places: Iterable[Place]) -> dict[Place, str]:
    """How each of the places of a text is called: by its name, or by its directory if another one has the same name."""
    different = [*dict.fromkeys(places)]
    numbers = Counter(name for name, _ in different)
    return {place: shown_path(place[0] if numbers[place[0]] == 1 else place[1]) for place in different}
