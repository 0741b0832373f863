"""Each artifact, installed where there is nothing else: no Python, no compiler, no network; then the commands of the demo."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIST = Path(os.environ.get("KSEG_DIST", ROOT / "dist"))
MAX_BYTES = 60 * 1000 * 1000
Kseg = Callable[..., "subprocess.CompletedProcess[str]"]
SYSTEM = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
UNSHARE = shutil.which("unshare", path=SYSTEM) or "unshare"
OFFLINE = [UNSHARE, "--net"] if os.geteuid() == 0 else [UNSHARE, "--map-root-user", "--net"]
CHROOT = shutil.which("chroot", path=SYSTEM) or "chroot"


def demo(kseg: Kseg) -> None:
    """The demo's commands: their statuses, and a word of what each says."""
    assert kseg("--version").stdout.startswith("kseg ")
    assert "kernel: compiled" in kseg("--version").stdout
    assert "metro-zstd " in kseg("list", "--topic", "metro-*", ".").stdout
    log = "metro-zstd-0/00000000000000000000.log"
    assert kseg("dump", "--print-data-log", log).stdout.startswith(f"Dumping {log}\n")
    assert kseg("verify", ".").returncode == 0
    assert "offset 100" in kseg("lookup", "--timestamp", "1750000100000", "metro-zstd-0").stdout
    assert kseg("lookup", "--key", "stop8", "metro-none-0").returncode == 0


def hurt_and_repair(kseg: Kseg, partition: Path) -> None:
    """A byte is changed; recover takes the damage out, undo brings it back."""
    log = partition / "00000000000000000000.log"
    data = bytearray(log.read_bytes())
    data[700] ^= 0x58
    log.write_bytes(data)
    assert kseg("verify", partition.name).returncode == 1
    assert kseg("recover", "--apply", partition.name).returncode == 0
    assert kseg("verify", partition.name).returncode == 0
    assert kseg("undo", partition.name).returncode == 0
    assert log.read_bytes() == bytes(data)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with tarfile.open(ROOT / "fixtures" / "capture-small.tar.xz") as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    return tmp_path / "unpacked" / "capture-small" / "data"


def empty_root(place: Path) -> Path:
    """A root with a shell and glibc, and nothing else."""
    for directory in ("bin", "dev", "tmp", "proc"):
        (place / directory).mkdir(parents=True)
    shutil.copy2(Path("/bin/sh").resolve(), place / "bin" / "sh")
    libraries = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout.split()
    loader = Path(next(each for each in libraries if "ld-linux" in each and each.startswith("/")))
    library = Path(next(each for each in libraries if "libc.so" in each and each.startswith("/"))).parent
    names = [
        "libc.so.6",
        "libm.so.6",
        "libdl.so.2",
        "librt.so.1",
        "libpthread.so.0",
        "libutil.so.1",
        "libresolv.so.2",
    ]
    for source in [loader, *(library / name for name in names if (library / name).exists())]:
        target = place / str(source).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source.resolve(), target)
    (place / "dev" / "null").touch()
    return place


@pytest.mark.parametrize(
    "archive", sorted(DIST.glob("kseg-*-linux-x86_64*.tar.gz")), ids=lambda path: path.name
)
def test_the_tarball_runs_on_a_host_without_python(archive: Path, tmp_path: Path, data: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may change the root directory")
    root = empty_root(tmp_path / "root")
    with tarfile.open(archive) as packed:
        packed.extractall(root / "opt", filter="tar")
    shutil.copytree(data, root / "data")

    def kseg(*words: str) -> subprocess.CompletedProcess[str]:
        # the loader finds libraries relative to a program by /proc
        inside = 'cd /data && exec /opt/kseg/bin/kseg "$@"'
        outside = f'mount -t proc proc "$0/proc" && exec {CHROOT} "$0" /bin/sh -c \'{inside}\' kseg "$@"'
        command = [*OFFLINE, "--mount", "/bin/sh", "-c", outside, str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env={"HOME": "/tmp"})

    demo(kseg)
    hurt_and_repair(kseg, root / "data" / "metro-zstd-0")
    if "arrow" in archive.name:
        made = kseg("export", "--output", "/tmp/out.parquet", "metro-none-0")
        assert (made.returncode, (root / "tmp" / "out.parquet").exists()) == (0, True), made.stderr
    else:
        assert archive.stat().st_size < MAX_BYTES
    for part in (
        "share/man/man1/kseg.1",
        "share/completions/kseg.bash",
        "SBOM.cdx.json",
        "licences/CPython.txt",
    ):
        assert (root / "opt" / "kseg" / part).stat().st_size > 0


@pytest.mark.parametrize("wheel", sorted(DIST.glob("*.whl")), ids=lambda path: path.name)
def test_a_wheel_installs_without_a_compiler_and_a_network(wheel: Path, tmp_path: Path, data: Path) -> None:
    from releasing.wheels import pythons

    tag = wheel.name.split("-")[2]
    python = next(path for path in pythons() if path.resolve().name == f"python3.{tag[3:]}")
    house = tmp_path / "house"  # what an index has, fetched before the network is gone
    subprocess.run([python, "-m", "pip", "wheel", "--quiet", "--wheel-dir", house, wheel], check=True)
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    bin_directory = tmp_path / "venv" / "bin"
    alone = {"PATH": str(bin_directory), "HOME": str(tmp_path), "CC": "/nonexistent"}
    install = [
        bin_directory / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--find-links",
        house,
        wheel,
    ]
    subprocess.run([*OFFLINE, *map(str, install)], check=True, env=alone)

    def kseg(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*OFFLINE, str(bin_directory / "kseg"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=alone, cwd=data)

    demo(kseg)
    hurt_and_repair(kseg, data / "metro-zstd-0")
    assert (tmp_path / "venv" / "share" / "man" / "man1" / "kseg.1").exists()


def test_every_artifact_has_its_checksum() -> None:
    lines = (DIST / "SHA256SUMS").read_text().splitlines()
    told = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = {path.name for path in DIST.iterdir()} - {"SHA256SUMS"}
    assert set(told) == files
    assert all(hashlib.sha256((DIST / name).read_bytes()).hexdigest() == told[name] for name in files)


def test_the_bundle_asks_for_no_newer_glibc_than_it_says(tmp_path: Path) -> None:
    from releasing.bundle import MAX_GLIBC, glibc_floor

    for archive in DIST.glob("kseg-*-linux-x86_64*.tar.gz"):
        with tarfile.open(archive) as packed:
            packed.extractall(tmp_path / archive.name, filter="tar")
        said = (tmp_path / archive.name / "kseg" / "GLIBC").read_text().strip()
        assert ".".join(map(str, glibc_floor(tmp_path / archive.name))) == said
        assert tuple(map(int, said.split("."))) <= MAX_GLIBC
    assert sys.platform == "linux"
