"""Each artifact is installed in an empty environment without Python, compiler or network, and runs the commands of the demo."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIST = Path(os.environ.get("KSEG_DIST", ROOT / "dist"))
# the one with Arrow sorts first
TARBALLS = sorted(DIST.glob("kseg-*-linux-x86_64*.tar.gz"))
MAX_BYTES = 60 * 1000 * 1000
MAX_START_RATIO = 1.5
STARTS = 24
Kseg = Callable[..., "subprocess.CompletedProcess[str]"]
SYSTEM = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
UNSHARE = shutil.which("unshare", path=SYSTEM) or "unshare"
OFFLINE = [UNSHARE, "--net"] if os.geteuid() == 0 else [UNSHARE, "--map-root-user", "--net"]
CHROOT = shutil.which("chroot", path=SYSTEM) or "chroot"


def demo(kseg: Kseg) -> None:
    """The demo's commands: their exit statuses, and a word from the output of each."""
    assert kseg("--version").stdout.startswith("kseg ")
    assert "kernel: compiled" in kseg("--version").stdout
    assert "metro-zstd " in kseg("list", "--topic", "metro-*", ".").stdout
    log = "metro-zstd-0/00000000000000000000.log"
    assert kseg("dump", "--print-data-log", log).stdout.startswith(f"Dumping {log}\n")
    assert kseg("verify", ".").returncode == 0
    assert "offset 100" in kseg("lookup", "--timestamp", "1750000100000", "metro-zstd-0").stdout
    assert kseg("lookup", "--key", "stop8", "metro-none-0").returncode == 0


def damage_and_repair(kseg: Kseg, partition: Path) -> None:
    """Change a byte. recover removes the damage, and undo restores it."""
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
    """A root with a shell, glibc and the compilers' run-time libraries, and nothing else."""
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
        "libgcc_s.so.1",
        # only Arrow needs it
        "libstdc++.so.6",
    ]
    for source in [loader, *(library / name for name in names if (library / name).exists())]:
        target = place / str(source).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source.resolve(), target)
    (place / "dev" / "null").touch()
    return place


def inside(root: Path, program: str) -> Kseg:
    """Run a program in another root, as root, without a network. Skips the test if changing the root is not permitted."""
    if os.geteuid() != 0:
        pytest.skip("only root may change the root directory")

    def kseg(*words: str) -> subprocess.CompletedProcess[str]:
        # the loader finds libraries relative to a program by /proc
        within = f'cd /data && exec {program} "$@"'
        outside = f'mount -t proc proc "$0/proc" && exec {CHROOT} "$0" /bin/sh -c \'{within}\' kseg "$@"'
        command = [*OFFLINE, "--mount", "/bin/sh", "-c", outside, str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env={"HOME": "/tmp"})

    return kseg


@pytest.mark.parametrize("archive", TARBALLS, ids=lambda path: path.name)
def test_tarball_runs_on_a_host_without_python(archive: Path, tmp_path: Path, data: Path) -> None:
    root = empty_root(tmp_path / "root")
    with tarfile.open(archive) as packed:
        packed.extractall(root / "opt", filter="tar")
    shutil.copytree(data, root / "data")
    kseg = inside(root, "/opt/kseg/bin/kseg")
    demo(kseg)
    damage_and_repair(kseg, root / "data" / "metro-zstd-0")
    if "arrow" in archive.name:
        made = kseg("export", "--to", "parquet", "--output", "/tmp/out", "metro-none-0")
        assert (made.returncode, (root / "tmp" / "out").is_dir()) == (0, True), made.stderr
    else:
        assert archive.stat().st_size < MAX_BYTES
    parts = ("share/man/man1/kseg.1", "share/completions/kseg.bash", "SBOM.cdx.json", "licences/CPython.txt")
    assert all((root / "opt" / "kseg" / part).stat().st_size > 0 for part in parts)


@pytest.mark.parametrize("package", sorted(DIST.glob("*.deb")), ids=lambda path: path.name)
def test_debian_package_installs_every_file(package: Path, tmp_path: Path, data: Path) -> None:
    root = empty_root(tmp_path / "root")
    subprocess.run(["dpkg-deb", "--extract", package, root], check=True)
    shutil.copytree(data, root / "data")
    kseg = inside(root, "/usr/bin/kseg")
    demo(kseg)
    damage_and_repair(kseg, root / "data" / "metro-zstd-0")
    places = ("man/man1/kseg.1.gz", "man/man7/kseg-findings.7.gz", "bash-completion/completions/kseg", "doc/kseg/copyright")  # fmt: skip
    assert all((root / "usr" / "share" / place).stat().st_size > 0 for place in places)
    sums = tmp_path / "control"
    subprocess.run(["dpkg-deb", "--control", package, sums], check=True)
    subprocess.run(["md5sum", "--check", "--quiet", sums / "md5sums"], cwd=root, check=True)


def test_tarball_starts_about_as_fast_as_an_installation(tmp_path: Path, data: Path) -> None:
    """Processor time of `kseg --version` and of a small dump, alternating with an installation of the wheel in the tarball."""
    from releasing.interpreter import MINOR
    from releasing.wheels import pythons

    python = next(path for path in pythons() if path.resolve().name == f"python{MINOR}")
    (wheel,) = DIST.glob(f"*-cp{MINOR.replace('.', '')}-*.whl")
    subprocess.run([python, "-m", "venv", tmp_path / "venv"], check=True)
    subprocess.run([tmp_path / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", wheel], check=True)  # fmt: skip
    subprocess.run([tmp_path / "venv" / "bin" / "python", "-m", "compileall", "-q", tmp_path / "venv" / "lib"], check=False)  # fmt: skip
    with tarfile.open(TARBALLS[-1]) as packed:
        packed.extractall(tmp_path, filter="tar")
    programs = [tmp_path / "venv" / "bin" / "kseg", tmp_path / "kseg" / "bin" / "kseg"]
    for words in (["--version"], ["dump", "metro-none-0/00000000000000000144.log"]):
        spent: list[list[float]] = [[], []]
        for _ in range(STARTS):
            for which, program in enumerate(programs):
                spent[which].append(processor_s([str(program), *words], data))
        installed, unpacked = (sorted(each)[STARTS // 4] for each in spent)
        print(f"{words[0]}: installed {installed * 1000:.1f} ms, unpacked {unpacked * 1000:.1f} ms")
        assert unpacked <= MAX_START_RATIO * installed, (words, installed, unpacked)


def processor_s(command: list[str], place: Path) -> float:
    """The processor time of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=place, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("archive", TARBALLS, ids=lambda path: path.name)
def test_sbom_and_licences_cover_the_contents(archive: Path, tmp_path: Path) -> None:
    """Every package in the artifact is listed, and every binary belongs to a listed package."""
    from releasing import inventory

    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="tar")
    root = tmp_path / "kseg"
    bom = json.loads((root / "SBOM.cdx.json").read_text(encoding="utf-8"))
    named = {inventory.normal_name(each["name"]) for each in (*bom["components"], bom["metadata"]["component"])}  # fmt: skip
    packages = {inventory.normal_name(path.name.split("-")[0]) for path in root.rglob("*.dist-info")}
    assert packages <= named and inventory.owners(root) <= named
    assert {"openssl", "expat", "libffi", "cpython"} <= named
    licences = {inventory.normal_name(path.name) for path in (root / "licences").iterdir()}
    assert {each for each in packages if not any(name.startswith(each) for name in licences)} == set()
    assert all(any(path.is_file() for path in place.rglob("*")) for place in (root / "licences").iterdir() if place.is_dir())  # fmt: skip


@pytest.mark.parametrize("wheel", sorted(DIST.glob("*.whl")), ids=lambda path: path.name)
def test_wheel_installs_without_compiler_and_network(wheel: Path, tmp_path: Path, data: Path) -> None:
    from releasing.wheels import pythons

    tag = wheel.name.split("-")[2]
    python = next(path for path in pythons() if path.resolve().name == f"python3.{tag[3:]}")
    # a directory as the package index, filled before the network is removed
    house = tmp_path / "house"
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
    damage_and_repair(kseg, data / "metro-zstd-0")
    # a function that is declared in C is a Python function if a kernel was translated without its types
    words = "from kseg.segment.kernel import usual_blocks; print(hasattr(usual_blocks, 'lz4_end'))"
    python = bin_directory / "python"
    reported = subprocess.run([python, "-I", "-c", words], capture_output=True, text=True, check=True)
    assert reported.stdout == "False\n"
    share = tmp_path / "venv" / "share"
    assert (share / "man" / "man1" / "kseg.1").exists() and (share / "bash-completion" / "completions" / "kseg.bash").exists()  # fmt: skip


def test_every_artifact_has_its_checksum() -> None:
    lines = (DIST / "SHA256SUMS").read_text().splitlines()
    reported = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = {path.name for path in DIST.iterdir()} - {"SHA256SUMS"}
    assert set(reported) == files
    assert all(hashlib.sha256((DIST / name).read_bytes()).hexdigest() == reported[name] for name in files)


def test_bundle_requires_no_newer_glibc_than_declared(tmp_path: Path) -> None:
    from releasing.bundle import MAX_GLIBC, glibc_floor

    for archive in DIST.glob("kseg-*-linux-x86_64*.tar.gz"):
        with tarfile.open(archive) as packed:
            packed.extractall(tmp_path / archive.name, filter="tar")
        output = (tmp_path / archive.name / "kseg" / "GLIBC").read_text().strip()
        assert ".".join(map(str, glibc_floor(tmp_path / archive.name))) == output
        assert tuple(map(int, output.split("."))) <= MAX_GLIBC
    assert sys.platform == "linux"
