"""The kernels as plain Python beside the compiled ones, with buffers that check their indexes.

Compiled kernels take pointers, interpreted ones the buffer itself, so an interpreted run sees every access. Python accepts negative
indexes; `Checked` does not. `kernels()` returns the interpreted modules next to the compiled ones; `install()` makes a whole process use
them. Run as a program, this module installs them and dumps files.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.paths import ROOT

PACKAGE = "kseg.segment.kernel"
HOME = ROOT / "segment" / "kernel"
_FIRST = [
    "state_fields",
    "message_fields",
    "buffer_access",
    "keymap_probe",
    "arithmetic",
    "java_utf8",
    "record_headers",
    "json_strings",
    "dump_text",
    "json_lines",
    "record_walk",
    "arrow_gather",
    "validate",
    "message_values",
    "message_reader",
    "message_json",
]  # the other kernels import these
NAMES = _FIRST + sorted(
    file.stem for file in HOME.glob("*.py") if file.stem not in _FIRST and file.stem != "__init__"
)
DOORS = ("bytes_in", "room_in", "cells_in", "table_in")
IN_C = (
    *DOORS,
    "copied",
    "wanted",
    "long_at",
    "int_at",
    "crc_at",
    "short_at",
)  # functions of `buffer_access` that the compiled kernels take from its `.pxd`


class Checked:
    """A buffer of numbers that raises IndexError for every index out of range, including negative ones."""

    __slots__ = ("view",)

    def __init__(self, data: Any) -> None:
        self.view: memoryview = data.view if isinstance(data, Checked) else memoryview(data)

    def __len__(self) -> int:
        return len(self.view)

    def __getitem__(self, index: Any) -> Any:
        self._check(index)
        return self.view[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index)
        self.view[index] = value

    def _check(self, index: int | slice) -> None:
        last = len(self.view)
        if isinstance(index, slice):
            inside = index.step is None and 0 <= index.start <= index.stop <= last
        else:
            inside = 0 <= index < last
        if not inside:
            raise IndexError(f"{index} of {last}")


def install() -> dict[str, ModuleType]:
    """Load every kernel from its source, with checked buffers, so that later imports get these."""
    package = importlib.import_module(PACKAGE)
    modules = {}
    for name in NAMES:
        spec = importlib.util.spec_from_file_location(f"{PACKAGE}.{name}", HOME / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[f"{PACKAGE}.{name}"] = module
        setattr(package, name, module)
        spec.loader.exec_module(module)
        modules[name] = module
        if name == "buffer_access":
            for door in DOORS:
                setattr(module, door, Checked)
    return modules


@cache
def kernels() -> dict[str, ModuleType]:
    """The interpreted kernel modules by name. The other modules keep using the installed kernels."""
    package = importlib.import_module(PACKAGE)
    kept = {name: importlib.import_module(f"{PACKAGE}.{name}") for name in NAMES}
    try:
        return install()
    finally:
        for name, module in kept.items():
            sys.modules[f"{PACKAGE}.{name}"] = module
            setattr(package, name, module)


def variants(kernel: ModuleType) -> list[Any]:
    """Parameters of a test: a kernel as plain Python with ordinary buffers, and as it is installed, if that is compiled."""
    name = kernel.__name__.rpartition(".")[2]
    spec = importlib.util.spec_from_file_location(f"{name}_interpreted", HOME / f"{name}.py")
    assert spec is not None and spec.loader is not None
    interpreted = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(interpreted)
    installed = [] if str(kernel.__file__).endswith(".py") else [pytest.param(kernel, id="compiled")]
    return [pytest.param(interpreted, id="interpreted"), *installed]


def compiled() -> dict[str, ModuleType]:
    """The installed kernel modules, without those that are not compiled."""
    found = {name: importlib.import_module(f"{PACKAGE}.{name}") for name in NAMES}
    return {name: module for name, module in found.items() if not str(module.__file__).endswith(".py")}


def dumps(directory: Path) -> list[str]:
    """The dumps of all files in a directory, with several sets of options."""
    from kseg.inspection.dump.options import DumpOptions
    from kseg.segment.partition.targets import FileTarget
    from tests.support.one_target import dump

    output = []
    for file in sorted(directory.iterdir()):
        for options in (
            DumpOptions(),
            DumpOptions(deep_iteration=True),
            DumpOptions(print_data_log=True),
            DumpOptions(print_data_log=True, escape_control=True, skip_record_metadata=True),
            DumpOptions(print_data_log=True, format="json"),
            DumpOptions(print_data_log=True, format="json", bytes_mode="utf8"),
        ):
            output += [f"{file.name} {event!r}" for event in dump(FileTarget(str(file)), options)]
    return output


if __name__ == "__main__":
    install()
    sys.stdout.writelines(f"{line}\n" for line in dumps(Path(sys.argv[1])))
