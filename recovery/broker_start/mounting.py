"""Which data directories a broker has in log.dirs when those of several nodes were given and one of them may be in the wrong place.

A volume that was attached to the wrong machine prevents the start of the broker there (observed with 4.3.1), and no file names the machine.
What can be known: meta.properties names the node of each directory, and the metadata log has the directory ids that each broker has
registered (since 3.7). So:

1. Directories are assumed to be on one machine if their paths have more in common with each other than with the rest.
2. A directory that is not of the same node as the others there is in the wrong place, unless the nodes there are complete: each has all of
   its registered directories there or, where those are unknown, its metadata log.
3. Disks that were collected in one place look the same. If such a mixture contains more directories than any of the nodes there has
   registered, or if there is only one place and no node lacks a directory there, they are collected disks. Otherwise both remain possible,
   and `Machine.own` covers the other case.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from kseg.segment.storage import places
from kseg.segment.values import dataclass

Node = tuple[str | None, int | None]  # cluster id and node id
Registered = Mapping[Node, AbstractSet[str]]  # directory ids by node


@dataclass(frozen=True, slots=True)
class Mounted:
    """A data directory. node: the one that it belongs to according to its meta.properties, None if unknown."""

    path: str
    node: Node | None
    directory_id: str | None
    has_metadata_log: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of a node on which another node has directories, too. there: the directories on it, those of the node first, beginning
    with the one that has the metadata log. own: all directories of the node, wherever they are."""

    node: Node
    there: tuple[Mounted, ...]
    own: tuple[Mounted, ...]


def mixed_up(directories: Iterable[Mounted], registered: Registered) -> list[Machine]:
    """The machines on which a node has a data directory of another node among its own. registered: the directory ids of each node, where
    they are known."""
    given = [*directories]
    places_of = [*_places(given)]
    mixed = [there for there in places_of if not _is_whole(there, registered)]
    if not all(may_be_one_machine(there, registered) for there in mixed):
        return []
    if len(places_of) == 1 and not _has_one_in_place_of_another(given, registered):
        return []
    pure = {_nodes_of(there)[0] for there in places_of if there not in mixed and len(_nodes_of(there)) == 1}
    found = [*_assigned(mixed, pure)]
    machines = []
    for there, node in found:
        first = sorted(there, key=lambda each: (each.node != node, not each.has_metadata_log))
        own = [each for each in given if each.node == node]
        own.sort(key=lambda each: not each.has_metadata_log)
        machines.append(Machine(node, tuple(first), tuple(own)))
    return machines


def may_be_one_machine(there: Sequence[Mounted], registered: Registered) -> bool:
    """Whether the log.dirs of one of the nodes can have as many entries."""
    known = [len(ids) for node in _nodes_of(there) if (ids := registered.get(node))]
    return not known or max(known) >= sum(each.node is not None for each in there)


def _places(directories: Sequence[Mounted]) -> Iterator[list[Mounted]]:
    """The directories in groups: divided where their paths part, as long as a group of several remains."""
    # the empty last name sets a path apart from the paths below it
    parts = [(*places.abspath(each.path).split(os.sep), "") for each in directories]
    if len({*parts}) < 2:
        yield [*directories]
        return
    common = next(at for at, names in enumerate(zip(*parts, strict=False)) if len({*names}) > 1)
    below: dict[str, list[Mounted]] = {}
    for each, names in zip(directories, parts, strict=True):
        below.setdefault(names[common], []).append(each)
    if len(below) == len(directories):
        yield [*directories]
        return
    for group in below.values():
        yield from _places(group)


def _nodes_of(there: Iterable[Mounted]) -> list[Node]:
    return [*dict.fromkeys(each.node for each in there if each.node is not None)]


def _is_whole(there: Sequence[Mounted], registered: Registered) -> bool:
    """Whether the directories in one place all belong to one node, or to several nodes none of which lacks a directory there."""
    nodes = _nodes_of(there)
    return len(nodes) < 2 or all(_has_all(node, there, registered) for node in nodes)


def _has_all(node: Node, there: Sequence[Mounted], registered: Registered) -> bool:
    own = [each for each in there if each.node == node]
    if ids := registered.get(node):
        return ids <= {each.directory_id for each in own}
    return any(each.has_metadata_log for each in own)


def _has_one_in_place_of_another(given: Sequence[Mounted], registered: Registered) -> bool:
    lacks_one = any(
        registered.get(node) and not _has_all(node, given, registered) for node in _nodes_of(given)
    )
    return lacks_one and any(each.has_metadata_log for each in given)


def _assigned(
    mixed: Sequence[Sequence[Mounted]], elsewhere: AbstractSet[Node]
) -> Iterator[tuple[Sequence[Mounted], Node]]:
    """Each place with the node whose broker runs there: the node with the most directories there, then the one with its metadata log there.
    A node that is left over is where its metadata log is. elsewhere: the nodes with a place of their own."""
    ranked = []
    for number, there in enumerate(mixed):
        for order, node in enumerate(_nodes_of(there)):
            own = [each for each in there if each.node == node]
            has_log = any(each.has_metadata_log for each in own)
            ranked.append((-len(own), not has_log, number, order, node))
    taken, used = {*elsewhere}, set[int]()
    for _, _, number, _, node in sorted(ranked, key=lambda each: each[:4]):
        if node not in taken and number not in used:
            yield mixed[number], node
            taken.add(node)
            used.add(number)
    for _, lacks_log, number, _, node in ranked:
        if node not in taken and not lacks_log:
            yield mixed[number], node
            taken.add(node)
