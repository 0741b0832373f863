"""Follow the steps of `kseg doctor` exactly as printed, on directories with which no broker starts (or starts only in part), and then start
a real broker."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.diseases import bad_crc, torn_tail
from tests.kafka.command_line_tools import type_in, write_tools
from tests.kafka.conftest import require_kafka
from tests.kafka.start_cases import CASES
from tests.kafka.start_directories import IDENTITY, MARKER, SUFFIX
from tests.kafka.starting import observed
from tests.support.command_lines import Rows, json_run
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

ALL = os.environ.get("KSEG_BROKER_STARTS") == "all"
ROUNDS = 3
Doctor = Callable[[list[Path]], Rows]
Disease = Callable[[Path], "Path | None"]


def node_of_another(data: Path) -> None:
    file = data / "meta.properties"
    file.write_text(file.read_text().replace("node.id=1", "node.id=7"))


def flipped_and_torn(data: Path) -> None:
    bad_crc(max((data / "metro-none-0").glob("*.log")))
    torn_tail(max((data / "fares-0").glob("*.log")))
    (data / MARKER).unlink()


def set_aside_by_mistake(data: Path) -> None:
    """Renamed as stray, as by a start with another metadata log. One of the directories was created again and is empty."""
    for name in ("fares-0", "metro-gzip-0"):
        (data / name).rename(data / f"{name}.{SUFFIX}-stray")
    (data / "metro-gzip-0").mkdir()


def renamed_by_hand(data: Path) -> None:
    (data / "metro-gzip-0").rename(data / "metro-gzip.old-0")
    (data / "fares-0").rename(data / "fares-3")


def renamed_to_no_name_of_a_partition(data: Path) -> None:
    """Renamed to names that are not those of a partition, one of them with the suffix of a copy."""
    (data / "metro-gzip-0").rename(data / "metro-gzip-0.bak")
    (data / "fares-0").rename(data / "fares-0 (copy)")
    (data / "metro-none-0").rename(data / "_metro-none-0.orig")
    copy_tree(data / "metro-lz4-0", data / "metro-lz4-0.old")


def metadata_log_renamed(data: Path) -> None:
    (data / "__cluster_metadata-0").rename(data / "__cluster_metadata-0.bak")
    (data / "fares-0").rename(data / "fares-0.bak")


def damaged_behind_a_link(data: Path) -> None:
    log = min((data / "metro-none-0").glob("*.log"))
    bad_crc(log)
    elsewhere = data.parent / "elsewhere.log"
    log.rename(elsewhere)
    log.symlink_to(elsewhere)


def damaged_in_a_linked_directory(data: Path) -> None:
    bad_crc(min((data / "metro-none-0").glob("*.log")))
    (data / "metro-none-0").rename(data.parent / "elsewhere")
    (data / "metro-none-0").symlink_to(data.parent / "elsewhere")


# see test_new_metadata_log.py
WITHOUT_METADATA_LOG = ("metadata_log_gone", "metadata_cut_without_snapshot")
DISEASES: dict[str, Disease] = {
    **{name: case for name, case in CASES.items() if name not in WITHOUT_METADATA_LOG},
    "set-aside-by-mistake": set_aside_by_mistake,
    "node-of-another": node_of_another,
    "flipped-and-torn": flipped_and_torn,
    "renamed-by-hand": renamed_by_hand,
    "renamed-to-no-name": renamed_to_no_name_of_a_partition,
    "metadata-log-renamed": metadata_log_renamed,
    "damaged-behind-a-link": damaged_behind_a_link,
    "damaged-in-a-linked-directory": damaged_in_a_linked_directory,
}
LOOKS = ("kseg list ", "kseg dump ", "kseg verify ")
# a broker renames an empty directory as stray and creates the partition again
EMPTIED = {"metro-gzip-0"}
IN_THE_GATE = (
    "set-aside-by-mistake",
    "renamed-by-hand",
    "renamed-to-no-name",
    "partition_emptied_and_no_meta_properties",
    "meta_properties_not_renamed",
    "node-of-another",
    "flipped-and-torn",
    "partition_twice",
    "second_is_empty",
    "foreign_cluster",
    "lost_and_found",
    "unfinished_copies",
    "directory_id_twice",
    "metadata_torn",
    "metadata_snapshot_foreign",
    "aborts_of_another_version_unclean",
)


@pytest.fixture
def doctor(capfd: pytest.CaptureFixture[str]) -> Doctor:
    """The rows of `kseg doctor`, called in this process because a test needs them several times."""

    def examine(log_dirs: list[Path]) -> Rows:
        status, rows = json_run("doctor", *log_dirs, capfd=capfd)
        assert status in (0, 1, 5)
        return rows

    return examine


def follow(
    log_dirs: list[Path], root: Path, values: dict[str, str], doctor: Doctor
) -> tuple[list[str], list[Path]]:
    """Type in the steps, round after round, until nothing is due. Returns what was typed, and the data directories that the steps examined
    last. Steps that need a running broker are left for later. values: what the user puts in for a word in capitals."""
    typed: list[str] = []
    for _ in range(ROUNDS):
        rows = doctor(log_dirs)
        apart = any(row["type"] == "finding" and row["id"] == "log-dirs-mixed" for row in rows)
        steps = [row["command"] for row in rows if row["type"] == "step" and (row["due"] or apart)]
        steps = [step for step in steps if not step.startswith("kafka-") or "storage" in step]
        # there is no copy to restore in this test
        gone = [step for step in steps if step.startswith("find ")]
        # what remains needs a human decision
        if all(step.startswith(LOOKS) for step in steps):
            return typed, log_dirs
        if not steps or (gone and len(steps) == len(gone) + 1):
            return typed, log_dirs
        for step in steps:
            if "--directory-id UUID" in step:
                own = {"UUID": IDENTITY["directory.id"]} if "/second " in step else {}
                step = shlex.join((values | own).get(word, word) for word in shlex.split(step))
            # searching the whole machine takes many seconds and finds no copy either
            if step.startswith("find / "):
                step = step.replace("/", shlex.quote(str(root)), 1)
            done = type_in(step, root)
            typed.append(step)
            assert done.returncode in (0, 1), (typed, done.stderr, done.stdout)
        words = shlex.split(next((step for step in steps if step.startswith("kseg doctor ")), ""))
        # of several nodes, continue with the first
        if words:
            log_dirs = [Path(word) for word in words[2:]]
    raise AssertionError(f"something is due after {ROUNDS} rounds: {typed}")


@pytest.mark.parametrize("name", DISEASES if ALL else IN_THE_GATE)
def test_broker_starts_after_the_steps_of_doctor(
    name: str, capture_small: Path, tmp_path: Path, doctor: Doctor
) -> None:
    require_kafka()
    data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
    lines = (data / "meta.properties").read_text().splitlines()
    known = dict(line.split("=", 1) for line in lines if "=" in line)
    values = {"N": known["node.id"], "ID": known["cluster.id"], "UUID": known["directory.id"]}
    more = DISEASES[name](data)
    log_dirs = [data] if more is None else [data, more]
    write_tools(tmp_path, data, log_dirs)
    typed, left = follow(log_dirs, tmp_path, values, doctor)
    seen = observed(tmp_path, left)
    assert (seen.outcome, seen.offline) == ("starts", set()), (typed, seen.log[-3000:])
    assert not seen.unserved and seen.strays <= EMPTIED, typed
