"""The columns of the kernels' tables have one number in Python and in C."""

import re

from kseg.segment import header_tables
from tests.support.paths import ROOT


def test_compiled_kernels_have_the_same_columns() -> None:
    in_python = {
        name: value for name, value in vars(header_tables).items() if name.isupper() and name[0] != "_"
    }
    text = (ROOT / "segment/header_tables.pxd").read_text()
    in_c = {name: int(number) for name, number in re.findall(r"^    (\w+) = (\d+)$", text, re.MULTILINE)}
    assert in_c == in_python
    assert {"POSITION", "VALID", "R_BATCH", "R_VALID", "T_RECORDS", "BATCH_WIDTH"} <= set(in_c)
