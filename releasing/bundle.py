"""The tarball for hosts without Python: an interpreter, the standard library, kseg and what it needs, movable to any directory.

1. The interpreter is one that asks for an old glibc (`interpreter`).
2. kseg's repaired wheel and its dependencies are installed into it, by a Python of the machine of the same version.
3. Shared libraries that are neither glibc's nor the compiler's are copied to `lib/`, and each ELF file finds them by a path relative to
   itself.
4. `bin/kseg` starts it, isolated from the Python settings of the host.
5. The newest version of a glibc symbol that any file asks for is the floor; it is written to `GLIBC` and may not be above MAX_GLIBC.

Of the host are glibc and the run-time libraries of the compilers (`libgcc_s`, which every distribution installs with glibc, and for Arrow
`libstdc++`): what manylinux expects too.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from releasing.commands import run
from releasing.interpreter import MINOR, copy_interpreter
from releasing.old_glibc import newest_glibc, versions

MAX_GLIBC = (2, 28)
PROGRAM = f"python{MINOR}"
_OF_HOST = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|gcc_s|stdc\+\+))\.so\..*|linux-vdso.*")
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


def bundle(root: Path, wheel: Path, python: Path, extras: Sequence[str], source: Path) -> None:
    """Make the tree at `root`. python: of the machine, of the version of the wheel. extras: of kseg's, such as `export`. Ends the release
    where it asks for too new a glibc."""
    shutil.rmtree(root, ignore_errors=True)
    home = root / "python"
    copy_interpreter(home, root.parent)
    wanted = f"kseg[{','.join(extras)}] @ {wheel.resolve().as_uri()}" if extras else str(wheel)
    site = home / "lib" / PROGRAM / "site-packages"
    run(
        python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--only-binary", ":all:",
        "--no-binary", "crcmod", "--target", site, wanted,
    )  # fmt: skip
    shutil.rmtree(site / "bin", ignore_errors=True)
    forget_origin(site)
    _bring_libraries(home)
    launcher = root / "bin" / "kseg"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.replace("{python}", PROGRAM))
    launcher.chmod(0o755)
    shutil.copytree(source / "man", root / "share" / "man" / "man1", ignore=shutil.ignore_patterns("*.7"))
    shutil.copytree(source / "man", root / "share" / "man" / "man7", ignore=shutil.ignore_patterns("*.1"))
    shutil.copytree(source / "completions", root / "share" / "completions")
    floor = glibc_floor(root)
    if floor > MAX_GLIBC:
        raise SystemExit(f"release: the bundle needs glibc {'.'.join(map(str, floor))}")
    (root / "GLIBC").write_text(".".join(map(str, floor)) + "\n")
    # the hash of the source, and not its time, says whether bytecode fits: the same bytes each time, and no check at a start.
    compiling = ("-I", "-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash")
    run(home / "bin" / PROGRAM, *compiling, "-s", home, home / "lib" / PROGRAM)


def forget_origin(site: Path) -> None:
    """Take out where on the build machine a wheel lay: the same bytes wherever a release is made."""
    for origin in site.glob("*.dist-info/direct_url.json"):
        origin.unlink()
        record = origin.with_name("RECORD")
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        named = f"{origin.parent.name}/{origin.name},"
        record.write_text("".join(line for line in lines if not line.startswith(named)), encoding="utf-8")


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
                needed = re.match(r"\s*(\S+) => (/.+) \(0x[0-9a-f]+\)", line)
                if needed is None or _OF_HOST.fullmatch(needed[1]) or (library / needed[1]).exists():
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
    return newest_glibc(name for path in elf_files(root) for name in versions(path))
