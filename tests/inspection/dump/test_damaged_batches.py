"""Dumps of batches with a wrong checksum, and of compressed sets of old formats: JSON lines and table agree with the text, record by
record."""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from fixtures import diseases
from kseg.change.append.partition_writer import PartitionWriter
from kseg.cli.main import run
from kseg.segment.model import NewBatch, Record
from tests.support.command_lines import Capfd
from tests.support.command_rows import of_type

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}


def records(start: int, count: int) -> tuple[Record, ...]:
    return tuple(Record(start + n, 1_000 + start + n, b"k%d" % (start + n), b"v" * 20) for n in range(count))


def json_lines(capfd: Capfd, *words: str | Path, status: int | None = None) -> list[dict[str, Any]]:
    done = run([str(word) for word in ("dump", "--json", *words)])
    assert status is None or done == status
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def text_records(capfd: Capfd, *words: str | Path) -> list[tuple[int, str | None]]:
    """(offset, key) of each record line in Kafka's text format."""
    run([str(word) for word in ("dump", "--print-data-log", *words)])
    out = capfd.readouterr().out
    found = re.findall(r"^\| offset: (\d+) .*?(?: key: (\S*)|$)", out, re.MULTILINE)
    return [(int(offset), key) for offset, key in found]


def flip(log: Path, position: int) -> None:
    data = bytearray(log.read_bytes())
    data[position] ^= 1
    log.write_bytes(data)


@pytest.fixture(params=[0, 1, 2, 4], ids=CODECS.get)
def partition(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Ten batches of three records."""
    with PartitionWriter(tmp_path / "trains-0") as writer:
        for start in range(0, 30, 3):
            writer.append(NewBatch(records=records(start, 3), codec=request.param))
    return tmp_path / "trains-0"


def checksums(log: Path) -> list[int]:
    """The position of the checksum of each batch."""
    return [at + 17 for at, _ in diseases.batch_spans(log)]


@pytest.mark.parametrize("which", [(0,), (4,), (9,), (3, 4), (2, 3, 4, 5), (0, 9), tuple(range(10))])
@pytest.mark.parametrize("shape", ["json", "table"])
def test_records_of_batches_with_a_wrong_checksum_equal_those_of_the_text(
    partition: Path, which: tuple[int, ...], shape: str, capfd: Capfd
) -> None:
    log = partition / f"{0:020d}.log"
    for position in (checksums(log)[batch] for batch in which):
        flip(log, position)
    if shape == "table":
        assert run(["dump", "--format", "table", "--deep-iteration", str(log)]) == 1
        out = capfd.readouterr().out
        assert all(f"k{offset}" in out for offset in range(30))
        return
    lines = json_lines(capfd, "--deep-iteration", log, status=1)
    batches = of_type(lines, "batch")
    assert [batch["valid"] for batch in batches] == [number not in which for number in range(10)]
    shown = of_type(lines, "record")
    assert [(line["offset"], line["key"]) for line in shown] == text_records(capfd, log)
    assert len(shown) == 30
    bad = {3 * batch + n for batch in which for n in range(3)}
    assert {line["offset"] for line in shown if line.get("valid") is False} == bad
    assert {line["offset"] for line in shown if "valid" not in line} == set(range(30)) - bad
    assert of_type(lines, "finding") and of_type(lines, "finding")[0]["id"] == "bad-crc"
    # without records, only the batches are printed
    assert [batch["valid"] for batch in of_type(json_lines(capfd, log, status=1), "batch")] == [
        number not in which for number in range(10)
    ]


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (("--from-offset", "10", "--to-offset", "14", "--deep-iteration"), range(10, 14)),
        (("--from-time", "1013", "--to-time", "1016", "--deep-iteration"), range(13, 16)),
        (("--key", "k13"), [13]),
        (("--key-regex", "^k1[2-4]$"), range(12, 15)),
        (("--limit", "14", "--deep-iteration"), range(14)),
        (("--producer-id", "7", "--deep-iteration"), []),
        (("--isolation", "read_committed", "--deep-iteration"), range(30)),
    ],
)
def test_filters_on_batches_with_a_wrong_checksum_equal_those_of_the_text(
    partition: Path, words: tuple[str, ...], offsets: range | list[int], capfd: Capfd
) -> None:
    log = partition / f"{0:020d}.log"
    # the batch with offsets 12 to 14
    flip(log, checksums(log)[4])
    lines = json_lines(capfd, *words, log)
    assert [line["offset"] for line in of_type(lines, "record")] == list(offsets)
    assert [offset for offset, _ in text_records(capfd, *words, log)] == list(offsets)


@pytest.mark.parametrize("shape", ["kafka", "json", "table"])
@pytest.mark.parametrize("is_cut", [False, True])
def test_damage_outside_the_offsets_is_left_out(
    partition: Path, shape: str, is_cut: bool, capfd: Capfd
) -> None:
    log = partition / f"{0:020d}.log"
    spans = diseases.batch_spans(log)
    first = 3 * (len(spans) - 1 if is_cut else 4)
    if is_cut:
        # in the header of the last batch
        os.truncate(log, spans[-1][0] + 13)
    else:
        flip(log, checksums(log)[4])
    bounds = [("--to-offset", first, 0), ("--to-offset", first + 1, 1), ("--from-offset", first + 2, 1)]
    if not is_cut:
        bounds.append(("--from-offset", first + 3, 0))
    for option, bound, status in bounds:
        assert run(["dump", "--format", shape, option, str(bound), str(log)]) == status
        assert bool(capfd.readouterr().err) == bool(status)


@pytest.mark.parametrize("claimed", [0, 1000])
def test_altered_base_offset_is_reported_where_the_batch_is_shown_or_was(
    partition: Path, claimed: int, capfd: Capfd
) -> None:
    log = partition / f"{0:020d}.log"
    first = 3 * 4
    with log.open("r+b") as file:
        file.seek(diseases.batch_spans(log)[4][0])
        file.write(claimed.to_bytes(8, "big"))
    near = ("--from-offset", str(first), "--to-offset", str(first + 3))
    for bounds, is_reported in (
        (near, True),
        (("--from-offset", str(claimed), "--to-offset", str(claimed + 3)), True),
        (("--from-offset", str(first + 3), "--to-offset", "1000"), False),
    ):
        run(["dump", "--json", *bounds, str(log)])
        assert ("altered-base-offset" in "".join(capfd.readouterr())) == is_reported


def test_damaged_body_shows_the_records_that_can_be_decoded(tmp_path: Path, capfd: Capfd) -> None:
    """The middle batch declares 3 records, and the length of its second record is wrong."""
    with PartitionWriter(tmp_path / "trains-0") as writer:
        for start in (0, 3, 6):
            writer.append(NewBatch(records=records(start, 3)))
    log = tmp_path / "trains-0" / f"{0:020d}.log"
    (_, size), (second, _) = diseases.batch_spans(log)[:2]
    body = log.read_bytes()[61:size]
    record_bytes = body[0] // 2 + 1
    data = bytearray(log.read_bytes())
    data[second + 61 + record_bytes] = 0x7E
    log.write_bytes(data)
    lines = json_lines(capfd, "--deep-iteration", log, status=1)
    assert [line["offset"] for line in of_type(lines, "record")] == [0, 1, 2, 3, 6, 7, 8]
    assert [line["id"] for line in of_type(lines, "finding")] == ["bad-crc", "undecodable-batch"]
    assert [offset for offset, _ in text_records(capfd, log)] == [0, 1, 2, 3, 6, 7, 8]


def test_append_leaves_out_dumped_batches_with_a_wrong_checksum(
    partition: Path, tmp_path: Path, capfd: Capfd
) -> None:
    log = partition / f"{0:020d}.log"
    flip(log, checksums(log)[4])
    run(["dump", "--json", "--deep-iteration", str(log)])
    source = tmp_path / "lines.jsonl"
    source.write_text(capfd.readouterr().out)
    assert run(["append", "--apply", "--json", "--from", str(source), str(tmp_path / "copy-0")]) == 0
    (result,) = (json.loads(line) for line in capfd.readouterr().out.splitlines())
    assert (result["records"], result["batches_left_out"], result["log_end_offset"]) == (27, 1, 30)


def test_lookup_skips_batches_with_a_wrong_checksum_and_says_so(partition: Path, capfd: Capfd) -> None:
    """A consumer checks the CRC and throws, so a lookup must not return such a record."""
    log = partition / f"{0:020d}.log"
    flip(log, checksums(log)[4])
    assert run(["lookup", "--json", "--offset", "13", str(partition)]) in (0, 1)
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    (answer,) = of_type(rows, "lookup")
    assert answer["offset"] == 15 and answer["batch_base_offset"] == 15
    assert "bad-crc" in [row["id"] for row in of_type(rows, "finding")]


# --- compressed sets of old formats


@pytest.fixture(params=[(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)], ids=lambda p: f"v{p[0]}-{CODECS[p[1]]}")
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Sets of 4, 5, 1 and 6 messages. There is a gap before the offsets of the third."""
    magic, codec = request.param
    with PartitionWriter(tmp_path / "old-0", start_offset=7) as writer:
        for start, count in SETS:
            writer.append(NewBatch(records=records(start, count), magic=magic, codec=codec))
    return tmp_path / "old-0"


SETS = ((7, 4), (11, 5), (20, 1), (21, 6))


def bounds(rows: list[dict[str, Any]]) -> list[tuple[int, int, int]]:
    return [(row["base_offset"], row["last_offset"], row["count"]) for row in of_type(rows, "batch")]


EXPECTED = [(start, start + count - 1, count) for start, count in SETS]


@pytest.mark.parametrize(
    "words", [(), ("--deep-iteration",), ("--bytes", "hex", "--deep-iteration"), ("--from-offset", "0")]
)
def test_old_format_set_has_the_first_offset_and_count_of_its_messages(
    old: Path, words: tuple[str, ...], capfd: Capfd
) -> None:
    lines = json_lines(capfd, *words, old / f"{7:020d}.log", status=0)
    assert bounds(lines) == EXPECTED


def test_read_and_lookup_show_the_same_bounds_of_a_set(old: Path, capfd: Capfd) -> None:
    assert run(["read", "--json", "--offset", "8", str(old)]) == 0
    assert bounds([json.loads(line) for line in capfd.readouterr().out.splitlines()]) == EXPECTED
    for question in (("--offset", "13"), ("--key", "k13"), ("--leader-epoch", "0")):
        run(["lookup", "--json", *question, str(old)])
        (answer,) = (json.loads(line) for line in capfd.readouterr().out.splitlines())
        if answer["batch_base_offset"] is not None:
            assert (answer["batch_base_offset"], answer["batch_last_offset"]) == (11, 15), question
    assert run(["lookup", "--offset", "13", str(old)]) == 0
    assert "batch 11-15" in capfd.readouterr().out


def test_list_and_verify_do_not_count_a_set_as_a_record(old: Path, capfd: Capfd) -> None:
    run(["list", "--json", str(old)])
    (row,) = of_type([json.loads(line) for line in capfd.readouterr().out.splitlines()], "partition")
    assert (row["first_offset"], row["last_offset"], row["batches"], row["records"]) == (7, 26, 4, None)
    for level, counts in (("--quick", (0, 4)), ("--no-progress", (0, 4)), ("--deep", (16, 0))):
        run(["verify", "--json", level, str(old)])
        (row,) = of_type([json.loads(line) for line in capfd.readouterr().out.splitlines()], "verified")
        assert (row["records"], row["sets_not_opened"]) == counts
    run(["verify", str(old)])
    assert (
        "4 batches, 0 records and 4 compressed sets (--deep counts their records)" in capfd.readouterr().out
    )


def test_undecodable_set_has_no_count(tmp_path: Path, capfd: Capfd) -> None:
    """Its checksum is valid, but its content is not gzip: it was damaged before it was written."""
    old = tmp_path / "old-0"
    with PartitionWriter(old) as writer:
        writer.append(NewBatch(records=records(0, 3), magic=1, codec=1))
        writer.append(NewBatch(records=records(3, 3), magic=1, codec=1))
    log = old / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    (_, _), (at, size) = diseases.batch_spans(log)
    data[at + 34 : at + size] = b"\x5a" * (size - 34)
    data[at + 12 : at + 16] = crc_of(bytes(data[at + 16 : at + size]))
    log.write_bytes(data)
    rows = json_lines(capfd, "--deep-iteration", log)
    assert bounds(rows)[0] == (0, 2, 3)
    assert [(row["base_offset"], row["count"]) for row in of_type(rows, "batch")][1] == (5, None)
    assert [row["id"] for row in of_type(rows, "finding")] == ["undecodable-batch"]


def crc_of(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


def old_logs(legacy: Path) -> list[Path]:
    return sorted(legacy.glob("data/0.[89]*/*/*gzip*/*.log")) + sorted(
        legacy.glob("data/0.10*/*/*snappy*/*.log")
    )


def test_bounds_of_real_brokers_sets_match_their_records(legacy_small: Path, capfd: Capfd) -> None:
    """First offset and record count of each set agree with its records in the same dump."""
    seen = 0
    for log in old_logs(legacy_small):
        lines = json_lines(capfd, "--deep-iteration", log)
        shown: dict[int, list[int]] = {}
        for line in of_type(lines, "record"):
            shown.setdefault(line["position"], []).append(line["offset"])
        for batch in of_type(lines, "batch"):
            offsets = shown[batch["position"]]
            assert (batch["base_offset"], batch["count"]) == (offsets[0], len(offsets)), (log, batch)
            seen += batch["count"] > 1
    assert seen > 5


def test_damaged_set_is_dumped_with_its_messages(old: Path, capfd: Capfd) -> None:
    log = old / f"{7:020d}.log"
    at, _ = diseases.batch_spans(log)[1]
    # part of the stored checksum
    flip(log, at + 12)
    shutil.copy(log, old / "copy")
    lines = json_lines(capfd, "--deep-iteration", log, status=1)
    assert bounds(lines) == EXPECTED
    assert [batch["valid"] for batch in of_type(lines, "batch")] == [True, False, True, True]
    assert {line["offset"] for line in of_type(lines, "record") if not line["valid"]} == set(range(11, 16))
    assert [offset for offset, _ in text_records(capfd, log)] == [
        line["offset"] for line in of_type(lines, "record")
    ]
