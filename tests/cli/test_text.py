"""The text output for a single answer."""

from __future__ import annotations

from kseg.cli.text.common import bytes_words, read_words
from kseg.cli.text.lookup import LookupReport
from kseg.segment.moments import moment

RECORD = {
    "type": "record", "file": "p-0/0.log", "position": 0, "offset": 7, "timestamp": 1714564800123, "key": "a\tb",
    "key_encoding": "utf8", "value": "/w==", "value_encoding": "base64", "headers": [["h", None]],
}  # fmt: skip


def test_lookup_text_says_where_and_how_the_record_was_found() -> None:
    answer = {
        "type": "lookup", "partition": "p-0", "directory": "data/p-0", "query": {"kind": "offset", "offset": 7}, "found": True, "offset": 7,
        "timestamp": 1714564800123, "leader_epoch": 3, "segment": "p-0/0.log", "position": 4096,
        "batch_base_offset": 5, "batch_last_offset": 9, "bytes_read": 12345,
        "path": [{"step": "offset-index", "file": "p-0/0.index", "slot": 2, "offset": 5}, {"step": "open", "file": "x"},
                 {"step": "time-index", "file": "y", "slot": None}],
        "record": RECORD,
    }  # fmt: skip
    assert list(LookupReport(explains=True, only_hits=False).words(answer)) == [
        "p-0: offset 7, timestamp 2024-05-01T12:00:00.123Z (1714564800123), leader epoch 3",
        "  in p-0/0.log at byte 4096, batch 5-9",
        '  record offset 7 at 2024-05-01T12:00:00.123Z key "a\\tb" value base64:/w== header "h"=null',
        "  12,345 bytes read",
        "    offset-index p-0/0.index: slot 2, offset 5",
        "    open x",
        "    time-index y: no slot",
    ]


def test_lookup_text_without_a_hit_says_what_was_read() -> None:
    answer = {
        "type": "lookup",
        "partition": "p-0",
        "directory": "data/p-0",
        "found": False,
        "bytes_read": 8,
        "path": [],
    }
    assert list(LookupReport(explains=True, only_hits=False).words(answer)) == [
        "p-0: nothing found",
        "  8 bytes read",
    ]


def test_read_text_shows_batches_and_their_records() -> None:
    batch = {"type": "batch", "file": "p-0/0.log", "position": 61, "base_offset": 5, "last_offset": 9, "size": 1000,
             "compression": "zstd"}  # fmt: skip
    assert list(read_words(batch)) == ["p-0/0.log byte 61: batch 5-9, 1,000 bytes, zstd"]
    (line,) = read_words(RECORD)
    assert line.startswith("  offset 7 at ")


def test_text_distinguishes_null_from_empty() -> None:
    assert bytes_words(None, None) == "null"
    assert bytes_words("", "utf8") == '""'


def test_time_outside_the_calendar_is_printed_as_a_number() -> None:
    assert moment(2**62) == f"{2**62} (not a date)"
    assert moment(-2) == "1969-12-31T23:59:59.998Z"
    # as for messages of v0
    assert moment(-1) == "no timestamp"
