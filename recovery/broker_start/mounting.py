"""Which data directories a broker has in log.dirs, where those of several nodes were given and one of them may be in a wrong place.

A volume that was attached to the wrong machine prevents the start of the broker there (observed with 4.3.1), and no file names the machine.
What can be known: meta.properties names the node of each directory, and the metadata log has the directory ids that each broker has
registered (since 3.7). So:

1. Directories are taken for those of one machine if their paths have more in common with each other than with the rest.
2. One that is not of the same node as the others there is in a wrong place, unless the nodes there are whole: each has all registered
   directories there, or, where these are unknown, its metadata log.
3. Disks that were collected in one place look alike. If in such a mixture are more directories than any of the nodes there has
   registered, or if there is only one place and no node lacks a directory there, that is what they are. Otherwise both remain possible,
   and `Machine.own` is for the other case.
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
    """A data directory. node: to which it belongs by its meta.properties, None if unknown."""

    path: str
    node: Node | None
    directory_id: str | None
    has_metadata_log: bool


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of a node that has directories of another one. there: the directories on it, those of the node first, and of these the one
    with the metadata log; own: all of the node's, wherever they are."""

    node: Node
    there: tuple[Mounted, ...]
    own: tuple[Mounted, ...]


def mixed_up(directories: Iterable[Mounted], registered: Registered) -> list[Machine]:
    """The nodes that have a data directory of another one among theirs. registered: what is known of it."""
    given = [*directories]
    places_of = [*_places(given)]
    mixed = [there for there in places_of if not _is_whole(there, registered)]
    if not all(_may_be_one_machine(there, registered) for there in mixed):
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


def _places(directories: Sequence[Mounted]) -> Iterator[list[Mounted]]:
    """The directories in groups: divided where their paths part, as long as a group of several remains."""
    # the empty name ends the shorter of two paths one of which begins with the other
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
    """Whether directories lie together that belong together, or nodes of which nothing is missing."""
    nodes = _nodes_of(there)
    return len(nodes) < 2 or all(_has_all(node, there, registered) for node in nodes)


def _has_all(node: Node, there: Sequence[Mounted], registered: Registered) -> bool:
    own = [each for each in there if each.node == node]
    if ids := registered.get(node):
        return ids <= {each.directory_id for each in own}
    return any(each.has_metadata_log for each in own)


def _may_be_one_machine(there: Sequence[Mounted], registered: Registered) -> bool:
    """Whether the log.dirs of one of the nodes can be as long."""
    known = [len(ids) for node in _nodes_of(there) if (ids := registered.get(node))]
    return not known or max(known) >= sum(each.node is not None for each in there)


def _has_one_in_place_of_another(given: Sequence[Mounted], registered: Registered) -> bool:
    lacks_one = any(
        registered.get(node) and not _has_all(node, given, registered) for node in _nodes_of(given)
    )
    return lacks_one and any(each.has_metadata_log for each in given)


def _assigned(
    mixed: Sequence[Sequence[Mounted]], elsewhere: AbstractSet[Node]
) -> Iterator[tuple[Sequence[Mounted], Node]]:
    """Each place with the node whose broker runs there: the one with most directories there, then the one with its metadata log; a node
    that is left over, at its metadata log. elsewhere: the nodes with a place of their own."""
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
