"""Compare the data directories of one run: report what stops a broker with all of them in log.dirs.

Two data directories belong to one node if their meta.properties say so: the same cluster and the same node id. A path may also contain the
collected disks of several nodes, which is not damage; several replicas of a partition are expected then, and the finding names the nodes
(MetaPropertiesEnsemble.verify). A directory without meta.properties is compared only with directories of the same run that have one.

    one directory.id twice      "Duplicate directory ID": one is a copy of the other, and so are their partitions
    a live partition twice      "Duplicate log directories" (LogManager.loadLog), also within one data directory if the number of one has
                                leading zeros. Likewise a `-future` log twice; with the live one in another data directory it is a
                                partition that moves. A stray or deleted one does not count, nor does one that becomes stray according to
                                the metadata log.
    both in one data directory  no broker moves a partition within a data directory. A broker that finds both in the directory to which
                                the replica is assigned ends with "Error while renaming dir" (LogManager.recoverAbandonedFutureLogs).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from kseg.segment.diagnosis import PartitionTwice
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.directory import SubDirectory, partitions_in
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionState, Role
from kseg.segment.partition.topic_identity import WithIdentities
from kseg.segment.sidecar.metadata_files import MetaProperties, decode_meta_properties

_META_PROPERTIES = NAME_BY_ROLE[Role.META_PROPERTIES]
_UNKNOWN = MetaProperties(version=-1)
_LOADED = (PartitionState.LIVE, PartitionState.FUTURE)


def against_others(log_dir: str, others: Sequence[str], options: WithIdentities) -> Iterator[Finding]:
    """Findings between a data directory and each of the others."""
    own = _identity(log_dir)
    loaded: dict[tuple[str, PartitionState], str] | None = None
    is_reported = False  # one directory of another node is enough
    for other in others:
        other_identity = _identity(other)
        path = os.path.join(log_dir, _META_PROPERTIES)
        if own.directory_id is not None and own.directory_id == other_identity.directory_id:
            message = (
                f"{other} also has the directory.id {own.directory_id}; one is a copy of the other, or has a copy of its "
                "file, and a broker with both in log.dirs does not start"
            )
            yield Finding("directory-id-twice", path, message, numbers={"other": other})
            continue
        difference = _difference(own, other_identity)
        if difference and not is_reported:
            is_reported = True
            message = (
                f"this data directory belongs to {_described(own)}, {other} to {_described(other_identity)}; that is fine where disks of "
                f"several nodes were collected, but a broker with both in log.dirs does not start ({difference})"
            )
            yield Finding("log-dirs-mixed", path, message, numbers={"other": other})
        elif own.node_id is not None and not difference and other_identity.node_id is not None:
            loaded = _loaded_in(log_dir, options) if loaded is None else loaded
            theirs = _loaded_in(other, options)
            for key in sorted(loaded.keys() & theirs.keys(), key=lambda each: (each[0], each[1].value)):
                yield _twice(os.path.join(log_dir, loaded[key]), os.path.join(other, theirs[key]))


def within(partitions: Sequence[SubDirectory], options: WithIdentities) -> Iterator[Finding]:
    """Findings between the partition directories of one data directory."""
    first: dict[str, SubDirectory] = {}
    for child in partitions:
        name = child.partition
        if name is None or name.state not in _LOADED or options.identity_of(child.path).becomes_stray:
            continue
        other = first.setdefault(name.text, child)
        if other is not child:
            yield _twice(child.path, other.path)


def _twice(path: str, other_path: str) -> Finding:
    message = (
        f"{os.path.basename(path)} is also in {other_path}; a broker does not start with both: keep one, after comparing them "
        "with `kseg diff`"
    )
    twice = PartitionTwice(other_path)
    return Finding.about("partition-twice", path, message, twice)


def _identity(log_dir: str) -> MetaProperties:
    try:
        return decode_meta_properties(read_small(os.path.join(log_dir, _META_PROPERTIES)))
    except (FormatError, UnreadableInput):
        return _UNKNOWN


def _difference(own: MetaProperties, other_identity: MetaProperties) -> str:
    """The field in which two identities differ so that a broker rejects them; empty if none differs or one is unknown."""
    if (
        None not in (own.cluster_id, other_identity.cluster_id)
        and own.cluster_id != other_identity.cluster_id
    ):
        return "cluster.id"
    if None not in (own.node_id, other_identity.node_id) and own.node_id != other_identity.node_id:
        return "node.id"
    return ""


def _described(identity: MetaProperties) -> str:
    of_cluster = "" if identity.cluster_id is None else f" of cluster {identity.cluster_id}"
    return f"node {identity.node_id}{of_cluster}"


def _loaded_in(log_dir: str, options: WithIdentities) -> dict[tuple[str, PartitionState], str]:
    """Names of the directories of partitions that a broker loads and keeps, by partition and state."""
    with suppress(UnreadableInput):
        return {
            (name.text, name.state): directory
            for directory, name in partitions_in(log_dir)
            if name.state in _LOADED
            and not options.identity_of(os.path.join(log_dir, directory)).becomes_stray
        }
    return {}
