"""Make the groups of a stopped broker look as they do after days of downtime, by moving the times in their records back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kseg.internal_topics.coordinator_log import CoordinatorRecord, read_coordinator_log
from kseg.internal_topics.decoding import decode_value
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS, OffsetKey, parse_key
from kseg.segment.crc import crc32c
from kseg.segment.partition.targets import PartitionTarget

DAY_MS = 24 * 3600 * 1000
# positions in the batch header
_LENGTH_AT, _CRC_AT, _BODY_AT = 8, 17, 21
_OF_GROUP = ("currentStateTimestamp",)
_OF_COMMIT = ("commitTimestamp", "expireTimestamp")


def age(directory: Path, commits: Mapping[str, float], states: Mapping[str, float]) -> None:
    """Move the times in the records of a `__consumer_offsets` partition back, by a number of days for each group. commits: days for commit
    timestamps. states: days for the time since when a classic group has been empty."""
    records = read_coordinator_log(PartitionTarget(str(directory)))
    aged = [entry for entry in records if isinstance(entry, CoordinatorRecord) and entry.key and entry.value]
    for path in sorted(directory.glob("*.log")):
        data = bytearray(path.read_bytes())
        for record in aged:
            _age(data, record, commits, states)
        at = 0
        while at < len(data):
            end = at + 12 + int.from_bytes(data[at + _LENGTH_AT : at + _LENGTH_AT + 4], "big")
            data[at + _CRC_AT : at + _BODY_AT] = crc32c(bytes(data[at + _BODY_AT : end])).to_bytes(4, "big")
            at = end
        path.write_bytes(data)


def _age(
    data: bytearray, record: CoordinatorRecord, commits: Mapping[str, float], states: Mapping[str, float]
) -> None:
    assert record.key is not None and record.value is not None
    type_id, key = parse_key(record.key)
    is_commit = isinstance(key, OffsetKey)
    if not (is_commit or type_id == 2):
        return
    names, days = (_OF_COMMIT, commits) if is_commit else (_OF_GROUP, states)
    if not days.get(key.group):
        return
    values = decode_value(CONSUMER_OFFSETS, type_id, record.value).values
    at = data.find(record.value)
    # the same value may occur more than once
    while at >= 0:
        for name in names:
            time_ms = values.get(name, -1)
            if time_ms != -1:
                place = data.index(time_ms.to_bytes(8, "big"), at, at + len(record.value))
                data[place : place + 8] = (time_ms - int(days[key.group] * DAY_MS)).to_bytes(8, "big")
        at = data.find(record.value, at + len(record.value))
