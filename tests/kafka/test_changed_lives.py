"""Random lives of a real broker (`lives`) whose data directories kseg changes each time the broker is down.

After each change `verify` has no warnings, the records are those that the change promises, and `undo` restores every byte and every
modification time. When it starts again, the broker serves what kseg reported for the files, and goes on writing, cleaning and deleting.
`KSEG_CHANGED_LIVES` is the number of lives (default 1), `KSEG_CHANGED_LIVES_SEED` the first seed.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import kseg
from tests.kafka.broker import Consumed, watermarks
from tests.kafka.conftest import require_kafka
from tests.kafka.lives import Life
from tests.support.command_lines import Rows, json_run
from tests.support.trees import Entry, tree_state

pytestmark = pytest.mark.kafka

LIVES = int(os.environ.get("KSEG_CHANGED_LIVES", "1"))
SEED = int(os.environ.get("KSEG_CHANGED_LIVES_SEED", "9"))
STARTS = int(os.environ.get("KSEG_CHANGED_LIFE_STARTS", "2"))
# as in `lives`
KEYS = 12
# findings that are caused by an interrupted cleaning or a kill, the last one by a kill after the deletion of all records
LEFT_BY_THE_BROKER = {
    "leftover-cleaned",
    "leftover-tmp",
    "replica-unmade",
    "replica-unfinished",
    "index-missing",
    "time-index-missing",
    "log-start-doubtful",
    "leader-epoch-file-empty",
}
LEFT_BY_LOSSES = {"segment-gap", "offset-gap", "sequence-gap", "transaction-end-lost"}


class Seen(NamedTuple):
    """A record; headers: names and values."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


class Log(NamedTuple):
    """end: the log end offset. committed: the records below the last stable offset that do not belong to an aborted transaction."""

    start: int
    end: int
    records: list[Seen]
    committed: list[Seen]


Logs = dict[tuple[str, int], Log]  # by topic and partition
Trees = list[dict[str, Entry]]


class ChangedLife:
    """log_dirs contain `logs`. undoable: the states before the changes that undo can revert, the latest last. ask: runs a command."""

    def __init__(self, seed: int, root: Path, ask: Callable[..., tuple[int, Rows]]) -> None:
        self.life, self._ask = Life(seed, root / "life"), ask
        self.log_dirs = self.life.log_dirs
        self.lots = random.Random(f"changed {seed}")
        self.logs: Logs = {}
        self.undoable: list[tuple[Trees, Logs]] = []
        self._lines = root / "lines.jsonl"
        self._has_losses = False
        self._damaged: Trees | None = None

    def change(self) -> None:
        """Make some changes to the data directories and check each."""
        self.undoable.clear()
        self.logs = logs_in(self.log_dirs)
        self._assert_sound()
        changes = [self._repair, self._rebuild, self._compact, self._compact, self._retain, self._append]
        changes += [self._repair_damage, self._undo]
        for _ in range(self.lots.randint(2, 4)):
            self.lots.choice(changes)()
            self._assert_sound()

    def _repair(self) -> None:
        policy = self.lots.choice(("salvage", "kafka"))
        before = self._changed("recover", "--policy", policy, *self.lots.choice(((), ("--mark-clean",))))
        assert self.logs == before

    def _rebuild(self) -> None:
        before = self._changed("recover", "--rebuild")
        assert self.logs == before

    def _compact(self) -> None:
        more = self.lots.choice(((), ("--include-active",), ("--first-dirty-offset", "checkpoint")))
        before = self._changed("compact", *more)
        assert self.logs.keys() == before.keys()
        for name, log in self.logs.items():
            assert log.end == before[name].end, name
            assert set(log.records) <= set(before[name].records), name
            assert last_values(log.committed) == last_values(before[name].committed), name

    def _retain(self) -> None:
        before = self._changed("retain")
        assert self.logs == {name: _starting_at(before[name], log.start) for name, log in self.logs.items()}

    def _append(self) -> None:
        """Append after a repair, because append refuses a partition in the state after a kill."""
        self._repair()
        topic, number = name = self.lots.choice(sorted(self.logs))
        partition = f"{topic}-{number}"
        keys = [f"key-{self.lots.randrange(KEYS)}" for _ in range(self.lots.randint(1, 40))]
        self._lines.write_text("".join(json.dumps({"key": key, "value": "appended"}) + "\n" for key in keys))
        place = next(log_dir / partition for log_dir in self.log_dirs if (log_dir / partition).is_dir())
        codec = self.lots.choice(("none", "gzip", "snappy", "lz4", "zstd"))
        before = self._change([place], "append", "--from", str(self._lines), "--codec", codec)
        old, new = before[name], self.logs[name]
        assert self.logs == {**before, name: new}
        assert new.records[: len(old.records)] == old.records
        assert [record.key for record in new.records[len(old.records) :]] == [key.encode() for key in keys]

    def _repair_damage(self) -> None:
        """Damage some logs and repair them. No record of an undamaged batch is lost."""
        for path in sorted(path for log_dir in self.log_dirs for path in log_dir.glob("topic-*/*.log")):
            # without preallocated zeros
            size_bytes = len(path.read_bytes().rstrip(b"\0"))
            if size_bytes and self.lots.random() < 0.1:
                _flip_a_bit(path, self.lots.randrange(size_bytes), self.lots)
        self.undoable.clear()
        self.logs = logs_in(self.log_dirs)
        self._has_losses = True
        self._damaged = self._trees()
        before = self._changed("recover")
        for name, log in self.logs.items():
            assert set(before[name].records) <= set(log.records), name

    def _undo(self) -> None:
        if not self.undoable:
            return
        trees, self.logs = self.undoable.pop()
        self._run("undo", *self.log_dirs)
        assert self._trees() == trees
        assert logs_in(self.log_dirs) == self.logs
        if trees == self._damaged:
            self._changed("recover")

    def _changed(self, command: str, *words: str) -> Logs:
        properties = str(self.life.broker.root / "server.properties")
        return self._change(self.log_dirs, command, "--server-properties", properties, *words)

    def _change(self, paths: Sequence[Path], command: str, *words: str) -> Logs:
        """Apply a change; returns the logs as they were before."""
        trees, before = self._trees(), self.logs
        self.life.done.append(" ".join((command, *words)))
        self._run(command, "--apply", *words, *paths)
        if self._trees() != trees:
            self.undoable.append((trees, before))
        self.logs = logs_in(self.log_dirs)
        return before

    def _trees(self) -> Trees:
        """The log dirs without kseg's own files."""
        return [
            {
                name: entry
                for name, entry in tree_state(log_dir).items()
                if ".kseg" not in name and entry.kind == "file"
            }
            for log_dir in self.log_dirs
        ]

    def _run(self, *words: object) -> Rows:
        """Run a command that must not exit with a status above that for findings."""
        status, rows = self._ask(*words)
        assert status in (0, 1), (words, rows[-1])
        return rows

    def _assert_sound(self) -> None:
        accepted = LEFT_BY_THE_BROKER | (LEFT_BY_LOSSES if self._has_losses else set())
        rows = self._run("verify", "--deep", *self.log_dirs)
        found = [row for row in rows if row["type"] == "finding" and row["severity"] != "info"]
        assert [row for row in found if row["id"] not in accepted] == []

    def assert_served(self) -> None:
        """The running broker serves what the files contain, except for what it deletes and cleans meanwhile."""
        broker = self.life.broker
        for (topic, number), log in self.logs.items():
            # the topic was deleted, but the broker was killed before its files were
            if number >= self.life.partitions.get(topic, 0):
                continue
            served = [_consumed(record) for record in broker.consume(topic, number, committed=False)]
            assert {record for record in served if record.offset < log.end} <= set(log.records), topic
            latest = {record.key: record for record in broker.consume(topic, number, committed=True)}
            # retention may have advanced the log start until now
            start, _ = watermarks(broker.bootstrap, topic, number)
            for key, value in last_values(_starting_at(log, start).committed).items():
                assert latest[key].offset > value.offset or _consumed(latest[key]) == value, (topic, key)


@pytest.mark.parametrize("seed", range(SEED, SEED + LIVES))
def test_broker_continues_after_each_change_by_kseg(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    changed = ChangedLife(seed, tmp_path, partial(json_run, capfd=capfd))
    start = changed.life.broker.start

    def start_and_judge() -> None:
        start()
        changed.assert_served()

    monkeypatch.setattr(changed.life.broker, "start", start_and_judge)
    try:
        for _ in range(STARTS):
            changed.life.live()
            changed.change()
    except AssertionError as error:
        error.add_note("; ".join(changed.life.done))
        raise


def logs_in(log_dirs: Sequence[Path]) -> Logs:
    """The logs of the topics of `lives`."""
    found = {}
    for log_dir in log_dirs:
        with kseg.open(log_dir) as logs:
            for each in logs.partitions("topic-*"):
                assert each.topic is not None and each.number is not None
                records, committed = (
                    [_seen(one) for one in each.records(committed=isolated)] for isolated in (False, True)
                )
                found[each.topic, each.number] = Log(
                    each.log_start_offset, each.log_end_offset, records, committed
                )
    return found


def _seen(record: kseg.Record) -> Seen:
    return Seen(record.offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))


def _consumed(record: Consumed) -> Seen:
    headers = tuple((name.encode(), value) for name, value in record.headers)
    return Seen(record.offset, record.timestamp, record.key, record.value, headers)


def _starting_at(log: Log, start: int) -> Log:
    records, committed = ([record for record in each if record.offset >= start] for each in log[2:])
    return Log(start, log.end, records, committed)


def last_values(records: Sequence[Seen]) -> dict[bytes | None, Seen]:
    """The table that a consumer has built at the end of the log."""
    table = {record.key: record for record in records}
    return {key: record for key, record in table.items() if key is not None and record.value is not None}


def _flip_a_bit(path: Path, position: int, lots: random.Random) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 1 << lots.randrange(8)]))
