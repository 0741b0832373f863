"""MirrorMaker's topics in rows: damaged records, and records that are not MirrorMaker's. tests/kafka/test_mirror_maker.py compares what its
own classes write."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.registry_dirs import partition


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()


HEARTBEAT = (_text("A") + _text("B"), struct.pack(">hq", 0, 1_700_000_000_000))
CHECKPOINT = (
    _text("billing") + _text("A.orders") + struct.pack(">i", 3),
    struct.pack(">hqq", 0, 50, 41) + _text("note"),
)


def _rows(
    capfd: Capfd, directory: Path, entries: list[tuple[bytes | None, bytes | None]], *words: str
) -> list[dict[str, Any]]:
    partition(directory, entries)
    capfd.readouterr()
    assert run(["dump", "--json", "--print-data-log", *words, str(directory)]) == 0
    found = map(json.loads, capfd.readouterr().out.splitlines())
    return [row for row in found if row["type"] == "record"]


def test_damaged_mirror_checkpoint_is_shown_as_bytes_with_the_reason(tmp_path: Path, capfd: Capfd) -> None:
    key, value = CHECKPOINT
    cut, newer, longer, tombstone = _rows(
        capfd,
        tmp_path / "A.checkpoints.internal-0",
        [(key[:-1], value[:-1]), (key, b"\0\1" + value[2:]), (key + b"x", value), (key, None)],
    )
    assert cut["key"] == "\0\x07billing\0\x08A.orders\0\0\0" and "truncated" in cut["key_error"]
    assert "metadata needs 4 bytes" in cut["value_error"] and cut["value_encoding"] == "utf8"
    assert (newer["value"]["version"], newer["value"]["newer"]) == (1, True)
    assert longer["key"]["left_over_bytes"] == 1
    assert tombstone["value"] is None and tombstone["key"]["data"]["group"] == "billing"


def test_other_records_in_a_topic_named_heartbeats_are_shown_as_they_are(
    tmp_path: Path, capfd: Capfd
) -> None:
    own, *others = _rows(
        capfd,
        tmp_path / "heartbeats-0",
        [HEARTBEAT, (b"k", b"v"), (None, HEARTBEAT[1]), (HEARTBEAT[0], HEARTBEAT[1] + b"x")],
    )
    assert own["value"]["data"] == {"timestamp": 1_700_000_000_000}
    assert [row["value_encoding"] for row in others] == ["utf8", "base64", "base64"]
    assert not any("key_error" in row or "value_error" in row for row in others)
    values = _rows(
        capfd, tmp_path / "more" / "heartbeats-0", [(b"k", b'{"a":1}'), HEARTBEAT], "--value-format", "json"
    )
    assert values[0]["value"] == {"a": 1} and values[1]["value"]["name"] == "HeartbeatValue"


def test_raw_option_shows_mirror_records_as_bytes(tmp_path: Path, capfd: Capfd) -> None:
    (row,) = _rows(capfd, tmp_path / "heartbeats-0", [HEARTBEAT], "--raw")
    assert row["key"] == "\0\x01A\0\x01B" and row["value_encoding"] == "base64"


def test_table_shows_decoded_mirror_records(tmp_path: Path, capfd: Capfd) -> None:
    partition(tmp_path / "A.checkpoints.internal-0", [CHECKPOINT])
    assert run(["dump", "--format", "table", str(tmp_path / "A.checkpoints.internal-0")]) == 0
    assert '"upstreamOffset":50' in capfd.readouterr().out
