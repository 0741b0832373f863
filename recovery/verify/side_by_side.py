"""Compare the data directories of one run: what a broker with all of them in log.dirs would refuse to start with.

Two data directories belong to one node when their meta.properties say so: the same cluster and the same node id. A path
may as well be the place where the disks of several nodes were collected, which is not damage; several replicas of a
partition are expected then, and the finding says whose directories these are (MetaPropertiesEnsemble.verify). Without
meta.properties a directory is compared only with directories of the same run that have one.

    one directory.id twice      "Duplicate directory ID": one is a copy of the other, and so are their partitions
    a live partition twice      "Duplicate log directories" (LogManager.loadLog). The -future log of a partition that moves
                                between data directories does not count, nor does a stray or deleted one.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from kseg.segment.diagnosis import PartitionTwice
from kseg.segment.errors import FormatError, UnreadableInput
from kseg.segment.files import read_small
from kseg.segment.findings import Finding
from kseg.segment.partition.names import NAME_BY_ROLE, PartitionState, Role, parse_partition_directory
from kseg.segment.sidecar.metadata_files import MetaProperties, decode_meta_properties
from kseg.segment.storage import places

_META_PROPERTIES = NAME_BY_ROLE[Role.META_PROPERTIES]
_UNKNOWN = MetaProperties(version=-1)


def against_others(log_dir: str, others: Sequence[str]) -> Iterator[Finding]:
    """Findings between a data directory and each of the others."""
    own = _identity(log_dir)
    live: set[str] | None = None
    is_reported = False  # of several directories of another node the first will do
    for other in others:
        other_identity = _identity(other)
        path = os.path.join(log_dir, _META_PROPERTIES)
        if own.directory_id is not None and own.directory_id == other_identity.directory_id:
            message = (
                f"{other} also has the directory.id {own.directory_id}; one is a copy of the other, and a broker "
                "with both in log.dirs does not start"
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
            live = _live_in(log_dir) if live is None else live
            for name in sorted(live & _live_in(other)):
                other_path = os.path.join(other, name)
                message = (
                    f"{name} is also in {other_path}; a broker does not start with both: keep one, after comparing them "
                    "with `kseg diff`"
                )
                twice = PartitionTwice(other_path)
                path = os.path.join(log_dir, name)
                yield Finding("partition-twice", path, message, numbers=twice.numbers(), diagnosis=twice)


def _identity(log_dir: str) -> MetaProperties:
    try:
        return decode_meta_properties(read_small(os.path.join(log_dir, _META_PROPERTIES)))
    except (FormatError, UnreadableInput):
        return _UNKNOWN


def _difference(own: MetaProperties, other_identity: MetaProperties) -> str:
    """The field in which two identities differ so that a broker refuses them; empty when there is none, or one is unknown."""
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


def _live_in(log_dir: str) -> set[str]:
    """Names of the directories of live partitions."""
    found = set()
    with suppress(OSError), places.scandir(log_dir) as entries:
        for entry in entries:
            with suppress(FormatError, OSError):
                is_live = parse_partition_directory(entry.name).state is PartitionState.LIVE
                if is_live and entry.is_dir():
                    found.add(entry.name)
    return found
