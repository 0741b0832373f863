"""A Debian package of the tarball's tree: below /usr/lib/kseg, with the program, the man pages and the completions where the system
looks."""

import gzip
import hashlib
import os
import shutil
from email.utils import formatdate
from pathlib import Path

from releasing.commands import run

MAINTAINER = "kseg developers <kseg@example.org>"
_COMPLETIONS = {
    "kseg.bash": "usr/share/bash-completion/completions/kseg",
    "_kseg": "usr/share/zsh/vendor-completions/_kseg",
    "kseg.fish": "usr/share/fish/vendor_completions.d/kseg.fish",
}
# the program brings its interpreter and libraries, compiled beforehand, so that it runs on hosts of any age
_OVERRIDES = """kseg: custom-library-search-path
kseg: embedded-library
kseg: library-not-linked-against-libc
kseg: package-installs-python-pycache-dir
kseg: script-not-executable
kseg: shared-library-lacks-prerequisites
kseg: unstripped-binary-or-object
kseg: unusual-interpreter
"""
_LAUNCHER = """#!/bin/sh
exec /usr/lib/kseg/bin/kseg "$@"
"""


def debian_package(root: Path, work: Path, dist: Path, version: str, note: str, epoch_s: int) -> Path:
    """Make it of the tree at `root`. work: a folder for its tree. note: the release note, its changelog. epoch_s: the time of every
    file."""
    tree = work / "debian"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(root, tree / "usr" / "lib" / "kseg", symlinks=True)
    for page in sorted((root / "share" / "man").rglob("*.[17]")):
        _packed(tree / "usr/share/man" / page.parent.name / f"{page.name}.gz", page.read_bytes())
    for name, place in _COMPLETIONS.items():
        (tree / place).parent.mkdir(parents=True)
        shutil.copy(root / "share" / "completions" / name, tree / place)
    shutil.rmtree(tree / "usr" / "lib" / "kseg" / "share")
    (tree / "usr" / "bin").mkdir()
    (tree / "usr" / "bin" / "kseg").write_text(_LAUNCHER, encoding="ascii")
    (tree / "usr" / "bin" / "kseg").chmod(0o755)
    papers = tree / "usr" / "share" / "doc" / "kseg"
    _packed(papers / "NEWS.md.gz", note.encode())
    _packed(papers / "changelog.gz", _changelog(version, epoch_s).encode())
    (papers / "copyright").write_text(_copyright(root), encoding="utf-8")
    overrides = tree / "usr" / "share" / "lintian" / "overrides" / "kseg"
    overrides.parent.mkdir(parents=True)
    overrides.write_text(_OVERRIDES, encoding="ascii")
    _control(tree, root, version)
    made = dist / f"kseg_{version}_amd64.deb"
    for path in [tree, *tree.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        os.utime(path, (epoch_s, epoch_s), follow_symlinks=False)
    run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", tree, made, environment={"SOURCE_DATE_EPOCH": str(epoch_s)})  # fmt: skip
    return made


def _packed(target: Path, content: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(content, 9, mtime=0))


def _changelog(version: str, epoch_s: int) -> str:
    """In the form of Debian's; what is new is in NEWS.md.gz."""
    date = formatdate(epoch_s)
    return (
        f"kseg ({version}) unstable; urgency=medium\n\n  * Release {version}.\n\n -- {MAINTAINER}  {date}\n"
    )


def _copyright(root: Path) -> str:
    names = sorted(path.name.removesuffix(".txt") for path in (root / "licences").iterdir())
    head = (
        "Copyright 2026 the kseg developers\n\nkseg is licensed under the Apache License 2.0, "
        "/usr/share/common-licenses/Apache-2.0\n\nWhat it brings along, with texts in "
        "/usr/lib/kseg/licences:\n\n"
    )
    return head + "".join(f"  {name}\n" for name in names)


def _control(tree: Path, root: Path, version: str) -> None:
    floor = (root / "GLIBC").read_text(encoding="ascii").strip()
    files = sorted(path for path in (tree / "usr").rglob("*") if path.is_file() and not path.is_symlink())
    place = tree / "DEBIAN"
    place.mkdir()
    size_kib = sum((path.stat().st_size + 1023) // 1024 for path in files)
    (place / "control").write_text(
        f"Package: kseg\nVersion: {version}\nArchitecture: amd64\nMaintainer: {MAINTAINER}\nInstalled-Size: {size_kib}\n"
        f"Depends: libc6 (>= {floor}), libgcc-s1 | libgcc1\nSection: admin\nPriority: optional\n"
        "Description: forensics and repair for the logs of Apache Kafka\n"
        " Reads the data directories of a broker, running or dead, says what is there\n"
        " and what is wrong, and makes sound logs of damaged ones.\n",
        encoding="utf-8",
    )
    lines = [f"{_md5(path)}  {path.relative_to(tree).as_posix()}\n" for path in files]
    (place / "md5sums").write_text("".join(lines), encoding="utf-8")


def _md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
