"""What the cluster's metadata log says about a partition directory: plain values that travel from whoever asked it to the checks."""

from collections.abc import Mapping
from dataclasses import dataclass

from kseg.segment.findings import Finding


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """finding: what a broker will do to the directory at its next start that nobody wants; None for nothing. topic_id: what a
    partition.metadata that is missing or cannot be read is to say; None where that is not certain. named_id: the id of the
    topic that the directory is named after, None when the metadata log has no such topic."""

    finding: Finding | None = None
    topic_id: str | None = None
    named_id: str | None = None


NOBODY_SAYS = TopicIdentity()

IdentityByPath = Mapping[str, TopicIdentity]  # by the path of a partition directory, as shown to the user
