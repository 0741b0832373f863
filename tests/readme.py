"""docs/tour.md shows the output of ./demo.

`python -m tests.readme` writes the block between its two marks again; `tests/test_readme.py` fails if it is stale.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "tour.md"
BEGIN = "<!-- demo: made by ./demo -->\n```\n"
END = "```\n<!-- end of demo -->\n"

# the id of a run: the time of its start, and a random part
_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


def shown_by_demo() -> str:
    """What ./demo writes to stdout, with this installation instead of one that it would create."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.copy(ROOT / "demo", place / "demo")
        (place / ".ci").mkdir()
        (place / ".ci" / "prepare").write_text("#!/bin/sh\n")
        (place / ".ci" / "prepare").chmod(0o755)
        (place / ".venv").symlink_to(sys.prefix)
        (place / "fixtures").symlink_to(ROOT / "fixtures")
        done = subprocess.run(
            [str(place / "demo")], capture_output=True, text=True, encoding="utf-8", timeout=1200, check=True
        )
    return done.stdout


def shown_by_page() -> str:
    return _cut(PAGE.read_text(encoding="utf-8"))[1]


def without_run(text: str) -> str:
    """The text with the same id for all runs."""
    return _RUN.sub("20260101T120000Z-1f2e3d4c", text)


def _cut(page: str) -> tuple[str, str, str]:
    head, _, rest = page.partition(BEGIN)
    block, _, tail = rest.partition(END)
    return head + BEGIN, block, END + tail


def main() -> None:
    head, _, tail = _cut(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(head + shown_by_demo() + tail, encoding="utf-8")


if __name__ == "__main__":
    main()
