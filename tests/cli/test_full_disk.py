"""A file system without a free byte is freed: `retain --purge --apply` needs none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.changing import NOW, OLD_NS, RETAIN

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")

SIZE = 8 << 20
MARKED_BYTES = 1 << 20


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    image = tmp_path / "image"
    image.write_bytes(b"")
    os.truncate(image, SIZE)
    make = ["mkfs.ext4", "-q", "-m", "0", str(image)] if request.param == "ext4" else ["true"]
    mount = ["mount", "-o", "loop", str(image), str(place)]
    if request.param == "tmpfs":
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    for words in (make, mount):
        try:
            subprocess.run(words, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no {request.param} can be mounted here: {error}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def _fill(path: Path) -> None:
    with path.open("wb", 0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(512))


def test_marked_files_are_deleted_without_a_free_byte(disk: Path, capture_small: Path) -> None:
    data = disk / "data"
    RETAIN.lay(capture_small, data)
    (data / "log-start-offset-checkpoint").unlink()  # there is nothing to mark
    marked = sorted(data.glob("*/*.deleted"))
    with marked[-1].open("ab") as file:
        file.write(bytes(MARKED_BYTES))
    os.utime(marked[-1], ns=(OLD_NS, OLD_NS))
    _fill(disk / "others")
    _fill(disk / "last block")
    assert os.statvfs(disk).f_bavail == 0
    words = ["retain", "--purge", "--apply", "--now", NOW, "--quiet", "--jobs", "1"]
    assert run([*words, *map(str, sorted({path.parent for path in marked}))]) in (0, 5)
    assert not [path for path in marked if path.exists()]
    assert os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize >= MARKED_BYTES - 64 * 1024
