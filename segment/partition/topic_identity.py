"""What the cluster's metadata log says about a partition directory, as plain values for the checks."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Self

from kseg.segment.findings import Finding
from kseg.segment.partition.topic_settings import SettingsByPath, TopicSettings
from kseg.segment.values import dataclass

BECOMES_STRAY = frozenset(("becomes-stray", "replica-unfinished"))


@dataclass(frozen=True, slots=True)
class TopicIdentity:
    """finding: something unwanted that a broker will do to the directory at its next start; None if there is nothing. topic_id: the id
    that a missing or unreadable partition.metadata should contain; None where that is not certain. named_id: the id of the topic that
    the directory is named after, None if the metadata log has no such topic. is_assigned: whether that topic has this partition on this
    node. is_promoted: whether it is a `-future` directory to which the metadata log already assigns the replica: a broker makes it the
    live one when it starts (Kafka: LogManager.recoverAbandonedFutureLogs). has_loadable_gap: whether it is the metadata log itself
    and lacks records that the node can do without."""

    finding: Finding | None = None
    topic_id: str | None = None
    named_id: str | None = None
    is_assigned: bool = False
    is_promoted: bool = False
    has_loadable_gap: bool = False

    def is_settled_by(self, topic_id: str) -> bool:
        """Whether a broker serves the directory once its partition.metadata has this id."""
        return self.finding is None or (self.is_assigned and topic_id == self.named_id)

    @property
    def becomes_stray(self) -> bool:
        """Whether a broker renames the directory as stray at its next start."""
        return self.finding is not None and self.finding.id in BECOMES_STRAY


UNKNOWN_IDENTITY = TopicIdentity()
_NOTHING_KNOWN = TopicSettings()

IdentityByPath = Mapping[str, TopicIdentity]  # by the path of a partition directory, as shown to the user


@dataclass(frozen=True, slots=True, kw_only=True)
class WithIdentities:
    """Options of commands that compare partition directories with the metadata log. identities: its verdict on each of them, None if it was
    not consulted. topics: the settings of each topic, by partition directory, which take precedence over those of the command; None: those
    of the command apply to all."""

    identities: IdentityByPath | None = None
    topics: SettingsByPath | None = None

    def narrowed_to(self, paths: Iterable[str]) -> Self:
        """The options reduced to what concerns some of the targets; for a data directory that includes what becomes stray in it."""
        paths, identities, topics = [*paths], self.identities, self.topics
        if identities is not None:
            whole = frozenset(paths)
            within = {
                path: each
                for path, each in identities.items()
                if each.becomes_stray and os.path.dirname(path) in whole
            }
            identities = within | {path: identities[path] for path in paths if path in identities}
        if topics is not None:
            topics = {path: topics[path] for path in paths if path in topics}
        return replace(self, identities=identities, topics=topics)

    def topic_of(self, path: str) -> TopicSettings:
        """The configuration and identity of a partition directory's topic, as far as known."""
        return (self.topics or {}).get(path, _NOTHING_KNOWN)

    def identity_of(self, partition_path: str) -> TopicIdentity:
        """The metadata log's verdict on a partition directory; an empty one when the log was not consulted."""
        return (self.identities or {}).get(partition_path, UNKNOWN_IDENTITY)
