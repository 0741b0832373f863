"""Which logs are of Kafka's own topics, and the decoder of their rows: light, because every dump as JSON asks.

A log is recognised by the name of its directory; a `.checkpoint` is a snapshot of the metadata log wherever it lies.
"""

import os
from collections.abc import MutableMapping

from kseg.internal_topics.topic_names import CLUSTER_METADATA, TOPICS
from kseg.segment.json_rows import RowDecoder
from kseg.segment.model import Record
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import Role, parse_given_name
from kseg.segment.values import dataclass

_SNAPSHOTS = (Role.METADATA_SNAPSHOT, Role.BOOTSTRAP_SNAPSHOT)


def internal_topic_of(path: str) -> str | None:
    """The internal topic that a log is of, by its directory's or its own name; None for any other."""
    if parse_given_name(os.path.basename(path)).role in _SNAPSHOTS:
        return CLUSTER_METADATA
    name = own_partition_name(os.path.dirname(path) or os.curdir)
    return name.topic if name is not None and name.topic in TOPICS.values() else None


@dataclass(frozen=True, slots=True)
class TopicRows:
    """A `RowDecoder`. topic: what all logs are taken for, None to recognise each. as_bytes: decode nothing, but show no secret either.
    otherwise: for the logs of other topics."""

    topic: str | None = None
    as_bytes: bool = False
    show_secrets: bool = False
    otherwise: RowDecoder | None = None

    def concerns(self, path: str) -> bool:
        """See `RowDecoder`."""
        topic = self.topic or internal_topic_of(path)
        if topic is None:
            return self.otherwise is not None and self.otherwise.concerns(path)
        return not self.as_bytes or (topic == CLUSTER_METADATA and not self.show_secrets)

    def amend(self, row: MutableMapping[str, object], record: Record) -> None:
        """See `RowDecoder`."""
        topic = self.topic or internal_topic_of(str(row["file"]))
        if topic is None:
            if self.otherwise is not None:
                self.otherwise.amend(row, record)
            return
        from kseg.internal_topics.topic_rows import put_message, redact_bytes

        if not self.as_bytes:
            put_message(row, topic, record, self.show_secrets)
        if topic == CLUSTER_METADATA and not self.show_secrets:
            redact_bytes(row, record.value)
