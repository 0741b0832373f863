"""Rewrite a lost or unreadable meta.properties: the identity of the data directory.

A broker does not start without it (node id, cluster id; MetaPropertiesEnsemble), and no other file in the data directory
contains the cluster id. So the values come from, in this order: the user; a complete meta.properties.tmp, which Kafka writes and syncs
before it renames it, and never reads; what is still readable in the file; the other data directories of the run, if all of them belong
to one node.

The directory.id matters as much: the controller treats a data directory with a new id as new and empty, and partitions that were there no
longer have a leader (observed with 4.3.1). The metadata log of the cluster has the ids that a node registered; if exactly one of them
belongs to no other data directory of the run, it is this one's.

A broker with ZooKeeper exits if the file has version 1, and needs neither of the other two ids ("Zk-based brokers only support version 0").
So the version is that of the old file or of the other data directories, and 0 where the partitions show that no KRaft node was here.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from kseg.recovery.verify.identity_evidence import identity_missing, is_without_kraft, why_identity_is_missing
from kseg.recovery.verify.small_files import unreadable_file
from kseg.segment.errors import FormatError, UnreadableInput, UsageError, VanishedInput
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.java import uuids
from kseg.segment.java.java_text import INT_BITS, parse_integer
from kseg.segment.java.properties import decode_properties
from kseg.segment.partition.log_dir_state import has_metadata_log
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.sidecar.metadata_files import MetaProperties, decode_meta_properties, encode_meta_properties
from kseg.segment.terminal import shell_quoted
from kseg.segment.values import dataclass

META_PROPERTIES = NAME_BY_ROLE[Role.META_PROPERTIES]
_UNFINISHED = f"{META_PROPERTIES}.tmp"
_OLD_FILE = "the old file"
NO_ID = "none"  # for a cluster older than 3.7
_KRAFT, _ZOOKEEPER = 1, 0  # versions of the file

# the directory ids that each node has registered, by node id, from the metadata log in one of these data directories
Registered = Callable[[Sequence[str]], Mapping[int, tuple[str, ...]]]
# the options for the content of the file, and the names of their values
OPTION_VALUES = {"--node-id": "N", "--cluster-id": "ID", "--directory-id": "UUID"}


@dataclass(frozen=True, slots=True)
class RequestedIdentity:
    """The values that the user specifies for a data directory whose meta.properties must be written. None: not specified."""

    node_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None

    def check(self) -> None:
        """Raises UsageError for values that are not valid in a meta.properties."""
        if self.directory_id not in (None, NO_ID):
            try:
                if uuids.is_reserved(str(self.directory_id)):
                    raise FormatError("it is reserved, and no directory may have it")
            except FormatError as error:
                raise UsageError(f"--directory-id {self.directory_id}: {error}") from error
        if self.cluster_id is not None and (
            not self.cluster_id.isascii() or not self.cluster_id.isprintable()
        ):
            raise UsageError(f"--cluster-id {self.cluster_id!r} is not a cluster ID")


@dataclass(frozen=True, slots=True)
class IdentityRepair:
    """content: of the new file, None if not enough is known. finding: what is wrong with the old one. doubt: why the data
    directory still has none, empty when it has one. needed: the options whose values only the user knows. together: the data directories
    that the user has to name together: this one, and those that provide the other values."""

    finding: Finding
    content: bytes | None = None
    why: str = ""
    doubt: str = ""
    needed: tuple[str, ...] = ()
    together: tuple[str, ...] = ()

    @property
    def may_be_of_zookeeper(self) -> bool:
        """Whether the last broker may have kept its metadata in ZooKeeper; it starts without the file, and writes it."""
        return not any(map(has_metadata_log, self.together))


def identity_repair(
    log_dir: str,
    others: Sequence[str],
    requested: RequestedIdentity,
    now_ms: int,
    registered: Registered,
    partitions: Sequence[str] = (),
) -> IdentityRepair | None:
    """The repair of meta.properties; None if the file is valid, or is missing and nothing indicates that it ever existed.

    others: the other data directories of the run. partitions: the directories in this one. now_ms: for the date line of the file.
    registered: reads the metadata log in one of the given data directories.
    """
    path = os.path.join(log_dir, META_PROPERTIES)
    is_old = is_without_kraft([log_dir, *others], partitions)
    unfinished = _unfinished(log_dir)
    data, problem, may_start, is_there = b"", "", False, True
    try:
        data = read_small(path)
        problem = decode_meta_properties(data).problem
    except UnreadableInput as error:
        # only what opening it says shows that it is missing: `lexists` is also false when the disk fails
        is_there = not isinstance(error, VanishedInput) or os.path.lexists(path)
        if is_there:
            finding = unreadable_file(path, error)
            return IdentityRepair(finding, doubt="has a meta.properties that cannot be read")
    except FormatError as error:
        problem = str(error)
    if is_there:
        if not problem:
            return None
        finding = Finding("meta-properties-corrupt", path, problem)
    else:
        why = why_identity_is_missing(log_dir, partitions)
        is_given = requested != RequestedIdentity() or any(_identities_of(others))
        if not (why or is_given):
            return None
        finding = identity_missing(log_dir, why)
        # a ZooKeeper-based broker starts without the file, and a directory of copied partitions has no broker
        may_start = not (is_given or has_metadata_log(log_dir))
    data = unfinished or data
    needed = _needed(data, log_dir, others, requested, registered, is_old=is_old)
    if needed:
        options = " ".join(f"{name} {OPTION_VALUES[name]}" for name in needed)
        together = (log_dir, *(other for other in others if _identity(other).node_id is not None))
        doubt = (
            "has no readable meta.properties, and its values cannot all be derived: "
            f"kseg recover --apply {options} {' '.join(map(shell_quoted, together))}"
        )
        return IdentityRepair(finding, doubt="" if may_start else doubt, needed=needed, together=together)
    node_id, cluster_id, sources = _known(data, others, requested, _UNFINISHED if unfinished else _OLD_FILE)
    directory_id, _ = _directory_id(data, [log_dir, *others], node_id, requested, registered)
    identity = MetaProperties(_version(data, others, is_old=is_old), node_id, cluster_id, directory_id)
    cluster = "an unknown cluster" if cluster_id is None else f"cluster {cluster_id}"
    why = f"node {node_id} of {cluster}, as {sources} says; directory.id {directory_id or 'not known'}"
    return IdentityRepair(finding, encode_meta_properties(identity, now_ms), why)


def _needed(
    data: bytes,
    log_dir: str,
    others: Sequence[str],
    requested: RequestedIdentity,
    registered: Registered,
    *,
    is_old: bool,
) -> tuple[str, ...]:
    """The options for the values that neither the old file nor another data directory provides."""
    node_id, cluster_id, _ = _known(data, others, requested)
    if is_old or _has_no_directory_ids(others):
        return () if node_id is not None else ("--node-id",)
    _, is_directory_id_known = _directory_id(data, [log_dir, *others], node_id, requested, registered)
    is_known = (node_id is not None, cluster_id is not None, is_directory_id_known)
    return tuple(name for name, known in zip(OPTION_VALUES, is_known, strict=True) if not known)


def _version(data: bytes, others: Sequence[str], *, is_old: bool) -> int:
    """is_old: no KRaft node was here."""
    if _readable(data).is_from_zookeeper or any(_identity(other).is_from_zookeeper for other in others):
        return _ZOOKEEPER
    return _ZOOKEEPER if is_old else _KRAFT


def _has_no_directory_ids(others: Sequence[str]) -> bool:
    """Whether the other data directories are those of a broker with ZooKeeper that is older than 3.7, or was never about to migrate."""
    identities = [_identity(other) for other in others]
    return bool(identities) and all(each.is_from_zookeeper and not each.directory_id for each in identities)


def _directory_id(
    data: bytes,
    log_dirs: Sequence[str],
    node_id: int | None,
    requested: RequestedIdentity,
    registered: Registered,
) -> tuple[str | None, bool]:
    """(directory id or None, whether it is known)."""
    if requested.directory_id is not None:
        return (
            None if requested.directory_id == NO_ID else uuids.canonical_uuid(requested.directory_id)
        ), True
    own = _readable(data).directory_id
    if own is not None:
        return own, True
    by_node = registered(log_dirs)
    if node_id is None or node_id not in by_node:
        return None, False
    taken = {_identity(other).directory_id for other in log_dirs[1:]}
    left = [each for each in by_node[node_id] if each not in taken]
    if not by_node[node_id]:  # a version without directory ids
        return None, True
    return (left[0], True) if len(left) == 1 else (None, False)


def _unfinished(log_dir: str) -> bytes:
    """The temporary file, if it is complete: a truncated one may lack an id, or contain only the beginning of one."""
    with suppress(FormatError, UnreadableInput):
        data = read_small(os.path.join(log_dir, _UNFINISHED))
        if data.endswith(b"\n") and not decode_meta_properties(data).problem:
            return data
    return b""


def _identity(log_dir: str) -> MetaProperties:
    try:
        return decode_meta_properties(read_small(os.path.join(log_dir, META_PROPERTIES)))
    except (FormatError, UnreadableInput):
        return MetaProperties(_KRAFT)


def _known(
    data: bytes, others: Sequence[str], requested: RequestedIdentity, name: str = _OLD_FILE
) -> tuple[int | None, str | None, str]:
    """(node id, cluster id, their source). name: what `data` is called as a source."""
    found = _readable(data)
    beside = set(_identities_of(others))
    near = next(iter(beside)) if len(beside) == 1 else (None, None)
    node_ids = {
        "the user": requested.node_id,
        name: found.node_id,
        others[0] if others else "": near[0],
    }
    cluster_ids = {
        "the user": requested.cluster_id,
        name: found.cluster_id,
        others[0] if others else "": near[1],
    }
    node_source = next((who for who, value in node_ids.items() if value is not None), "")
    cluster_source = next((who for who, value in cluster_ids.items() if value is not None), "")
    sources = " and ".join(dict.fromkeys(filter(None, (node_source, cluster_source))))
    return node_ids.get(node_source), cluster_ids.get(cluster_source), sources


def _identities_of(others: Sequence[str]) -> Iterator[tuple[int | None, str | None]]:
    for other in others:
        with suppress(FormatError, UnreadableInput):
            identity = decode_meta_properties(read_small(os.path.join(other, META_PROPERTIES)))
            # 2.1 wrote no cluster.id
            if identity.is_from_zookeeper or (
                identity.node_id is not None and identity.cluster_id is not None
            ):
                yield identity.node_id, identity.cluster_id


def _readable(data: bytes) -> MetaProperties:
    """The fields that can still be parsed, each independently of the others."""
    pairs: dict[str, str] = {}
    with suppress(FormatError):
        pairs = decode_properties(data)
    directory_id = None
    with suppress(FormatError):
        if "directory.id" in pairs:
            found = uuids.canonical_uuid(pairs["directory.id"])
            directory_id = None if uuids.is_reserved(found) else found
    node = pairs.get("node.id", pairs.get("broker.id"))
    node_id = None if node is None else parse_integer(node, INT_BITS)
    cluster_id = pairs.get("cluster.id")
    version = _ZOOKEEPER if "broker.id" in pairs and "node.id" not in pairs else _KRAFT
    return MetaProperties(version, node_id, cluster_id or None, directory_id)
