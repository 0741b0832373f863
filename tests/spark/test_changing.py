"""recover, compact and retain on a cluster produce the output and files of a local run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kseg.cli.main import run
from kseg.segment.partition.names import KSEG_DIRECTORY
from tests.support.change_cases import CHANGINGS, Changing
from tests.support.command_lines import Capfd
from tests.support.killed_runs import state, undo_all
from tests.support.run_commands import as_without_spark
from tests.support.trees import copy_tree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_RUN_ID = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")
_MOMENT = re.compile(r'"marked_at":\d+')
Output = tuple[int, str, str]


def same(text: str) -> str:
    """The text without what differs in every run: its id, and the creation times of the test's files."""
    return _MOMENT.sub("", _RUN_ID.sub("RUN", text))


def contents(root: Path) -> dict[str, bytes]:
    """The content of every file; for kseg's own files only the names, because they contain inodes."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {
        same(str(path.relative_to(root))): b""
        if KSEG_DIRECTORY in path.parts or path.name.startswith("kseg-journal-")
        else path.read_bytes()
        for path in files
    }


@pytest.fixture
def both(tmp_path: Path, capfd: Capfd) -> Callable[..., tuple[Path, Output]]:
    """Run a command on a directory and, after creating it again at the same path, with --spark; check that all results are the same."""

    def outcome(original: Path, words: list[str]) -> tuple[Output, dict[str, bytes]]:
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
        copy_tree(original, tmp_path / "work" / "data")
        capfd.readouterr()
        status = run(words)
        out, err = capfd.readouterr()
        return (status, same(out), same(err)), contents(tmp_path / "work")

    def both(original: Path, command: tuple[str, ...], *words: str) -> tuple[Path, Output]:
        given = [*command, *words, str(tmp_path / "work" / "data")]
        given = [word.replace("COPIES", str(tmp_path / "work" / "copies")) for word in given]
        alone, left = outcome(original, given)
        on_cluster, left_by_cluster = outcome(original, [*given, "--spark"])
        status, *printed = on_cluster
        assert (status, *map(as_without_spark, printed)) == alone
        assert ("next: kseg recover" in printed[0]) <= (" --spark " in printed[0])
        assert left_by_cluster == left
        return tmp_path / "work" / "data", alone

    return both


Both = Callable[..., tuple[Path, Output]]


@pytest.fixture
def original(changing: Changing, capture_small: Path, tmp_path: Path) -> Path:
    made = tmp_path / "original" / "data"
    changing.lay(capture_small, made)
    return made


@pytest.fixture(params=CHANGINGS)
def changing(request: pytest.FixtureRequest) -> Changing:
    return CHANGINGS[request.param]


def test_plan_on_a_cluster_equals_a_local_plan(
    any_spark: SparkSession, changing: Changing, original: Path, both: Both
) -> None:
    found = state(original)
    data, (status, out, err) = both(original, changing.words)
    # the plan is due
    assert status == 1, err
    assert out
    assert state(data) == found
    both(original, changing.words, "--json")


def test_in_place_change_on_a_cluster_equals_a_local_one(
    any_spark: SparkSession, changing: Changing, original: Path, both: Both
) -> None:
    found = state(original)
    both(original, changing.words, "--apply", "--json")
    data, (status, _, _) = both(original, changing.words, "--apply")
    assert status == 0
    assert state(data) != found
    # purged files are gone for good
    if "retain" not in changing.words:
        undo_all(data)
        assert state(data) == found


@pytest.mark.parametrize("name", ["recover", "compact"])
def test_copies_made_on_a_cluster_equal_local_ones(
    any_spark: SparkSession, name: str, capture_small: Path, tmp_path: Path, both: Both
) -> None:
    original = tmp_path / "original" / "data"
    CHANGINGS[name].lay(capture_small, original)
    found = state(original)
    data, (status, _, _) = both(original, CHANGINGS[name].words, "--output", "COPIES", "--json")
    assert status == 0
    assert state(data) == found
    assert len(list((data.parent / "copies").iterdir())) >= 2


def test_damaged_capture_is_changed_on_a_cluster_like_locally(
    local_spark: SparkSession, capture_small: Path, tmp_path: Path, both: Both
) -> None:
    """Truncated and zero-filled segments, garbage between batches, and missing files."""
    original = tmp_path / "original" / "data"
    copy_tree(capture_small / "data", original)
    logs = sorted(path for path in original.glob("*/*.log") if path.stat().st_size > 1000)
    for number, path in enumerate(logs):
        data = bytearray(path.read_bytes())
        match number % 5:
            case 0:
                del data[len(data) * 2 // 3 :]
            case 1:
                data[len(data) // 2 :] = bytes(len(data) // 2)
            case 2:
                data[300:300] = b"garbage" * 20
            case 3:
                path.with_suffix(".index").unlink(missing_ok=True)
        path.write_bytes(data)
    for policy in ("salvage", "kafka"):
        words = ("recover", "--policy", policy, "--now", "1800000000000")
        both(original, words, "--json")
        both(original, words, "--apply", "--json")
    both(original, ("recover", "--now", "1800000000000"), "--apply", "--mark-clean")


def test_change_on_a_cluster_is_refused_like_locally(
    local_spark: SparkSession, capture_small: Path, tmp_path: Path, both: Both
) -> None:
    original = tmp_path / "original" / "data"
    CHANGINGS["recover"].lay(capture_small, original)
    _, (status, _, err) = both(original, ("recover", "--apply", "--quarantine", "/dev/null/nowhere"))
    assert status == 4 and "nothing was changed" in err
    _, (status, _, err) = both(original, ("compact", "--cleanup-policy", "compact", "--apply"))
    assert status == 5 and "is damaged and was not compacted" in err
