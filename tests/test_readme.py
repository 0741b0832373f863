"""The README and the pages that it links to are up to date."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.cli.registry import COMMANDS
from kseg.inspection.dump.other_files import VALUES as small_files
from kseg.segment.partition.names import NAME_BY_ROLE, Role
from tests import picture, readme
from tests.support.paths import ROOT

SCRIPT = Path(sys.prefix) / "bin" / "kseg"


@pytest.mark.skipif(not os.access(SCRIPT, os.X_OK), reason="kseg is not installed into this environment")
def test_demo_prints_what_the_tour_shows() -> None:
    shown = readme.shown_by_demo()
    assert readme.without_run(readme.shown_by_page()) == readme.without_run(shown), (
        "run python -m tests.readme"
    )
    assert "Byte for byte as it was found.\n" in shown


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_picture_equals_the_output_of_doctor() -> None:
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.drawn(), "run python -m tests.picture"
    assert f"](docs/images/{picture.PICTURE.name})" in README


def test_readme_names_every_command() -> None:
    assert [name for name in COMMANDS if f"- **`kseg {name}`** " not in README] == []


def test_json_contract_names_every_command() -> None:
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"| `{name}` | " not in page] == []


def test_site_navigation_names_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f": {page.name}\n" not in nav] == []


def test_json_contract_names_the_dump_rows_of_small_files(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Type and fields of each row that is printed for such a file."""
    page = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    contents = {
        Role.PARTITION_METADATA: b"version: 0\ntopic_id: Pm0fXkDvQ0yTn7Qq3uXJ8A",
        Role.META_PROPERTIES: b"version=1\nnode.id=1\ncluster.id=x\n",
        Role.QUORUM_STATE: b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        Role.CLEAN_SHUTDOWN: b'{"version":0,"brokerEpoch":17}',
    }
    assert contents.keys() == small_files.keys()
    for role, content in contents.items():
        path = tmp_path / NAME_BY_ROLE[role]
        path.write_bytes(content)
        run(["dump", "--json", str(path)])
        row = json.loads(capfd.readouterr().out.splitlines()[0])
        line = next((line for line in page.splitlines() if line.startswith(f"| `{row['type']}` | ")), "")
        assert [name for name in row if name not in ("type", "file") and f"`{name}`" not in line] == []
