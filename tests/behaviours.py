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
    "R": ("Recovery", "opening a log: truncation, rebuilt indexes, interrupted renames, epochs"),
    "P": ("Producers", "snapshots, and state rebuilt from batches"),
    "X": ("Transactions", "aborts, and the last stable offset"),
    "C": ("Compaction", "which records stay, in which batches and segments"),
    "T": ("Retention", "what goes by start offset, size and time"),
}

# Rows that no directory can show: nothing in Kafka 4.3 but its own test calls what they describe.
UNREACHABLE = {"P07": "snapshots before an offset deleted on their own"}

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
    "R01": "garbage behind the last batch goes, everything before it stays",
    "R02": "a segment is cut exactly in front of its first bad batch",
    "R03": "the recovery point changes neither the log end nor the indexes of a sound log",
    "R04": "indexes that were deleted are rebuilt",
    "R05": "a log without timestamps gets an empty time index",
    "R06": "indexes of an impossible length are rebuilt",
    "R07": "a recovered segment has a right offset index, whatever lay there",
    "R08": "a recovered segment has a right time index, whatever lay there",
    "R09": "indexes without a log go, those with one stay",
    "R10": "files marked as deleted go",
    "R11": "an empty active segment stays, and the log ends at its base",
    "R12": "an empty directory becomes one empty segment at the log start",
    "R13": "a log that ends before its start is replaced by an empty segment at the start",
    "R14": "a replaced log keeps no producer snapshot",
    "R15": "after a clean shutdown no segment is scanned",
    "R16": "segments below the recovery point are left alone",
    "R17": "a cleaning that crashed before its swap is dropped",
    "R18": "a cleaning that crashed while its files became swaps is dropped",
    "R19": "a complete swap replaces the originals",
    "R20": "a swap whose originals are marked as deleted is completed",
    "R21": "one index that is still a swap is renamed, nothing else",
    "R22": "a finished swap leaves only deleted files, which go",
    "R23": "a segment with offsets too far from its base is split",
    "R24": "a split that crashed before its swap starts again",
    "R25": "a split that crashed with one swap is dropped and starts again",
    "R26": "a split with all swaps in place is completed, whatever is left of the original",
    "R27": "a split with all swaps and no original is completed",
    "R28": "a split with one segment in place and one swap is completed",
    "R29": "a segment whose first batch is too far is renamed to it",
    "R30": "a segment whose only batch ends too far is renamed to it",
    "R31": "a sparse log gets segments whose relative offsets fit, with a snapshot at each new base",
    "R32": "the zeros of a preallocated file are trimmed",
    "R33": "a segment cut at an offset that exists, in a gap, before, behind",
    "R34": "a segment cut to nothing stays usable at its base",
    "R35": "the largest timestamp is found anew after a cut",
    "R36": "a log cut inside, to nothing, beyond its end, or restarted elsewhere",
    "R37": "a missing leader epoch file is rebuilt from the batches",
    "R38": "recovery restores epochs that were cleared",
    "R39": "epochs at or behind the log end go",
    "R40": "what an epoch that is added does to those before it",
    "R41": "the epoch file is rewritten when it is cut from either end",
    "R42": "the epoch file shrinks with its log",
    "R43": "a log starts at its checkpoint or at its first segment, whichever is later",
    "R44": "the next offset of a segment",
    "P01": "a snapshot reads back as it was taken",
    "P02": "a snapshot keeps the last batch of each producer",
    "P03": "open, finished and empty transactions in a snapshot",
    "P04": "producers expire on load unless a transaction is open",
    "P05": "snapshots outside the range of offsets go",
    "P06": "a corrupt snapshot goes, and the next older one is used",
    "P08": "a log that begins anew has no snapshots",
    "P09": "of stray snapshots only the largest stays",
    "P10": "snapshots behind the log end go",
    "P11": "where snapshots are written when there are none",
    "P12": "replay begins at the newest usable snapshot",
    "P13": "a snapshot at the log end needs no replay",
    "P14": "a producer stays known while its segment is there",
    "P15": "a producer whose segment is gone does not come back",
    "P16": "a roll leaves a snapshot at the new base",
    "P17": "compacted batches count with the sequences of their header",
    "P18": "an empty batch of a producer counts",
    "P19": "the state after a cut is that of a replay up to it",
    "P20": "open transactions survive a reload",
    "P21": "sequences wrap to 0",
    "P22": "a control record with a higher epoch resets the sequences",
    "P23": "an abort that fences ends the open transaction",
    "P24": "a marker of an unknown producer leaves an entry",
    "P25": "an empty control batch changes nothing",
    "P26": "coordinator epochs may fall",
    "P27": "a snapshot of no producers",
    "X01": "interleaved transactions: each abort in the index of its marker's segment",
    "X02": "raw batches of a leader give the same index",
    "X03": "transaction indexes that were deleted are rebuilt",
    "X04": "the same when only the last segment is recovered",
    "X05": "the same without any producer snapshot",
    "X06": "a transaction starts where the state says, else at its first data seen",
    "X07": "the last stable offset of an index entry",
    "X08": "which aborts concern a range, and when the search is complete",
    "X09": "an abort marker in a later segment concerns the data before it",
    "X10": "the first unstable offset",
    "X11": "without transactions the last stable offset is the log end",
    "X12": "the last stable offset after a cut, and never below the log start",
    "X13": "markers without data leave no entry",
    "X14": "an abort with a higher epoch closes the transaction of the lower one",
    "X15": "the transaction index of a cleaned segment has the aborts whose data was seen",
    "X16": "transaction indexes are cut with their log",
    "C01": "records below the highest offset that the map knows for their key go, keys it does not know stay",
    "C02": "the highest offset of a key wins, inside a batch, across batches and segments; order and offsets stay",
    "C03": "all of the log is rewritten, but only keys of the mapped part lose records",
    "C04": "the segment that holds the first uncleanable offset stays as a whole",
    "C05": "a batch that keeps all records is copied byte for byte",
    "C06": "a batch that loses records keeps its offsets, producer, epoch, codec and timestamp type",
    "C07": "of old formats base and last offset become those of the records that stay; sets stay compressed",
    "C08": "uncompressed old messages are filtered one by one",
    "C09": "the leader epoch of a batch stays; old formats get none",
    "C10": "append time stays append time, one for all records",
    "C11": "the maximum timestamp becomes that of the records that stay",
    "C12": "an emptied batch that is needed stays as its 61-byte header",
    "C13": "an empty batch stays as long as it is needed, and no longer",
    "C14": "a batch that is discarded is not looked into",
    "C15": "what is larger than a buffer is cleaned all the same",
    "C16": "records larger than any limit are cleaned",
    "C17": "damage ends the cleaning, and nothing was changed",
    "C18": "a cleaning that is cut short leaves the old log or the new one",
    "C19": "a tombstone stays in its first pass, and its batch gets a delete horizon",
    "C20": "a tombstone stays before its horizon and goes at it",
    "C21": "an old timestamp does not shorten the life of a tombstone",
    "C22": "a tombstone that was replaced goes at once",
    "C23": "tombstones of old formats go by the modification time of their file",
    "C24": "records without a key go and are counted",
    "C25": "the last batch of a round stays, if only as a header",
    "C26": "the last batch of a producer stays, so its sequence is remembered",
    "C27": "the last sequence stays though its transaction was aborted",
    "C28": "of batches with the same sequences only the newest is protected",
    "C29": "aborted data goes and hides nothing; committed data is compacted; markers stay",
    "C30": "a commit marker without data gets a horizon, and goes behind it",
    "C31": "a commit marker stays beside the emptied batch of its producer",
    "C32": "an abort marker without data gets a horizon, goes behind it, and its index entry before",
    "C33": "an abort marker and its index entry stay beside the emptied batch of the producer",
    "C34": "data is dropped by the transaction index of a later segment",
    "C35": "a commit marker in another group knows the data of its transaction",
    "C36": "undecided data stays; once decided only the committed latest values do",
    "C37": "batches without a record to read are dropped, markers by their own rules",
    "C38": "an empty control batch does no harm",
    "C39": "user keys that look like those of markers are user keys",
    "C40": "neighbours are joined within the limits of segment, offset index and time index",
    "C41": "a group spans no more offsets than an index can hold",
    "C42": "empty segments do not part a group",
    "C43": "how far a segment reaches is told by the base behind it",
    "C44": "a segment whose offsets overflow is split first",
    "C45": "the map reaches to the end of each segment, over gaps",
    "C46": "a map that is full ends the round there, and the next one goes on",
    "C47": "the next dirty offset is the base behind the last cleaned segment",
    "C48": "the counts are those of the bytes and records, and so is the ratio",
    "C49": "an open transaction holds everything from its first offset on",
    "C50": "the active segment is never cleaned",
    "C51": "the first segment with a record younger than the lag ends the range",
    "C52": "records that waited too long are cleaned whatever the ratio",
    "C53": "a first dirty offset outside of the log is that of the log start",
    "C54": "cleaning again changes nothing, with every codec",
    "C55": "several formats in one log",
    "C56": "retention takes old segments of a compacted topic, cleaning does the rest",
    "C57": "a joined segment has the modification time of its last source",
    "C58": "snapshots of segments that were joined go",
    "C59": "offsets rise, the log end and every record that stays are as before",
    "T01": "the size limit takes the oldest segments, down to the limit and no further",
    "T02": "a log of exactly the size limit stays",
    "T03": "a segment goes only when what is left still reaches the size limit",
    "T04": "when all is expired one new empty segment is left at the log end; what is younger stays",
    "T05": "compact alone deletes neither by time nor by size",
    "T06": "compact and delete together delete like delete",
    "T07": "segments below the log start go under compact too",
    "T08": "a log start inside a segment keeps it; the last segment always stays",
    "T09": "only a prefix goes, and never an empty last segment",
    "T10": "deletion goes from the oldest on and stops at the first that stays",
    "T11": "a younger segment protects an older one behind it from the time limit",
    "T12": "the log start can free the way for the time limit in the same run; a second run finds nothing",
    "T13": "nothing that reaches above the high watermark goes",
    "T14": "when all is deleted the last epoch begins at the log end",
    "T15": "epochs of deleted segments go",
    "T16": "an epoch that began in deleted segments begins at the new log start",
    "T17": "a raised log start cuts the epochs",
    "T18": "snapshots of deleted segments go with them",
    "T19": "without timestamps the file's modification time decides",
    "T20": "deleting changes neither the log end nor the offsets that stay",
    "T21": "all files of a segment go together",
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
