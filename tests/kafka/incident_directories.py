"""Whole data directories after operator and file system mishaps: parts restored from an older copy, rsync from a directory in use, a
partition copied over another one, a disk that filled up during a roll, blocks of zeros after a journal replay, files left by editors and
rsync, names in a different case, logs moved to another disk.

`Incident` holds the node and an older copy of its data directory. A case is repeated by its seed; `done` lists what happened.
"""

from __future__ import annotations

import gzip
import os
import random
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.kafka.random_starts import CHECKPOINTS, Node
from tests.kafka.start_directories import METADATA
from tests.kafka.strange_names import STRANGE_DIRECTORIES, STRANGE_FILES

BLOCK = 4096


class Incident(Node):
    """before: an older copy of the data directory, or None."""

    def __init__(self, rng: random.Random, log_dirs: Sequence[Path], before: Path | None) -> None:
        super().__init__(rng, log_dirs)
        self.before = before

    def some_partitions(self, share: float = 0.4) -> list[Path]:
        return [path for path in self.partitions() if self.rng.random() < share]

    def older(self, partition: Path) -> Path | None:
        """The older copy of a partition."""
        path = None if self.before is None else self.before / partition.name
        return path if path is not None and path.is_dir() else None


Happening = Callable[[Incident], None]


def strike(incident: Incident) -> None:
    """Apply the changes of one incident."""
    rng = incident.rng
    if rng.random() < 0.5:
        incident.stop_uncleanly()
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        happening = rng.choice(HAPPENINGS)
        incident.done.append(happening.__name__)
        # a link, which may be dangling
        with suppress(OSError):
            happening(incident)


# --- backups and copies


def restore_some_partitions(incident: Incident) -> None:
    """Restore some partitions from a backup. The checkpoints stay the current ones."""
    for path in incident.some_partitions():
        older = incident.older(path)
        if older is not None:
            shutil.rmtree(path)
            shutil.copytree(older, path)


def restore_over_what_is_there(incident: Incident) -> None:
    """Extract a backup over the directory (tar x): its files replace those of the same name, and the others stay."""
    for path in incident.some_partitions():
        older = incident.older(path)
        if older is not None:
            shutil.copytree(older, path, dirs_exist_ok=True)


def restore_the_checkpoints(incident: Incident) -> None:
    """Restore only the checkpoints, or only the partitions below the current checkpoints."""
    if incident.before is None:
        return
    for name in CHECKPOINTS:
        if (incident.before / name).exists() and incident.rng.random() < 0.6:
            shutil.copy2(incident.before / name, incident.log_dirs[0] / name)


def restore_the_metadata_log(incident: Incident) -> None:
    place = incident.log_dirs[0] / METADATA
    if incident.before is not None and place.is_dir():
        shutil.rmtree(place)
        shutil.copytree(incident.before / METADATA, place)


def restore_all_but_some_partitions(incident: Incident) -> None:
    if incident.before is None:
        return
    data = incident.log_dirs[0]
    keep = {path.name for path in incident.some_partitions(0.5)}
    for path in sorted(data.iterdir()):
        if path.is_dir() and path.name not in keep and (incident.before / path.name).is_dir():
            shutil.rmtree(path)
            shutil.copytree(incident.before / path.name, path)
    restore_the_checkpoints(incident)


def append_as_rsync_does(incident: Incident) -> None:
    """rsync --append from the directory in use to the older copy: files that are not longer stay as they are."""
    for path in incident.some_partitions(0.6):
        older = incident.older(path)
        if older is None:
            continue
        for file in sorted(path.iterdir()):
            known = older / file.name
            if file.is_file() and known.is_file():
                size, now = known.stat().st_size, file.read_bytes()
                file.write_bytes(known.read_bytes() + now[size:] if len(now) > size else known.read_bytes())
        for known in sorted(older.iterdir()):
            if not (path / known.name).exists():
                shutil.copy2(known, path / known.name)


def copy_files_at_different_times(incident: Incident) -> None:
    """Copy a directory in use: some files are from an earlier moment, and some had been deleted by the time they were to be copied."""
    rng = incident.rng
    for path in incident.some_partitions(0.6):
        older = incident.older(path)
        for file in sorted(path.iterdir()):
            if not file.is_file() or rng.random() < 0.5:
                continue
            if older is not None and (older / file.name).is_file():
                shutil.copy2(older / file.name, file)
            elif rng.random() < 0.2:
                file.unlink()
            elif file.suffix == ".log":
                os.truncate(file, rng.randrange(file.stat().st_size + 1))


def copy_a_partition_over_another(incident: Incident) -> None:
    found = incident.partitions()
    if len(found) < 2:
        return
    source, target = incident.rng.sample(found, 2)
    kept = (target / "partition.metadata").read_bytes()
    if incident.rng.random() < 0.4:
        shutil.rmtree(target)
    shutil.copytree(source, target, dirs_exist_ok=True)
    if incident.rng.random() < 0.5:
        (target / "partition.metadata").write_bytes(kept)


def rename_a_topic(incident: Incident) -> None:
    """Rename one or all partitions of a topic by hand, or exchange the names of two topics."""
    found = incident.partitions()
    if not found:
        return
    path = incident.rng.choice(found)
    topic, _, number = path.name.rpartition("-")
    new_name = incident.rng.choice(
        (
            f"{topic}.old-{number}",
            f"new{topic}-{number}",
            f"{topic}-{int(number) + 1}",
            f"{topic.upper()}-{number}",
        )
    )
    if not path.with_name(new_name).exists():
        path.rename(path.with_name(new_name))
        return
    aside = path.with_name("aside")
    path.rename(aside)
    path.with_name(new_name).rename(path)
    aside.rename(path.with_name(new_name))


def pack_old_segments(incident: Incident) -> None:
    """Compress old files with gzip to free space."""
    for path in incident.some_partitions():
        for log in sorted(path.glob("*.log"))[:-1][:1]:
            log.with_name(log.name + ".gz").write_bytes(gzip.compress(log.read_bytes()))
            log.unlink()


def empty_files(incident: Incident) -> None:
    """Truncate the files of old segments (`: > FILE`) to free space."""
    for path in incident.some_partitions():
        for log in sorted(path.glob("*.log"))[:-1]:
            if incident.rng.random() < 0.5:
                log.write_bytes(b"")


def delete_old_segments(incident: Incident) -> None:
    """Delete old .log files, with or without their side files."""
    rng = incident.rng
    for path in incident.some_partitions():
        logs = sorted(path.glob("*.log"))
        for log in logs[: rng.randint(0, len(logs))]:
            log.unlink()
            for file in path.glob(f"{log.stem}.*") if rng.random() < 0.6 else ():
                file.unlink()


def repeat_a_segment(incident: Incident) -> None:
    """Copy a segment to another base offset in the same partition."""
    rng = incident.rng
    for path in incident.some_partitions():
        logs = sorted(path.glob("[0-9]*.log"))
        if not logs:
            continue
        log = rng.choice(logs)
        base = abs(int(log.stem) + rng.choice((-1, 1, 7, 100, 1000)))
        for file in sorted(path.glob(f"{log.stem}.*")):
            if file.suffix == ".log" or rng.random() < 0.5:
                shutil.copy2(file, path / f"{base:020}{file.suffix}")


# --- disks


def roll_on_a_full_disk(incident: Incident) -> None:
    """The files of the next segment were created but have no content, and what was written at that time is lost."""
    rng = incident.rng
    for path in incident.some_partitions():
        snapshots = sorted(path.glob("*.snapshot"))
        end = int(snapshots[-1].stem) if snapshots else 0
        for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot"):
            if rng.random() < 0.6:
                (path / f"{end:020}{suffix}").write_bytes(b"")
        if rng.random() < 0.4:
            last = sorted(path.glob("*.log"))[-1:]
            for log in last:
                os.truncate(log, log.stat().st_size // BLOCK * BLOCK)
        if rng.random() < 0.3:
            (path / "leader-epoch-checkpoint.tmp").write_bytes(b"")
        if rng.random() < 0.3:
            (path / "leader-epoch-checkpoint").write_bytes(b"")
    for name in CHECKPOINTS:
        if rng.random() < 0.15:
            (incident.log_dirs[0] / name).write_bytes(b"")
        if rng.random() < 0.3:
            (incident.log_dirs[0] / f"{name}.tmp").write_bytes(b"")


def replay_of_a_journal(incident: Incident) -> None:
    """Recently written files have their size but contain zeros: small ones entirely, larger ones in blocks."""
    rng = incident.rng
    for path in incident.some_partitions(0.7):
        for file in sorted(path.iterdir()):
            size = file.stat().st_size if file.is_file() else 0
            if not size or rng.random() < 0.6:
                continue
            if file.suffix == ".log" or size > BLOCK:
                begin = rng.randrange(0, size // BLOCK + 1) * BLOCK
                end = size if rng.random() < 0.6 else begin + BLOCK
            else:
                begin, end = 0, size
            data = bytearray(file.read_bytes())
            data[begin:end] = bytes(len(data[begin:end]))
            file.write_bytes(data)
    for name in CHECKPOINTS:
        file = incident.log_dirs[0] / name
        if file.exists() and rng.random() < 0.1:
            file.write_bytes(bytes(file.stat().st_size))


def small_files_of_zeros(incident: Incident) -> None:
    """After a power failure on XFS, small files of one kind contain zeros in all partitions."""
    name = incident.rng.choice(
        ("leader-epoch-checkpoint", "*.snapshot", "*.index", "*.timeindex", "*.txnindex")
    )
    is_empty = incident.rng.random() < 0.5
    for path in incident.partitions():
        for file in sorted(path.glob(name))[-1:]:
            file.write_bytes(b"" if is_empty else bytes(file.stat().st_size))


def preallocated_indexes(incident: Incident) -> None:
    """The indexes of active segments are preallocated, as after a kill."""
    for path in incident.some_partitions(0.7):
        for log in sorted(path.glob("[0-9]*.log"))[-1:]:
            for suffix, size in ((".index", 262144), (".timeindex", 262140)):
                file = log.with_suffix(suffix)
                if file.exists():
                    os.truncate(file, size)


# --- names


def leave_strange_files(incident: Incident) -> None:
    rng = incident.rng
    for _ in range(rng.choice((1, 2, 4))):
        name = rng.choice(STRANGE_FILES)
        places = [*incident.log_dirs, *incident.some_partitions(0.3)]
        place = rng.choice(places) / name
        if not place.exists():
            place.write_bytes(rng.choice((b"", b"text\n", bytes(100))))


def leave_strange_directories(incident: Incident) -> None:
    rng = incident.rng
    name = rng.choice(STRANGE_DIRECTORIES)
    place = rng.choice([*incident.log_dirs, *incident.some_partitions(0.3)]) / name
    if not place.exists():
        place.mkdir()
        if rng.random() < 0.3:
            (place / "file").write_text("x")


def change_the_case_of_names(incident: Incident) -> None:
    for path in incident.some_partitions(0.2):
        for file in sorted(path.iterdir()):
            if incident.rng.random() < 0.5 and file.name != file.name.upper():
                file.rename(path / file.name.upper())


def link_things(incident: Incident) -> None:
    """A partition or a log was moved to another disk and replaced by a link, or a link is dangling."""
    rng = incident.rng
    elsewhere = incident.log_dirs[0].parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    for path in incident.some_partitions(0.3):
        if rng.random() < 0.5:
            target = elsewhere / path.name
            if not target.exists() and not path.is_symlink():
                path.rename(target)
                path.symlink_to(target)
        else:
            for file in sorted(path.glob("*.log"))[:1] if not path.is_symlink() else ():
                target = elsewhere / f"{path.name}.{file.name}"
                if not target.exists():
                    file.rename(target)
                    file.symlink_to(target)
                    if rng.random() < 0.2:
                        target.unlink()


def edit_with_a_windows_editor(incident: Incident) -> None:
    rng = incident.rng
    paths = [log_dir / name for log_dir in incident.log_dirs for name in ("meta.properties", *CHECKPOINTS)]
    paths += [
        path / name
        for path in incident.some_partitions()
        for name in ("leader-epoch-checkpoint", "partition.metadata")
    ]
    for path in paths:
        if path.is_file() and rng.random() < 0.3:
            text = path.read_bytes().replace(b"\n", b"\r\n")
            path.write_bytes(b"\xef\xbb\xbf" + text if rng.random() < 0.3 else text)


# --- data directories


def move_to_another_disk(incident: Incident) -> None:
    """Move partitions, the metadata log, or a file of the data directory to another disk by hand."""
    if len(incident.log_dirs) < 2:
        return
    rng = incident.rng
    source, target = rng.sample([*incident.log_dirs], 2)
    for path in sorted(source.iterdir()):
        if rng.random() < 0.3 and not (target / path.name).exists() and path.is_dir():
            path.rename(target / path.name)


def copy_to_another_disk(incident: Incident) -> None:
    """Copy to another disk and forget to remove the original."""
    if len(incident.log_dirs) < 2:
        return
    source, target = incident.rng.sample([*incident.log_dirs], 2)
    for path in sorted(source.iterdir()):
        if incident.rng.random() < 0.2 and not (target / path.name).exists() and path.is_dir():
            shutil.copytree(path, target / path.name)


HAPPENINGS: tuple[Happening, ...] = (
    restore_some_partitions,
    restore_over_what_is_there,
    restore_the_checkpoints,
    restore_the_metadata_log,
    restore_all_but_some_partitions,
    append_as_rsync_does,
    copy_files_at_different_times,
    copy_a_partition_over_another,
    rename_a_topic,
    pack_old_segments,
    empty_files,
    delete_old_segments,
    repeat_a_segment,
    roll_on_a_full_disk,
    replay_of_a_journal,
    small_files_of_zeros,
    preallocated_indexes,
    leave_strange_files,
    leave_strange_directories,
    change_the_case_of_names,
    link_things,
    edit_with_a_windows_editor,
    move_to_another_disk,
    copy_to_another_disk,
)
