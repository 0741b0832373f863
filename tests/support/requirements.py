"""What tests need from the machine. If it is missing, they are skipped with a visible line; if CI is set, they fail."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def absent(what: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(what, pytrace=False)
    pytest.skip(what)
