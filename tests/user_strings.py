"""Every sentence that kseg can say to a user, in one file for review: `python -m tests.user_strings > strings.txt`.

Taken from the sources: help texts of commands and options, the catalogue of findings, messages of findings and of exceptions. A value
inserted into a sentence is shown as its expression in braces.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from kseg.segment.findings import CATALOGUE
from tests.support.paths import ROOT
from tests.test_rooms import ROOMS


def sentences(node: ast.expr) -> Iterator[str]:
    """The literal text in an expression: strings, f-strings, and both branches of `x if y else z`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [
            part.value if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}"
            for part in node.values
            if isinstance(part, ast.Constant | ast.FormattedValue)
        ]
        yield "".join(map(str, parts))
    elif isinstance(node, ast.IfExp):
        yield from sentences(node.body)
        yield from sentences(node.orelse)
    elif isinstance(node, ast.BinOp):
        yield from sentences(node.left)
        yield from sentences(node.right)


def said_in(path: Path) -> Iterator[tuple[int, str, str]]:
    """(line, kind of sentence, sentence)."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            kind, arguments = "error", [*node.exc.args, *(keyword.value for keyword in node.exc.keywords)]
        elif isinstance(node, ast.Call) and _name(node.func) in ("Finding", "Option", "Argument", "Group"):
            kind = "help" if _name(node.func) != "Finding" else "finding"
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Assign) and any(_name(target) == "message" for target in node.targets):
            kind, arguments = "finding", [node.value]
        else:
            continue
        for argument in arguments:
            for sentence in sentences(argument):
                yield node.lineno, kind, sentence


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def main() -> None:
    for kind in CATALOGUE.values():
        print(f"segment/findings.py: {kind.id}: {kind.sentence}")
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            for line, kind_of, sentence in sorted(set(said_in(path))):
                sys.stdout.write(f"{path.relative_to(ROOT)}:{line}: {kind_of}: {sentence!r}\n")


if __name__ == "__main__":
    main()
