"""`append` of filtered, damaged, invalid or hostile lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kseg.change.append.json_input import BadLine, batch_line
from kseg.change.append.partition_writer import RollRules
from kseg.change.append.reopen import reopen_partition
from kseg.segment.errors import UsageError
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests.support.append_helpers import Appended, Lines, dumped, written_rows

# --- filtered and damaged input


def test_batches_with_missing_records_are_refused_unless_requested(
    tmp_path: Path, appended: Appended
) -> None:
    source = tmp_path / "source-0"
    appended(source, [{"value": f"v{n}", "key": f"k{n}"} for n in range(6)])
    lines = [line for line in dumped(source).splitlines(keepends=True) if b'"k3"' not in line]
    with pytest.raises(BadLine, match="line 1: its batch has 6 records, 5 follow"):
        appended(tmp_path / "strict-0", b"".join(lines))
    assert not (tmp_path / "strict-0").exists()
    appended(tmp_path / "loose-0", b"".join(lines), partial_batches=True)
    rows = written_rows(tmp_path / "loose-0")
    assert (rows[0]["count"], rows[0]["last_offset"]) == (5, 5)
    with pytest.raises(BadLine, match=r"not followed by records .dump with --deep-iteration."):
        appended(tmp_path / "shallow-0", lines[0], partial_batches=True)


@pytest.mark.parametrize("codec", [0, 4])
def test_batch_in_which_two_dumps_meet_is_put_together_again(
    tmp_path: Path, appended: Appended, codec: int
) -> None:
    source = tmp_path / "source-0"
    options = {"codec": codec, "producer_id": 7, "producer_epoch": 1, "batch_records": 6}
    appended(source, [{"value": f"v{n}", "offset": n * 2, "timestamp": 99 - n} for n in range(12)], **options)
    lines = dumped(source).splitlines(keepends=True)
    (whole,) = (path.read_bytes() for path in source.glob("*.log"))
    summary = b'{"type":"summary"}\n'
    for at, line in enumerate(lines):
        if b'"type":"record"' not in line or b'"type":"record"' not in lines[at - 1]:
            continue
        header = next(each for each in reversed(lines[:at]) if b'"type":"batch"' in each)
        # of another replica, where the batch is at another position
        moved = [each.replace(b'"position":', b'"position":7') for each in (header, *lines[at:])]
        halves = [*lines[:at], summary, *moved, summary]
        target = tmp_path / f"at-{at}-0"
        appended(target, b"".join(halves), options={"dumps": 2})
        (made,) = (path.read_bytes() for path in target.glob("*.log"))
        assert made == whole
        with pytest.raises(BadLine, match="its batch has 6 records, 5 follow"):
            appended(
                tmp_path / "gap-0", b"".join([*halves[: at + 2], *halves[at + 3 :]]), options={"dumps": 2}
            )
        with pytest.raises(BadLine, match=r"offset \d+ does not come after"):
            twice = [*lines[:at], summary, header, *lines[at - 1 :], summary]
            appended(tmp_path / "twice-0", b"".join(twice), options={"dumps": 2})
    # once a batch is complete, its header is that of another one with the same offsets
    with pytest.raises(UsageError, match="offset 0 is below the log end 11"):
        appended(tmp_path / "again-0", b"".join([*lines[:7], *lines]), partial_batches=True)


def test_records_to_be_left_out_are_not_appended_nor_batches_that_are_empty_without_them(
    tmp_path: Path, appended: Appended
) -> None:
    source = tmp_path / "source-0"
    appended(source, [{"value": f"v{n}", "timestamp": 9 - n} for n in range(6)], batch_records=2)
    result = appended(tmp_path / "target-0", dumped(source), leave_out=(range(1), range(2, 4)))
    assert result["lines_ignored"] == {"record": 3}
    rows = written_rows(tmp_path / "target-0")
    batches = [row for row in rows if row["type"] == "batch"]
    assert [(row["base_offset"], row["last_offset"], row["count"]) for row in batches] == [
        (0, 1, 1),
        (4, 5, 2),
    ]
    assert [row["max_timestamp"] for row in batches] == [8, 5]
    assert [row["offset"] for row in rows if row["type"] == "record"] == [1, 4, 5]
    own = appended(
        tmp_path / "own-0", [{"value": "v", "offset": 7}, {"value": "w"}], leave_out=(range(7, 8),)
    )
    assert (own["records"], own["lines_ignored"]) == (1, {"record": 1})


def test_damaged_batches_and_other_lines_are_skipped_and_counted(tmp_path: Path, appended: Appended) -> None:
    source = tmp_path / "source-0"
    appended(source, [{"value": f"v{n}"} for n in range(3)], batch_records=1)
    log = source / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 3 + 66] ^= 1
    log.write_bytes(data)
    result = appended(tmp_path / "target-0", dumped(source) + b'{"type":"finding"}\n\n{"type":"summary"}\n')
    assert (result["batches"], result["batches_left_out"]) == (2, 1)
    assert result["lines_ignored"] == {"finding": 1, "summary": 1}
    assert [row["offset"] for row in written_rows(tmp_path / "target-0") if row["type"] == "record"] == [0, 2]


BAD_LINES = {
    b"{": "it is not JSON",
    b"nonsense": "it is not JSON",
    b"[1]": "it is not a JSON object",
    b'{"value":"a"} x': "unexpected text after its JSON object",
    b'{"value":"\xff"}': "it is not UTF-8",
    b'{"value":"\\ud800"}': "its value is not valid text",
    b'{"key":"k"}': "it has no value",
    b'{"value":1}': "its value is neither text, nor base64, nor null",
    b'{"value":"?","value_encoding":"base64"}': "its value is not valid base64",
    b'{"value":"xy","value_encoding":"hex"}': "its value is not valid hex",
    b'{"value":5,"value_encoding":"size"}': "its value was dumped as size, which cannot be decoded",
    b'{"value":"a","offset":"1"}': "its offset is not a whole number",
    b'{"value":"a","offset":true}': "its offset is not a whole number",
    b'{"value":"a","timestamp":1.5}': "its timestamp is not a whole number",
    b'{"value":"a","timestamp":-2}': "-2 is not a valid timestamp",
    b'{"value":"a","timestamp":99999999999999999999999}': "is not a valid timestamp",
    b'{"value":"a","offset":99999999999999999999999}': "a batch cannot span offsets",
    b'{"value":"a","headers":["a"]}': "a header is not a pair",
    b'{"value":"a","headers":{}}': None,
    b'{"type":"batch","compression":"brotli"}': "unknown compression 'brotli'",
    b'{"type":"batch","magic":"2"}': "its magic is not a whole number",
    b'{"type":"batch","count":0}': "its batch is not followed by records",
    b'{"type":"batch","count":0,"base_offset":3,"last_offset":2}': "a batch cannot span",
    b'{"type":"batch","count":0,"base_offset":3,"last_offset":3,"magic":9}': "no message format with magic 9",
    b'{"type":"batch","transactional":1}': "its transactional is neither true nor false",
    b'{"value":' + b"[" * 100_000: "it is not JSON",
    b'{"value":"a","timestamp":' + b"1" * 5000 + b"}": "it is not JSON",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=lambda line: line[:40].decode("latin-1"))
def test_bad_line_is_named_and_nothing_is_written(tmp_path: Path, appended: Appended, line: bytes) -> None:
    target = tmp_path / "bad-0"
    why = BAD_LINES[line]
    if why is None:
        appended(target, line + b"\n")
        return
    with pytest.raises(BadLine) as raised:
        appended(target, b'{"value":"good"}\n\n' + line + b"\n" + b'{"value":"behind"}\n', batch_records=1)
    assert str(raised.value).startswith(f"{tmp_path / 'lines.jsonl'}, line 3: ") and why in str(raised.value)
    assert not target.exists()


def test_bad_first_line_creates_no_partition(tmp_path: Path, appended: Appended) -> None:
    with pytest.raises(BadLine):
        appended(tmp_path / "none-0", b"x\n")
    assert not (tmp_path / "none-0").exists()


def test_lines_across_block_boundaries_are_read(tmp_path: Path, appended: Appended) -> None:
    # longer than a block of input
    value = "ü" * 700_000
    appended(tmp_path / "long-0", [{"value": value}, {"value": "b"}])
    assert [row["value"] for row in written_rows(tmp_path / "long-0") if row["type"] == "record"] == [
        value,
        "b",
    ]
    appended(tmp_path / "crlf-0", b'{"value":"a"}\r\n  {"value":"b"}\r\n\r\n{"value":"c"}')
    assert [row["value"] for row in written_rows(tmp_path / "crlf-0") if row["type"] == "record"] == [
        "a",
        "b",
        "c",
    ]


# --- hostile lines

names = st.sampled_from(
    ["type", "value", "key", "headers", "offset", "timestamp", "control", "count", "base_offset", "last_offset",
     "magic", "compression", "producer_id", "producer_epoch", "base_sequence", "leader_epoch", "transactional",
     "max_timestamp", "delete_horizon_ms", "timestamp_type", "position", "file", "next_offset", "value_encoding",
     "valid"]
)  # fmt: skip
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.integers(min_value=-2, max_value=5),
    st.sampled_from(["batch", "record", "LogAppendTime", "gzip", "none", "base64", "5.log", "x"]),
    st.lists(st.lists(st.sampled_from(["n", None, 1]), max_size=3), max_size=2),
    st.dictionaries(
        st.sampled_from(["kind", "base64", "coordinator_epoch"]), st.sampled_from(["COMMIT", "AA==", 2**40])
    ),
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    lines=st.lists(st.dictionaries(names, values, max_size=8), max_size=6),
    magic=st.sampled_from([0, 1, 2]),
    kafka07=st.booleans(),
    keep_offsets=st.sampled_from([None, True, False]),
)
def test_hostile_lines_are_appended_or_rejected_as_bad_lines(
    tmp_path_factory: pytest.TempPathFactory,
    appended: Appended,
    lines: Lines,
    magic: int,
    kafka07: bool,
    keep_offsets: bool | None,
) -> None:
    target = tmp_path_factory.mktemp("hostile") / "own-0"
    try:
        appended(target, lines, magic=magic, keep_offsets=keep_offsets, options={"kafka07": kafka07})
    except BadLine:
        if not target.exists():
            return
    if kafka07:
        return
    with PartitionLog(PartitionTarget(str(target))) as log:
        reopen_partition(log, RollRules())
    appended(target, [])


@pytest.mark.parametrize("name", ["gzip2", [], {}, 7, None])
def test_unknown_compression_is_a_bad_line(name: object) -> None:
    with pytest.raises(BadLine, match="unknown compression"):
        batch_line({"type": "batch", "compression": name}, 1)
