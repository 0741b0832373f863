"""The acceptance list: rows of behaviour that Kafka pins down, and the tests that hold kseg to them.

`python -m tests.behaviours` writes docs/behaviours.md from the rows below and from the tests that carry
`@pytest.mark.behaviour(...)`; `tests/test_behaviours.py` fails when the page is stale or a row has no test.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "behaviours.md"

AREAS = {
    "F": ("Formats", "batches, messages, codecs, text files, names"),
    "I": ("Indexes", "offset, time and transaction index"),
    "D": ("Dump", "what the dump prints"),
    "V": ("Verify", "what is healthy, what is damage"),
    "L": ("Lookup", "reading by offset, time and epoch"),
}

ROWS = {
    "F01": "checksums of all formats, plain and lz4, are Kafka's to the bit",
    "F02": "a batch of nothing but its header is valid and keeps every field",
    "F03": "without a producer: id, epoch, sequences -1 and no flags",
    "F04": "sequences count up from the base sequence, offsets from the base offset",
    "F05": "sequences inside a batch wrap to 0",
    "F06": "sequence arithmetic stays in 0 … 2^31-1 and can be undone",
    "F07": "a batch smaller than its header is invalid, not a crash",
    "F08": "a record count that is too high or too low is an error in every codec",
    "F09": "any change behind the checksum field makes the batch invalid; its header stays readable",
    "F10": "the base offset may change without the checksum",
    "F11": "the leader epoch may change without the checksum",
    "F12": "LogAppendTime gives every record the batch's maximum timestamp",
    "F13": "an end marker is one control record in a transactional control batch",
    "F14": "null and empty stay apart in keys, values and headers",
    "F15": "without a base sequence no record has a sequence",
    "F16": "header counts that cannot be true are errors",
    "F17": "keys and values longer than their record are errors",
    "F18": "header names cannot be null, header values can; neither leaves the record",
    "F19": "varints that are cut off or too long are errors",
    "F20": "a record longer than what is left is an error",
    "F21": "messages of magic 0 and 1 with every combination of fields",
    "F22": "a flipped byte shows in the checksum of magic 0 and 1",
    "F23": "a message below the minimum size is damage, not a crash",
    "F24": "wrappers of nothing, of null, or of a cut set",
    "F25": "a magic 1 wrapper has the offset of its last message",
    "F26": "a magic 1 wrapper at offset 0 leaves inner offsets alone",
    "F27": "a magic 1 wrapper below its last inner offset is an error",
    "F28": "LogAppendTime of a wrapper overrides its messages, CreateTime does not",
    "F29": "zstd is refused in magic 0 and 1",
    "F30": "all magics and codecs one behind the other in one file",
    "F31": "a batch cut off at the end ends the reading",
    "F32": "a few zeros at the end change nothing before them",
    "F33": "a size field below 14 is corrupt, not an endless loop",
    "F34": "a magic that does not exist",
    "F35": "a log above 2 GiB",
    "F36": "zeros of a preallocated file",
    "F37": "keys of control records and their types",
    "F38": "control types and versions of the future",
    "F39": "end markers that are no end markers",
    "F40": "an end marker of a later version",
    "F41": "the end marker's 78 bytes",
    "F42": "leader changes of KRaft in a data log",
    "F43": "lz4 of magic 0 with its historic header checksum",
    "F44": "lz4 of magic 1 and 2 with a wrong header checksum is an error",
    "F45": "lz4 blocks larger than declared are errors",
    "F46": "a cut lz4 header is an error",
    "F47": "lz4 with block checksums, stored blocks, several blocks",
    "F48": "every codec gives back what went in, whatever its size and level",
    "F49": "CreateTime: the maximum timestamp and where it is",
    "F50": "LogAppendTime: the maximum timestamp and where it is",
    "F51": "a delete horizon does not disturb record timestamps",
    "F52": "what no writer may write is refused",
    "F53": "the leader epoch file",
    "F54": "the offset checkpoint files",
    "F55": "partition.metadata",
    "F56": "the clean shutdown marker",
    "F57": "names of partition directories, also the suffixed ones",
    "F58": "directories that are no partitions",
    "F59": "offsets in file names, whatever follows them",
    "I01": "an empty offset index answers with the start",
    "I02": "the greatest entry at or below the target",
    "I03": "an entry at the base offset is sound",
    "I04": "offsets increase",
    "I05": "a full index takes no more",
    "I06": "reopening counts entries by the file's length",
    "I07": "truncation drops entries at and above the offset",
    "I08": "an offset that 32 bits cannot hold belongs to another segment",
    "I09": "time index entries have 12 bytes",
    "I10": "an empty time index answers with -1 and the base",
    "I11": "the greatest timestamp at or below the target",
    "I12": "timestamps increase, offsets never decrease",
    "I13": "a time index cut at its first offset is empty",
    "I14": "time indexes that are not sane",
    "I15": "offset indexes that are not sane",
    "I16": "transaction index entries have 34 bytes and a version",
    "I17": "transaction indexes that are not sane",
    "I18": "transaction indexes truncated",
    "I19": "no transaction index means no aborted transactions",
    "I20": "which segment holds an offset",
    "I21": "one entry an interval, of the last offset of its batch",
    "I22": "an index after its segment was truncated",
    "D01": "batch lines",
    "D02": "record lines",
    "D03": "transaction markers are named",
    "D04": "keys, payloads and headers where they exist",
    "D05": "zero-padded indexes of an active log show no mismatch",
    "D06": "an empty offset index",
    "D07": "a limit of bytes cuts between batches without complaint",
    "D08": "the starting offset comes from the file's name",
    "D09": "requests without a file, or for one that cannot be read",
    "D10": "the decoders of internal topics: a later version's, and the dump says so",
    "D11": "delete horizons, present and absent",
    "V01": "gaps that compaction leaves are healthy",
    "V02": "empty batches are healthy",
    "V03": "empty control batches are healthy",
    "V04": "empty segments are healthy",
    "V05": "a wrong checksum is reported with file, position and offset",
    "V06": "garbage behind the data is measured, the data are read",
    "V07": "an impossible magic is reported",
    "V08": "a size beyond the file is reported",
    "V09": "offset index entries that miss their batch",
    "V10": "three ways in which a time index is wrong",
    "V11": "a transaction index may name what compaction removed",
    "V12": "an abort marker whose data and index entry are gone is healthy",
    "V13": "epochs that fall, sequences that jump, markers without data: history is not judged by append rules",
    "V14": "old messages in newer wrappers are read",
    "V15": "a log may start in the middle of a batch",
    "V16": "producer snapshots corrupt in every way",
    "L01": "an empty segment gives nothing",
    "L02": "below the first record: the first record",
    "L03": "behind the last record: nothing",
    "L04": "in a gap: the next batch",
    "L05": "in a gap at a segment's end: the next segment",
    "L06": "sparse offsets, and sizes smaller than a batch",
    "L07": "a compressed batch comes whole",
    "L08": "the log end is empty, beyond it is out of range",
    "L09": "searching a file from a position",
    "L10": "by timestamp: the first record at or after it",
    "L11": "by timestamp in every message format",
    "L12": "a timestamp's answer carries the leader epoch",
    "L13": "earliest, latest, and the largest timestamp",
    "L14": "records without timestamps",
    "L15": "the time index of a follower's append",
    "L16": "the end of the latest epoch is the log end",
    "L17": "an epoch ends where the next one starts",
    "L18": "an unknown epoch answers for the largest below it",
    "L19": "epochs below, above, or without any history",
    "L20": "which epoch an offset belongs to",
    "L21": "nothing below the log start is visible",
    "L22": "null keys and values come back as null",
}


class _Collector:
    """A plugin of pytest that keeps what was collected."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = {}

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        for item in items:
            of_case = getattr(getattr(item, "callspec", None), "marks", ())
            for marker in item.iter_markers("behaviour"):
                # a mark of one case names the case
                is_case = any(marker is mark for mark in of_case)
                name = item.nodeid if is_case else re.sub(r"\[.*", "", item.nodeid)
                for row in marker.args:
                    self.tests.setdefault(row, set()).add(name)


def collected() -> dict[str, set[str]]:
    """Row → names of the tests that carry it, of the whole suite. Raises RuntimeError when it cannot be collected."""
    collector = _Collector()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        status = pytest.main(
            ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(ROOT / "tests")],
            [collector],
        )
    if status != pytest.ExitCode.OK:
        raise RuntimeError(said.getvalue()[-2000:])
    return collector.tests


def page(tests: dict[str, set[str]]) -> str:
    """docs/behaviours.md."""
    lines = [
        "# Behaviours and their tests",
        "",
        "Kafka's own tests pin down how its files are read and written. Each row here is one such behaviour, in our words,",
        "with the tests of kseg that hold it to it. `python -m tests.behaviours` writes this page; a test keeps it true.",
    ]
    for letter, (title, about) in AREAS.items():
        lines += ["", f"## {title}: {about}", "", "| row | behaviour | tests |", "|---|---|---|"]
        for row, words in ROWS.items():
            if row.startswith(letter):
                names = "<br>".join(f"`{name.removeprefix('tests/')}`" for name in sorted(tests.get(row, ())))
                lines.append(f"| {row} | {words} | {names or '—'} |")
    return "\n".join(lines) + "\n"


def rows_without_test(tests: dict[str, set[str]]) -> list[str]:
    """Rows that no test carries, in order."""
    return [row for row in ROWS if row not in tests]


def unknown_rows(tests: Iterable[str]) -> list[str]:
    """Ids of these areas that no row has."""
    return sorted(row for row in tests if row[0] in AREAS and row not in ROWS)


def main() -> int:
    tests = collected()
    if "--print" in sys.argv:
        print(page(tests), end="")
        return 0
    PAGE.write_text(page(tests))
    missing = rows_without_test(tests)
    if missing:
        print(f"no test carries {', '.join(missing)}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
