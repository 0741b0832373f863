"""The columns and states of the kernels have the same numbers in Python and in C."""

import re
from types import ModuleType

import pytest

from kseg.segment import header_tables, layout
from kseg.segment.kernel import message_fields, state_fields
from tests.support.paths import ROOT


@pytest.mark.parametrize(
    ("module", "path", "some"),
    [
        (
            header_tables,
            "segment/header_tables.pxd",
            {"POSITION", "VALID", "R_BATCH", "R_VALID", "T_RECORDS", "BATCH_WIDTH"},
        ),
        (
            state_fields,
            "segment/kernel/state_fields.pxd",
            {"SEEN_LAST", "SUM_WIDTH", "WALK_ERROR_AT", "LIMIT_EARLIEST"},
        ),
        (
            message_fields,
            "segment/kernel/message_fields.pxd",
            {"OUT", "STATE_WIDTH", "KEY_END", "FIELD_DEFAULT_LENGTH", "INVALID_TAG", "GARBAGE"},
        ),
    ],
)
def test_compiled_kernels_have_the_numbers_of_python(module: ModuleType, path: str, some: set[str]) -> None:
    in_python = {name: value for name, value in vars(module).items() if name.isupper() and name[0] != "_"}
    text = (ROOT / path).read_text()
    in_c = {name: int(number) for name, number in re.findall(r"^    (\w+) = (\d+)$", text, re.MULTILINE)}
    assert in_c == in_python
    assert some <= set(in_c)


def test_attribute_bits_equal_those_of_the_layout() -> None:
    names = {name for name in vars(header_tables) if name.endswith("_BIT")} | {"CODEC_MASK"}
    assert len(names) == 5
    for name in names:
        assert getattr(header_tables, name) == getattr(layout, name), name
