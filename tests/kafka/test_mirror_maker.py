"""Records of MirrorMaker's topics, written by its own classes under the topic names of its own replication policy: `dump` shows the
fields."""

from __future__ import annotations

import json
import os
import random
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.conftest import require_kafka
from tests.kafka.shared_java import run_java
from tests.support.command_rows import rows_of
from tests.support.registry_dirs import partition

pytestmark = pytest.mark.kafka

SEED = int(os.environ.get("KSEG_MIRROR_SEED", "15"))
RECORDS = 120
LIMIT_S = 120
KINDS = ("heartbeat", "checkpoint", "offset-sync")
NAMES = {
    "heartbeat": ("HeartbeatKey", "HeartbeatValue"),
    "checkpoint": ("CheckpointKey", "CheckpointValue"),
    "offset-sync": ("OffsetSyncKey", "OffsetSyncValue"),
}
Row = dict[str, Any]


def _offset(rng: random.Random) -> int:
    return rng.choice((0, -1, rng.randrange(2**63), rng.randrange(1000)))


def _asked(rng: random.Random, separator: str) -> Row:
    text = "".join(rng.choice("aZ0._-ü漢 ") for _ in range(rng.randrange(1, 20)))
    place = {"topic": text, "partition": rng.randrange(2**31)}
    kind = rng.choice(KINDS)
    key: Row
    value: Row
    match kind:
        case "heartbeat":
            key = {"sourceClusterAlias": text, "targetClusterAlias": text[::-1]}
            value = {"timestamp": _offset(rng)}
        case "checkpoint":
            key = {"group": text[::-1], **place}
            value = {
                "upstreamOffset": _offset(rng),
                "offset": _offset(rng),
                "metadata": rng.choice(("", text)),
            }
        case _:
            key, value = place, {"upstreamOffset": _offset(rng), "offset": _offset(rng)}
    is_remote = rng.random() < 0.5
    return {"kind": kind, "key": key, "value": value, "separator": separator, "is_remote": is_remote}


@pytest.mark.parametrize("separator", [".", "_", "-"])
def test_dump_decodes_records_of_mirror_makers_classes(
    separator: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    rng = random.Random(f"{SEED}{separator}")
    asked = [_asked(rng, separator) for _ in range(RECORDS)]
    lines = "".join(json.dumps(each) + "\n" for each in asked)
    done = run_java("kseg.oracle.MirrorRecords", stdin=lines, limit_s=LIMIT_S)
    done.check_returncode()
    by_topic: dict[str, list[tuple[Row, Row]]] = {}
    for each, line in zip(asked, done.stdout.splitlines(), strict=True):
        written = json.loads(line)
        by_topic.setdefault(written["topic"], []).append((each, written))
    assert len(by_topic) == 4
    for topic, records in by_topic.items():
        entries = [(b64decode(written["key"]), b64decode(written["value"])) for _, written in records]
        partition(tmp_path / f"{topic}-0", entries)
        rows = rows_of(capfd, "dump", "--print-data-log", tmp_path / f"{topic}-0", status=0)
        found = [row for row in rows if row["type"] == "record"]
        for (each, _), row in zip(records, found, strict=True):
            key_name, value_name = NAMES[each["kind"]]
            version = {} if each["kind"] == "offset-sync" else {"version": 0}
            assert row["key"] == {"type": None, "name": key_name, "data": each["key"]}
            assert row["value"] == {"type": None, "name": value_name, **version, "data": each["value"]}
            assert row["key_encoding"] == row["value_encoding"] == "message"
