"""Which logs are of Kafka's own topics, and the decoder of their rows: light, because every dump as JSON asks.

A log is recognised by the name of its directory; a `.checkpoint` is a snapshot of the metadata log wherever it lies.
"""

import os
from collections.abc import MutableMapping

from kseg.internal_topics.topic_names import CLUSTER_METADATA, TOPICS
from kseg.segment.errors import FormatError
from kseg.segment.json_rows import RowDecoder
from kseg.segment.model import Record
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import Role, parse_given_name
from kseg.segment.redaction import REDACTED, Redactor
from kseg.segment.values import dataclass

# what a row shows then: no value, a message whose secrets are replaced, or only the size or a hash of the bytes
_WITHOUT_SECRETS = (None, "message", "size", "redacted")
_SNAPSHOTS = (Role.METADATA_SNAPSHOT, Role.BOOTSTRAP_SNAPSHOT)


def internal_topic_of(path: str) -> str | None:
    """The internal topic that a log is of, by its directory's or its own name; None for any other."""
    if parse_given_name(os.path.basename(path)).role in _SNAPSHOTS:
        return CLUSTER_METADATA
    name = own_partition_name(os.path.dirname(path) or os.curdir)
    return name.topic if name is not None and name.topic in TOPICS.values() else None


@dataclass(frozen=True, slots=True)
class TopicRows:
    """A `RowDecoder`. topic: what all logs are taken for, None to recognise each. as_bytes: decode nothing. redactor: keeps secrets out of
    rows, decoded or not; None shows them. otherwise: for the logs of other topics."""

    topic: str | None = None
    as_bytes: bool = False
    redactor: Redactor | None = None
    otherwise: RowDecoder | None = None

    def concerns(self, path: str) -> bool:
        """See `RowDecoder`."""
        if self.redactor is not None and self.redactor.concerns(path):
            return True
        topic = self.topic or internal_topic_of(path)
        if topic is None:
            return self.otherwise is not None and self.otherwise.concerns(path)
        return not self.as_bytes

    def amend(self, row: MutableMapping[str, object], record: Record) -> None:
        """See `RowDecoder`."""
        self._decode(row, record)
        if self.redactor is not None and row["value_encoding"] not in _WITHOUT_SECRETS:
            _redact(row, record, self.redactor)

    def _decode(self, row: MutableMapping[str, object], record: Record) -> None:
        topic = self.topic or internal_topic_of(str(row["file"]))
        if topic is None:
            if self.otherwise is not None:
                self.otherwise.amend(row, record)
        elif not self.as_bytes:
            from kseg.internal_topics.topic_rows import put_message

            put_message(row, topic, record, show_secrets=self.redactor is None)


def _redact(row: MutableMapping[str, object], record: Record, redactor: Redactor) -> None:
    shown = redactor.redacted(str(row["file"]), record.key, record.value)
    if shown is None:
        return
    from kseg.internal_topics.registry.json_text import read_json

    try:
        row["value"], row["value_encoding"] = read_json(shown), "json"
    except FormatError:
        row["value"], row["value_encoding"] = REDACTED, "redacted"
