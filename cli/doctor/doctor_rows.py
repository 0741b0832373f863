"""The rows of `kseg doctor` that no other command prints (docs/json.md)."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.cli.doctor.next_step import NextStep
from kseg.inspection.log_dir_host import LogDirHost
from kseg.internal_topics.metadata.cluster_names import metadata_version_name
from kseg.recovery.loading.kafka_exceptions import FILE_SYSTEM
from kseg.segment.mounts import is_mount_point
from kseg.segment.storage import places

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_image import MetadataImage, Node
    from kseg.recovery.repair.rows import RecoverResult

_EXAMPLES = 3
_LOCAL_HOSTS = ("", "0.0.0.0", "::")


def host_row(host: LogDirHost, node: "Node") -> dict[str, object]:
    """The node that a data directory belongs to, whether a broker runs on it, and the state of its file system."""
    mount = host.mount
    return {
        "type": "log_dir",
        "log_dir": host.path,
        "node_id": node.node_id,
        "cluster_id": node.cluster_id,
        "directory_id": node.directory_id,
        "broker_running": host.is_running,
        "broker_process_id": host.broker_process_id or None,
        "clean_shutdown": host.is_clean,
        "mount_point": None if mount is None else mount.point,
        "filesystem": None if mount is None else mount.type,
        "mount_options": None if mount is None else list(mount.options),
        "read_only": host.is_read_only,
        "total_bytes": host.total_bytes,
        "free_bytes": host.free_bytes,
        "free_inodes": host.free_inodes,
    }


def node_row(image: "MetadataImage", node_id: int | None) -> dict[str, object]:
    """The cluster and the node according to the metadata log."""
    return {
        "type": "node",
        "node_id": node_id,
        "cluster_id": image.cluster_id,
        "metadata_version": metadata_version_name(image.features.get("metadata.version")),
        "metadata_offset": image.end_offset - 1 if image.end_offset else None,
        "metadata_timestamp": None if image.timestamp_ms < 0 else image.timestamp_ms,
        "metadata_log": image.path,
        "certain": image.is_certain,
        "bootstrap_server": bootstrap_server(image, node_id),
    }


def bootstrap_server(image: "MetadataImage", node_id: int | None) -> str | None:
    """HOST:PORT of a broker for clients, preferably this node; None if no broker is registered. A listener on all addresses becomes
    localhost."""
    brokers = sorted(
        image.brokers.values(), key=lambda broker: (broker.id != node_id, broker.is_fenced, broker.id)
    )
    for broker in brokers:
        for listener in sorted(broker.listeners, key=lambda each: each.security_protocol):
            host = "localhost" if listener.host in _LOCAL_HOSTS else listener.host
            return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"
    return None


def damage_row(
    path: str,
    errors: Mapping[str, int],
    repair: "RecoverResult | None",
    reason: str | None,
    ends_lost: int,
    repair_bits: bool,
) -> dict[str, object]:
    """A damaged partition with the cost of its repair. errors: the number of errors by finding id. reason: why there is no plan.
    ends_lost: the number of transactions whose commit or abort marker may be lost. repair_bits: whether the repair inverts bits back."""
    return {
        "type": "damage",
        "partition": os.path.basename(places.abspath(path)),
        "path": path,
        "errors": sum(errors.values()),
        "findings": errors,
        "costs": None if repair is None else _costs(path, errors, repair),
        "doubt": None if repair is None else repair.doubt,
        "repair_bits": repair_bits,
        "transaction_ends_lost": ends_lost,
        "reason": reason,
    }


def _costs(path: str, errors: Mapping[str, int], repair: "RecoverResult") -> Mapping[str, object]:
    """A broker that would rename the directory as stray fails if that is a mount point."""
    if "becomes-stray" in errors and is_mount_point(path):
        return {**repair.costs, "kafka": {"dies_of": FILE_SYSTEM}}
    return repair.costs


def leftovers_row(log_dir: str, kind: str, paths: Sequence[str], held_bytes: int) -> dict[str, object]:
    """Files of a data directory that take up space although no broker needs them. kind: of a `Leftover`, or what is kept for `undo`."""
    return {
        "type": "leftovers",
        "log_dir": log_dir,
        "kind": kind,
        "count": len(paths),
        "bytes": held_bytes,
        "examples": list(paths[:_EXAMPLES]),
    }


def step_row(number: int, step: NextStep) -> dict[str, object]:
    return {"type": "step", "number": number, "why": step.why, "command": step.command, "due": step.is_due}
