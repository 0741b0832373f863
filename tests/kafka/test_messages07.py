"""The reference for 0.7: Jafka still gives the answers recorded with its capture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kafka.oracle import Oracle
from tests.support.trees import unchanged

pytestmark = pytest.mark.kafka


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_jafka_reads_the_messages_of_the_capture(oracle: Oracle, ancient_small: Path) -> None:
    found = []
    for file in sorted((ancient_small / "taps-0").glob("*.kafka")):
        messages, ended = oracle.messages07(file)
        assert ended is None
        found += messages
    expected = _lines(ancient_small / "records.jsonl")
    assert found == [
        (e["next_offset"], e["valid"], e["crc"], bytes.fromhex(str(e["payload"]))) for e in expected
    ]


def test_jafka_answers_reads_like_the_capture(oracle: Oracle, ancient_small: Path) -> None:
    expected = [line for line in _lines(ancient_small / "reads.jsonl") if "offset" in line]
    assert expected
    reads = [{"what": "read", "offset": e["offset"], "max_bytes": e["max_bytes"]} for e in expected]
    with unchanged(ancient_small / "taps-0"):
        answer = oracle.ancient(ancient_small / "taps-0", [*reads, {"what": "multi", "reads": reads[:3]}])
    assert [line["data"].hex() for line in answer.found[:-1]] == [e["message_set_send"] for e in expected]
    together = _lines(ancient_small / "reads.jsonl")[-1]
    assert together["multi_of_first"] == 3
    assert answer.found[-1]["data"].hex() == together["multi_message_set_send"]


@pytest.mark.parametrize("kind", ["torn", "zeros", "flip", "garbage"])
def test_jafka_recovers_like_the_capture(oracle: Oracle, ancient_small: Path, kind: str) -> None:
    answer = oracle.ancient(ancient_small / kind / "taps-0")
    expected = ancient_small / f"{kind}.recovered" / "taps-0"
    got = {path.name: path.read_bytes() for path in answer.directory.iterdir()}
    assert got == {path.name: path.read_bytes() for path in expected.iterdir()}


def test_jafka_reads_back_what_it_appended(oracle: Oracle, ancient_small: Path, tmp_path: Path) -> None:
    directory = tmp_path / "new-0"
    directory.mkdir()
    payloads = [b"one", b"", b"three" * 50]
    steps = [{"what": "append", "payloads": payloads, "codec": codec} for codec in ("none", "gzip")]
    answer = oracle.ancient(directory, [*steps, {"what": "flush"}])
    messages, _ = oracle.messages07(answer.directory / "00000000000000000000.kafka")
    assert [payload for _, _, _, payload in messages] == payloads * 2
    assert messages[-1][0] == answer.end_offset
