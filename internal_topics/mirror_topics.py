"""MirrorMaker's three topics: heartbeats, checkpoints of consumer groups, and pairs of offsets of the two clusters.

    heartbeats, A.heartbeats                 sourceClusterAlias, targetClusterAlias      → version, timestamp
    A.checkpoints.internal                   group, topic, partition                     → version, upstreamOffset, offset, metadata
    mm2-offset-syncs.A.internal              topic, partition                            → upstreamOffset, offset

`A` is a cluster's alias, and `.` the default of replication.policy.separator. The fields are packed without gaps, keys without a type
(Kafka: Heartbeat, Checkpoint, OffsetSync; the names: ReplicationPolicy, DefaultReplicationPolicy).

Any topic may be called `heartbeats`. So a record there that is not a heartbeat from its first to its last byte is treated as another
topic's, and is neither decoded nor reported.
"""

import os
import re
from collections.abc import MutableMapping
from typing import Any, Final

from kseg.internal_topics.decoding import decode
from kseg.internal_topics.schemas import mirror_maker_messages
from kseg.segment.errors import FormatError
from kseg.segment.json_rows import LogRowDecoder, RowDecoder
from kseg.segment.model import Record
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.values import dataclass

_HEARTBEATS: Final = "heartbeats"
_WITHOUT_VERSION: Final = "offset-syncs"
_TOPICS: Final = (
    (_HEARTBEATS, re.compile(r"(.+[._-])?heartbeats")),
    ("checkpoints", re.compile(r".+([._-]+)checkpoints\1internal")),
    (_WITHOUT_VERSION, re.compile(r"mm2-offset-syncs([._-]+).+\1internal")),
)


@dataclass(frozen=True, slots=True)
class MirrorRows:
    """A `RowDecoder`. as_bytes: decode nothing. otherwise: for the logs of other topics."""

    as_bytes: bool = False
    otherwise: RowDecoder | None = None

    def for_log(self, path: str) -> LogRowDecoder | None:
        other = None if self.otherwise is None else self.otherwise.for_log(path)
        kind = None if self.as_bytes else _kind_of(path)
        return other if kind is None else _MirrorLog(kind, other)


def _kind_of(path: str) -> str | None:
    name = own_partition_name(os.path.dirname(path) or os.curdir)
    if name is None:
        return None
    return next((kind for kind, pattern in _TOPICS if pattern.fullmatch(name.topic)), None)


@dataclass(frozen=True, slots=True)
class _MirrorLog:
    """A `LogRowDecoder` of one log. otherwise: for records of a topic that only has the same name as one of MirrorMaker's."""

    kind: str
    otherwise: LogRowDecoder | None

    def amend(self, row: MutableMapping[str, object], record: Record) -> None:
        sides = {"key": record.key, "value": record.value}
        shown, errors = dict[str, object](), dict[str, str]()
        for side, data in sides.items():
            if data is None:
                continue
            try:
                shown[side] = _decoded(self.kind, side, data)
            except FormatError as error:
                errors[side] = str(error)
        if self.kind == _HEARTBEATS and (record.key is None or errors):
            if self.otherwise is not None:
                self.otherwise.amend(row, record)
            return
        for side, values in shown.items():
            row[side], row[f"{side}_encoding"] = values, "message"
        for side, reason in errors.items():
            row[f"{side}_error"] = reason

    def program(self) -> None:
        """See `LogRowDecoder`."""


def _decoded(kind: str, side: str, data: bytes) -> dict[str, Any]:
    """Raises FormatError."""
    message = mirror_maker_messages()[kind, side]
    version, begin = 0, 0
    has_version = side == "value" and kind != _WITHOUT_VERSION
    if has_version:
        if len(data) < 2:
            raise FormatError("the value is too short for its version")
        version, begin = int.from_bytes(data[:2], "big", signed=True), 2
    found = decode(message, version, data, begin)
    if kind == _HEARTBEATS and (found.left_over_bytes or found.is_newer):
        raise FormatError("not a heartbeat")
    shown: dict[str, Any] = {"type": None, "name": message.name}
    if has_version:
        shown["version"] = version
    shown["data"] = dict(found.values)
    return shown | found.irregularities()
