"""Parameters of a test that differ in several respects: in the gate each pair of values, in a long run each combination."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import pytest

ALL = os.environ.get("KSEG_COMBINATIONS") == "all"


def combinations(*axes: Sequence[Any], names: Sequence[Sequence[str]]) -> list[Any]:
    """Rows with one value of each axis, as parameters with the values' names as their id.

    Of three axes, each value of the third meets each one of the other two, though not each pair of them: the third goes round
    while the other two are combined. With KSEG_COMBINATIONS=all the rows are the product.
    """
    first, second, third = (range(len(axis)) for axis in axes)
    if ALL:
        rows = [*itertools.product(first, second, third)]
    else:
        assert len(first) >= len(third) <= len(second), "the shortest axis is the last one"
        rows = [(at, other, (at + other) % len(third)) for at, other in itertools.product(first, second)]
    return [
        pytest.param(
            *(axis[at] for axis, at in zip(axes, row, strict=True)),
            id="-".join(name[at] for name, at in zip(names, row, strict=True)),
        )
        for row in rows
    ]
