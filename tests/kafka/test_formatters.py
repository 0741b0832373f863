"""The console consumer's formatters for Kafka's own topics, compared with the rows of `kseg dump --json`: the rows have the type, version
and data of each record that the formatters print, and where a formatter throws, the row reports an error."""

from __future__ import annotations

import json
import os
import random
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kseg.inspection.dump.options import DumpOptions
from kseg.internal_topics.groups.consumer_protocol import ASSIGNMENT, SUBSCRIPTION, decode_member
from kseg.internal_topics.schemas import message
from kseg.internal_topics.topic_recognition import TopicRows
from kseg.internal_topics.value_names import with_names
from kseg.jobs.events import Text
from kseg.segment.errors import FormatError
from kseg.segment.partition.targets import FileTarget
from tests.kafka.message_cases import Pair, mutants, printed, random_records, truncated, write_log
from tests.kafka.oracle import Oracle
from tests.support.one_target import dump

pytestmark = pytest.mark.kafka

MUTANTS = int(os.environ.get("KSEG_FORMATTED_MUTANTS", "6000"))
SEED = int(os.environ.get("KSEG_FORMATTED_SEED", "1"))
TOOLS = "org.apache.kafka.tools.consumer"
OFFSETS, STATE, SHARES = "__consumer_offsets", "__transaction_state", "__share_group_state"
# the formatters of a topic, and the record types that each prints; an empty range means all
FORMATTERS: Mapping[str, Mapping[str, range]] = {
    OFFSETS: {
        f"{TOOLS}.OffsetsMessageFormatter": range(2),
        f"{TOOLS}.GroupMetadataMessageFormatter": range(2, 3),
        f"{TOOLS}.ShareGroupMessageFormatter": range(10, 16),
    },
    STATE: {f"{TOOLS}.TransactionLogMessageFormatter": range(0)},
    SHARES: {f"{TOOLS}.group.share.ShareGroupStateMessageFormatter": range(0)},
}
# a varint of 2^31 + 1, which Java reads as a negative number
_NEGATIVE = b"\x81\x80\x80\x80\x08"
ODD: Sequence[Pair] = [
    *((key, value) for key in (None, b"", b"\0", b"\0\1") for value in (None, b"", b"\0", b"\0\1")),
    *((b"\xff\xff", value) for value in (None, b"\0\0")),
    (b"\0\0\0\1t", b"\0\1" + bytes(15) + _NEGATIVE + bytes(16) + _NEGATIVE),
]


def rows_of(path: Path) -> list[dict[str, Any]]:
    options = DumpOptions(print_data_log=True, format="json", row_decoder=TopicRows())
    text = b"".join(event.data for event in dump(FileTarget(str(path)), options) if isinstance(event, Text))
    return [row for row in map(json.loads, text.splitlines()) if row["type"] == "record"]


def assert_same(oracle: Oracle, topic: str, records: Sequence[Pair], rows: Sequence[dict[str, Any]]) -> int:
    """Returns the number of records that are printed, tombstones included."""
    shown = 0
    for name, types in FORMATTERS[topic].items():
        for record, row, (text, error) in zip(records, rows, oracle.formatted(name, records), strict=True):
            key = row["key"] if row["key_encoding"] == "message" else None
            if text:
                assert _as_formatted(topic, row, json.loads(text)) == json.loads(text), record
                shown += 1
            elif error is not None:
                remarks = row["value"].keys() if row["value_encoding"] == "message" else set()
                assert remarks & {"newer", "dialect"} or row.keys() & {"key_error", "value_error"}, record
            else:
                assert key is None or (types and key["type"] not in types), record
    return shown


def _as_formatted(topic: str, row: dict[str, Any], text: dict[str, Any]) -> dict[str, Any]:
    """A row as the formatter prints it. text: the formatter's output, used where kseg decodes more."""
    key, value = row["key"], row["value"]
    data = printed(message_fields(topic, "key", key["type"]), 0, key["data"])
    shown: dict[str, Any] = {"key": {"type": key["type"], "data": data}, "value": None}
    if value is not None and "dialect" in value:
        shown["value"] = text["value"]
    elif value is not None:
        data = printed(message_fields(topic, "value", key["type"]), value["version"], value["data"])
        shown["value"] = {"version": value["version"], "data": data}
        if (topic, key["type"]) == (OFFSETS, 2):
            for ours, theirs in zip(data["members"], text["value"]["data"]["members"], strict=True):
                for name, kind in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
                    assert ours[name] in (theirs[name], _member(kind, theirs[name]))
                    ours[name] = theirs[name]
    return shown


def message_fields(topic: str, kind: str, type_id: int) -> Any:
    known = message(topic, kind, type_id)
    assert known is not None
    return known.fields


def _member(kind: str, text: str) -> Any:
    try:
        return with_names(kind, decode_member(kind, b64decode(text)).values, {})
    except FormatError:
        return text


@pytest.mark.parametrize("topic", FORMATTERS)
def test_rows_equal_the_formatters_for_all_record_types_and_damage(
    oracle: Oracle, tmp_path: Path, topic: str
) -> None:
    """Complete records, tombstones, records truncated at every byte, and KSEG_FORMATTED_MUTANTS mutants, drawn from KSEG_FORMATTED_SEED."""
    rng = random.Random(f"{SEED} {topic}")
    records = random_records(oracle, rng, topic, 10)
    records += [(key, None) for key, _ in records]
    records += [*truncated(random_records(oracle, rng, topic, 1)), *ODD]
    records += [*mutants(rng, records, MUTANTS)]
    directory = tmp_path / f"{topic}-0"
    directory.mkdir()
    log = write_log(directory / f"{0:020d}.log", records)
    assert assert_same(oracle, topic, records, rows_of(log)) > 100


def test_rows_equal_the_formatters_for_records_of_brokers(
    oracle: Oracle, capture_small: Path, legacy_small: Path
) -> None:
    shown = dict.fromkeys(FORMATTERS, 0)
    for topic in FORMATTERS:
        for root in (capture_small, legacy_small):
            for log in sorted(root.glob(f"data/**/{topic}-*/*.log")):
                records = [
                    (line["key"], line["value"])
                    for line in oracle.records(log)
                    if line["type"] == "record" and "control" not in line
                ]
                rows = [row for row in rows_of(log) if "control" not in row]
                shown[topic] += assert_same(oracle, topic, records, rows)
    assert shown[OFFSETS] > 50 and shown[STATE] > 10
