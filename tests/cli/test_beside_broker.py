"""Commands beside a running broker, represented by a process that holds its lock: states that are normal there are not reported, and
nothing is changed, however the directory was named."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint
from tests.support.command_lines import Capfd, Rows, Say
from tests.support.lock_holders import Child, child, running_broker
from tests.support.trees import unchanged

PARTITION = "fares-0"
POINTS = "recovery-point-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
WATERMARKS = "replication-offset-checkpoint"


@pytest.fixture
def data(capture_small: Path, tmp_path: Path) -> Path:
    made = tmp_path / "data"
    shutil.copytree(capture_small / "data", made)
    (made / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (made / ".lock").touch()
    return made


@pytest.fixture
def broker(data: Path) -> Iterator[Child]:
    with child(running_broker(data)) as process:
        assert process.output() == "in"
        yield process


def loud(rows: Rows) -> set[str]:
    return {row["id"] for row in rows if row.get("severity") in ("error", "warning")}


def clean(partition: Path) -> None:
    """The cleaner is running, and has replaced a segment except for its last rename."""
    (first, *_) = sorted(partition.glob("*.log"))
    shutil.copy2(first, first.with_suffix(".log.cleaned"))
    shutil.copy2(first, first.with_suffix(".log.swap"))


def recreate(partition: Path) -> None:
    """The topic was deleted and created again, and the checkpoints still have the offsets of the former one."""
    for name in (POINTS, WATERMARKS):
        path = partition.parent / name
        lines = path.read_text().splitlines()
        path.write_text("".join(f"{line}\n" for line in lines).replace("fares 0 ", "fares 0 9"))
        assert any(topic == "fares" for topic, *_ in decode_offset_checkpoint(path.read_bytes()))


def roll(partition: Path) -> None:
    """The active segment has only one batch so far, and no indexes yet."""
    last = max(partition.glob("*.log"))
    last.with_suffix(".index").unlink()
    last.with_suffix(".timeindex").unlink()


def begin_epoch(partition: Path) -> None:
    """The entry of a leader epoch is written before its first batch."""
    path = partition / "leader-epoch-checkpoint"
    version, _, *entries = path.read_text().splitlines()
    entries.append("99 99999999")
    path.write_text("".join(f"{line}\n" for line in (version, len(entries), *entries)))


@pytest.mark.parametrize(
    ("change", "ids"),
    [
        (clean, {"leftover-cleaned", "leftover-swap"}),
        (recreate, {"checkpoint-beyond-log"}),
        (roll, {"index-missing", "time-index-missing"}),
        (begin_epoch, {"leader-epoch-file-mismatch"}),
    ],
)
def test_normal_states_beside_a_running_broker_are_not_reported(
    data: Path, say: Say, change: Callable[[Path], None], ids: set[str]
) -> None:
    before = loud(say("verify", data)[1])
    change(data / PARTITION)
    assert loud(say("verify", data)[1]) - before == ids
    with child(running_broker(data)) as broker:
        assert broker.output() == "in"
        assert loud(say("verify", data)[1]) <= before


@pytest.mark.usefixtures("broker")
def test_missing_index_of_an_inactive_segment_is_reported(data: Path, say: Say) -> None:
    min((data / PARTITION).glob("*.index")).unlink()
    assert "index-missing" in loud(say("verify", data)[1])


def test_plan_beside_a_broker_leaves_the_checkpoints_alone(data: Path, say: Say) -> None:
    """The checkpoints are written after the logs were read, so they are newer."""
    (data / CLEANED).write_text("0\n1\nfares 0 99999999\n")
    (data / f"{CLEANED}.tmp").touch()

    def steps() -> set[str]:
        return {
            row["words"].split()[1].rstrip(":") for row in say("recover", data)[1] if row["type"] == "step"
        }

    ours = {CLEANED, f"{CLEANED}.tmp"}
    assert ours <= steps()
    with child(running_broker(data)) as broker:
        assert broker.output() == "in"
        assert not ours & steps()


APPLYING = [
    ["recover", "--apply"],
    ["recover", "--apply", "--policy", "kafka"],
    ["recover", "--apply", "--rebuild"],
    ["compact", "--apply"],
    ["retain", "--apply", "--retention-bytes", "1"],
    ["retain", "--apply", "--purge", "--retention-bytes", "1", "--file-delete-delay-ms", "0"],
]


def test_append_through_a_link_beside_a_broker_is_refused(data: Path, tmp_path: Path, capfd: Capfd) -> None:
    """The partition is given as a link in a directory that has no `.lock`."""
    (link := tmp_path / PARTITION).symlink_to(data / PARTITION)
    (records := tmp_path / "records.json").write_text('{"value": "x"}\n')
    words = ["append", "--apply", "--follow-links", "--from", str(records), str(link)]
    with child(running_broker(data)) as broker, unchanged(data):
        assert broker.output() == "in"
        assert run(words) == 4
    assert "is in use by a broker" in capfd.readouterr().err
    assert run(words) == 0


@pytest.mark.parametrize("is_linked", [False, True])
def test_undo_beside_a_broker_is_refused(data: Path, tmp_path: Path, capfd: Capfd, is_linked: bool) -> None:
    min((data / PARTITION).glob("*.index")).unlink()
    assert run(["recover", "--apply", str(data / PARTITION)]) == 0
    (link := tmp_path / PARTITION).symlink_to(data / PARTITION)
    words = ["undo", "--follow-links", str(link if is_linked else data / PARTITION)]
    capfd.readouterr()
    with child(running_broker(data)) as broker, unchanged(data):
        assert broker.output() == "in"
        assert run(words) == 4
    assert "is in use by a broker" in capfd.readouterr().err
    assert run(words) == 0


def whole(data: Path) -> list[Path]:
    return [data]


def of_several(data: Path) -> list[Path]:
    """The broker's log dir is the second one, and no process uses the first."""
    other = data.with_name("another")
    other.mkdir()
    shutil.copytree(data / "metro-none-0", other / "metro-none-0")
    shutil.copy2(data / POINTS, other)
    return [other, data]


def parent(data: Path) -> list[Path]:
    return [data.parent]


def partition(data: Path) -> list[Path]:
    return [data / PARTITION]


def segment(data: Path) -> list[Path]:
    return [min((data / PARTITION).glob("*.log"))]


def linked(data: Path) -> list[Path]:
    link = data.with_name("link")
    link.symlink_to(data)
    return [link]


def partition_below_link(data: Path) -> list[Path]:
    return [linked(data)[0] / PARTITION]


def linked_partition(data: Path) -> list[Path]:
    link = data.with_name(PARTITION)
    link.symlink_to(data / PARTITION)
    return [link]


def with_dots(data: Path) -> list[Path]:
    return [data / PARTITION / ".." / PARTITION]


@pytest.mark.slow
@pytest.mark.usefixtures("broker")
@pytest.mark.parametrize(
    "named",
    [
        whole,
        of_several,
        parent,
        partition,
        segment,
        linked,
        partition_below_link,
        linked_partition,
        with_dots,
    ],
)
@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("words", APPLYING, ids=" ".join)
def test_change_beside_a_broker_is_refused_however_the_path_is_given(
    data: Path, named: Callable[[Path], list[Path]], follows: bool, words: list[str], capfd: Capfd
) -> None:
    paths = [str(path) for path in named(data)]
    options = ["--follow-links"] if follows else []
    with unchanged(data.parent):
        assert run([*words, *options, *paths]) == 4
    said = capfd.readouterr().err
    assert "is in use by a broker" in said or (not follows and "only with --follow-links" in said), said
