"""The interpreter of the tarball: CPython as published on Maven Central for the JavaCPP presets, built on an old distribution.

One that is compiled here asks for this machine's glibc, and that is newer than what broker hosts have. This one asks for 2.30 because of a
few symbols, which `old_glibc` leads to older ones.
"""

import hashlib
import shutil
import subprocess
import zipfile
from pathlib import Path

from releasing.commands import run
from releasing.old_glibc import lower

VERSION = "3.13.0"
MINOR = ".".join(VERSION.split(".")[:2])
ARTIFACT = f"org.bytedeco:cpython:{VERSION}-1.5.11:jar:linux-x86_64"
SHA256 = "70a2e31fd4bb5d7f34db69ac9d2f785232ea76f3f00c1e115bf73cef3860f4c0"
# of the standard library: what no command imports, and what needs libraries of a host that are newer than its own
_LEFT_OUT = (
    "test", "idlelib", "tkinter", "turtledemo", "ensurepip", "pydoc_data", "site-packages", "__pycache__", "config-*", "turtle.py", "_test*",
    "_xxtest*", "xxlimited*", "xxsubtype*", "*_test.*", "_lzma*", "_sqlite3*", "_uuid.*", "_curses*", "readline*",
)  # fmt: skip
_SHIM = Path(__file__).with_name("sem_clockwait.c")


def copy_interpreter(home: Path, work: Path) -> None:
    """Make `bin/python3.X` and `lib/` below `home`, for glibc 2.28. work: keeps the download. Ends the release where it is not what it
    was."""
    jar = _jar(work)
    unpacked = work / "interpreter"
    shutil.rmtree(unpacked, ignore_errors=True)
    with zipfile.ZipFile(jar) as content:
        content.extractall(unpacked)
    (source,) = unpacked.glob("org/bytedeco/cpython/linux-x86_64")
    library = home / "lib" / f"python{MINOR}"
    shutil.copytree(source / "lib" / library.name, library, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    (library / "site-packages").mkdir()
    for name in (f"libpython{MINOR}.so.1.0", "libffi.so.7"):
        shutil.copy(source / name, home / "lib" / name)
    (home / "bin").mkdir()
    program = home / "bin" / f"python{MINOR}"
    shutil.copy(source / "bin" / program.name, program)
    program.chmod(0o755)
    _lower(home)


def _jar(work: Path) -> Path:
    group, name, version, kind, classifier = ARTIFACT.split(":")
    jar = work / "maven" / f"{name}-{version}-{classifier}.{kind}"
    if not jar.exists():
        if shutil.which("mvn") is None:
            raise SystemExit(
                "release: the interpreter of the tarball is fetched with Maven (mvn), which this machine lacks"
            )
        artifact = f"{group}:{name}:{version}:{kind}:{classifier}"
        run("mvn", "-q", "-B", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false")
        run("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={jar.parent}")
    if hashlib.sha256(jar.read_bytes()).hexdigest() != SHA256:
        raise SystemExit(f"release: {jar.name} is not the file that this release was made for")
    return jar


def _lower(home: Path) -> None:
    """Lead the interpreter to glibc 2.28: `sem_clockwait` of 2.30 to a library of our own, the functions of libm to the versions before
    2.29."""
    interpreter = home / "lib" / f"libpython{MINOR}.so.1.0"
    shim = home / "lib" / "libsemclockwait.so"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", "-s", "-Wl,--build-id=none", "-o", shim, _SHIM], check=True
    )
    run("patchelf", "--add-needed", shim.name, interpreter)
    run("patchelf", "--clear-symbol-version", "sem_clockwait", interpreter)
    lower(interpreter, {"GLIBC_2.29": "GLIBC_2.2.5", "GLIBC_2.30": "GLIBC_2.2.5"})
    for name in ("math", "cmath", "_statistics"):
        for module in (home / "lib" / f"python{MINOR}" / "lib-dynload").glob(f"{name}.*.so"):
            lower(module, {"GLIBC_2.29": "GLIBC_2.2.5"})
