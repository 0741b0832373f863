"""JSON lines: one object, one line, UTF-8 that any parser accepts."""

from __future__ import annotations

import json
import os

from hypothesis import given
from hypothesis import strategies as st

from kseg.segment.json_line import json_line

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_json_line_is_one_line_and_round_trips(values: dict[str, object]) -> None:
    line = json_line(values)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert json.loads(line) == values


def test_json_line_keeps_the_bytes_of_a_name_that_is_not_utf_8() -> None:
    name = os.fsdecode(b"caf\xe9.log")
    line = json_line({"file": name, "word": "é"})
    assert os.fsencode(json.loads(line.decode("utf-8"))["file"]) == b"caf\xe9.log"
