"""Mutated records of every type and version of the internal topics: no decoder or command raises an exception, and memory does not grow
with the number of records.

`KSEG_MUTANTS=20000` is the long run.
"""

from __future__ import annotations

import gc
import json
import os
import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.internal_topics import schemas
from kseg.internal_topics.record_text import TopicText
from kseg.internal_topics.schemas import Field, Message
from kseg.internal_topics.topic_rows import MessageRows
from kseg.segment.json_line import json_line
from kseg.segment.model import Record
from tests.internal_topics.coordinator_logs import batch, write_segment
from tests.internal_topics.metadata_logs import encoded

# for each type and version
COUNT = int(os.environ.get("KSEG_MUTANTS", "120"))
SEED = int(os.environ.get("KSEG_MUTANTS_SEED", "15"))
MAX_GROWTH_BYTES = (
    512  # a few numbers and texts of a round; a leak in one of ten mutants is several times as much
)
SOME = COUNT // 10
# mutants of a topic in a round if COUNT is 200
LEAST = 1000

COORDINATORS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
FRAMED = ("__cluster_metadata", "__remote_log_metadata")
ASSIGNMENT = bytes.fromhex("0001 00000001 000174 00000001 00000000 ffffffff")

Pair = tuple[bytes | None, bytes | None]


class Mutants:
    """The records that a seed generates."""

    def __init__(self, topic: str, seed: int) -> None:
        self._topic = topic
        self._rng = random.Random(f"{topic} {seed}")
        kind = "value" if topic in COORDINATORS else "metadata"
        self._messages = [
            (message, version)
            for message in schemas.messages()
            if message.topic == topic and message.kind == kind and message.type is not None
            for version in range(message.versions.first, message.last_version + 1)
        ]

    @property
    def kinds(self) -> int:
        """The number of combinations of type and version."""
        return len(self._messages)

    def make(self, count: int) -> Iterator[Pair]:
        """Generate `count` records of each type and version, taking turns."""
        for _ in range(count):
            for message, version in self._messages:
                yield (
                    self._coordinator(message, version)
                    if self._topic in COORDINATORS
                    else (
                        None,
                        self._framed(message, version),
                    )
                )

    def _coordinator(self, message: Message, version: int) -> Pair:
        rng, type_id = self._rng, message.type or 0
        fields = schemas.message(self._topic, "key", type_id)
        assert fields is not None
        key = type_id.to_bytes(2, "big") + self._encoded(fields, 0)
        value = version.to_bytes(2, "big") + self._encoded(message, version)
        return self._mutated(
            key
        ) if rng.random() < 0.2 else key, None if rng.random() < 0.03 else self._mutated(value)

    def _framed(self, message: Message, version: int) -> bytes:
        return self._mutated(bytes([1, message.type or 0, version]) + self._encoded(message, version))

    def _mutated(self, data: bytes) -> bytes:
        rng, changed = self._rng, bytearray(data)
        for _ in range(rng.randrange(4)):
            where = rng.randrange(len(changed) + 1)
            match rng.randrange(4):
                case 0:
                    changed[where : where + 1] = bytes(
                        [rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))]
                    )
                case 1:
                    del changed[where:]
                case 2:
                    changed[where:where] = rng.randbytes(rng.randrange(9))
                case 3:
                    changed[where : where + 4] = rng.choice(
                        (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\2")
                    )
        return bytes(changed)

    def _encoded(self, message: Message, version: int) -> bytes:
        return encoded(message, self._values(message.fields, version), version)

    def _values(self, fields: Sequence[Field], version: int) -> dict[str, Any]:
        return {
            field.name: self._value(field, version)
            for field in fields
            if version in field.versions or version in field.tagged
        }

    def _value(self, field: Field, version: int) -> Any:
        if version in field.nullable and self._rng.random() < 0.3:
            return None
        if field.is_array:
            return [self._one(field, version) for _ in range(self._rng.randrange(3))]
        return self._one(field, version)

    def _one(self, field: Field, version: int) -> Any:
        rng = self._rng
        if field.fields:
            return self._values(field.fields, version)
        match field.type:
            case "string":
                return rng.choice(("", "g", "m", "t", "consumer", "range", "é" * rng.randrange(20)))
            case "bytes":
                return rng.choice((b"", rng.randbytes(rng.randrange(30)), ASSIGNMENT))
            case "uuid":
                return rng.choice(("AAECAwQFBgcICQoLDA0ODw", "A" * 22))
            case "bool":
                return rng.random() < 0.5
            case "float64":
                return rng.choice((0.5, float("nan"), 1e300))
        return rng.choice((0, 1, 2, 3, 5, rng.randrange(100)))


def growths(rounds: int, work: Callable[[int], object]) -> list[int]:
    """The growth in bytes of the allocated memory in each round after the first, which fills tables and caches."""
    work(0)
    gc.collect()
    tracemalloc.start()
    try:
        stays = []
        for number in range(1, rounds + 2):
            work(number)
            gc.collect()
            stays.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    return [after - before for before, after in pairwise(stays)]


@pytest.mark.slow
@pytest.mark.parametrize("topic", [*COORDINATORS, *FRAMED])
def test_decoders_of_mutants_keep_no_memory(topic: str) -> None:
    text, rows = TopicText(topic), MessageRows(topic, {})
    kinds, rounds = set(), 3
    # generated beforehand, because tracing the generator would make it several times slower
    mutants = [Mutants(topic, SEED + number) for number in range(rounds + 2)]
    pairs = [list(each.make(-(-LEAST * COUNT // each.kinds // 200))) for each in mutants]

    def work(number: int) -> None:
        for offset, pair in enumerate(pairs[number]):
            # copies, whose allocation is traced
            key, value = (None if part is None else bytes(bytearray(part)) for part in pair)
            shown = text.text(offset, key, value)
            kinds.add(b"Error at" in (shown.key or shown.payload or b""))
            row: dict[str, object] = {"key": None, "value": None}
            rows.amend(row, Record(offset, 0, key, value))
            json.loads(json_line(row))

    # a leak would grow in every round
    assert min(growths(rounds, work)) < MAX_GROWTH_BYTES
    assert kinds == {True, False}


COMMANDS = [
    ["dump", "--json", "--print-data-log"],
    ["dump", "--format", "table"],
    ["dump", "--json", "--raw", "--value-format", "auto", "--key-format", "auto"],
    ["verify", "--json"],
    ["verify", "--json", "--deep"],
    ["lookup", "--json", "--offset", "5"],
    ["list", "--json"],
    ["groups", "--json", "--history"],
    ["transactions", "--json"],
    ["metadata", "--json", "--history"],
]


def logs(root: Path, count: int, seed: int) -> Path:
    """A log dir with a log of mutants of every topic."""
    for topic in (*COORDINATORS, *FRAMED):
        pairs = list(Mutants(topic, seed).make(count))
        batches = [batch(at, *pairs[at : at + 50]) for at in range(0, len(pairs), 50)]
        write_segment(root / f"{topic}-0", *batches)
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = logs(tmp_path_factory.mktemp("mutants"), SOME, SEED)
    schema = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
    (made / "schemas").mkdir()
    (made / "schemas" / "1.avsc").write_text(schema)
    return made


def run_over(data: Path, words: Sequence[str], capfd: pytest.CaptureFixture[str]) -> str:
    """The output of a command for all of the logs. Fails on an error or a bug in kseg."""
    more = ["--schemas", str(data / "schemas")] if {"auto", "avro"} & {*words} else []
    assert run([*words, *more, *sorted(map(str, data.glob("__*-0")))]) in (0, 1)
    shown = capfd.readouterr()
    assert "Traceback" not in shown.err and "bug in kseg" not in shown.err
    return shown.out


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_over_mutants_print_valid_lines(
    words: list[str], data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = run_over(data, words, capfd)
    # texts may contain other line separators, such as U+0085
    if "--json" in words:
        assert [json.loads(line) for line in out.removesuffix("\n").split("\n")]


@pytest.mark.parametrize("value_format", ["bytes", "auto", "avro", "json"])
@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_export_of_mutants_has_every_record(
    kind: str, value_format: str, data: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    target = tmp_path / "made"
    words = ["export", "--to", kind, "--output", str(target), "--value-format", value_format]
    run_over(data, words, capfd)
    rows = sum(len(list(Mutants(topic, SEED).make(SOME))) for topic in (*COORDINATORS, *FRAMED))
    files = [path for path in target.rglob("*") if path.suffix in (".json", ".parquet")]
    if kind == "json":
        assert sum(path.read_bytes().count(b"\n") for path in files) == rows
    else:
        from pyarrow.parquet import ParquetFile

        assert sum(ParquetFile(path).metadata.num_rows for path in files) == rows
