"""Kafka's own topics in JSON and in tables: decoded by default, with names, and without secrets."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record

TIME_MS = 1_700_000_000_000
LOG = "00000000000000000000.log"
SALT, STORED, SERVER, PASSWORD = (
    b"0123456789",
    b"stored-key-bytes",
    b"server-key-bytes",
    "hunter2-of-the-broker",
)
OFFSET_KEY = bytes.fromhex("0001 0001 67 0001 74 00000003")
OFFSET_VALUE = bytes.fromhex("0003 0000000000000005 00000007 0001 6d 0000018bcfe56800")

Pair = tuple[bytes | None, bytes | None]


def log_of(directory: Path, records: Sequence[Pair]) -> Path:
    directory.mkdir(parents=True)
    batch = NewBatch(
        records=tuple(Record(at, TIME_MS, key, value) for at, (key, value) in enumerate(records))
    )
    (directory / LOG).write_bytes(encode_batch(batch))
    return directory


def rows(capfdbinary: pytest.CaptureFixture[bytes], *words: str) -> list[dict[str, Any]]:
    assert run(["dump", "--no-progress", "--json", "--print-data-log", *words]) in (0, 1)
    lines = map(json.loads, capfdbinary.readouterr().out.splitlines())
    return [line for line in lines if line["type"] == "record"]


def _compact(data: bytes) -> bytes:
    return bytes((len(data) + 1,)) + data


def scram() -> bytes:
    keys = b"".join(map(_compact, (SALT, STORED, SERVER)))
    return b"\1\x0b\0" + _compact(b"alice") + b"\1" + keys + (4096).to_bytes(4, "big") + b"\0"


def config(kind: int, name: str, value: str) -> bytes:
    return (
        b"\1\4\0"
        + bytes((kind,))
        + _compact(b"1")
        + _compact(name.encode())
        + _compact(value.encode())
        + b"\0"
    )


# --- what is decoded


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_json_values_equal_those_the_real_tool_prints(
    capture_small: Path, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    directory = capture_small / "data" / f"{topic}-0"
    line = re.compile(r"\| offset: (\d+) .*?headerKeys: \[\](?: key: (\{.*?\}\}))?(?: payload: (\{.*))$")
    text = (capture_small / "expected" / f"{topic}-0" / f"{LOG}.txt").read_text()
    printed = {int(found[1]): found for each in text.splitlines() if (found := line.match(each))}
    compared = 0
    for row in rows(capfdbinary, str(directory / LOG)):
        if "control" in row or row["value"] is None:
            continue
        found = printed[row["offset"]]
        assert row["value_encoding"] == "message"
        _assert_holds(row["value"]["data"], json.loads(found[3])["data"])
        if found[2]:
            assert row["key"]["data"] == json.loads(found[2])["data"]
            assert str(row["key"]["type"]) == json.loads(found[2])["type"]
        compared += 1
    assert compared > 20


def _assert_holds(ours: Any, theirs: Any) -> None:
    """The row has everything that the tool prints, which leaves out tagged fields with their default and adds no names."""
    if isinstance(theirs, dict):
        for name, value in theirs.items():
            _assert_holds(ours[name], value)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            _assert_holds(one, other)
    else:
        assert ours == theirs


def test_json_rows_have_names_beside_numbers(
    capture_small: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    found = rows(capfdbinary, str(capture_small / "data" / "__transaction_state-0" / LOG))
    states = {
        (row["value"]["data"]["transactionStatus"], row["value"]["data"]["transactionStatusName"])
        for row in found
    }
    assert {(0, "Empty"), (1, "Ongoing"), (4, "CompleteCommit")} <= states


def test_raw_option_and_other_topics_show_bytes(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    internal = log_of(tmp_path / "__consumer_offsets-7", [(OFFSET_KEY, OFFSET_VALUE)])
    other = log_of(tmp_path / "orders-7", [(OFFSET_KEY, OFFSET_VALUE)])
    as_bytes = b64encode(OFFSET_VALUE).decode()
    assert rows(capfdbinary, "--raw", str(internal))[0]["value"] == as_bytes
    assert rows(capfdbinary, "--bytes", "base64", str(internal))[0]["value"] == as_bytes
    assert rows(capfdbinary, str(other))[0]["value"] == as_bytes
    (asked,) = rows(capfdbinary, "--offsets-decoder", str(other))
    assert asked["value"]["data"]["offset"] == 5
    assert asked["key"] == {
        "type": 1,
        "name": "OffsetCommitKey",
        "data": {"group": "g", "topic": "t", "partition": 3},
    }


def test_key_and_value_are_decoded_independently(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    newer = b"\0\x09" + bytes.fromhex("0000000000000005 00000007 02 6d 0000018bcfe56800 00")
    directory = log_of(
        tmp_path / "__consumer_offsets-7",
        [
            (None, OFFSET_VALUE),
            (b"\0\x63", b"x"),
            (OFFSET_KEY, OFFSET_VALUE[:-1]),
            (OFFSET_KEY[:-1], OFFSET_VALUE),
            (OFFSET_KEY, OFFSET_VALUE + b"more"),
            (OFFSET_KEY, newer),
            (OFFSET_KEY, None),
        ],
    )
    keyless, unknown, cut, bad_key, more, of_later, tombstone = rows(capfdbinary, str(directory))
    assert "none" in keyless["key_error"] and keyless["value"] == b64encode(OFFSET_VALUE).decode()
    assert "99" in unknown["key_error"]
    assert cut["key"]["data"]["group"] == "g" and "truncated" in cut["value_error"]
    assert bad_key["value"]["data"]["offset"] == 5 and "key_error" in bad_key
    assert more["value"]["left_over_bytes"] == 4
    assert of_later["value"]["newer"] is True and of_later["value"]["data"]["offset"] == 5
    assert tombstone["value"] is None and tombstone["value_encoding"] is None


def test_share_records_of_4_0_are_recognized(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """4.0 (definitions of 4.0.0) writes no metadata hash after the epoch, and has a record type 9."""
    directory = log_of(
        tmp_path / "__consumer_offsets-7",
        [
            (bytes.fromhex("000b 0001 67"), bytes.fromhex("0000 00000003 00")),
            (bytes.fromhex("000b 0001 67"), bytes.fromhex("0000 00000003 0000000000000001 00")),
            (bytes.fromhex("0009 0001 67"), bytes.fromhex("0000 01 00")),
        ],
    )
    old, new, partitions = (row["value"] for row in rows(capfdbinary, str(directory)))
    assert (old["dialect"], old["data"]) == ("4.0", {"epoch": 3})
    assert "dialect" not in new and new["data"] == {"epoch": 3, "metadataHash": 1}
    assert (partitions["dialect"], partitions["name"]) == ("4.0", "ShareGroupPartitionMetadataValue")


def test_table_names_the_message_type(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    directory = log_of(tmp_path / "__consumer_offsets-7", [(OFFSET_KEY, OFFSET_VALUE)])
    assert run(["dump", "--no-progress", "--format", "table", str(directory)]) == 0
    out = capfdbinary.readouterr().out.decode()
    assert 'OffsetCommitKey {"group":"g","topic":"t","partition":3}' in out
    assert 'OffsetCommitValue v3 {"offset":5' in out


# --- secrets


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    return log_of(
        tmp_path / "__cluster_metadata-0",
        [
            (None, scram()),
            (None, config(4, "listener.name.internal.ssl.keystore.password", PASSWORD)),
            (None, config(4, "log.cleaner.threads", "2")),
            (None, scram()[:-5]),
            (None, config(2, "retention.ms", "77")),
        ],
    )


def _secrets(out: bytes) -> list[bytes]:
    shown = [SALT, STORED, SERVER, PASSWORD.encode()]
    return [
        each
        for each in shown
        for form in (each, each.hex().encode(), b64encode(each), b64encode(each)[2:-4])
        if form in out
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["dump", "--json", "--print-data-log"],
        ["dump", "--json", "--print-data-log", "--raw"],
        ["dump", "--json", "--print-data-log", "--bytes", "hex"],
        ["dump", "--json", "--print-data-log", "--cluster-metadata-decoder"],
        ["dump", "--format", "table"],
        ["read", "--json", "--offset", "0", "--max-bytes", "10000"],
        ["lookup", "--json", "--offset", "0"],
        ["lookup", "--json", "--offset", "3", "--bytes", "utf8"],
    ],
)
def test_rows_redact_secrets_unless_requested(
    metadata: Path, words: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    run([*words, "--no-progress", str(metadata)])
    out = capfdbinary.readouterr().out
    assert out and not _secrets(out)
    run([*words, "--no-progress", "--show-secrets", str(metadata)])
    assert _secrets(capfdbinary.readouterr().out) or "--raw" in words or "3" in words


def test_rows_keep_values_that_are_not_secret(
    metadata: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    credential, password, threads, _, retention = (row["value"] for row in rows(capfdbinary, str(metadata)))
    data: Mapping[str, Any] = credential["data"]
    assert (data["name"], data["mechanismName"], data["iterations"]) == ("alice", "SCRAM-SHA-256", 4096)
    assert data["salt"] == data["storedKey"] == data["serverKey"] == "(redacted)"
    assert (password["data"]["resourceTypeName"], password["data"]["value"]) == ("BROKER", "(redacted)")
    assert (threads["data"]["value"], retention["data"]["value"]) == ("2", "77")


def test_dump_text_shows_secrets_and_warns_once(
    metadata: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(["dump", "--no-progress", "--cluster-metadata-decoder", str(metadata)]) == 0
    out, err = capfdbinary.readouterr()
    assert len(_secrets(out)) >= 4
    assert err.count(b"secrets-shown") == 1
