"""The units of work that PATH arguments are turned into: picklable values, one worker call each."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileTarget:
    """One file. path: as shown to the user (given path, or directory as given joined with the name)."""

    path: str


@dataclass(frozen=True, slots=True)
class PartitionTarget:
    """One partition directory. log_dir: the data directory it belongs to (where checkpoints are), None if unknown."""

    path: str
    log_dir: str | None = None


@dataclass(frozen=True, slots=True)
class LogDirTarget:
    """One data directory as a whole: its own files and what its partitions must agree on."""

    path: str


Target = FileTarget | PartitionTarget | LogDirTarget
