"""Write a repaired directory from a `Repair` in the simplest way. Every executor of its plan must produce the same result."""

from __future__ import annotations

from pathlib import Path

from kseg.change.plan.content import Fresh, Span
from kseg.change.plan.directory_image import DirectoryImage, steps_between
from kseg.recovery.policy import Repair


def contents(image: DirectoryImage, found: Path) -> dict[str, bytes]:
    """name → bytes of the planned directory. found: the original."""
    files = {}
    for name in image:
        pieces = []
        for piece in image.content(name):
            if isinstance(piece, Fresh):
                pieces.append(piece.data)
            else:
                assert isinstance(piece, Span), "recovery makes no file ahead"
                data = (found / piece.name).read_bytes()[piece.position : piece.end_position]
                assert len(data) == piece.length, "a span reaches behind its file"
                pieces.append(data)
        files[name] = b"".join(pieces)
    return files


def make(repair: Repair, found: Path, target: Path) -> Path:
    """Write the planned directory into `target`."""
    target.mkdir(parents=True)
    for name, data in contents(repair.image, found).items():
        (target / name).write_bytes(data)
    return target


def steps(repair: Repair, before: DirectoryImage) -> list[str]:
    """The names that the plan changes; KeyError if one has no reason."""
    return [step.name for step in steps_between(before, repair.image, repair.why)]
