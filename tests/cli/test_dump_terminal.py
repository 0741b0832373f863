"""Control characters in keys, values and header names do not reach a terminal. In a pipe, the bytes are exact."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.support.trees import unchanged

KEY, VALUE, NAME = b"k\x1b[2Jy", "v\x07\r\n\x7f\u0085\u00e9".encode(), b"h\x08"
EXACT = b"headerKeys: [" + NAME + b"] key: " + KEY + b" payload: " + VALUE
ESCAPED = b"headerKeys: [h\\x08] key: k\\x1b[2Jy payload: v\\x07\\x0d\\x0a\\x7f\\x85\xc3\xa9"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(encode_batch(NewBatch(records=(Record(0, 1, KEY, VALUE, ((NAME, None),)),))))
    return path


def command(log: Path) -> list[str]:
    return [sys.executable, "-m", "kseg", "dump", "--print-data-log", str(log)]


def test_dump_into_a_pipe_has_the_exact_bytes(log: Path) -> None:
    with unchanged(log.parent):
        done = subprocess.run(command(log), capture_output=True, check=True, timeout=600)

    assert done.stdout.endswith(EXACT + b"\n")


def test_dump_on_a_terminal_escapes_control_characters(log: Path) -> None:
    ours, theirs = pty.openpty()
    with unchanged(log.parent):
        done = subprocess.run(command(log), stdout=theirs, stderr=subprocess.PIPE, check=True, timeout=600)
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        # the other end is closed and everything is read
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(ours)

    assert done.returncode == 0
    assert ESCAPED in shown
    assert b"\x1b" not in shown and b"\x07" not in shown
