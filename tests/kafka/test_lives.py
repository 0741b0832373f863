"""The states that random lives of a real broker leave (`lives`), as kseg reports them, compared with what the broker's next start does with
them.

Whenever the broker ends, on copies: `verify` finds no fault; its forecast of the start comes true; and `recover --policy kafka` leaves in
each partition what the start leaves. In every second life the broker has its own process and is killed. `KSEG_LIVES` is the number of lives
(default 1), `KSEG_LIVES_SEED` the first seed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kseg.segment.sidecar.checkpoint import decode_leader_epochs
from kseg.segment.sidecar.snapshot import decode_snapshot
from tests.kafka.conftest import require_kafka
from tests.kafka.lives import Life
from tests.kafka.starting import assert_as_foretold, foretold, observed
from tests.support.forked_programs import run_kseg
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

LIVES = int(os.environ.get("KSEG_LIVES", "1"))
SEED = int(os.environ.get("KSEG_LIVES_SEED", "2"))
ENDS = int(os.environ.get("KSEG_LIFE_ENDS", "2"))
# what a kill interrupts: the creation of replicas, of a segment's index (which is created with its first batch), and of the checkpoint
# entry for a log start offset
CUT_SHORT = {
    "replica-unmade",
    "replica-unfinished",
    "no-segments",
    "index-missing",
    "time-index-missing",
    "log-start-doubtful",
}
# what a stop or a kill interrupts: a cleaning
INTERRUPTED = {"leftover-cleaned"}
# a start after which everything stays as it was loaded
AT_REST = {"log.initial.task.delay.ms": "600000", "log.cleaner.enable": "false"}


@pytest.mark.parametrize("seed", range(SEED, SEED + LIVES))
def test_reports_on_random_broker_histories_match_the_next_start(seed: int, tmp_path: Path) -> None:
    require_kafka()
    life = Life(seed, tmp_path / "life")
    try:
        for end in range(ENDS):
            life.live()
            _judge(life, tmp_path / f"end{end}")
    except AssertionError as error:
        error.add_note("; ".join(life.done))
        raise


def _judge(life: Life, place: Path) -> None:
    ours = [copy_tree(log_dir, place / "ours" / log_dir.name) for log_dir in life.log_dirs]
    theirs = [copy_tree(log_dir, place / "theirs" / log_dir.name) for log_dir in life.log_dirs]
    settings = {**life.properties, **AT_REST}
    for copies in (ours, theirs):
        text = {**settings, "node.id": "1", "log.dirs": ",".join(map(str, copies))}
        properties = copies[0].parent / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in text.items()))
    _assert_sound(theirs, life)
    forecast = foretold(theirs, "--server-properties", str(theirs[0].parent / "server.properties"))
    assert forecast.node["outcome"] == "starts", forecast.node
    # strays of deleted topics
    strays = {Path(name).name for name in forecast.node["partitions_stray"]}
    of_ours = str(ours[0].parent / "server.properties")
    repair = ("recover", "--policy", "kafka", "--apply", "--server-properties", of_ours)
    _run(*repair, *map(str, ours), allowed=(0, 1) if strays else (0,))
    del settings["log.dirs"]
    assert_as_foretold(forecast, observed(place, theirs, 0.0, **settings))
    for one, other in zip(ours, theirs, strict=True):
        _assert_same_partitions(one, other, strays)


def _assert_sound(log_dirs: Sequence[Path], life: Life) -> None:
    rows = _run("verify", "--deep", *map(str, log_dirs), allowed=(0, 1))
    found = [row for row in rows if row["type"] == "finding" and row["severity"] != "info"]
    found = [row for row in found if row["id"] not in INTERRUPTED]
    if "killed" in life.done:
        found = [row for row in found if row["id"] not in CUT_SHORT and not _is_new(row)]
    if "delete_topic" in life.done:
        found = [row for row in found if not _is_deleted(row)]
    assert not found, json.dumps(found)


def _is_deleted(row: Mapping[str, Any]) -> bool:
    """Whether the row is about a partition of a topic that was deleted right before a kill. The next start renames it as stray, and it
    stays."""
    is_stray = any(part.endswith("-stray") for part in Path(row["path"]).parts)
    return is_stray or (row["id"] == "becomes-stray" and "was deleted" in row["message"])


def _is_new(row: Mapping[str, Any]) -> bool:
    """Whether the row is about a partition that was being created and is empty."""
    path = Path(row["path"])
    logs = (path if path.is_dir() else path.parent).glob("*.log")
    return row["id"] == "leftover-tmp" and not any(log.stat().st_size for log in logs)


def _run(*words: str, allowed: Sequence[int] = (0,)) -> list[Mapping[str, Any]]:
    done = run_kseg(words[0], "--json", *words[1:])
    assert done.returncode in allowed, (done.returncode, done.stdout[-3000:], done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _assert_same_partitions(ours: Path, theirs: Path, strays: Collection[str]) -> None:
    """Compare file by file. A start adds a leader epoch at the log end and writes to internal topics, and to others where a coordinator
    completes a transaction whose outcome it had logged."""
    for partition in sorted(path for path in ours.iterdir() if path.is_dir() and "." not in path.name):
        if (
            partition.name in strays
            or partition.name.startswith("__")
            or not (partition / "partition.metadata").exists()
        ):
            continue
        made, left = _files(partition), _files(theirs / partition.name)
        active = max(name for name in made if name.endswith(".log"))
        later = left.get(active, b"")
        if len(later) > len(made[active]) and later.startswith(made[active]):
            continue
        assert made.keys() == left.keys(), (partition.name, made.keys() ^ left.keys())
        for name, data in made.items():
            where = f"{partition.name}/{name}"
            if name == "leader-epoch-checkpoint":
                own, other = decode_leader_epochs(data), decode_leader_epochs(left[name])
                assert other[: len(own)] == own and len(other) - len(own) <= 1, (where, own, other)
            # its entries are in the order of a hash map
            elif name.endswith(".snapshot"):
                assert sorted(decode_snapshot(data)) == sorted(decode_snapshot(left[name])), where
            else:
                assert data == left[name], (where, len(data), len(left[name]))


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
