"""What pyproject.toml cannot say: the packages and the kernels are whatever is in the folders.

A package `kseg.X.Y` is in the folder `X/Y`. Each module in `segment/kernel/` that has a `.pxd` and is not inlined into the others
becomes an extension; all of them import Cython's helper code from one more, `_shared`, instead of each carrying a copy. They are
translated and compiled in parallel; for a release (`SOURCE_DATE_EPOCH`) one process translates all of them in one order, since the
translator keeps caches from one module to the next. `optional`: without a C compiler kseg installs as well, interpreted.

The translator finds the `.pxd` of `kseg.X.Y` only in a folder `kseg/X`. In a checkout that is a link; a source distribution has no links,
so the build makes a tree of these files. The numbers that kernels share with Python are declared there too, from their modules. Without
the declarations the kernels would be translated as well, but with Python objects for all numbers: then the build fails.
"""

import os
import re
import runpy
import shutil
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOMS = (
    "cli",
    "spark",
    "recovery",
    "compaction",
    "inspection",
    "internal_topics",
    "change",
    "jobs",
    "segment",
)
KERNEL = Path("segment/kernel")
SHARED = "kseg.segment.kernel._shared"
INLINED = {"__init__", "arithmetic", "keymap_probe", "buffer_access"}
NUMBERS = ("segment/header_tables.py", "segment/kernel/state_fields.py", "segment/kernel/message_fields.py")
# Cython 3.3 leaves out their definition where `bytearray.append` stands in a module that shares its helper code. They matter to
# free-threaded builds only, which kseg does not make.
CRITICAL_SECTION = [("__Pyx_BEGIN_CRITICAL_SECTION(object)", "{"), ("__Pyx_END_CRITICAL_SECTION()", "}")]


def folders() -> dict[str, str]:
    """Package name to folder."""
    found = (init.parent for room in ROOMS for init in sorted(Path(room).rglob("__init__.py")))
    return {"kseg": "kseg"} | {".".join(("kseg", *folder.parts)): str(folder) for folder in found}


def extensions() -> list[Extension]:
    names = sorted({path.stem for path in KERNEL.glob("*.pxd")} - INLINED)
    sources = {f"kseg.segment.kernel.{name}": [str(KERNEL / f"{name}.py")] for name in names} | {SHARED: []}
    # most Pythons ask for debug information, which is a fifth of the time to compile
    flags = ["-O3", "-fwrapv", "-g0"]
    return [
        Extension(
            name,
            files,
            optional=True,
            # nothing of the helper code is in a hot loop, and it is the longest to compile
            extra_compile_args=[*flags, "-O2"] if name == SHARED else flags,
            define_macros=CRITICAL_SECTION if name.endswith(".encode") else [],
        )
        for name, files in sources.items()
    ]


def declarations(tree: Path) -> None:
    """Write every `.pxd` to the folder that its import name says."""
    for package, folder in folders().items():
        for source in Path(folder).glob("*.pxd"):
            target = tree.joinpath(*package.split("."), source.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for module in NUMBERS:
        (tree / "kseg" / module).with_suffix(".pxd").write_text(numbers(module))


def numbers(module: str) -> str:
    """The constants of a module as numbers that the C compiler knows."""
    values = runpy.run_path(module).items()
    names = (f"    {name} = {value}\n" for name, value in values if name.isupper() and name[0] != "_")
    return "".join(("cdef enum:\n", *names))


def refuse_untyped(kernel: Path, translated: Path) -> None:
    """Raises RuntimeError if a kernel was translated without its `.pxd`."""
    declared = re.findall(
        r"^(?:cdef|cpdef) [^:\n(]*?(\w+)\(", kernel.with_suffix(".pxd").read_text(), re.MULTILINE
    )
    text = translated.read_text()
    missing = [name for name in declared if not re.search(rf"__pyx_f_\w*_{name}\(", text)]
    if missing:
        raise RuntimeError(f"{kernel} was translated without the types of {', '.join(missing)}")


class BuildKernels(build_ext):
    def build_extensions(self) -> None:
        from Cython.Build import cythonize

        self.parallel = self.parallel or os.cpu_count()
        tree = Path(self.build_temp) / "declarations"
        declarations(tree)
        self.ext_map[SHARED].sources = [str(Path(self.build_temp) / "_shared.c")]
        translated = cythonize(
            self.extensions,
            nthreads=0 if "SOURCE_DATE_EPOCH" in os.environ else self.parallel,
            build_dir=self.build_temp,
            include_path=[str(tree)],
            shared_utility_qualified_name=SHARED,
            quiet=True,
        )
        for extension, made in zip(self.extensions, translated, strict=True):
            if extension.name != SHARED:
                refuse_untyped(Path(extension.sources[0]), Path(made.sources[0]))
            extension.sources = made.sources
        super().build_extensions()


packages = folders()
setup(
    packages=[*packages], package_dir=packages, ext_modules=extensions(), cmdclass={"build_ext": BuildKernels}
)
