"""Random data directories: a few partitions, and the files beside them in every state in which a broker may find them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.kafka.random_directories import random_case

NAMES = ("metro-0", "metro-1", "tram-0", "a.b-c_d-12", "x-2147483647")
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
_ID = "0a" * 16
_STATES = ("",) * 14 + (f".{_ID}-delete", f".{_ID}-future", f".{_ID}-stray")
_IDENTITY = "version=1\nnode.id=1\ncluster.id=Mz9XvQe1R0mU7bTq2LkP5w\ndirectory.id={}\n"


def random_log_dirs(seed: int, parent: Path) -> list[Path]:
    """One or two data directories of a node, below `parent`."""
    rng = random.Random(f"log dirs {seed}")
    made = []
    for number, identity in enumerate(
        ("AsCu_Qd6HlJL_AROE7wUxg", "BsCu_Qd6HlJL_AROE7wUxg")[: rng.choice((1, 1, 1, 2))]
    ):
        log_dir = parent / f"data{number}"
        log_dir.mkdir()
        (log_dir / "meta.properties").write_text(_IDENTITY.format(identity))
        _add_partitions(rng, log_dir)
        _add_files(rng, log_dir)
        made.append(log_dir)
    return made


def _add_partitions(rng: random.Random, log_dir: Path) -> None:
    for name in rng.sample(NAMES, rng.choice((0, 1, 2, 2, 3))):
        place = log_dir.parent / "made"
        place.mkdir()
        case = random_case(rng.randrange(10**6), place)
        shutil.move(case.directory, log_dir / (name + rng.choice(_STATES)))
        shutil.rmtree(place)
    if rng.random() < 0.06:
        odd = (
            "lost+found",
            "metro",
            "-0",
            "metro-x",
            "remote-log-index-cache",
            f"metro-0.{_ID}-gone",
            "metro--1",
            "metro-0-delete",
        )
        (log_dir / rng.choice(odd)).mkdir()
    if rng.random() < 0.05:
        (log_dir / rng.choice(("metro-9", "notes"))).write_text("a file")


def _add_files(rng: random.Random, log_dir: Path) -> None:
    names = sorted(path.name.partition(f".{_ID}")[0] for path in log_dir.iterdir() if path.is_dir())
    for checkpoint in CHECKPOINTS:
        if rng.random() < 0.8:
            (log_dir / checkpoint).write_bytes(_checkpoint(rng, names))
    if rng.random() < 0.5:
        marker = rng.choice((b"", b'{"version":0,"brokerEpoch":7}', b'{"version":9}', b"garbage", b"\0"))
        (log_dir / ".kafka_cleanshutdown").write_bytes(marker)


def _checkpoint(rng: random.Random, names: list[str]) -> bytes:
    entries = []
    for name in [*names, "gone-3"]:
        if rng.random() < 0.7:
            topic, _, partition = name.rpartition("-")
            offset = rng.choice((0, 3, 7, 20, 20, 60, 200, 10**6, -1, 2**63 - 1))
            entries.append(f"{topic} {partition} {offset}")
    if entries and rng.random() < 0.05:
        entries.append(rng.choice(entries))
    if entries and rng.random() < 0.08:
        entries[0] += rng.choice((" ", " 1", "\t", "x", " x"))
    if entries and rng.random() < 0.06:
        entries[0] = entries[0].replace(" ", rng.choice(("  ", "\t", "\u00a0", "")))
    if entries and rng.random() < 0.06:
        entries[-1] = rng.choice(
            ("metro 0 9223372036854775808", "metro x 1", "metro 0", "", "metro 0 +4", " metro 0 4")
        )
    count = str(len(entries) + rng.choice((0,) * 16 + (1, -1)))
    version = rng.choice(("0",) * 16 + ("1", "00", "", "x", "-1"))
    line = rng.choice(("\n",) * 8 + ("\r\n", "\r"))
    text = line.join([version, count, *entries]) + rng.choice((line,) * 6 + ("", line * 2))
    lost = (
        b"",
        b"0\n",
        b"0",
        b"\n",
        b"0\n\n",
        b"0\n-1\n",
        b"\0" * 9,
        b"\xff\n",
        b"0\n99999999999\n",
        text.encode()[:-3],
    )
    return text.encode() if rng.random() < 0.85 else rng.choice(lost)
