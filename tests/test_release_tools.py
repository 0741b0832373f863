"""Cheap checks of a release: where its version and its note come from, reproducible archives, the entries of the SBOM."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

import kseg
from releasing import archives, bundle, changelog, inventory, old_glibc
from releasing.__main__ import OF_ARTIFACTS
from releasing.old_glibc import newest_glibc
from tests.support.paths import ROOT

CHANGES = "# Changelog\n\nAbout.\n\n## Unreleased\n\n- new\n\n## 1.2.0 - 2026-01-02\n\n### Added\n\n- a\n\n## [1.1.0]\n\n- b\n"


def test_version_is_defined_in_one_place() -> None:
    assert changelog.version_of(ROOT) == kseg.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" in project["project"]["dynamic"] and "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "kseg.__version__"}


def test_artifact_tests_are_collected_without_pytest_plugins() -> None:
    """The release environment has pytest without the plugins for which the gate's configuration is meant."""
    environment = {**os.environ, "KSEG_DIST": "dist", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, "-m", "pytest", "-q", *OF_ARTIFACTS, "--collect-only"]
    ran = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("test_artifacts.py::") > 5


def test_source_without_a_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kseg").mkdir()
    (tmp_path / "kseg" / "__init__.py").write_text("version = 1\n")
    with pytest.raises(ValueError, match="no __version__"):
        changelog.version_of(tmp_path)


def test_release_note_is_the_changelog_section_of_the_version() -> None:
    assert list(changelog.sections(CHANGES)) == ["Unreleased", "1.2.0", "1.1.0"]
    assert changelog.release_note(CHANGES, "1.2.0") == "# kseg 1.2.0\n\n### Added\n\n- a\n"
    assert changelog.release_note(CHANGES, "1.1.0") == "# kseg 1.1.0\n\n- b\n"
    assert changelog.release_note(CHANGES, "2.0.0") == "# kseg 2.0.0 (not released yet)\n\n- new\n"
    with pytest.raises(ValueError, match="no section for 9"):
        changelog.release_note(CHANGES.replace("Unreleased", "0.9"), "9")


def test_current_changelog_gives_a_release_note() -> None:
    note = changelog.release_note((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), kseg.__version__)
    assert note.startswith(f"# kseg {kseg.__version__}") and len(note.splitlines()) > 5


def test_archives_are_reproducible(tmp_path: Path) -> None:
    """The archive does not depend on times, owner or order on disk. Links and the execute bit are kept."""
    made = []
    for turn, names in enumerate((("a", "b"), ("b", "a"))):
        root = tmp_path / str(turn)
        root.mkdir()
        for name in names:
            (root / name).write_text(name)
            os.utime(root / name, (turn, turn))
        (root / "a").chmod(0o755)
        (root / "link").symlink_to("a")
        archives.write_tar(tmp_path / f"{turn}.tar.gz", root, "kseg", 1_700_000_000)
        made.append((tmp_path / f"{turn}.tar.gz").read_bytes())
    assert made[0] == made[1]
    with tarfile.open(tmp_path / "0.tar.gz") as archive:
        assert [member.name for member in archive] == ["kseg", "kseg/a", "kseg/b", "kseg/link"]
        assert [archive.getmember(f"kseg/{name}").mode for name in "ab"] == [0o755, 0o644]
        assert archive.getmember("kseg/link").linkname == "a"


def test_checksums_equal_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "SHA256SUMS").write_text("old")
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert archives.checksums(tmp_path) == f"{digest}  empty\n"


def test_bundle_does_not_reveal_where_it_was_built(tmp_path: Path) -> None:
    information = tmp_path / "kseg-1.dist-info"
    information.mkdir()
    (information / "direct_url.json").write_text('{"url": "file:///home/somebody"}')
    (information / "RECORD").write_text("kseg/a.py,,\nkseg-1.dist-info/direct_url.json,sha256=x,30\n")
    bundle.forget_origin(tmp_path)
    assert [path.name for path in information.iterdir()] == ["RECORD"]
    assert (information / "RECORD").read_text() == "kseg/a.py,,\n"


def test_sbom_names_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = [
        "typer",
        "Rich",
        "Jinja2",
        "crcmod",
        "crc32c",
        "zstandard",
        "lz4",
        "python_snappy",
        "cramjam",
        "isal",
        "deflate",
    ]
    whole = {"components": [{"name": name} for name in names]}
    assert inventory.missing_components(whole, project) == []
    assert inventory.missing_components({"components": whole["components"][:-1]}, project) == ["deflate"]


def test_symbol_version_names_are_hashed_as_by_the_loader() -> None:
    """Linkers write this value for the name, as `readelf -V` prints it for any program."""
    assert old_glibc.system_v_hash("GLIBC_2.2.5") == 0x09691A75


def test_interpreter_shim_is_committed() -> None:
    """The patterns in .gitignore for translated kernels would exclude it."""
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "releasing"], cwd=ROOT, capture_output=True, text=True, check=True)  # fmt: skip
        assert "releasing/sem_clockwait.c" in listed.stdout.split()


def test_linked_libraries_have_a_licence_text() -> None:
    for parts in inventory.LINKED.values():
        for part in parts:
            assert inventory.licence_text(ROOT, part).stat().st_size > 500


def test_glibc_floor_is_the_newest_symbol_version() -> None:
    assert newest_glibc(["GLIBC_2.9", "GLIBC_2.17", "GLIBC_2.2.5", "GLIBC_PRIVATE", "OPENSSL_3.0.0"]) == (
        2,
        17,
    )
    assert newest_glibc([]) == (0, 0)


def test_vendored_files_have_a_licence_and_a_checksum() -> None:
    ((component, licence),) = inventory.vendored(ROOT)
    assert (component["name"], component["licenses"]) == ("d3", [{"license": {"id": "ISC"}}])
    assert "Permission to use, copy, modify" in licence.read_text(encoding="utf-8")
    script = (ROOT / "cli" / "html" / "assets" / "d3.min.js").read_bytes()
    assert component["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(script).hexdigest()}]
