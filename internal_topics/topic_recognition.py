"""Recognise the logs of Kafka's own topics, and choose the decoder of their rows. Cheap to import, since every JSON dump uses it.

A log is recognised by the name of its directory; a `.checkpoint` is a snapshot of the metadata log in any directory.
"""

import os
from collections.abc import MutableMapping

from kseg.internal_topics.topic_names import CLUSTER_METADATA, TOPICS
from kseg.segment.errors import FormatError
from kseg.segment.json_rows import LogRowDecoder, RowDecoder
from kseg.segment.model import Record
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import Role, parse_given_name
from kseg.segment.redaction import REDACTED, Redactor
from kseg.segment.values import dataclass

# values of a row that contain no secret: none, a redacted message, or only the size or a hash of the bytes
_WITHOUT_SECRETS = (None, "message", "size", "redacted")
_SNAPSHOTS = (Role.METADATA_SNAPSHOT, Role.BOOTSTRAP_SNAPSHOT)


def internal_topic_of(path: str) -> str | None:
    """The internal topic of a log, by its directory's or its own name; None for any other."""
    if parse_given_name(os.path.basename(path)).role in _SNAPSHOTS:
        return CLUSTER_METADATA
    name = own_partition_name(os.path.dirname(path) or os.curdir)
    return name.topic if name is not None and name.topic in TOPICS.values() else None


@dataclass(frozen=True, slots=True)
class TopicRows:
    """A `RowDecoder`. topic: the topic that all logs are treated as, None to recognise each. as_bytes: decode nothing. redactor:
    redacts secrets in rows, decoded or not; None shows them. otherwise: for the logs of other topics."""

    topic: str | None = None
    as_bytes: bool = False
    redactor: Redactor | None = None
    otherwise: RowDecoder | None = None

    def for_log(self, path: str) -> LogRowDecoder | None:
        decoder = self._decoder_of(path)
        if self.redactor is not None and self.redactor.concerns(path):
            return _WithoutSecrets(decoder, self.redactor)
        return decoder

    def _decoder_of(self, path: str) -> LogRowDecoder | None:
        topic = self.topic or internal_topic_of(path)
        if topic is None:
            return None if self.otherwise is None else self.otherwise.for_log(path)
        if self.as_bytes:
            return None
        from kseg.internal_topics.metadata.names_beside import topic_names_beside
        from kseg.internal_topics.topic_rows import MessageRows

        return MessageRows(topic, topic_names_beside(path, topic), show_secrets=self.redactor is None)


@dataclass(frozen=True, slots=True)
class _WithoutSecrets:
    """A `LogRowDecoder` that wraps another one, or undecoded bytes, and redacts the remaining secrets."""

    decoder: LogRowDecoder | None
    redactor: Redactor

    def amend(self, row: MutableMapping[str, object], record: Record) -> None:
        if self.decoder is not None:
            self.decoder.amend(row, record)
        if row["value_encoding"] not in _WITHOUT_SECRETS:
            _redact(row, record, self.redactor)

    def program(self) -> tuple[memoryview, bytes] | None:
        """See `LogRowDecoder`. Its rows have messages whose secrets are redacted."""
        return None if self.decoder is None else self.decoder.program()


def _redact(row: MutableMapping[str, object], record: Record, redactor: Redactor) -> None:
    shown = redactor.redacted(str(row["file"]), record.key, record.value)
    if shown is None:
        return
    from kseg.internal_topics.registry.json_text import read_json

    try:
        row["value"], row["value_encoding"] = read_json(shown), "json"
    except FormatError:
        row["value"], row["value_encoding"] = REDACTED, "redacted"
