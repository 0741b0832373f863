"""What a 4.3.1 node fails on in the metadata log at its start: features, topic configurations, and records that contradict those before them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kseg.recovery.broker_start.log_dir_start import Thrown
from kseg.segment.partition.targets import Target
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.internal_topics.metadata.refused_configs import RefusedConfig
    from kseg.internal_topics.metadata.refused_features import RefusedFeature


@dataclass(frozen=True, slots=True)
class Refusals:
    """Of the node of one log dir. contradictions: by offset; those at which the node cuts the log before do not count."""

    features: "tuple[RefusedFeature, ...]"
    configs: "tuple[RefusedConfig, ...]"
    contradictions: tuple[tuple[int, str], ...]

    def thrown(self) -> Iterator[Thrown]:
        """What features and configurations end the start with."""
        yield from (Thrown(each.exception, each.message) for each in self.features)
        yield from (Thrown("ConfigException", each.message) for each in self.configs)

    def contradiction(self) -> tuple[int, Thrown] | None:
        """The first one: its offset, and what it ends the start with."""
        for offset, words in self.contradictions[:1]:
            message = f"Error loading metadata log record from offset {offset}: {words}"
            return offset, Thrown("FaultHandlerException", message)
        return None


def refusals_of(targets: Sequence[Target], finder: "MetadataFinder") -> dict[str, Refusals]:
    """By log dir of the targets. A node whose voters are not known is taken for a controller."""
    from kseg.cli.topic_evidence import log_dirs_of
    from kseg.internal_topics.metadata.quorum_voters import voters_of
    from kseg.internal_topics.metadata.refused_configs import refused_configs
    from kseg.internal_topics.metadata.refused_features import refused_features

    found = {}
    for log_dir in log_dirs_of(targets):
        image = finder.image_for(log_dir)
        if image is not None:
            voters = voters_of(image, [log_dir])
            is_controller = not voters or finder.node_of(log_dir).node_id in voters
            found[log_dir] = Refusals(
                tuple(refused_features(image, is_controller=is_controller)),
                tuple(refused_configs(image)),
                image.contradictions,
            )
    return found
