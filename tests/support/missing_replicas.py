"""Replicas that are missing in a data directory, as findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.internal_topics.metadata.missing_replicas import missing_replicas
from kseg.segment.findings import Finding
from tests.internal_topics.metadata_logs import record
from tests.support.known_topics import append, ids

KINDS = ("replica-missing", "replica-fetched-anew", "replica-unmade")


def found_in(
    data: Path,
    *given: Path,
    meanwhile: Callable[[], object] = lambda: None,
    log_dirs: Sequence[Path] = (),
) -> dict[str, list[Finding]]:
    """The findings about one log dir, by kind. meanwhile: called between the reading of the metadata log and of the log dir. log_dirs: of
    server.properties, if it is given."""
    finder = MetadataFinder([str(data), *map(str, given)], more=[*map(str, log_dirs)])
    image = finder.image_for(str(data))
    assert image is not None
    meanwhile()
    found: dict[str, list[Finding]] = {}
    node, others = finder.placed_node_of(str(data)), lambda: finder.others_of(str(data))
    for finding in missing_replicas(str(data), node, image, others, lambda: finder.gone_from(str(data))):
        found.setdefault(finding.id, []).append(finding)
    return found


def names(found: dict[str, list[Finding]], kind: str = "replica-missing") -> list[str]:
    assert set(found) <= {kind}
    return [Path(finding.path).name for finding in found.get(kind, [])]


def change(data: Path, name: str, partition: int = 0, **values: Any) -> None:
    """A PartitionChangeRecord for a partition of the capture."""
    append(data, record("PartitionChangeRecord", partitionId=partition, topicId=ids(data)[name], **values))


def register(data: Path, *directory_ids: str) -> None:
    """Register the capture's node with these log dirs."""
    changed: dict[str, Any] = {"brokerId": 1, "brokerEpoch": 103, "logDirs": [*directory_ids]}
    append(data, record("BrokerRegistrationChangeRecord", **changed))
