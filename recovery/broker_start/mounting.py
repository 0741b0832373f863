"""Which data directories a broker has in log.dirs, where those of several nodes were given and one of them may be in a wrong place.

Each node has a metadata log in one of its data directories. So those beside each other, of which exactly one has it, are of one node, and
if their meta.properties name different nodes or clusters, a volume was mounted on the wrong machine: its broker does not start (observed
with 4.3.1). Several metadata logs side by side are those of several nodes, whose disks were collected in one place.
"""

import os
from collections.abc import Hashable, Iterable

from kseg.segment.storage import places
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Mounted:
    """A data directory. node: to which it belongs by its meta.properties, None if unknown."""

    path: str
    node: Hashable | None
    has_metadata_log: bool


def mixed_up(directories: Iterable[Mounted]) -> list[list[Mounted]]:
    """The data directories of each node that has one of another node among them; first the one with the metadata log."""
    places_of: dict[str, list[Mounted]] = {}
    for each in directories:
        places_of.setdefault(os.path.dirname(places.abspath(each.path)), []).append(each)
    if len(places_of) == 1:  # nothing tells them apart
        return []
    together = [
        sorted(found, key=lambda each: not each.has_metadata_log)
        for found in places_of.values()
        if sum(each.has_metadata_log for each in found) == 1
    ]
    return [found for found in together if len({each.node for each in found} - {None}) > 1]
