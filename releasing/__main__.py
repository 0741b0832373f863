"""`./release [--check]`: the steps, in order.

Everything is built from `git archive HEAD`, so that what is not committed is not published, with the time of that commit. Without a Python
or its headers a wheel is left out, and the release says which ones it made.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from releasing import archives, changelog
from releasing.bundle import bundle
from releasing.commands import run
from releasing.debian import debian_package
from releasing.interpreter import MINOR
from releasing.inventory import write_licences, write_sbom
from releasing.wheels import pythons, source_distribution, wheel

HERE = Path(__file__).resolve().parent.parent
BUNDLES = {"": (), "-arrow": ("export", "schemas")}
OF_ARTIFACTS = (  # the arguments of pytest for the tests of artifacts
    "-ctests/release/pytest.ini",
    "--rootdir=.",
    "--confcutdir=tests/release",
    "-pno:cacheprovider",
    "tests/release",
)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="release", description="Build what is published, into dist/.")
    parser.add_argument(
        "--check", action="store_true", help="install what dist/ holds into empty roots, and use it"
    )
    if parser.parse_args().check:
        raise SystemExit(check(HERE / "dist"))
    build(HERE / "dist")


def check(dist: Path) -> int:
    """The status of the tests of the artifacts. They run by themselves, without what the tests of the gate share: neither their
    configuration nor their plugins are among the tools of a release."""
    words = ["-m", "pytest", "-q", *OF_ARTIFACTS]
    environment = {**os.environ, "KSEG_DIST": str(dist), "PYTHONPATH": str(HERE)}
    return subprocess.call([sys.executable, *words], cwd=HERE, env=environment)


def build(dist: Path) -> None:
    """All artifacts, created again."""
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    source, epoch_s = _clean_source()
    version = changelog.version_of(source)
    note = changelog.release_note((source / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    (dist / "RELEASE-NOTE.md").write_text(note, encoding="utf-8")
    sdist = source_distribution(source, dist, epoch_s)
    print(f"made {sdist.name}", flush=True)
    bundled: tuple[Path, Path] | None = None
    for python in pythons():
        made = wheel(python, sdist, dist, epoch_s)
        if f"-cp{MINOR.replace('.', '')}-" in made.name:
            bundled = made, python
        print(f"made {made.name}", flush=True)
    if bundled is None:
        print(f"made no tarball: there is no Python {MINOR}, whose wheel goes into it")
    else:
        _hosts(dist, source, version, note, *bundled, epoch_s)
    (dist / "SHA256SUMS").write_text(archives.checksums(dist), encoding="ascii")


def _hosts(
    dist: Path, source: Path, version: str, note: str, wheel: Path, python: Path, epoch_s: int
) -> None:
    """What needs no Python on the host: the tarballs, and the smaller one as a Debian package."""
    for suffix, extras in BUNDLES.items():
        name = f"kseg-{version}-linux-x86_64{suffix}"
        root = HERE / ".release" / "kseg"
        bundle(root, wheel, python, extras, source)
        write_licences(root, source)
        write_sbom(root, source, dist / f"{name}.cdx.json")
        shutil.copy(dist / f"{name}.cdx.json", root / "SBOM.cdx.json")
        archives.write_tar(dist / f"{name}.tar.gz", root, "kseg", epoch_s)
        print(f"made {name}.tar.gz, for glibc {(root / 'GLIBC').read_text().strip()} or newer", flush=True)
        if not extras and shutil.which("dpkg-deb"):
            print(
                f"made {debian_package(root, HERE / '.release', dist, version, note, epoch_s).name}",
                flush=True,
            )


def _clean_source() -> tuple[Path, int]:
    """The committed tree in .release/source, and the time of its commit (SOURCE_DATE_EPOCH takes precedence)."""
    source = HERE / ".release" / "source"
    shutil.rmtree(source, ignore_errors=True)
    packed = subprocess.run(
        ["git", "archive", "--format=tar", "HEAD"], cwd=HERE, check=True, capture_output=True
    )
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(source, filter="data")
    committed = run("git", "log", "-1", "--format=%ct", into=HERE).strip()
    return source, int(os.environ.get("SOURCE_DATE_EPOCH", committed))


if __name__ == "__main__":
    main()
