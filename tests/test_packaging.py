"""setuptools ships exactly what is in the rooms."""

from __future__ import annotations

import importlib
import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kseg.cli import version
from tests.support.paths import ROOT
from tests.test_rooms import ROOMS

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def setup_arguments() -> dict[str, Any]:
    """What setup.py tells setuptools."""
    told: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr("setuptools.setup", lambda **arguments: told.update(arguments))
        runpy.run_path("setup.py")
    return told


def folders() -> dict[str, str]:
    """Import name to folder of every package in the rooms."""
    found = {"kseg": "kseg"}
    for room in ROOMS:
        for init in (ROOT / room).rglob("__init__.py"):
            folder = init.parent.relative_to(ROOT)
            found[".".join(("kseg", *folder.parts))] = folder.as_posix()
    return found


def test_every_package_is_shipped_from_its_folder(setup_arguments: dict[str, Any]) -> None:
    assert sorted(setup_arguments["packages"]) == sorted(folders())
    assert setup_arguments["package_dir"] == folders()


@pytest.mark.parametrize("room", ROOMS)
def test_the_import_name_leads_into_the_room(room: str) -> None:
    link = ROOT / "kseg" / room
    assert link.is_symlink() and link.resolve() == ROOT / room
    module = importlib.import_module(f"kseg.{room}")
    assert module.__file__ is not None and Path(module.__file__).resolve().parent == ROOT / room


def test_every_kernel_is_compiled_and_typed(setup_arguments: dict[str, Any]) -> None:
    kernels = {path.stem for path in (ROOT / "segment/kernel").glob("*.py")} - set(version.INLINED)
    extensions = {each.name: each for each in setup_arguments["ext_modules"]}
    shared = extensions.pop("kseg.segment.kernel._shared")
    assert shared.optional and shared.sources == []  # Cython writes it during the build
    assert set(extensions) == {f"kseg.segment.kernel.{name}" for name in kernels}
    for name in kernels:
        extension = extensions[f"kseg.segment.kernel.{name}"]
        assert extension.sources == [f"segment/kernel/{name}.py"] and extension.optional is True
        assert (ROOT / f"segment/kernel/{name}.pxd").exists()


def test_version_names_every_dependency() -> None:
    required = {re.split(r"[<>=!~ ]", each)[0] for each in PROJECT["project"]["dependencies"]}
    assert required <= set(version.DEPENDENCIES)


def test_version_says_what_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    names = version.kernels()
    assert "batch_walk" in names and "__init__" not in names
    monkeypatch.setattr(version, "_is_compiled", lambda name: True)
    assert version.kernel_state() == "compiled"
    monkeypatch.setattr(version, "_is_compiled", lambda name: name != "batch_walk")
    assert version.kernel_state() == "compiled, but interpreted: batch_walk"
    monkeypatch.setattr(version, "_is_compiled", lambda name: False)
    assert version.kernel_state().startswith("interpreted (")
