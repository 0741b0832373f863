"""Parameters of a test that vary along several axes: every pair of values in the gate, every combination in a long run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import pytest

ALL = os.environ.get("KSEG_COMBINATIONS") == "all"


def combinations(*axes: Sequence[Any], names: Sequence[Sequence[str]]) -> list[Any]:
    """Rows with one value from each axis, as parameters whose id is made of the values' names.

    With three axes, each value of the third occurs with each value of the first and with each value of the second, but not with each pair
    of them: the third axis cycles while the first two are combined. With KSEG_COMBINATIONS=all the rows are the full product.
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
