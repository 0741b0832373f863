"""Which values of Kafka's own topics and of Kafka Connect's contain secrets, and what replaces them.

All output of log data passes through this: rows, exports, the data source and raw bytes before a value is returned, the text of `dump` for
warnings.

    __cluster_metadata, snapshots    SCRAM credentials, and sensitive configurations (`sensitive_configs`): the whole value is replaced.
                                     Records of these types, or of an unknown type, that cannot be decoded are replaced, too.
    configs of Kafka Connect         properties of connectors and tasks whose name suggests a secret, and the session key
                                     (`connect_topics`)

Delegation tokens need no redaction: a broker derives their HMACs from its own secret key and stores none (fact sheet internal topics §11).

A log is recognised by the name of its directory. Connect's config topic is named by `config.storage.topic`: every topic whose name contains
`connect` and `config` counts, and MirrorMaker's `mm2-configs.*`; only records with Connect's keys are changed.
"""

import os
import re
from fnmatch import fnmatchcase

from kseg.internal_topics.topic_names import CLUSTER_METADATA
from kseg.internal_topics.topic_recognition import internal_topic_of
from kseg.segment.errors import FormatError
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.redaction import REDACTED
from kseg.segment.values import dataclass

_CONFIG, _SCRAM = 4, 11  # metadata record types
_CONNECT_CONFIGS = re.compile(r"(?=.*connect)(?=.*config)|mm2-configs\.", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SecretValues:
    """A `Redactor`. topic: the internal topic that all logs are treated as, in addition to what their names imply.
    connect_topics: globs of further Kafka Connect topics."""

    topic: str | None = None
    connect_topics: tuple[str, ...] = ()

    def concerns(self, path: str) -> bool:
        return self._holds_metadata(path) or _holds_connect_configs(path, self.connect_topics)

    def redacted(self, path: str, key: bytes | None, value: bytes | None) -> bytes | None:
        if value is None:
            return None
        if self._holds_metadata(path):
            return REDACTED.encode() if _is_secret_metadata(value) else None
        if not _holds_connect_configs(path, self.connect_topics):
            return None
        from kseg.internal_topics.connect_topics import redacted_config

        return redacted_config(key, value)

    def _holds_metadata(self, path: str) -> bool:
        return self.topic == CLUSTER_METADATA or internal_topic_of(path) == CLUSTER_METADATA


def _holds_connect_configs(path: str, globs: tuple[str, ...]) -> bool:
    name = own_partition_name(os.path.dirname(path) or os.curdir)
    if name is None:
        return False
    return _CONNECT_CONFIGS.match(name.topic) is not None or any(
        fnmatchcase(name.topic, each) for each in globs
    )


def _is_secret_metadata(value: bytes) -> bool:
    """Whether a record of the metadata log contains a secret, or may contain one because it cannot be decoded."""
    from kseg.internal_topics.decoding import decode_framed, frame_of
    from kseg.internal_topics.sensitive_configs import is_sensitive

    try:
        type_id = frame_of(value)[0]
        if type_id != _CONFIG:
            return type_id == _SCRAM
        values = decode_framed(value).values
    except FormatError:
        return bool(value)
    return values["value"] is not None and is_sensitive(values["resourceType"], values["name"])
