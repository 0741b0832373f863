"""setuptools ships exactly what is in the packages."""

from __future__ import annotations

import importlib
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kseg.cli import version
from kseg.segment import header_tables
from kseg.segment.kernel import message_fields, state_fields
from tests.support.paths import ROOT
from tests.test_rooms import ROOMS

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def setup_arguments() -> dict[str, Any]:
    """The arguments that setup.py passes to setuptools."""
    reported: dict[str, Any] = {}
    run_setup(lambda **arguments: reported.update(arguments))
    return reported


def run_setup(setup: Callable[..., None] = lambda **_: None) -> dict[str, Any]:
    """The names that setup.py defines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr("setuptools.setup", setup)
        return runpy.run_path("setup.py")


def folders() -> dict[str, str]:
    """Import name → folder of every package."""
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
def test_import_name_links_to_its_room(room: str) -> None:
    link = ROOT / "kseg" / room
    assert link.is_symlink() and link.resolve() == ROOT / room
    module = importlib.import_module(f"kseg.{room}")
    assert module.__file__ is not None and Path(module.__file__).resolve().parent == ROOT / room


def test_every_kernel_is_compiled_and_typed(setup_arguments: dict[str, Any]) -> None:
    kernels = {path.stem for path in (ROOT / "segment/kernel").glob("*.py")} - set(version.INLINED)
    extensions = {each.name: each for each in setup_arguments["ext_modules"]}
    shared = extensions.pop("kseg.segment.kernel._shared")
    # Cython writes it during the build
    assert shared.optional and shared.sources == []
    assert set(extensions) == {f"kseg.segment.kernel.{name}" for name in kernels}
    for name in kernels:
        extension = extensions[f"kseg.segment.kernel.{name}"]
        assert extension.sources == [f"segment/kernel/{name}.py"] and extension.optional is True
        assert (ROOT / f"segment/kernel/{name}.pxd").exists()


@pytest.mark.parametrize(
    ("module", "some"),
    [
        (header_tables, {"POSITION", "VALID", "R_BATCH", "R_VALID", "T_RECORDS", "BATCH_WIDTH"}),
        (state_fields, {"SEEN_LAST", "SUM_WIDTH", "WALK_ERROR_AT", "LIMIT_EARLIEST"}),
        (message_fields, {"OUT", "STATE_WIDTH", "KEY_END", "FIELD_DEFAULT_LENGTH", "INVALID_TAG", "GARBAGE"}),
    ],
)
def test_compiled_kernels_have_the_numbers_of_python(module: ModuleType, some: set[str]) -> None:
    in_python = {name: value for name, value in vars(module).items() if name.isupper() and name[0] != "_"}
    setup = run_setup()
    (path,) = (each for each in setup["NUMBERS"] if Path(each).stem == module.__name__.rpartition(".")[2])
    text = setup["numbers"](str(ROOT / path))
    in_c = {name: int(number) for name, number in re.findall(r"^    (\w+) = (\d+)$", text, re.MULTILINE)}
    assert in_c == in_python
    assert some <= set(in_c)


@pytest.mark.slow
def test_source_distribution_builds_kernels_with_their_types(tmp_path: Path) -> None:
    """A source distribution has no links, and without the `.pxd` a kernel would be translated all the same, with a Python object for each
    number."""
    tree = tmp_path / "tree"
    (tree / "kseg").mkdir(parents=True)
    kernel = tree / "segment" / "kernel"
    kernel.mkdir(parents=True)
    for name in (
        "setup.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "kseg/__init__.py",
        "kseg/__init__.pxd",
    ):
        shutil.copyfile(ROOT / name, tree / name)
    for name in ("segment/__init__", "segment/kernel/__init__", "segment/kernel/indexing"):
        for suffix in (".py", ".pxd"):
            shutil.copyfile(ROOT / f"{name}{suffix}", tree / f"{name}{suffix}")
    for module in run_setup()["NUMBERS"]:
        shutil.copyfile(ROOT / module, tree / module)

    words = [sys.executable, "setup.py", "--quiet", "build_ext", "--build-temp", "made"]
    made = subprocess.run(words, cwd=tree, capture_output=True, text=True, check=False)

    assert made.returncode == 0, made.stderr
    (translated,) = (tree / "made").rglob("indexing.c")
    assert re.search(
        r"^static Py_ssize_t __pyx_f_\w+_index_rows\(__Pyx_memviewslice", translated.read_text(), re.MULTILINE
    )


def test_kernel_without_its_types_fails_the_build(tmp_path: Path) -> None:
    refuse_untyped = run_setup()["refuse_untyped"]
    kernel, translated = tmp_path / "k.py", tmp_path / "k.c"
    (tmp_path / "k.pxd").write_text(
        "cimport cython\n\ncpdef Py_ssize_t reached(const long long[::1] cells) except -1\n"
    )
    translated.write_text("static Py_ssize_t __pyx_f_4kseg_1k_reached(__Pyx_memviewslice cells);")
    refuse_untyped(kernel, translated)
    translated.write_text("static PyObject *__pyx_pf_4kseg_1k_reached(PyObject *cells);")
    with pytest.raises(RuntimeError, match="without the types of reached"):
        refuse_untyped(kernel, translated)


def test_version_names_every_dependency() -> None:
    required = {re.split(r"[<>=!~ ]", each)[0] for each in PROJECT["project"]["dependencies"]}
    assert required <= set(version.DEPENDENCIES)


def test_version_names_kernels_that_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    names = version.kernels()
    assert "batch_walk" in names and "__init__" not in names
    monkeypatch.setattr(version, "_is_compiled", lambda name: True)
    assert version.kernel_state() == "compiled"
    monkeypatch.setattr(version, "_is_compiled", lambda name: name != "batch_walk")
    assert version.kernel_state() == "compiled, but interpreted: batch_walk"
    monkeypatch.setattr(version, "_is_compiled", lambda name: False)
    assert version.kernel_state().startswith("interpreted (")
