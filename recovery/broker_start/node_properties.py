"""What server.properties says about a node, and which data directories its broker uses (Kafka: KafkaConfig, MetaPropertiesEnsemble).

log.dirs is compared with the data directories that were checked. Directories that it does not name play no part in the start; directories
that it names do, even if they are missing or were not checked. A directory may be examined in a place other than the broker's, for example
as a copy: if none of the checked directories is in log.dirs, only the node id counts.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from kseg.recovery.broker_start.loaded_directory import LoadedDirectory
from kseg.recovery.broker_start.log_dir_start import LogDirStart, file_in_place, log_dir_start, unformatted
from kseg.segment.errors import UnreadableInput
from kseg.segment.java.java_text import INT_BITS, parse_integer
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.recognition import list_log_directory
from kseg.segment.storage import places
from kseg.segment.values import dataclass

_DEFAULT_LOG_DIR = "/tmp/kafka-logs"


@dataclass(frozen=True, slots=True)
class NodeProperties:
    """node_id: None if it is not set. log_dirs: as they are written, each once. metadata_log_dir: the one for the metadata log; empty if
    log.dirs names none. listening_voter: the voter in controller.quorum.voters whose endpoint is one of the file's own listeners."""

    node_id: int | None
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    listening_voter: int | None = None

    @classmethod
    def of(cls, pairs: Mapping[str, str]) -> Self:
        """The properties of a file."""
        named = (pairs.get("log.dirs") or pairs.get("log.dir") or _DEFAULT_LOG_DIR).split(",")
        log_dirs = tuple(dict.fromkeys(path for each in named if (path := each.strip())))
        node_id = parse_integer((pairs.get("node.id") or pairs.get("broker.id") or "").strip(), INT_BITS)
        named_for_metadata = (pairs.get("metadata.log.dir") or "").strip()
        return cls(node_id, log_dirs, named_for_metadata or next(iter(log_dirs), ""), _listening_voter(pairs))

    def is_metadata_log_dir(self, path: str) -> bool:
        own = self.metadata_log_dir
        return bool(own) and places.realpath(path) == places.realpath(own)

    def of_own_node(self, nodes: Mapping[str, int | None]) -> list[str]:
        """The data directories that are, or may be, of the node of the properties; all of them if none is. nodes: of each its node id."""
        if self.node_id not in nodes.values():
            return [*nodes]
        return [path for path, node_id in nodes.items() if node_id in (None, self.node_id)]

    def leaves_out(self, paths: Sequence[str]) -> list[str]:
        """Those of these data directories that log.dirs does not name, if it names any of them."""
        named = {places.realpath(path) for path in self.log_dirs}
        out = [path for path in paths if places.realpath(path) not in named]
        return out if len(out) < len(paths) else []

    def taken(self, checked: Sequence[LoadedDirectory]) -> list[LoadedDirectory]:
        """The directories of log.dirs, in that order; checked: those that are known."""
        by_path = {places.realpath(each.path): each for each in checked}
        if by_path.keys().isdisjoint(map(places.realpath, self.log_dirs)):
            return [*checked]
        found: list[LoadedDirectory] = []
        for path in self.log_dirs:
            known = by_path.get(places.realpath(path))
            if known is None:
                found.append(LoadedDirectory(path, start=_unchecked(path), is_checked=False))
            elif known not in found:
                found.append(known)
            elif known.start is not None:  # spelled differently: to a broker, another directory
                found.append(LoadedDirectory(path, start=replace(known.start, path=path)))
        return found


def listeners_of(pairs: Mapping[str, str]) -> list[tuple[str, str]]:
    """The names of the listeners, with HOST:PORT of each; the advertised ones first. pairs: of server.properties."""
    listeners = f"{pairs.get('advertised.listeners', '')},{pairs.get('listeners', '')}".split(",")
    named = (listener.strip().rpartition("://") for listener in listeners)
    return [(name, address) for name, _, address in named if address]


def _listening_voter(pairs: Mapping[str, str]) -> int | None:
    """See `listening_voter`; None unless there is exactly one."""
    places_here = {address for _, address in listeners_of(pairs)}
    voters = [voter.strip().partition("@") for voter in pairs.get("controller.quorum.voters", "").split(",")]
    found = {parse_integer(node, INT_BITS) for node, _, place in voters if place in places_here}
    return next(iter(found)) if len(found) == 1 else None


def _unchecked(path: str) -> LogDirStart:
    """What a data directory that was not checked does to the start by its own files."""
    if places.lexists(path) and not places.isdir(path):
        return file_in_place(path)
    if not places.lexists(os.path.join(path, NAME_BY_ROLE[Role.META_PROPERTIES])):
        return unformatted(path)
    try:
        return log_dir_start(list_log_directory(path)) or unformatted(path)
    except UnreadableInput as error:
        return replace(unformatted(path), has_identity=True, identity_problem=str(error))
