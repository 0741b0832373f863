"""The numbers that kernels share with Python."""

from kseg.segment import header_tables, layout


def test_attribute_bits_equal_those_of_the_layout() -> None:
    names = {name for name in vars(header_tables) if name.endswith("_BIT")} | {"CODEC_MASK"}
    assert len(names) == 5
    for name in names:
        assert getattr(header_tables, name) == getattr(layout, name), name
