"""The fast path of `list` gives the same answer as the general path, or none."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from fixtures.healthy import partition
from kseg.inspection.inventory import list_target
from kseg.inspection.query import ListOptions
from kseg.inspection.quick_listing import quick_row
from kseg.jobs.events import Row
from kseg.segment import unreadable
from kseg.segment.kernel import bad_pages
from kseg.segment.partition.targets import PartitionTarget
from tests.support.broker_dirs import broker_dir

NOW_MS = 1_800_000_000_000
DAMAGES = int(os.environ.get("KSEG_LISTINGS", "150"))
FIRST_SEED = int(os.environ.get("KSEG_LISTINGS_SEED", "0"))


@pytest.fixture(autouse=True)
def other_disks_forgotten() -> None:
    """Forget bad sectors before each test: a process remembers them by inode, and inodes are reused."""
    if bad_pages.count():
        bad_pages.forget()
        unreadable.begin()


def general_row(target: PartitionTarget) -> dict[str, object]:
    options = ListOptions(now_ms=NOW_MS, count=False, files=False)
    (row,) = (event.values for event in list_target(target, options) if isinstance(event, Row))
    return dict(row)


def assert_equal_rows(target: PartitionTarget) -> bool:
    """Check that the answer of the fast path is the general one. Returns whether there is one."""
    quick = quick_row(target)
    if quick is None:
        return False
    general = general_row(target)
    missing = {name for name in general.pop("missing") if not name.startswith("a readable ")}  # type: ignore[attr-defined]
    assert set(quick.pop("missing")) == missing
    assert quick == {name: general[name] for name in quick}
    return True


def test_quick_listing_of_real_brokers_partitions_equals_the_general_one(capture_small: Path) -> None:
    data = capture_small / "data"
    answered = {
        path.name
        for path in data.iterdir()
        if path.is_dir() and assert_equal_rows(PartitionTarget(str(path), str(data)))
    }
    partitions = {path.name for path in data.iterdir() if path.is_dir()}
    assert answered >= partitions - {"__cluster_metadata-0"}


def test_quick_listing_of_a_cleaned_log_starts_at_its_first_record(capture_small: Path) -> None:
    """The first batches of the log are empty. The cleaner keeps them for their producers, without a first timestamp."""
    data = capture_small / "data"
    target = PartitionTarget(str(data / "stations-0"), str(data))
    options = ListOptions(now_ms=NOW_MS, count=True, files=False)
    (counted,) = (event.values for event in list_target(target, options) if isinstance(event, Row))
    quick = quick_row(target)
    assert quick is not None
    assert quick["earliest_timestamp"] == counted["earliest_timestamp"] == 1795250582580


@pytest.mark.parametrize("running", [True, False])
def test_quick_listing_of_ordinary_partitions_equals_the_general_one(tmp_path: Path, running: bool) -> None:
    data = broker_dir(tmp_path / "data", 2, 3, running=running)
    checkpoint = data / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\norders.00 1 77\n")
    marked = data / "orders.00-2"
    (marked / f"{0:020d}.log.deleted").touch()
    (marked / ".kseg").mkdir()
    for path in data.glob("orders.*"):
        assert assert_equal_rows(PartitionTarget(str(path), str(data))), path
    assert quick_row(PartitionTarget(str(data / "orders.00-1"), str(data)))["log_start_offset"] == 77  # type: ignore[index]


def test_unusual_partitions_use_the_general_listing(tmp_path: Path) -> None:
    def named(name: str) -> PartitionTarget:
        return PartitionTarget(str(partition(tmp_path / name)))

    for name, file in {
        "second-0": "5.log",
        "notes-0": "notes.txt",
        "cleaned-0": f"{0:020d}.log.cleaned",
        "tiered-0": "8_AAAAAAAAAAAAAAAAAAAAAA.index",
    }.items():
        target = named(name)
        (Path(target.path) / file).touch()
        assert not assert_equal_rows(target), name
    preallocated = named("preallocated-0")
    os.truncate(max(Path(preallocated.path).glob("*.log")), 1 << 20)
    assert not assert_equal_rows(preallocated)
    assert general_row(preallocated)["preallocated_bytes"] == (1 << 20) - 1860
    linked = named("linked-0")
    log = max(Path(linked.path).glob("*.log"))
    log.rename(tmp_path / "elsewhere.log")
    log.symlink_to(tmp_path / "elsewhere.log")
    assert not assert_equal_rows(linked)


@pytest.mark.parametrize(("running", "damages"), [(False, DAMAGES), (True, DAMAGES // 10)])
def test_quick_listing_of_random_damage_is_right_or_none(tmp_path: Path, running: bool, damages: int) -> None:
    """Changed bytes, truncated and missing files; and a running broker's indexes of 10 MiB, copied without holes."""
    sound = broker_dir(tmp_path / "sound", 1, 1, running=running) / "orders.00-0"
    names = sorted(path.name for path in sound.iterdir())
    answered = 0
    for seed in range(FIRST_SEED, FIRST_SEED + damages):
        lots = random.Random(seed)
        copy = Path(shutil.copytree(sound, tmp_path / str(seed) / "orders.00-0"))
        for _ in range(lots.choice((1, 1, 2, 5))):
            _damaged(copy / lots.choice(names), lots)
        answered += assert_equal_rows(PartitionTarget(str(copy)))
        shutil.rmtree(copy.parent)
    assert damages / 10 < answered < damages


def _damaged(file: Path, lots: random.Random) -> None:
    if not file.exists():
        return
    size = file.stat().st_size
    match lots.choice(("flip", "flip", "flip", "cut", "zeros", "garbage", "lose")):
        case "lose":
            file.unlink()
        case "cut":
            os.truncate(file, lots.randrange(min(size, 5000) + 1))
        case how:
            at = lots.randrange(min(size, 5000)) if size else 0
            with file.open("r+b") as out:
                out.seek(at)
                byte = (out.read(1) or b"\0")[0]
                out.seek(at)
                if how == "flip":
                    out.write(bytes([byte ^ (1 << lots.randrange(8))]))
                else:
                    length = lots.randrange(1, 300)
                    out.write(bytes(length) if how == "zeros" else lots.randbytes(length))
