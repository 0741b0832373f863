"""The tarball for hosts without Python: an interpreter, the standard library, kseg and what it needs, movable to any directory.

1. The interpreter that builds is copied with its standard library, without tests, headers, tkinter and pip.
2. kseg's repaired wheel and its dependencies are installed into the copy.
3. Every shared library that is not glibc's own is copied to `lib/`, and each ELF file finds it by a path relative to itself.
4. `bin/kseg` starts it, isolated from the Python settings of the host.
5. The newest version of a glibc symbol that any file asks for is the floor; it is written to `GLIBC` and may not be above MAX_GLIBC.
"""

import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from releasing.commands import run

MAX_GLIBC = (2, 35)
MINOR = f"python3.{sys.version_info[1]}"
# of the standard library: what no command imports
_LEFT_OUT = (
    "test", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data", "site-packages", "__pycache__",
    "config-*", "_tkinter*", "_test*", "_xxtest*", "xxlimited*", "*_test.*", "turtle.py",
)  # fmt: skip
_OF_GLIBC = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|nsl|crypt))\.so\..*|linux-vdso.*")
_LAUNCHER = """#!/bin/sh
# kseg with the Python beside it; follows links to itself
here=$0
case $here in */*) ;; *) here=./$here ;; esac
while [ -L "$here" ]; do
    link=$(readlink "$here")
    case $link in /*) here=$link ;; *) here=${here%/*}/$link ;; esac
done
home=$(cd "${here%/*}/.." && pwd)
exec "$home/python/bin/{python}" -I -m kseg "$@"
"""


def bundle(root: Path, wheel: Path, extras: Sequence[str], source: Path) -> None:
    """Make the tree at `root`. extras: of kseg's, such as `export`. Ends the release where it asks for too new a glibc."""
    shutil.rmtree(root, ignore_errors=True)
    home = root / "python"
    _copy_python(home)
    wanted = f"kseg[{','.join(extras)}] @ {wheel.resolve().as_uri()}" if extras else str(wheel)
    site = home / "lib" / MINOR / "site-packages"
    run(
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--only-binary", ":all:",
        "--no-binary", "crcmod", "--target", site, wanted,
    )  # fmt: skip
    shutil.rmtree(site / "bin", ignore_errors=True)
    _bring_libraries(home)
    launcher = root / "bin" / "kseg"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.replace("{python}", MINOR))
    launcher.chmod(0o755)
    shutil.copytree(source / "man", root / "share" / "man" / "man1", ignore=shutil.ignore_patterns("*.7"))
    shutil.copytree(source / "man", root / "share" / "man" / "man7", ignore=shutil.ignore_patterns("*.1"))
    _completions(launcher, root / "share" / "completions")
    floor = glibc_floor(root)
    if floor > MAX_GLIBC:
        raise SystemExit(f"release: the bundle needs glibc {'.'.join(map(str, floor))}")
    (root / "GLIBC").write_text(".".join(map(str, floor)) + "\n")
    # the hash of the source, and not its time, says whether bytecode fits: the same bytes each time, and no check at a start. -f: asking
    # for the completions has left some of the other kind
    run(home / "bin" / MINOR, "-I", "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash", "-s", home, home / "lib" / MINOR)  # fmt: skip


def _copy_python(home: Path) -> None:
    base = Path(sys.base_prefix)
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library, home / "lib" / MINOR, ignore=shutil.ignore_patterns(*_LEFT_OUT), symlinks=True)
    (home / "lib" / MINOR / "site-packages").mkdir()
    (home / "bin").mkdir()
    shutil.copy2((base / "bin" / MINOR).resolve(), home / "bin" / MINOR)


def elf_files(root: Path) -> Iterator[Path]:
    """All of them, in order."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as stream:
                if stream.read(4) == b"\x7fELF":
                    yield path


def _bring_libraries(home: Path) -> None:
    """Copy the libraries that the host may not have, until none is missing, and lead every file to them. Wheels bring their own, but for
    those of the C and C++ compilers."""
    library = home / "lib"
    ours = list(elf_files(home))
    while ours:
        brought = []
        for path in ours:
            for line in run("ldd", path).splitlines():
                needed = re.match(r"\s*(\S+) => (/\S+)", line)
                if needed is None or _OF_GLIBC.fullmatch(needed[1]) or (library / needed[1]).exists():
                    continue
                if not Path(needed[2]).resolve().is_relative_to(home.resolve()):
                    shutil.copy2(Path(needed[2]).resolve(), library / needed[1])
                    brought.append(library / needed[1])
            depth = len(path.parent.relative_to(home).parts)
            # a wheel's library keeps the way to those beside it
            option = "--add-rpath" if "site-packages" in path.parts else "--set-rpath"
            run("patchelf", option, "$ORIGIN/" + "../" * depth + "lib", path)
        ours = brought


def glibc_floor(root: Path) -> tuple[int, ...]:
    """The newest version of a symbol of glibc that a file below `root` asks for."""
    from elftools.elf.elffile import ELFFile  # with auditwheel; the tests of the gate do without
    from elftools.elf.gnuversions import GNUVerNeedSection

    names = set()
    for path in elf_files(root):
        with path.open("rb") as stream:
            for section in ELFFile(stream).iter_sections():
                if isinstance(section, GNUVerNeedSection):
                    names |= {auxiliary.name for _, needed in section.iter_versions() for auxiliary in needed}
    return newest_glibc(names)


def newest_glibc(names: Iterable[str]) -> tuple[int, ...]:
    """The newest of the versions `GLIBC_2.17`; those of other libraries and GLIBC_PRIVATE do not count."""
    found = (re.fullmatch(r"GLIBC_([0-9.]+)", name) for name in names)
    return max((tuple(map(int, each[1].split("."))) for each in found if each), default=(0, 0))


def _completions(launcher: Path, directory: Path) -> None:
    directory.mkdir(parents=True)
    for shell in ("bash", "zsh", "fish"):
        text = run(launcher, environment={"_KSEG_COMPLETE": f"source_{shell}"})
        if "_KSEG_COMPLETE" not in text:
            raise SystemExit(f"release: there is no completion for {shell}")
        (directory / f"kseg.{shell}").write_text(text)
