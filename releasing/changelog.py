"""The version, which is in one place, and its section of the changelog, which is the release note."""

import ast
import re
from pathlib import Path

UNRELEASED = "Unreleased"


def version_of(source: Path) -> str:
    """`__version__` of kseg/__init__.py, without importing it. Raises ValueError where it has none."""
    tree = ast.parse((source / "kseg" / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__":
            return str(ast.literal_eval(node.value))
    raise ValueError("kseg/__init__.py has no __version__")


def sections(text: str) -> dict[str, str]:
    """The text below each heading `## VERSION` or `## VERSION - DATE`, by version, in the order of the file."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {
        heading.split(" - ")[0].strip().strip("[]"): body.strip()
        for heading, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def release_note(text: str, version: str) -> str:
    """The note for a version: its own section, or what is not released yet, which the note says. Raises ValueError without both."""
    found = sections(text)
    if found.get(version):
        return f"# kseg {version}\n\n{found[version]}\n"
    if found.get(UNRELEASED):
        return f"# kseg {version} (not released yet)\n\n{found[UNRELEASED]}\n"
    raise ValueError(f"CHANGELOG.md has no section for {version}")
