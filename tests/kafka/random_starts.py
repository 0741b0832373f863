"""Random data directories as a broker may find them: damage in partitions, in the metadata log, and in the files of the directory itself.

A case is repeated by its seed; `done` lists the changes.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.kafka.odd_directories import ODD_DAMAGES
from tests.kafka.random_directories import DAMAGES
from tests.kafka.random_ground import Ground
from tests.kafka.start_directories import MARKER, METADATA, SUFFIX

CHECKPOINTS = tuple(
    f"{name}-checkpoint"
    for name in ("recovery-point-offset", "log-start-offset", "replication-offset", "cleaner-offset")
)
WeightedDamages = list[tuple[Callable[[Ground], None], int]]
# without duplicate or invented records, which end a replay in other ways than a load, and without cleaning, which this log never undergoes
METADATA_DAMAGES: WeightedDamages = [
    (inflict, weight)
    for inflict, weight in DAMAGES
    if inflict.__name__
    not in ("repeat_bytes", "move_bytes", "append_nonsense", "join_segments", "leave_swap", "leave_cleaned")
]
FOREIGN_ID = "Zm9yZWlnbi10b3BpYy1pZA"


class Node:
    """The data directories of one node. rng: the source of randomness. done: the changes so far."""

    def __init__(self, rng: random.Random, log_dirs: Sequence[Path]) -> None:
        self.rng = rng
        self.log_dirs = log_dirs
        self.done: list[str] = []

    def a_log_dir(self) -> Path:
        return self.rng.choice(self.log_dirs)

    def partitions(self) -> list[Path]:
        """The directories of topic partitions, by path."""
        found = [
            path
            for log_dir in self.log_dirs
            for path in log_dir.iterdir()
            if (path / "partition.metadata").exists()
        ]
        return sorted(path for path in found if path.name != METADATA)

    def stop_uncleanly(self) -> None:
        self.done.append("unclean")
        for log_dir in self.log_dirs:
            (log_dir / MARKER).unlink(missing_ok=True)

    def a_partition(self) -> Path | None:
        found = self.partitions()
        return self.rng.choice(found) if found else None


def damage(node: Node) -> None:
    """Stop the node and make a few changes."""
    rng = node.rng
    if rng.random() < 0.6:
        node.stop_uncleanly()
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        change = rng.choices(*zip(*CHANGES, strict=True))[0]
        node.done.append(change.__name__)
        change(node)


# --- partitions


def damage_a_partition(node: Node) -> None:
    if path := node.a_partition():
        _damaged(node, path)


def damage_several_partitions(node: Node) -> None:
    for _ in range(node.rng.randint(2, 6)):
        damage_a_partition(node)


def damage_a_partition_oddly(node: Node) -> None:
    """Damage that differs more from what brokers write, and several kinds at once."""
    if path := node.a_partition():
        for _ in range(node.rng.choice((1, 2, 2, 3))):
            _damaged(node, path, ODD_DAMAGES)


def damage_the_metadata_log(node: Node) -> None:
    for log_dir in node.log_dirs:
        if (log_dir / METADATA).exists():
            _damaged(node, log_dir / METADATA, METADATA_DAMAGES)


def _damaged(node: Node, partition: Path, damages: WeightedDamages = DAMAGES) -> None:
    ground = Ground(node.rng, partition)
    ground.log_end = max((int(path.name.split(".")[0]) for path in ground.logs()), default=0) + 72
    inflict = node.rng.choices(*zip(*damages, strict=True))[0]
    node.done.append(f"{inflict.__name__} of {partition.parent.name}/{partition.name}")
    inflict(ground)


def set_a_partition_aside(node: Node) -> None:
    if path := node.a_partition():
        ending = node.rng.choice(
            (f".{SUFFIX}-delete", f".{SUFFIX}-stray", f".{SUFFIX}-future", f".{SUFFIX}-unknown", ".bak")
        )
        path.rename(path.with_name(path.name + ending))


def remove_a_partition(node: Node) -> None:
    if path := node.a_partition():
        shutil.rmtree(path)
        if node.rng.random() < 0.4:
            path.mkdir()


def repeat_a_partition(node: Node) -> None:
    """Copy a partition to another data directory, or to the name of an unknown partition."""
    path = node.a_partition()
    if path is None:
        return
    names = (path.name, path.name, f"{path.name}.{SUFFIX}-future", "nobody-0", "nobody-x", "-0")
    target = node.a_log_dir() / node.rng.choice(names)
    if not target.exists():
        shutil.copytree(path, target)


def leave_a_move(node: Node) -> None:
    """The state after a broker was killed while it moved a replica, and somebody cleaned up: future replicas beside live ones and in place
    of them, in the directory that the metadata log assigns and in others."""
    path = node.a_partition()
    if path is None or "." in path.name:
        return
    for _ in range(node.rng.choice((1, 1, 1, 2))):
        other = f"{node.rng.randrange(1 << 128):032x}"
        target = node.a_log_dir() / f"{path.name}.{other}-future"
        shutil.copytree(path, target)
        if node.rng.random() < 0.2:
            (target / "partition.metadata").unlink(missing_ok=True)
        if node.rng.random() < 0.3:
            _damaged(node, target)
    match node.rng.randrange(4):
        case 0:
            shutil.rmtree(path)
        case 1:
            target = node.a_log_dir() / path.name
            if not target.exists():
                path.rename(target)


def rename_oddly(node: Node) -> None:
    """A number that Java parses to the same value, or a link in place of a directory."""
    path = node.a_partition()
    if path is None or "." in path.name:
        return
    topic, _, number = path.name.rpartition("-")
    match node.rng.randrange(4):
        case 0:
            path.rename(path.with_name(f"{topic}-0{number}"))
        case 1:
            path.rename(path.with_name(f"{topic}-+{number}"))
        case 2:
            target = node.a_log_dir() / f"{topic}-00{number}"
            if not target.exists():
                shutil.copytree(path, target)
        case _:
            # beside the data directories, not in one of them
            target = path.parent.parent / "elsewhere" / path.name
            if not target.exists():
                target.parent.mkdir(exist_ok=True)
                path.rename(target)
                path.symlink_to(target)


def put_directories_in_place_of_files(node: Node) -> None:
    path = node.a_partition()
    if path is None:
        return
    for file in node.rng.sample(sorted(path.iterdir()), min(2, len(list(path.iterdir())))):
        if file.is_file() and node.rng.random() < 0.7:
            node.done.append(f"{path.name}/{file.name}")
            file.unlink()
            file.mkdir()


def move_a_partition(node: Node) -> None:
    path = node.a_partition()
    if path is not None:
        target = node.a_log_dir() / path.name
        if not target.exists():
            path.rename(target)


def change_an_identity(node: Node) -> None:
    if path := node.a_partition():
        file = path / "partition.metadata"
        match node.rng.randrange(4):
            case 0:
                file.unlink()
            case 1:
                file.write_text(f"version: 0\ntopic_id: {FOREIGN_ID}")
            case 2:
                file.write_text(node.rng.choice(("", "version: 0", "version: 1\ntopic_id: x", "garbage\n")))
            case _:
                file.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")


# --- files of a data directory


def change_a_checkpoint(node: Node) -> None:
    rng, path = node.rng, node.a_log_dir() / node.rng.choice(CHECKPOINTS)
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    lines = lines if len(lines) > 1 else ["0", "0"]
    node.done.append(f"of {path.parent.name}/{path.name}")
    entries = lines[2:]
    match rng.randrange(9):
        case 0:
            path.unlink(missing_ok=True)
            return
        case 1:
            path.write_text(rng.choice(("", "0\n", "garbage", "0\n1\n", "0\nx\n", "1\n0\n", "\n\n\n")))
            return
        case 2:
            data = bytearray(path.read_bytes() if path.exists() else b"") or bytearray(b"0\n0\n")
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            return
        case 3 if entries:
            entries.pop(rng.randrange(len(entries)))
        case 4 if entries:
            entries.append(rng.choice(entries))
        case 5:
            entries.append(f"nobody {rng.choice((0, 5, -1))} {rng.choice((0, 77, -1))}")
        case 6 if entries:
            topic, partition, *_ = (*entries.pop(rng.randrange(len(entries))).split(" "), "0")
            offset = rng.choice(("", "x", "1 2", str(2**63), "1.5", " 3", "+3"))
            entries.append(f"{topic} {partition} {offset}")
        case _ if entries:
            for _ in range(rng.randint(1, 5)):
                at = rng.randrange(len(entries))
                topic, partition, *_ = (*entries[at].split(" "), "0")
                entries[at] = f"{topic} {partition} {rng.choice((0, 1, 50, 72, 100, 144, 145, 10_000, -1))}"
    count = len(entries) + rng.choice((0,) * 8 + (1, -1))
    path.write_text("\n".join((lines[0], str(count), *entries, "")))


def add_something(node: Node) -> None:
    place = node.a_log_dir()
    name = node.rng.choice(
        (
            *("lost+found", "notes", "a-b", "a-1x", "x.y-", "backup.tmp", "orders-7", "orders-7.log"),
            *(".hidden", ".hidden-0", "q" * 249 + "-0", "-1", "a-2147483648", "ü-0", "x y-1"),
        )
    )
    if node.rng.random() < 0.6:
        (place / name).mkdir(exist_ok=True)
    else:
        (place / name).write_text("kept")


def change_meta_properties(node: Node) -> None:
    path = node.a_log_dir() / "meta.properties"
    if not path.exists():
        return
    lines = path.read_text().splitlines()
    match node.rng.randrange(5):
        case 0:
            path.unlink()
            return
        case 1:
            lines = [
                line
                for line in lines
                if not line.startswith(node.rng.choice(("version", "node", "cluster", "directory")))
            ]
        case 2:
            lines = [line.replace("node.id=1", "node.id=2") for line in lines]
        case 3:
            lines = [
                f"{line.partition('=')[0]}={node.rng.choice(('', 'x', '0', '1'))}"
                if node.rng.random() < 0.3
                else line
                for line in lines
            ]
        case _:
            lines.append(node.rng.choice(("more=1", "=", "broken", "directory.id=")))
    path.write_text("\n".join((*lines, "")))


# --- the metadata log


def change_metadata_files(node: Node) -> None:
    for log_dir in node.log_dirs:
        folder = log_dir / METADATA
        found = (
            [
                path
                for path in sorted(folder.glob("*"))
                if path.suffix in (".checkpoint", "") or path.name == "quorum-state"
            ]
            if folder.exists()
            else []
        )
        if not found:
            continue
        path = node.rng.choice(found)
        node.done.append(path.name)
        match node.rng.randrange(4):
            case 0:
                path.unlink()
            case 1:
                path.write_bytes(path.read_bytes()[: node.rng.randrange(path.stat().st_size + 1)])
            case 2:
                path.write_bytes(b"")
            case _:
                data = bytearray(path.read_bytes())
                if data:
                    data[node.rng.randrange(len(data))] ^= 1 << node.rng.randrange(8)
                path.write_bytes(data)


CHANGES: list[tuple[Callable[[Node], None], int]] = [
    (damage_a_partition, 8),
    (damage_several_partitions, 6),
    (damage_a_partition_oddly, 6),
    (damage_the_metadata_log, 4),
    (set_a_partition_aside, 4),
    (remove_a_partition, 3),
    (repeat_a_partition, 4),
    (leave_a_move, 4),
    (rename_oddly, 3),
    (put_directories_in_place_of_files, 2),
    (move_a_partition, 2),
    (change_an_identity, 3),
    (change_a_checkpoint, 8),
    (add_something, 2),
    (change_meta_properties, 2),
    (change_metadata_files, 2),
]
