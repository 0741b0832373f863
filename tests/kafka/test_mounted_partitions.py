"""Partition directories that are mount points themselves: a real 4.3.1 broker fails on those that it has to rename or delete, as `verify`
predicts, and no longer after the steps of `doctor`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kseg.cli.main import run
from kseg.segment.mounts import mounts
from tests.internal_topics.metadata_logs import topic_id
from tests.kafka.broker import CLIENT_LIMIT_S, Broker, BrokerFailed
from tests.kafka.command_line_tools import type_in
from tests.kafka.conftest import require_kafka
from tests.support.command_rows import of_type
from tests.support.doctor_helpers import NOW, commands, doctor
from tests.support.known_topics import FILE, ids, set_id
from tests.support.mounts import done_or_skipped

pytestmark = pytest.mark.kafka

STRAY, DELETED = "metro-lz4-0", "metro-gzip-0"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A directory below which nothing stays mounted."""
    yield tmp_path
    for mount in reversed([*mounts()]):
        if mount.point.startswith(f"{os.path.realpath(tmp_path)}/"):
            # a broker in a shared process keeps indexes of deleted segments mapped for a while
            subprocess.run(["umount", "--lazy", mount.point], check=True)


def mount(directory: Path) -> None:
    """Let a partition directory be a file system of its own."""
    moved = directory.rename(directory.parent.parent / f"former-{directory.name}")
    directory.mkdir()
    done_or_skipped(["mount", "-t", "tmpfs", "tmpfs", str(directory)])
    shutil.copytree(moved, directory, dirs_exist_ok=True)


@pytest.mark.evidence("mounted-directory")
def test_broker_fails_on_a_mounted_directory_that_becomes_stray(
    capture_small: Path, place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Until a link takes its place; then a broker also deletes the other one, which would have taken the data directory offline."""
    require_kafka()
    data = Path(shutil.copytree(capture_small / "data", place / "data"))
    for name in (STRAY, DELETED):
        mount(data / name)
    known = ids(data)["metro-lz4"]
    set_id(data / STRAY, topic_id(9))
    rows = doctor(capfd, data, status=1)
    assert {Path(row["path"]).name for row in rows if row.get("id") == "mounted-directory"} == {
        STRAY,
        DELETED,
    }
    (forecast,) = of_type(rows, "broker-start")
    assert forecast["exception"] == "FileSystemException" and "resource busy" in forecast["message"]
    assert [row["costs"]["kafka"] for row in of_type(rows, "damage") if row["partition"] == STRAY] == [
        {"dies_of": "FileSystemException"}
    ]
    assert run(["doctor", *NOW, str(data)]) == 1
    costs = next(line for line in capfd.readouterr().out.splitlines() if f"{STRAY}: `recover`" in line)
    assert costs.endswith("; a broker cannot load it (FileSystemException)")
    with pytest.raises(BrokerFailed), Broker(place / "fails", data).apart():
        pass
    assert "-stray: Device or resource busy" in (place / "fails" / "broker.log").read_text()
    for command in commands(rows):
        done = type_in(command, place)
        assert done.returncode in (0, 1), (command, done)
    assert known in (data / STRAY / FILE).read_text()
    assert {path.name for path in data.iterdir() if path.is_symlink()} == {STRAY, DELETED}
    with Broker(place / "broker", data) as broker:
        assert len(broker.consume("metro-lz4")) == 160
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        (deletion,) = admin.delete_topics(["metro-gzip"]).values()
        deletion.result(CLIENT_LIMIT_S)
        broker.wait_for("the deletion", lambda: not (data / DELETED).exists())
        assert len(broker.consume("metro-lz4")) == 160
