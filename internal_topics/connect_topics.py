"""Kafka Connect's three topics, also those of MirrorMaker's workers: their JSON keys and values, and which values are secrets.

Connect writes them with its JsonConverter without schemas (`KafkaOffsetBackingStore`, `KafkaConfigBackingStore`,
`KafkaStatusBackingStore`):

    offsets   ["connector",{partition}]                              → {offset}
    configs   connector-NAME, task-NAME-N                            → {"properties":{…}}
              commit-NAME, tasks-fencing-NAME, target-state-NAME     → {"tasks":N} …
              session-key                                            → {"key":…,"algorithm":…}: the key that workers sign requests with
              restart-connector-NAME, logger-cluster-NAMESPACE
    status    status-connector-NAME, status-task-NAME-N, status-topic-TOPIC:connector-NAME → {"state":…}

Only the connector's class knows which of its properties are passwords. A value is redacted if its name suggests a password, if it contains
one (a URL with a user, `password=`), or if it is the session key; references to a configuration provider (`${file:…}`) are kept.
"""

import json
import os
import re
from collections.abc import MutableMapping
from fnmatch import fnmatchcase
from typing import Any, Final

from kseg.internal_topics.registry.json_text import read_json
from kseg.segment.errors import FormatError
from kseg.segment.json_rows import LogRowDecoder, RowDecoder
from kseg.segment.model import Record
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.redaction import REDACTED
from kseg.segment.values import dataclass

CONNECT_TOPICS: Final = ("connect-offsets", "connect-configs", "connect-status")
_OF_MIRROR_MAKER = re.compile(r"mm2-(offsets|configs|status)\..+\.internal")  # MirrorMakerConfig.workerConfig
_SECRET_KEYS: Final = (b"connector-", b"task-", b"session-key")
_SECRET_NAME = re.compile(
    r"passw|passphrase|pwd|secret|token|credential|jaas|private.?key|api.?key|access.?key|auth.?key|account.?key|"
    r"(^|[._-])(key|pin)$|keystore\.(key|certificate)|truststore\.certificate|basic\.auth|user\.?info|sas$",
    re.IGNORECASE,
)
_HARMLESS_NAME = re.compile(
    r"(^|[._-])(topic|field|column|schema|message|document|partition|record|primary|shard)s?[._-]key$|converter|"
    r"(password|token|secret|credentials?|key)[._-](endpoint[._-]url|url|file|path|location|class|provider|type|enabled?|id[._-]field)$|"
    r"^(transforms|predicates)\.[^.]*\.[^.]*(field|column)",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"//[^/@\s:]*:[^/@\s]+@|(password|passwd|pwd|secret|token)\s*=", re.IGNORECASE)
_PROVIDED = re.compile(r"^\$\{[^}]*\}$")
_CONFIG_KEYS: Final = (
    ("connector-", "connector"),
    ("task-", "task"),
    ("commit-", "commit"),
    ("target-state-", "target-state"),
    ("tasks-fencing-", "tasks-fencing"),
    ("restart-connector-", "restart"),
    ("logger-cluster-", "logger"),
    ("status-connector-", "connector-status"),
    ("status-task-", "task-status"),
    ("status-topic-", "topic-status"),
)
_WITH_TASK: Final = ("task", "task-status")


@dataclass(frozen=True, slots=True)
class ConnectRows:
    """A `RowDecoder`, and the decoder of each log that it recognizes.

    names: globs of further Connect topics. as_bytes: decode nothing. otherwise: for the logs of other topics. Secrets are not
    redacted here: `topic_recognition` does that.
    """

    names: tuple[str, ...] = ()
    as_bytes: bool = False
    otherwise: RowDecoder | None = None

    def for_log(self, path: str) -> LogRowDecoder | None:
        if not self._is_connects(path):
            return None if self.otherwise is None else self.otherwise.for_log(path)
        return None if self.as_bytes else self

    def amend(self, row: MutableMapping[str, object], record: Record) -> None:
        _amend(row, record)

    def program(self) -> None:
        """See `LogRowDecoder`."""

    def _is_connects(self, path: str) -> bool:
        name = own_partition_name(os.path.dirname(path) or os.curdir)
        if name is None:
            return False
        if name.topic in CONNECT_TOPICS or _OF_MIRROR_MAKER.fullmatch(name.topic):
            return True
        return any(fnmatchcase(name.topic, each) for each in self.names)


def _amend(row: MutableMapping[str, object], record: Record) -> None:
    key = record.key or b""
    if key.lstrip().startswith(b"["):
        _put(row, "key", record.key)
        _name_offset(row)
    else:
        row["connect"] = _named(key.decode("utf-8", "replace"))
    if record.value is not None:
        _put(row, "value", record.value)


def _put(row: MutableMapping[str, object], side: str, data: bytes | None) -> None:
    try:
        row[side] = None if data is None else read_json(data)
        row[f"{side}_encoding"] = "json"
    except FormatError as error:
        row[f"{side}_error"] = str(error)


def redacted_config(key: bytes | None, value: bytes) -> bytes | None:
    """What is shown instead of a value of the configs topic: the same JSON without its secrets. None if it has none; a value that
    is not JSON, so that its content is unknown, is replaced completely."""
    if not (key or b"").startswith(_SECRET_KEYS):
        return None
    try:
        found = read_json(value)
    except FormatError:
        return REDACTED.encode()
    shown = redacted(found)
    if shown == found:
        return None
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def redacted(value: Any) -> Any:
    """A value of the configs topic without its secrets."""
    match value:
        case {"algorithm": _, "key": _}:
            return value | {"key": REDACTED}
        case dict():
            return {name: _redacted_member(name, each) for name, each in value.items()}
        case list():
            return [redacted(each) for each in value]
    return value


def _redacted_member(name: str, value: Any) -> Any:
    if isinstance(value, (dict, list)):
        return redacted(value)
    if value is None or value == "" or (isinstance(value, str) and _PROVIDED.match(value)):
        return value
    if _SECRET_NAME.search(name) and not _HARMLESS_NAME.search(name):
        return REDACTED
    return REDACTED if isinstance(value, str) and _SECRET_VALUE.search(value) else value


def _named(key: str) -> dict[str, object]:
    """The parts of a key of the configs or status topic: `{"type":"task","connector":"jdbc-source","task":0}`."""
    if key == "session-key":
        return {"type": "session-key"}
    for prefix, kind in _CONFIG_KEYS:
        if not key.startswith(prefix):
            continue
        rest = key.removeprefix(prefix)
        if kind == "topic-status":
            topic, _, connector = rest.partition(":connector-")
            return {"type": kind, "connector": connector, "topic": topic}
        if kind == "logger":
            return {"type": kind, "namespace": rest}
        connector, _, task = rest.rpartition("-")
        if kind in _WITH_TASK and connector and task.isascii() and task.isdigit() and len(task) < 10:
            return {"type": kind, "connector": connector, "task": int(task)}
        return {"type": kind, "connector": rest}
    return {"type": None}


def _name_offset(row: MutableMapping[str, object]) -> None:
    match row["key"]:
        case [str() as connector, partition]:
            row["connect"] = {"type": "offset", "connector": connector, "partition": partition}
        case _:
            row["connect"] = {"type": None}
