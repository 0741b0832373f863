"""Incidents whose commands and output are kept as transcripts: how each directory is created, and the commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.group_dirs import went_back
from tests.transcript_directories import (
    a_bit_flips,
    backed_up,
    bad_disk,
    crashed,
    crashed_with_marked,
    filling_disk,
    flipped,
    full_disk,
    hanging,
    many,
    replicas,
    running,
    sound,
    tiered,
    torn,
)


@dataclass(frozen=True)
class Incident:
    """make: creates the directory `data` in the given folder. commands: without `kseg`; a function is called in between. columns: of a
    terminal, None without one. variables: of the environment. disk: makes the disk below fail while the commands run, not on a terminal."""

    name: str
    make: Callable[[Path], object]
    commands: tuple[str | Callable[[], None], ...]
    columns: int | None = None
    variables: tuple[tuple[str, str], ...] = ()
    disk: Callable[[pytest.MonkeyPatch], object] | None = None


# read-only commands of every kind, except those in _ON_A_BAD_DISK and in the lists below
_READING = (
    "lookup --key key-5 --topic orders.00 data",
    "groups data",
    "transactions --topic orders.00 data",
    "metadata data",
    "undo --list data",
)
# the other commands, planned, applied and undone; for one topic, and for one undamaged log of it
_MORE = (
    "read --offset 60 --max-bytes 200 data/{log}",
    "dump --format table --from-offset 300 --limit 5 data/{log}",
    "export --to json --output out --topic {topic} data",
    "append --from events.jsonl data/fresh-0",
    "append --from events.jsonl --apply data/fresh-0",
    "undo data/fresh-0",
    "retain --retention-bytes 6000 --cleanup-policy delete --topic {topic} --apply data",
    "undo --list data",
    "undo --forget data",
    "undo data",
)
_ON_A_BAD_DISK = (
    "verify data",
    "recover data",
    "recover --apply data",
    "compact --cleanup-policy compact --apply --topic orders.00 data",
    "retain --purge --file-delete-delay-ms 0 --apply data",
    "append --from events.jsonl --apply data/orders.00-3",
    "append --from events.jsonl --start-offset 0 --apply data/fresh-0",
    "export --to json --output out --topic orders.00 data",
    "undo data",
)


def _of(commands: tuple[str, ...], topic: str, whole: str) -> tuple[str, ...]:
    """The commands for one topic and one undamaged log of it."""
    return tuple(line.format(topic=topic, whole=f"data/{whole}") for line in commands)


def _more(topic: str, log: str) -> tuple[str, ...]:
    return tuple(line.format(topic=topic, log=log) for line in _MORE)


INCIDENTS = (
    Incident(
        "sound",
        sound,
        (
            "verify data",
            "doctor data",
            "recover data",
            "list data",
            "list --partitions --sort size data",
            "list --verbose --topic orders.00 --partition 1 data",
            "compact data",
            "retain data",
            "retain --retention-bytes 6000 data",
            "lookup --key key-5 --topic orders.01 data",
            "lookup --timestamp 2023-11-14T22:15:00Z data/orders.00-0",
            "lookup --explain --offset 200 data/orders.00-0",
            "read --offset 60 --max-bytes 2KiB data/orders.00-0",
            "dump --format table --from-offset 100 --limit 5 data/orders.00-0",
            "undo --list data",
        ),
    ),
    Incident("running", running, ("verify data", "recover data", "list data")),
    Incident(
        "one-flipped-bit",
        flipped,
        (
            "verify data",
            "doctor data",
            "verify --quiet data",
            "recover data",
            "recover data/orders.01-2",
            "lookup --offset 13 data/orders.01-2",
            "recover --apply --topic orders.01 data",
            "verify --topic orders.01 data",
            "undo --list data",
            "undo data",
            "verify --topic orders.01 data",
            "list data",
            *_READING[:-1],
            "compact --cleanup-policy compact data",
            *_more("orders.01", "orders.01-1"),
        ),
    ),
    Incident(
        "crashed",
        crashed,
        (
            "verify data",
            "doctor data",
            "recover data",
            "recover --policy kafka data",
            "list data",
            *_READING,
            "compact --cleanup-policy compact data",
            "retain data",
            *_more("orders.01", "orders.01-1"),
            "recover --apply --mark-clean data",
            "verify data",
        ),
    ),
    Incident(
        "group-went-back",
        went_back,
        (
            "groups data",
            "groups --group billing data",
            "groups --group billing --history data",
            "groups --group billing --at 2026-11-22T00:00:00Z --reset-csv billing.csv data",
            "groups --verbose data",
            "groups --group nobody data",
            "list --groups --sort lag --topic fares data",
        ),
    ),
    Incident(
        "hanging-transaction",
        hanging,
        (
            "transactions data",
            "transactions --json --topic orders.01 --partition 1 data",
            "transactions --verbose --topic orders.01 data",
            "lookup --transactional-id till-8 data",
            "transactions data/orders.01-1",
        ),
    ),
    Incident("replicas", replicas, ("verify data", "recover data", "list data", "retain data")),
    Incident(
        "cluster-metadata",
        replicas,
        (
            "metadata data",
            "metadata --topic orders.01 data",
            "metadata --history data",
            "metadata --offset 4 data",
            "metadata --offset 4 --kind topic --json data",
            "metadata data/orders.00-0",
        ),
    ),
    Incident("tiered", tiered, ("list --remote data", "list --remote --verbose data")),
    Incident(
        "narrow-terminal",
        flipped,
        (
            "verify data",
            "doctor data",
            "list data",
            "list --partitions data",
            "dump --format table --limit 2 data/orders.00-0",
            *_READING,
            "recover data",
            "compact --cleanup-policy compact data",
            "retain --retention-bytes 6000 --cleanup-policy delete data",
            *_more("orders.00", "orders.00-1"),
        ),
        columns=60,
        variables=(("NO_COLOR", "1"),),
    ),
    Incident(
        "narrow-groups",
        went_back,
        ("groups data", "groups --group billing data", "groups --group billing --history data"),
        columns=60,
        variables=(("NO_COLOR", "1"),),
    ),
    Incident(
        "torn-disk",
        torn,
        (
            *_ON_A_BAD_DISK,
            "doctor data",
            "list data",
            "lookup --offset 12 data/orders.00-1",
            *_READING,
            "dump --format table --from-offset 0 --limit 3 data/orders.00-1",
            "read --offset 0 --max-bytes 200 data/orders.00-1",
            "recover --accept-unreadable data",
        ),
        disk=bad_disk,
    ),
    Incident(
        "full-disk",
        crashed_with_marked,
        (*_ON_A_BAD_DISK, "doctor data", "list data", *_READING, *_more("orders.01", "orders.01-1")),
        disk=full_disk,
    ),
    Incident("filling-disk", crashed_with_marked, _ON_A_BAD_DISK[2:], disk=filling_disk),
    Incident(
        "running-1050-partitions",
        many,
        (
            "verify data",
            "list data",
            *(line.replace("orders.00", "orders.07 --partition 3") for line in _READING),
            "retain data",
            "compact --cleanup-policy compact --topic orders.07 data",
            "doctor data",
            "recover data",
            *_more("orders.07", "orders.07-30"),
            a_bit_flips,
            "verify data",
            "doctor data",
            "recover data",
            "recover --apply --topic orders.07 data",
            "verify --topic orders.07 data",
            "undo data",
        ),
    ),
    Incident(
        "two-copies",
        backed_up,
        (
            "diff backup data",
            "diff --topic orders.00 --verbose backup data",
            "diff backup/orders.00-0 data/orders.00-0",
            "diff --json --topic orders.00 --partition 1 backup data",
            "lookup --offset 330 backup/orders.00-1 data/orders.00-1",
            "diff data data",
            "diff data",
        ),
    ),
    Incident("colours", flipped, ("verify data", "recover data"), columns=100),
    Incident(
        "mistakes",
        sound,
        (
            "verify nowhere",
            "verify",
            "recover --policy broker data",
            "retain --retention-ms 7x data",
            "lookup --timestamp yesterday data",
            "lookup data",
            "verfy data",
            "undo data",
            "compact --topic nothing data",
        ),
    ),
)
INCIDENTS_BY_NAME = {incident.name: incident for incident in INCIDENTS}
