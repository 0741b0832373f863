"""The source distribution, and a manylinux wheel for each Python that the machine has.

The kernels are optional for who builds from source without a compiler; a wheel that lacks one is not published.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from releasing.archives import write_tar
from releasing.commands import run

OLDEST = (3, 11)
# Debugging information names the folder that pip builds in, which is another one each time. When the compiler collects its garbage depends
# on the memory that it finds, unless it is told; and names that it makes up on a seed.
_FLAGS = {
    "CFLAGS": "-g0 -frandom-seed=kseg --param=ggc-min-expand=100 --param=ggc-min-heapsize=131072",
    "LDFLAGS": "-s -Wl,--build-id=none",
}


def pythons() -> list[Path]:
    """One interpreter for each minor version from 3.11 on: of $PYTHONS (paths), else of PATH and pyenv."""
    named = os.environ.get("PYTHONS")
    places = [Path(each) for each in named.split(os.pathsep)] if named else _found()
    chosen: dict[tuple[int, int], Path] = {}
    for path in places:
        told = run(path, "-c", "import sys; print(*sys.version_info[:2], sys.implementation.name)").split()
        minor = int(told[0]), int(told[1])
        if minor >= OLDEST and told[2] == "cpython":
            chosen.setdefault(minor, path)
    return [chosen[minor] for minor in sorted(chosen)]


def _found() -> list[Path]:
    form = re.compile(r"python3\.\d+")
    directories = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep) if each]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    directories += sorted(pyenv.glob("3.*/bin"), reverse=True)
    found = [path for place in directories if place.is_dir() for path in sorted(place.iterdir())]
    # a shim of pyenv is a script that may lead nowhere
    return [path for path in found if form.fullmatch(path.name) and "shims" not in path.parts]


def source_distribution(source: Path, dist: Path, epoch_s: int) -> Path:
    """The sdist of a clean source tree, rewritten so that it is the same each time."""
    made = dist.parent / ".release" / "sdist"
    shutil.rmtree(made, ignore_errors=True)
    run(sys.executable, "-m", "build", "--sdist", "--outdir", made, source)
    (archive,) = made.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(made, filter="data")
    name = archive.name.removesuffix(".tar.gz")
    write_tar(dist / archive.name, made / name, name, epoch_s)
    return dist / archive.name


def _fixed_addresses() -> list[str]:
    """The words in front of a command that has the same addresses in memory each time, for compilers that order by them; none where the
    system does not allow that."""
    setarch = shutil.which("setarch")
    if (
        setarch is None
        or subprocess.run([setarch, "-R", "true"], capture_output=True, check=False).returncode
    ):
        return []
    return [setarch, "-R"]


def wheel(python: Path, sdist: Path, dist: Path, epoch_s: int) -> Path:
    """The wheel of one interpreter, repaired. Ends the release where a kernel is missing in it."""
    made = dist.parent / ".release" / f"wheel-{python.name}"
    shutil.rmtree(made, ignore_errors=True)
    environment = {"SOURCE_DATE_EPOCH": str(epoch_s), "PYTHONHASHSEED": "0", **_FLAGS}
    build = (python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, sdist)
    run(*_fixed_addresses(), *build, environment=environment)
    (built,) = made.glob("*.whl")
    with zipfile.ZipFile(built) as content:
        names = content.namelist()
    in_kernel = re.compile(r"kseg/segment/kernel/(\w+)\.pxd")
    kernels = {found[1] for found in map(in_kernel.fullmatch, names) if found}
    compiled = {Path(name).name.split(".")[0] for name in names if name.endswith(".so")}
    missing = kernels - compiled - {"__init__", "keymap_probe", "buffer_access"}
    if missing:
        raise SystemExit(f"release: {built.name} lacks compiled kernels: {', '.join(sorted(missing))}")
    before = set(dist.iterdir())
    run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", dist, built, environment=environment)
    (repaired,) = set(dist.iterdir()) - before
    return repaired
