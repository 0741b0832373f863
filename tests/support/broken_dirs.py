"""A data directory with every kind of damage that the fixtures contain, each in its own partitions."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from fixtures import side_diseases as S
from fixtures.diseases import LOG_DISEASES
from tests.recovery.verify.test_verify_side_diseases import SIDE_DISEASES
from tests.support.broker_dirs import broker_dir
from tests.support.damaged_dirs import ID, INNER

# damage to the data directory itself, applied once at the end
_OF_ALL = {
    "checkpoint_beyond_log",
    "log_start_beyond_end",
    "checkpoint_corrupt",
    "checkpoint_orphan",
    "unknown_file_in_log_dir",
    "meta_properties_missing",
    "meta_properties_corrupt",
    "not_stopped",
    "clean_shutdown_corrupt",
    "topic_id_conflict",
}
_DIRECTORIES: tuple[Callable[[Path], object], ...] = (
    S.stray_directory,
    S.deleted_directory,
    S.future_directory,
    shutil.rmtree,
)


def broken_dir(directory: Path, topics: int, partitions: int) -> Path:
    """The log dir of a killed broker in which only a few partitions are valid."""
    data = broker_dir(directory, topics, partitions)
    folders = sorted(path for path in data.iterdir() if path.name.startswith("orders."))
    damages = [
        *map(_of_log, LOG_DISEASES),
        *(_of_side(*each[:2]) for each in SIDE_DISEASES if each[0] not in _OF_ALL),
    ]
    assert len(folders) > len(damages) + len(_DIRECTORIES)
    for number, folder in enumerate(folders[len(_DIRECTORIES) :]):
        damages[number % len(damages)](folder)
    for damage, folder in zip(_DIRECTORIES, folders, strict=False):
        damage(folder)
    S.checkpoint_corrupt(data / "replication-offset-checkpoint")
    S.checkpoint_orphan(data / "recovery-point-offset-checkpoint")
    S.checkpoint_beyond_log(data / "log-start-offset-checkpoint", folders[-1].name)
    S.unknown_file(data)
    return data


def _of_log(disease: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: disease(folder / f"{Path(INNER).name}.log")


def _of_side(name: str, damage: Callable[[Path], object]) -> Callable[[Path], object]:
    """The damage of these cases to `metro-0` (or `metro-1`), applied to a partition with another name."""

    def in_its_place(folder: Path) -> None:
        stage = folder.with_name(f"{folder.name}.{ID}")
        stage.mkdir()
        called = stage / ("metro-1" if name == "no_segments" else "metro-0")
        folder.rename(called)
        try:
            damage(stage)
        finally:
            called.rename(folder)
            stage.rmdir()

    return in_its_place
