"""The damage generators change exactly the named range of the named file."""

import inspect
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import diseases, healthy, side_diseases
from fixtures.diseases import LOG_DISEASES, InflictedDamage
from tests.support import trees

FIRST_LOG = f"{0:020d}.log"
MOVES_WHAT_FOLLOWS = {
    "foreign_bytes",
    "duplicated_batch",
    "missing_batch",
    "torn_tail",
    "short_tail",
    "zero_tail",
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return healthy.log_dir(tmp_path_factory.mktemp("sound") / "data")


@pytest.fixture
def data(sound: Path, tmp_path: Path) -> Path:
    return diseases.copy_of(sound, tmp_path / "data")


def changed(sound: Path, data: Path) -> set[str]:
    """Names of files whose kind or content differs."""
    before, after = trees.tree_state(sound), trees.tree_state(data)
    return {
        name
        for name in before.keys() | after.keys()
        if name not in before
        or name not in after
        or (before[name].kind, before[name].content) != (after[name].kind, after[name].content)
    }


@pytest.mark.parametrize("damaged_by", LOG_DISEASES, ids=lambda function: function.__name__)
def test_log_diseases_change_only_their_range(
    damaged_by: Callable[[Path], InflictedDamage], sound: Path, data: Path
) -> None:
    log = data / "metro-0" / FIRST_LOG
    damage = damaged_by(log)
    before, after = (sound / "metro-0" / FIRST_LOG).read_bytes(), log.read_bytes()
    assert damage.disease == damaged_by.__name__
    assert changed(sound, data) == {f"metro-0/{FIRST_LOG}"}
    assert before != after
    start, end = damage.position, damage.position + damage.length
    assert end <= len(after)
    assert (
        before[:start] == after[:start] or damage.length <= 8
    )  # sealing also changes the checksum, which precedes the field
    if damaged_by.__name__ not in MOVES_WHAT_FOLLOWS:
        assert before[end:] == after[end:]


SIDE_CASES: list[tuple[Callable[[Path], InflictedDamage], str]] = [
    (side_diseases.index_missing, f"metro-0/{FIRST_LOG}"),
    (side_diseases.time_index_missing, f"metro-0/{FIRST_LOG}"),
    (side_diseases.index_wrong_entry, f"metro-0/{0:020d}.index"),
    (side_diseases.index_entry_beyond_log, f"metro-0/{0:020d}.index"),
    (side_diseases.index_zero_tail, f"metro-0/{0:020d}.index"),
    (side_diseases.index_zero_tail, f"metro-0/{0:020d}.timeindex"),
    (side_diseases.index_unsorted, f"metro-0/{0:020d}.index"),
    (side_diseases.index_unsorted, f"metro-0/{0:020d}.timeindex"),
    (side_diseases.index_bad_size, f"metro-0/{0:020d}.txnindex"),
    (side_diseases.time_index_wrong_entry, f"metro-0/{0:020d}.timeindex"),
    (side_diseases.txn_index_missing_entry, f"metro-0/{0:020d}.txnindex"),
    (side_diseases.txn_index_wrong_entry, f"metro-0/{0:020d}.txnindex"),
    (side_diseases.txn_index_bad_version, f"metro-0/{0:020d}.txnindex"),
    (side_diseases.snapshot_stray, "metro-0"),
    (side_diseases.epoch_file_wrong, "metro-0"),
    (side_diseases.epoch_file_corrupt, "metro-0"),
    (side_diseases.partition_metadata_corrupt, "metro-0"),
    (side_diseases.partition_metadata_missing, "metro-0"),
    (side_diseases.leftover_cleaned, f"metro-0/{FIRST_LOG}"),
    (side_diseases.leftover_deleted, f"metro-0/{FIRST_LOG}"),
    (side_diseases.leftover_tmp, "metro-0/leader-epoch-checkpoint"),
    (side_diseases.unknown_file, "metro-0"),
    (side_diseases.checkpoint_corrupt, "recovery-point-offset-checkpoint"),
    (side_diseases.checkpoint_orphan, "replication-offset-checkpoint"),
]


@pytest.mark.parametrize(
    ("damaged_by", "name"), SIDE_CASES, ids=lambda case: getattr(case, "__name__", Path(str(case)).suffix)
)
def test_side_diseases_change_only_one_file(
    damaged_by: Callable[[Path], InflictedDamage], name: str, sound: Path, data: Path
) -> None:
    damage = damaged_by(data / name)
    assert changed(sound, data) == {str(damage.file.relative_to(data))}
    if damage.file.exists():
        assert damage.position + damage.length <= damage.file.stat().st_size


def test_snapshot_disease_changes_the_last_byte(sound: Path, data: Path) -> None:
    snapshot = max((data / "metro-0").glob("*.snapshot"))
    before = snapshot.read_bytes()
    damage = side_diseases.snapshot_corrupt(snapshot)
    assert snapshot.read_bytes()[:-1] == before[:-1]
    assert snapshot.read_bytes()[-1] != before[-1]
    assert damage.length == len(before)


def test_leftover_swap_disease_adds_the_indexes(sound: Path, data: Path) -> None:
    side_diseases.leftover_swap(data / "metro-0" / FIRST_LOG)
    names = {f"metro-0/{0:020d}{suffix}.swap" for suffix in (".log", ".index", ".timeindex")}
    assert changed(sound, data) == names


def test_segment_diseases_remove_all_files_of_a_segment(sound: Path, data: Path) -> None:
    base = sorted((data / "metro-0").glob("*.log"))[1]
    side_diseases.segment_gap(base)
    assert not list(base.parent.glob(f"{base.stem}.*"))
    damage = side_diseases.orphan_index(data / "metro-0" / FIRST_LOG)
    assert damage.file.exists()
    assert not (data / "metro-0" / FIRST_LOG).exists()


@pytest.mark.parametrize(
    ("damaged_by", "ending"),
    [
        (side_diseases.stray_directory, "-stray"),
        (side_diseases.deleted_directory, "-delete"),
        (side_diseases.future_directory, "-future"),
        (side_diseases.bad_directory_name, "metro_1"),
    ],
)
def test_directory_diseases_rename_directories(
    damaged_by: Callable[[Path], InflictedDamage], ending: str, data: Path
) -> None:
    damage = damaged_by(data / "metro-1")
    assert damage.file.name.endswith(ending)
    assert damage.file.is_dir()
    assert not (data / "metro-1").exists()


def test_checkpoint_disease_points_beyond_the_log(data: Path) -> None:
    checkpoint = data / "recovery-point-offset-checkpoint"
    side_diseases.checkpoint_beyond_log(checkpoint, "metro-1", 10**12)
    lines = checkpoint.read_text().splitlines()
    assert lines[:2] == ["0", "3"]
    assert "metro 1 1000000000000" in lines
    assert sum(line.startswith("metro 1 ") for line in lines) == 1


def test_false_clean_shutdown_disease_adds_a_marker(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    assert side_diseases.false_clean_shutdown(data).file.exists()


def test_every_log_disease_is_listed() -> None:
    own = {
        name
        for name, function in inspect.getmembers(diseases, inspect.isfunction)
        if function.__module__ == diseases.__name__
        and "-> fixtures.diseases.InflictedDamage" in str(inspect.signature(function))
    }
    assert own == {function.__name__ for function in LOG_DISEASES}


def test_healthy_log_dir_is_reproducible(sound: Path, tmp_path: Path) -> None:
    again = healthy.log_dir(tmp_path / "again")
    assert changed(sound, again) == set()
    shutil.rmtree(again)
