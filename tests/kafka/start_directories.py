"""Common parts of the cases in `start_cases` and `partition_start_cases`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

Case = Callable[[Path], "Path | None"]

METADATA = "__cluster_metadata-0"
SUFFIX = "0123456789abcdef0123456789abcdef"
IDENTITY = {
    "version": "1",
    "node.id": "1",
    "cluster.id": "Mz9XvQe1R0mU7bTq2LkP5w",
    "directory.id": "AsCu_Qd6HlJL_AROE7wUxg",
}
MARKER = ".kafka_cleanshutdown"


def registered(cases: dict[str, Case]) -> Callable[[Case], Case]:
    """A decorator that adds a function to the cases by its name."""

    def add(make: Case) -> Case:
        cases[make.__name__] = make
        return make

    return add


def second(first: Path, partition: str = "", **identity: str | None) -> Path:
    """Another data directory of the same node, with a copy of a partition."""
    made = first.parent / "second"
    made.mkdir()
    if partition:
        shutil.copytree(first / "fares-0", made / partition)
    values = IDENTITY | {key.replace("_", "."): value for key, value in identity.items()}
    lines = (f"{key}={value}\n" for key, value in values.items() if value is not None)
    (made / "meta.properties").write_text("".join(lines))
    return made


def unclean_from_the_start(data: Path) -> None:
    (data / MARKER).unlink()
    (data / "recovery-point-offset-checkpoint").unlink()


def metadata_log_unclosed(data: Path) -> None:
    """The metadata log as a clean stop of Kafka 4.4.0 leaves it: everything is written, but the indexes keep their preallocated size."""
    log = max((data / METADATA).glob("*.log"))
    for suffix, size_bytes in ((".index", 10_485_760), (".timeindex", 10_485_756)):
        with log.with_suffix(suffix).open("r+b") as file:
            file.truncate(size_bytes)
