"""The steps for data directories of more than one node, and for replicas that another node has.

A broker accepts only its own data directories in log.dirs. Those of several nodes are examined together where their disks were collected,
or before the nodes of a cluster start: only then can it be told that a replica lacks what another node has. What is wrong in one of them is
determined by itself.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kseg.cli.doctor.next_step import NextStep, likewise, move_command
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.recovery.broker_start.mounting import Mounted, mixed_up
from kseg.segment.counted import listed, shown_of
from kseg.segment.diagnosis import ReplicaCopy
from kseg.segment.partition.names import METADATA_DIRECTORY
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shown_path

_LISTED = 5  # replicas with a step of their own


def take_apart(
    nodes: dict[str, list[str]], copies: Sequence[str], in_the_way: Iterable[str], request: Request
) -> Iterator[NextStep]:
    """Examine each node by itself, without copies of its directories. nodes: the data directories of each, by its name. copies: those with
    the directory id of another one. in_the_way: directories that are moved out first."""
    moved = {*map(os.path.normpath, in_the_way)}
    for log_dir in copies:
        yield NextStep(
            f"{shown_path(log_dir)} is a copy of another data directory: a broker with both in log.dirs does not start. Remove it from "
            "log.dirs, and examine the rest.",
            _examine([path for paths in nodes.values() for path in paths if path not in copies], request),
        )
    yield from _mount_elsewhere(nodes, copies)
    left = {
        name: [path for path in paths if path not in copies and os.path.normpath(path) not in moved]
        for name, paths in nodes.items()
    }
    left = {name: paths for name, paths in left.items() if paths}
    if len(left) < 2:
        return
    first = "A broker with data directories of different nodes or clusters in log.dirs does not start. Examine each node by itself: {}."
    for number, (name, paths) in enumerate(left.items()):
        words = "Examine {} by itself." if number else first
        yield NextStep(
            words.format(name), _examine(paths, replace(request, also={} if number else request.also))
        )


def _mount_elsewhere(nodes: Mapping[str, Sequence[str]], copies: Sequence[str]) -> Iterator[NextStep]:
    """Data directories beside those of another node. nodes, copies: as above."""
    mounted = [
        Mounted(path, name, places.isdir(os.path.join(path, METADATA_DIRECTORY)))
        for name, paths in nodes.items()
        for path in paths
        if path not in copies
    ]
    for own, *others in mixed_up(mounted):
        for other in others:
            if other.node != own.node:
                yield NextStep(
                    f"{shown_path(other.path)} belongs to {other.node}, and {shown_path(own.path)} beside it to {own.node}. Unless the disks "
                    "were only collected here, it is mounted on the wrong machine, and the broker there does not start: mount the data "
                    "directory in its place that belongs there. See which node each data directory here belongs to.",
                    r"find / -name meta.properties -exec grep -HE '^(cluster|node|directory)\.id' {} +",
                )


def _examine(log_dirs: Sequence[str], request: Request) -> str:
    return command_line("doctor", {}, replace(request, paths=tuple(log_dirs)))


def replace_behind(behind: Sequence[tuple[str, str]], request: Request) -> Iterator[NextStep]:
    """behind: (replica that lacks records, the one of another node that has them)."""
    shown = shown_of(len(behind), _LISTED)
    for path, other in behind[:shown]:
        name = shown_path(os.path.basename(path))
        copy = f"cp -a {shell_quoted(other)} {shell_quoted(path)}"
        is_here = places.lexists(path)
        move = "move this one out of the data directory, and " if is_here else ""
        why = f"{shown_path(path)} lacks records, and its node may lead."
        if name == METADATA_DIRECTORY:
            why = f"{shown_path(path)} lacks records of the cluster's metadata."
        yield NextStep(
            f"{why} Before any of the nodes starts, {move}copy the one that has them: its files serve every node.",
            f"{move_command(path)} && {copy}" if is_here else copy,
        )
    command = command_line("verify", {"--verbose": True}, request)
    yield from likewise(
        len(behind) - shown, "replica", command, "list them, each with the replica that has the records"
    )


def copy_missing(copied: Mapping[str, ReplicaCopy], request: Request) -> Iterator[NextStep]:
    """copied: by the place of a missing replica, the one of another node that has most of it."""
    shown = shown_of(len(copied), _LISTED)
    for path, copy in list(copied.items())[:shown]:
        yield NextStep(
            f"{shown_path(path)} is missing, and its node may lead with an empty log. Before any of the nodes starts, copy the replica of node "
            f"{copy.node}, whose log ends at offset {copy.end_offset}: its files serve every node. If the lost directory turns up (in a "
            "backup, or on a disk that is not mounted), put that back instead, if its log ends later.",
            f"cp -aT {shell_quoted(copy.directory)} {shell_quoted(path)}",
        )
    command = command_line("verify", {"--verbose": True}, request)
    yield from likewise(
        len(copied) - shown, "replica", command, "list them, each with the replica that has its records"
    )


def without_a_copy(nodes: Iterable[int], has: str) -> str:
    """The end of the sentence about missing replicas. nodes: those that have another replica. has: it has, or they have. An empty log that
    leads makes the other replicas truncate theirs to nothing (observed with 4.3.1)."""
    others = [f"node {node}" for node in sorted(nodes)]
    if not others:
        return f" To give up the records that only {has}, start the broker."
    return (
        f" If there is none, stop {listed(others, _LISTED)} as well and copy the directory from there, of several the one whose log ends "
        "last: started without it, this broker may lead with an empty log, and the other replicas delete their records."
    )
