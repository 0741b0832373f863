"""The picture in the README: the output of `kseg doctor` on a terminal for the second incident of the cookbook.

`python -m tests.picture` draws it again from a real run, with the line about the disk from an example machine; `tests/test_readme.py` fails
if it is stale. The font is the reader's, because a picture in a page cannot load one.
"""

from __future__ import annotations

import io
import re

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests import cookbook, transcripts
from tests.support.paths import ROOT
from tests.transcript_incidents import Incident

PICTURE = ROOT / "docs" / "images" / "doctor.svg"
COLUMNS = 118
DISK = "71.2 GiB of 252 GiB free (28 %); ext4 at / (rw,relatime)"
COMMAND = "doctor data"


def drawn() -> str:
    """The SVG."""
    on_terminal = Incident("picture", cookbook.INCIDENTS["flipped-byte"].make, (), columns=COLUMNS)
    with transcripts.stage(on_terminal.make):
        shown = transcripts.reported(COMMAND, on_terminal)
    session = (
        shown.replace("N GiB of N GiB free (N %); FILE SYSTEM at MOUNT (OPTIONS)", DISK)
        .replace("<ESC>", "\x1b")
        .rsplit("(exit status", maxsplit=1)[0]
        .rstrip()
    )
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")  # fmt: skip
    console.print(Text.from_ansi(session))
    drawing = console.export_svg(title="kseg", theme=MONOKAI, unique_id="kseg")
    drawing = re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL)
    return drawing.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")


def main() -> None:
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn(), encoding="utf-8")


if __name__ == "__main__":
    main()
