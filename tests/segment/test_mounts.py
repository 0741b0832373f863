"""The kernel's mount table: which file system a path is on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kseg.segment import mounts
from kseg.segment.mounts import mount_around

TABLE = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
40 22 8:17 / /data rw,noatime shared:5 master:3 - xfs /dev/sdb1 rw,attr2
41 40 8:33 / /data/with\040space ro,nosuid - ext4 /dev/sdc1 ro
42 22 0:40 / /data rw - tmpfs tmpfs rw,size=8192k
a line that is none
43 22 0:41 / /data2 rw
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "mountinfo"
    place.write_text(TABLE)
    monkeypatch.setattr(mounts, "_TABLE", str(place))


@pytest.mark.parametrize(
    ("path", "point", "kind", "is_read_only"),
    [
        ("/var/lib", "/", "ext4", False),  # `errors=remount-ro` does not mean read-only
        ("/data", "/data", "tmpfs", False),  # the later mount hides the earlier one
        ("/data/kafka", "/data", "tmpfs", False),
        ("/data/with space/kafka", "/data/with space", "ext4", True),
        ("/data2", "/", "ext4", False),  # a truncated line is ignored
        ("/database", "/", "ext4", False),
    ],
)
def test_longest_matching_mount_point_is_used(
    table: None, path: str, point: str, kind: str, is_read_only: bool
) -> None:
    found = mount_around(path)
    assert found is not None
    assert (found.point, found.type, found.is_read_only) == (point, kind, is_read_only)


def test_missing_mount_table_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "_TABLE", str(tmp_path / "none"))
    assert mount_around("/") is None


def test_real_mount_is_found_with_its_options(tmp_path: Path) -> None:
    place = tmp_path / "a disk"
    place.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m,noexec", "tmpfs", str(place)],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no tmpfs can be mounted here: {error}")
    try:
        found = mount_around(str(place / "kafka"))
        assert found is not None
        assert (found.point, found.type, found.is_read_only) == (os.path.realpath(place), "tmpfs", False)
        assert "noexec" in found.options
    finally:
        subprocess.run(["umount", str(place)], check=True)
