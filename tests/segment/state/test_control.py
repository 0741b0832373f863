"""Control records compared with the fact sheet's vectors, a real broker's files, and the results of Kafka's own readers.

The cases under `REFUSED` and `TOLERATED` were run through DumpLogSegments.printControlRecord of 4.3.1.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.errors import FormatError
from kseg.segment.java.java_output import decode_utf8, json_text
from kseg.segment.model import Record
from kseg.segment.state import control as C
from kseg.segment.state import kraft_messages as K
from tests.support import reference_reader

VOTERS = bytes.fromhex(  # version 0; voter 1 with a zero directory id, one endpoint C at h:9093; features 0…1
    "0000 02 00000001 00000000000000000000000000000000 02 02 43 02 68 2385 00 0000 0001 00 00 00"
)
COMMIT_KEY = bytes.fromhex("00000001")


@pytest.mark.behaviour("F41")
def test_end_transaction_marker_matches_the_vector() -> None:
    batch_bytes = bytes.fromhex(
        "0000000000000005 00000042 00000003 02 55f2eb49 0030 00000000 0000018bcfe56800 0000018bcfe56800"
        "0000000000000001 0000 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000007 00"
    )
    (batch,) = reference_reader.batches(batch_bytes)
    (record,) = reference_reader.records(batch, batch_bytes)
    control = C.parse_control_record(record.key, record.value)
    assert (batch.is_control, batch.is_transactional, batch.count) == (True, True, 1)
    assert (control.kind, control.type_id, control.fields) == ("COMMIT", 1, {"coordinatorEpoch": 7})
    assert C.kafka_text(control) == " endTxnMarker: COMMIT coordinatorEpoch: 7"
    assert C.as_row(control) == {"kind": "COMMIT", "coordinator_epoch": 7}
    marker = C.end_transaction_marker(record)
    assert marker == C.EndTransactionMarker(is_abort=False, coordinator_epoch=7, timestamp_ms=1700000000000)
    new = C.end_transaction_batch(marker, 5, producer_id=1, producer_epoch=0, leader_epoch=3)
    assert (new.records[0].key, new.records[0].value) == (record.key, record.value)
    assert (new.transactional, new.control, new.base_sequence, new.codec) == (True, True, -1, 0)


@pytest.mark.behaviour("F37")
@pytest.mark.parametrize(
    ("kind", "type_id"),
    [
        ("ABORT", 0),
        ("COMMIT", 1),
        ("LEADER_CHANGE", 2),
        ("SNAPSHOT_HEADER", 3),
        ("SNAPSHOT_FOOTER", 4),
        ("KRAFT_VERSION", 5),
        ("KRAFT_VOTERS", 6),
    ],
)
def test_control_record_types_have_kafkas_key(kind: str, type_id: int) -> None:
    assert C.control_key(kind) == bytes([0, 0, 0, type_id])


@pytest.mark.behaviour("F42")
def test_control_records_of_a_broker_print_like_kafka(capture_small: Path) -> None:
    seen = 0
    for text_file in sorted((capture_small / "expected").rglob("*.txt")):
        path = capture_small / "data" / text_file.relative_to(capture_small / "expected").with_suffix("")
        if path.suffix not in (".log", ".checkpoint"):
            continue
        printed = {
            int(match[1]): match[2]
            for match in re.finditer(
                r"^\| offset: (\d+) .*?headerKeys: \[\](.*)$", text_file.read_text(), re.MULTILINE
            )
        }
        data = path.read_bytes()
        for batch in reference_reader.batches(data):
            if not batch.is_control:
                continue
            for record in reference_reader.records(batch, data):
                assert (
                    C.kafka_text(C.parse_control_record(record.key, record.value)) == printed[record.offset]
                )
                seen += 1
    assert seen > 10


TOLERATED = [
    ("00000063", None, " controlType: UNKNOWN(99)"),
    ("0000ffff", "00", " controlType: UNKNOWN(-1)"),
    ("7fff0000", "000000000003", " endTxnMarker: ABORT coordinatorEpoch: 3"),
    ("00000001ffff", "000000000003", " endTxnMarker: COMMIT coordinatorEpoch: 3"),
    ("00000001", "0001 00000155 ffffffff", " endTxnMarker: COMMIT coordinatorEpoch: 341"),
    (
        "00000002",
        "ffff 00000001 02 00000001 00 01 00",
        ' LeaderChange: {"version":-1,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[]}',
    ),
    (
        "00000002",
        "0001 00000001 02 00000001 00 01 00",
        (
            ' LeaderChange: {"version":1,"leaderId":1,"voters":[{"voterId":1,"voterDirectoryId":'
            '"AAAAAAAAAAAAAAAAAAAAAA"}],"grantingVoters":[]}'
        ),
    ),
    (
        "00000003",
        "0000 0000000000000009 00 abcd",
        ' SnapshotHeader {"version":0,"lastContainedLogTimestamp":9}',
    ),
    ("00000004", "0007 01 05 02 0000", ' SnapshotFooter {"version":7}'),
    ("00000004", "0007 ffffffff0f", ' SnapshotFooter {"version":7}'),
    ("00000005", "0000 0001 00", ' KRaftVersion {"version":0,"kRaftVersion":1}'),
    (
        "00000006",
        VOTERS.hex(),
        (
            ' KRaftVoters {"version":0,"voters":[{"voterId":1,"voterDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",'
            '"endpoints":[{"name":"C","host":"h","port":9093}],'
            '"kRaftVersionFeature":{"minSupportedVersion":0,"maxSupportedVersion":1}}]}'
        ),
    ),
]


@pytest.mark.behaviour("F38", "F40", "F42")
@pytest.mark.parametrize(("key", "value", "text"), TOLERATED)
def test_control_records_kafka_tolerates_are_parsed(key: str, value: str | None, text: str) -> None:
    parsed = C.parse_control_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    assert C.kafka_text(parsed) == text


REFUSED = [
    (None, "000000000003", "NullPointerException"),
    ("000000", "000000000003", "InvalidRecordException"),
    ("ffff0001", "000000000003", "InvalidRecordException"),
    ("00000001", "ffff00000003", "InvalidRecordException"),
    ("00000001", "ffff", "InvalidRecordException"),
    ("00000001", "0000000000", "BufferUnderflowException"),
    ("00000001", "00", "BufferUnderflowException"),
    ("00000001", None, "NullPointerException"),
    ("00000002", None, "NullPointerException"),
    ("00000002", "0000 00000001 00 01 00", "RuntimeException"),  # voters are null
    ("00000002", "0000 00000001 ffffffff07 01 00", "RuntimeException"),  # 2^31 - 2 voters
    ("00000002", "0000 00000001 8080808008 01 00", "RuntimeException"),  # the count wraps around
    ("00000002", "0000 00000001 ffffffffff 01 00", "IllegalArgumentException"),
    ("00000004", "0000 01 00 7f", "RuntimeException"),  # a tag after the end
    ("00000004", "0000 01 00 ffffffff0f", "NegativeArraySizeException"),
    ("00000004", "0000", "BufferUnderflowException"),
]


@pytest.mark.behaviour("F42")
@pytest.mark.parametrize(("key", "value", "exception"), REFUSED)
def test_control_records_kafka_refuses_are_refused(
    key: str | None, value: str | None, exception: str
) -> None:
    with pytest.raises(FormatError) as caught:
        C.parse_control_record(
            None if key is None else bytes.fromhex(key), None if value is None else bytes.fromhex(value)
        )
    assert isinstance(caught.value, K.ControlRecordError)
    assert caught.value.kafka_exception == exception


@pytest.mark.behaviour("F39")
@pytest.mark.parametrize("key", ["00000002", "00000063"])
def test_only_commit_and_abort_end_a_transaction(key: str) -> None:
    with pytest.raises(K.ControlRecordError) as caught:
        C.end_transaction_marker(Record(1, 2, bytes.fromhex(key), b"\0\0\0\0\0\0"))
    assert caught.value.kafka_exception == "IllegalArgumentException"


def test_unknown_control_record_type_cannot_be_written() -> None:
    with pytest.raises(K.ControlRecordError):
        C.control_key("UNKNOWN")
    with pytest.raises(K.ControlRecordError):
        C.control_value("KRAFT_VERSION", {"version": 0})
    with pytest.raises(K.ControlRecordError):
        C.control_value("KRAFT_VERSION", {"version": 0, "kRaftVersion": 70000})
    with pytest.raises(K.ControlRecordError):
        C.control_value("COMMIT", {"coordinatorEpoch": 2**31})


def test_control_record_rows_have_snake_case_names_at_all_levels() -> None:
    row = C.as_row(C.parse_control_record(bytes.fromhex("00000006"), VOTERS))
    assert row == {
        "kind": "KRAFT_VOTERS",
        "version": 0,
        "voters": [
            {
                "voter_id": 1,
                "voter_directory_id": "AAAAAAAAAAAAAAAAAAAAAA",
                "endpoints": [{"name": "C", "host": "h", "port": 9093}],
                "kraft_version_feature": {"min_supported_version": 0, "max_supported_version": 1},
            }
        ],
    }
    unknown = C.parse_control_record(bytes.fromhex("00000009"), None)
    assert C.as_row(unknown) == {"kind": "UNKNOWN", "type_id": 9}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("eda080", "\ufffd"),  # for Java, an encoded surrogate is one malformed sequence
        ("eda041", "\ufffdA"),
        ("eda0", "\ufffd"),
        ("ed41", "\ufffdA"),
        ("f09f98", "\ufffd"),
        ("f09f41", "\ufffdA"),
        ("c080", "\ufffd\ufffd"),
        ("f5808080", "\ufffd" * 4),
        ("e28082", "\u2002"),
    ],
)
def test_malformed_utf8_is_decoded_like_java(raw: str, text: str) -> None:
    assert decode_utf8(bytes.fromhex(raw)) == text


def test_json_escapes_equal_jacksons() -> None:
    assert (
        json_text({"a": '\x1f\n"\\/\x7fé\u2028\\u001f'}) == '{"a":"\\u001F\\n\\"\\\\/\x7fé\u2028\\\\u001f"}'
    )


_INT16 = st.integers(-(2**15), 2**15 - 1)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_VOTER_IDS = st.lists(st.fixed_dictionaries({"voterId": _INT32}), max_size=4)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_ENDPOINT = st.fixed_dictionaries({"name": _TEXT, "host": _TEXT, "port": st.integers(0, 65535)})
_VOTER = st.fixed_dictionaries(
    {
        "voterId": _INT32,
        "voterDirectoryId": st.binary(min_size=16, max_size=16).map(K.uuid_text),
        "endpoints": st.lists(_ENDPOINT, max_size=3),
        "kRaftVersionFeature": st.fixed_dictionaries(
            {"minSupportedVersion": _INT16, "maxSupportedVersion": _INT16}
        ),
    }
)
_FIELDS: Mapping[str, st.SearchStrategy[Mapping[str, object]]] = {
    "ABORT": st.fixed_dictionaries({"coordinatorEpoch": _INT32}),
    "COMMIT": st.fixed_dictionaries({"coordinatorEpoch": _INT32}),
    "LEADER_CHANGE": st.fixed_dictionaries(
        {"version": _INT16, "leaderId": _INT32, "voters": _VOTER_IDS, "grantingVoters": _VOTER_IDS}
    ),
    "SNAPSHOT_HEADER": st.fixed_dictionaries(
        {"version": _INT16, "lastContainedLogTimestamp": st.integers(-(2**63), 2**63 - 1)}
    ),
    "SNAPSHOT_FOOTER": st.fixed_dictionaries({"version": _INT16}),
    "KRAFT_VERSION": st.fixed_dictionaries({"version": _INT16, "kRaftVersion": _INT16}),
    "KRAFT_VOTERS": st.fixed_dictionaries({"version": _INT16, "voters": st.lists(_VOTER, max_size=3)}),
}


@pytest.mark.behaviour("F37")
@given(st.data())
def test_every_control_record_type_round_trips(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(_FIELDS)))
    fields = data.draw(_FIELDS[kind])
    parsed = C.parse_control_record(C.control_key(kind), C.control_value(kind, fields))
    assert (parsed.kind, parsed.fields) == (kind, fields)
    assert C.control_value(kind, parsed.fields) == C.control_value(kind, fields)


@pytest.mark.behaviour("F39")
@given(st.binary(max_size=6), st.binary(max_size=80))
def test_any_bytes_are_a_control_record_or_refused(key: bytes, value: bytes) -> None:
    for some_key in (key, b"\0\0\0" + key[:1]):
        try:
            text = C.kafka_text(C.parse_control_record(some_key, value))
        except K.ControlRecordError as error:
            assert error.kafka_exception
        else:
            assert text.startswith(" ")
