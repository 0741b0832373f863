"""Damage thousands of files: which file, which damage, and what must hold in every case.

A `Stage` is a data directory on disk. Each act damages one of its files, runs every command on the directory, and restores the file. Acts
are drawn from a seed, so a failure can be repeated by its number.
"""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

from kseg.compaction.cleaner.options import CleanSettings, CompactOptions, Damaged
from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.inspection.dump.options import BYTES_MODES, FORMATS, DumpOptions
from kseg.inspection.fetch import read
from kseg.inspection.inventory import list_target
from kseg.inspection.lookup.lookup import lookup
from kseg.inspection.query import FRAMINGS, LOOKUP_KINDS, ListOptions, LookupQuery, ReadQuery
from kseg.inspection.record_filter import Selection
from kseg.internal_topics.transactions.load_check import check_transaction_log
from kseg.internal_topics.transactions.transaction_rows import TransactionsOptions, partition_transactions
from kseg.jobs.events import Advance, Event, Failure, Row, Text
from kseg.recovery.policy import LoadSettings, Policy
from kseg.recovery.repair.options import RecoverOptions
from kseg.recovery.repair.recover import recover
from kseg.recovery.verify.options import LEVELS, VerifyOptions
from kseg.recovery.verify.verify import verify
from kseg.segment.errors import KsegError
from kseg.segment.findings import CATALOGUE, Finding
from kseg.segment.partition.targets import FileTarget, LogDirTarget, PartitionTarget, Target
from tests.support.one_target import compact, dump, retain
from tests.support.random_damage import damage

NOW_MS = 1_800_000_000_000
SECONDS_AN_ACT = 30
LARGEST_BYTES = 40_000


class Act(NamedTuple):
    """One act of damage. file: its name in the stage. how: the kinds of damage, in order."""

    file: str
    how: tuple[str, ...]


class Hang(BaseException):
    """An act took too long. Not an Exception, so that no handler can swallow it."""


class Stage:
    """A data directory to damage. root: where to create it. partitions: (name, directory to copy from)."""

    def __init__(self, root: Path, log_dir_files: list[Path], partitions: list[tuple[str, Path]]) -> None:
        self.root = root
        root.mkdir()
        sources = [(root / file.name, file) for file in log_dir_files]
        for name, directory in partitions:
            (root / name).mkdir()
            sources += [
                (root / name / file.name, file) for file in sorted(directory.iterdir()) if file.is_file()
            ]
        self.files = {
            target: source.read_bytes()
            for target, source in sources
            if source.stat().st_size <= LARGEST_BYTES
        }
        for target, content in self.files.items():
            target.write_bytes(content)
        self.names = [str(file.relative_to(root)) for file in self.files]

    def act(self, lots: random.Random) -> Act:
        """Damage one file, run every command, and restore it."""
        # choose the kind first, so that each is damaged equally often, however many files of it there are
        kind = lots.choice(sorted({_kind(file) for file in self.files}))
        file = lots.choice(sorted(file for file in self.files if _kind(file) == kind))
        content, how = damage(self.files[file], file.suffix, lots)
        act = Act(str(file.relative_to(self.root)), how)
        file.write_bytes(content)
        try:
            with _time_limit(act):
                for what, events in self._questions(file, lots):
                    try:
                        for event in events:
                            judge(event)
                    except KsegError as error:
                        assert error.exit_status in (2, 3, 4), (what, error)
                    except Exception as error:
                        error.add_note(f"{what} of {act}")
                        raise
            assert file.read_bytes() == content, f"{act}: a command wrote to its input"
        finally:
            file.write_bytes(self.files[file])
        return act

    def check_nothing_was_added(self) -> None:
        assert sorted(p for p in self.root.rglob("*") if p.is_file()) == sorted(self.files)

    def _questions(self, file: Path, lots: random.Random) -> Iterator[tuple[str, Iterator[Event]]]:
        partition = file.parent
        whole: Target = LogDirTarget(str(self.root))
        if partition != self.root:
            whole = PartitionTarget(str(partition), str(self.root))
        targets: list[Target] = [FileTarget(str(file)), whole]
        yield "dump", dump(FileTarget(str(file)), DumpOptions(deep_iteration=True, print_data_log=True))
        options = _dump_options(lots)
        yield f"dump {options}", dump(FileTarget(str(file)), options)
        for target in targets:
            level = lots.choice(LEVELS)
            yield f"verify {level} {target}", verify(target, VerifyOptions(level=level, now_ms=NOW_MS))
        if not isinstance(whole, LogDirTarget):
            policy, is_clean = lots.choice(tuple(Policy)), lots.choice((None, True, False))
            repair = RecoverOptions(
                settings=LoadSettings(now_ms=NOW_MS),
                policy=policy,
                is_clean=is_clean,
                rebuild=lots.random() < 0.2,
            )
            yield f"recover {policy} {is_clean}", recover(whole, repair)
        yield "list", list_target(lots.choice(targets), ListOptions(now_ms=NOW_MS))
        if partition == self.root and not file.name.endswith(".checkpoint"):
            return
        asked = [target for target in targets if not isinstance(target, LogDirTarget)]
        for _ in range(2):
            query = _lookup_query(lots)
            yield f"lookup {query}", lookup(lots.choice(asked), query)
        fetch = ReadQuery(
            offset=_offset(lots),
            max_bytes=lots.choice([1, 100, 5000]),
            grow=lots.random() < 0.5,
            raw=lots.random() < 0.3,
            framing=lots.choice(FRAMINGS),
            use_index=lots.random() < 0.5,
        )
        yield f"read {fetch}", read(lots.choice(asked), fetch)
        limits = Limits(
            retention_ms=lots.choice([None, 0, 10**9]), retention_bytes=lots.choice([None, 0, 5000])
        )
        plan = RetainOptions(
            limits=limits, now_ms=NOW_MS, what_if=True, purge=True, unmark=lots.random() < 0.2
        )
        yield f"retain {plan}", retain(asked[-1], plan)
        settings = CleanSettings(
            now_ms=NOW_MS,
            segment_bytes=lots.choice([1000, 1 << 30]),
            map_bytes=lots.choice([24 * 100, 1 << 20]),
            min_compaction_lag_ms=lots.choice([0, 1000]),
        )
        wish = CompactOptions(
            settings=settings,
            first_dirty_offset=lots.choice([None, _offset(lots)]),
            include_active=True,
            damaged=lots.choice(list(Damaged)),
        )
        yield f"compact {wish}", compact(asked[-1], wish)
        for target in asked:
            for as_json in (False, True):
                asks = TransactionsOptions(now_ms=NOW_MS, as_json=as_json)
                yield f"transactions {target}", partition_transactions(target, asks)
        # any file, as if it were a segment of the coordinators' topic
        yield "load of __transaction_state", check_transaction_log(asked[-1])


def _kind(file: Path) -> str:
    return file.suffix or file.name


def _offset(lots: random.Random) -> int:
    return lots.choice([0, 1, lots.randrange(200), lots.randrange(30_000), 2**31, 2**63 - 1])


def _dump_options(lots: random.Random) -> DumpOptions:
    selection = Selection()
    if lots.random() < 0.3:
        selection = Selection(
            from_offset=lots.choice([None, 5]),
            to_time_ms=lots.choice([None, NOW_MS]),
            keys=lots.choice([(), (b"key-1", b"k")]),
            control=lots.choice([None, True, False]),
            read_committed=lots.random() < 0.5,
            limit=lots.choice([None, 3]),
        )
    return DumpOptions(
        format=lots.choice(FORMATS),
        deep_iteration=lots.random() < 0.5,
        print_data_log=lots.random() < 0.5,
        skip_record_metadata=lots.random() < 0.3,
        max_bytes=lots.choice([2**31 - 1, 2**31 - 1, 100, 5000]),
        verify_index_only=lots.random() < 0.3,
        index_sanity_check=lots.random() < 0.2,
        selection=selection,
        bytes_mode=lots.choice(BYTES_MODES),
        escape_control=lots.random() < 0.3,
    )


def _lookup_query(lots: random.Random) -> LookupQuery:
    kind = lots.choice(LOOKUP_KINDS)
    return LookupQuery(
        kind=kind,
        offset=_offset(lots) if kind == "offset" else None,
        timestamp_ms=lots.choice([0, 1_700_000_100_000, 2**62]) if kind == "timestamp" else None,
        key=lots.choice([b"key-1", b""]) if kind == "key" else None,
        leader_epoch=lots.choice([0, 2, 9]) if kind == "leader-epoch" else None,
        every_version=lots.random() < 0.5,
        use_index=lots.random() < 0.7,
        log_start_offset=lots.choice([None, None, 5]),
        read_committed=lots.random() < 0.3,
    )


# --- what must hold for every event


def judge(event: Event) -> None:
    """Check that an event is well formed: types, known ids, plausible numbers, JSON-serializable."""
    match event:
        case Text(data):
            assert isinstance(data, bytes)
        case Row(values):
            row = dict(values)
            assert isinstance(row["type"], str)
            json.dumps(row, default=_shown)
            if row["type"] == "verified":
                parts = [int(str(row[f"bytes_{part}"])) for part in ("valid", "damaged", "padding")]
                assert row["bytes_total"] == sum(parts) and min(parts) >= 0, row
        case Finding():
            _judge_finding(event)
        case Failure(path, sentence, exit_status, trace):
            assert path and sentence and not trace
            assert exit_status in (1, 2, 3, 4), event
        case Advance(_, bytes_done):
            assert bytes_done >= 0
        case _:
            raise AssertionError(f"{event!r} is no event")


def _shown(value: object) -> str:
    assert isinstance(value, bytes), type(value)
    return value.hex()


def _judge_finding(finding: Finding) -> None:
    assert finding.id in CATALOGUE
    assert finding.message and "\n" not in finding.message
    json.dumps(finding.as_row())
    file = Path(finding.path)
    if finding.position is not None and file.is_file():
        # for some batches only the position is known
        size, length = file.stat().st_size, finding.length or 0
        assert 0 <= finding.position <= finding.position + length <= size, finding


# --- damage


@contextmanager
def _time_limit(act: Act) -> Iterator[None]:
    def ring(signum: int, frame: FrameType | None) -> NoReturn:
        raise Hang(f"{act} took more than {SECONDS_AN_ACT} s")

    former = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS_AN_ACT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
