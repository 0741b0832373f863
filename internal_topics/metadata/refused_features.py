"""Feature levels in the metadata log on which a 4.3.1 node fails at its start, before it loads a log.

metadata.version   missing, as in a KRaft cluster older than 3.3: no image of the features can be built (Kafka: FeaturesImage). Below
                   3.3-IV3, or above the last level that 4.3.1 has a name for: MetadataVersion.fromFeatureLevel throws.
others             a level that a controller does not support (QuorumFeatures; FeatureControlManager.replay); a plain broker starts.

A node fails on the record that sets the level. So a level that was replaced later prevents its start as well, until a newer
snapshot has only the later one (observed with logs that 3.3.2 began with 3.3-IV0, and 3.9.1 raised to 3.9-IV0).
"""

from collections.abc import Iterator, Mapping

from kseg.internal_topics.metadata.metadata_image import MetadataImage
from kseg.segment.values import dataclass

METADATA_VERSION = "metadata.version"
_NAMED = range(7, 32)  # levels of metadata.version that 4.3.1 has names for; the last one is not released
# the levels that a 4.3.1 controller supports
_SUPPORTED: Mapping[str, tuple[int, int]] = {
    METADATA_VERSION: (7, 30),
    "kraft.version": (0, 1),
    "transaction.version": (0, 2),
    "group.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
}
_TOO_OLD = (
    "Unsupported metadata version - if you are currently upgrading your cluster, please ensure the "
    "metadata version is set to 3.3-IV3 (or higher) before updating the software version. The metadata "
    "version can be updated via the `kafka-features` command-line tool."
)


@dataclass(frozen=True, slots=True)
class RefusedFeature:
    """level: None for a missing one. exception, message: of the node. is_past: whether a later record sets another level."""

    name: str
    level: int | None
    exception: str
    message: str
    is_past: bool = False

    @property
    def is_of_older(self) -> bool:
        """Whether an older version of Kafka wrote it, rather than a newer one."""
        return self.name == METADATA_VERSION and (self.level is None or self.level < min(_NAMED))


def refused_features(image: MetadataImage, *, is_controller: bool) -> Iterator[RefusedFeature]:
    """None if the metadata log may be incomplete. is_controller: whether the node is a voter of the quorum."""
    if not image.is_certain:
        return
    level = image.features.get(METADATA_VERSION)
    if level is None:
        if not image.brokers or any(broker.log_dirs for broker in image.brokers.values()):
            # no broker has run yet, or only brokers of later versions, which register their log dirs
            return
        message = "Unknown metadata version for FeaturesImage: metadataVersion(Optional.empty)"
        yield RefusedFeature(METADATA_VERSION, None, "IllegalStateException", message)
    for name, level in image.feature_levels:
        is_past = image.features.get(name, 0) != level
        low, high = _SUPPORTED.get(name, (0, 0))
        if name == METADATA_VERSION and level not in _NAMED:
            yield RefusedFeature(name, level, "IllegalArgumentException", _TOO_OLD, is_past)
        elif is_controller and not low <= level <= high:
            record = f"FeatureLevelRecord(name='{name}', featureLevel={level})"
            supported = f"{low}-{high}" if high else str(high)
            message = f"Tried to apply FeatureLevelRecord {record}, but this controller only supports versions {supported}"
            yield RefusedFeature(name, level, "RuntimeException", message, is_past)
