"""Why a 4.3.1 node refuses to start with its metadata log: feature levels, topic configurations, records that contradict earlier ones, and
a log that begins above the end of the controllers'; or with its bootstrap.checkpoint."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kseg.recovery.broker_start.log_dir_start import Thrown
from kseg.recovery.loading.kafka_exceptions import RUNTIME
from kseg.segment.errors import UnreadableInput
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from kseg.segment.partition.targets import Target
from kseg.segment.storage import places
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.controller_quorum import RefusedTruncation
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
    from kseg.internal_topics.metadata.refused_configs import RefusedConfig
    from kseg.internal_topics.metadata.refused_features import RefusedFeature
    from kseg.internal_topics.metadata.wrong_identities import WrongIdentities


@dataclass(frozen=True, slots=True)
class Refusals:
    """The refusals of the node of one log dir. contradictions: (offset, reason), in order; one beyond the offset at which the node
    truncates the log has no effect. unparsed: the offsets of those that are no records of 4.3.1, on which it fails as it reads the log."""

    features: "tuple[RefusedFeature, ...]"
    configs: "tuple[RefusedConfig, ...]"
    contradictions: tuple[tuple[int, str], ...]
    unparsed: tuple[int, ...]

    def thrown(self) -> Iterator[Thrown]:
        """The exceptions that feature levels and topic configurations cause at the start."""
        yield from (Thrown(each.exception, each.message) for each in self.features)
        yield from (Thrown("ConfigException", each.message) for each in self.configs)

    def contradiction(self) -> tuple[int, Thrown] | None:
        """The first contradicting record: its offset, and the exception that it causes at the start."""
        first = {offset: words for offset, words in self.contradictions if offset in self.unparsed}
        for offset, words in [*first.items(), *self.contradictions][:1]:
            message = f"Error loading metadata log record from offset {offset}: {words}"
            return offset, Thrown("MetadataParseException" if first else "FaultHandlerException", message)
        return None


def refusals_of(targets: Sequence[Target], finder: "MetadataFinder") -> dict[str, Refusals]:
    """The refusals of the node of each log dir, by log dir. If the voters are unknown, the node counts as a controller as well as a broker.
    A voter that never registered as a broker is not a broker: it loads no topics, and starts whatever their configurations."""
    from kseg.cli.topic_evidence import log_dirs_of

    found = {}
    for log_dir in log_dirs_of(targets):
        image = finder.image_for(log_dir)
        if image is not None:
            from kseg.internal_topics.metadata.quorum_voters import voters_of
            from kseg.internal_topics.metadata.refused_configs import refused_configs
            from kseg.internal_topics.metadata.refused_features import refused_features

            voters = voters_of(image, [log_dir])
            node_id = finder.node_of(log_dir).node_id
            is_controller = not voters or node_id in voters
            is_broker = node_id in image.brokers or node_id not in voters
            found[log_dir] = Refusals(
                tuple(refused_features(image, is_controller=is_controller)),
                tuple(refused_configs(image) if is_broker else ()),
                image.contradictions,
                image.unparsed,
            )
    return found


def truncation_refusals(log_dirs: Sequence[str], finder: "MetadataFinder") -> dict[str, Thrown]:
    """The exceptions of nodes that cannot truncate their metadata logs to the end of the controllers', by log dir; none where a directory
    cannot be listed, which `behind_in_sync` reports. log_dirs: those of the run."""
    in_kraft = [log_dir for log_dir in log_dirs if not finder.uses_zookeeper(log_dir)]
    if len(in_kraft) < 2:
        return {}
    from kseg.internal_topics.metadata.controller_quorum import refused_truncations

    refused: Mapping[str, RefusedTruncation] = {}
    with suppress(UnreadableInput):
        refused = refused_truncations(in_kraft, finder)
    found = {}
    for log_dir, each in refused.items():
        message = (
            f"Attempt to truncate to the end of the controllers' metadata log (offset {each.end_offset}, and what they append until then), "
            f"which is below the current high watermark {each.start_offset}"
        )
        found[log_dir] = Thrown("IllegalArgumentException", message)
    return found


def unregistered_brokers(found: "WrongIdentities") -> Iterator[tuple[str, Thrown, bool]]:
    """The brokers that no controller registers: a log dir, the exception, and whether the broker loads its logs before."""
    for log_dir, each in found.unregistered.items():
        message = f"Received a fatal error while waiting for the controller to acknowledge that we are caught up: {each.reason}"
        yield log_dir, Thrown(RUNTIME, message), each.is_loaded


def bootstrap_refusal(log_dir: str) -> Thrown | None:
    """The exception that the bootstrap.checkpoint of a log dir causes at the start."""
    path = os.path.join(log_dir, NAME_BY_ROLE[Role.BOOTSTRAP_SNAPSHOT])
    if not places.isfile(path):
        return None
    from kseg.internal_topics.metadata.bootstrap_metadata import bootstrap_fault

    fault = bootstrap_fault(path)
    return None if fault is None else Thrown(*fault)
