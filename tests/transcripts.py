"""The end-to-end output of the commands in incidents: one file for each in `tests/cli/transcripts/`.

`python -m tests.transcripts` rewrites them, so that a change of wording is a diff to review; `tests/cli/test_transcripts.py` compares. The
directories are created by `tests/support/broker_dirs`, the clock is fixed, and ids of runs are replaced.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import kseg.cli.run
from fixtures.diseases import bad_crc, torn_tail, zero_block
from kseg.change.apply import room
from kseg.change.apply.disk import Disk
from kseg.cli.main import run
from kseg.segment import unreadable
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.kernel import bad_pages
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.checkpoint import decode_leader_epochs, encode_leader_epochs
from kseg.segment.sidecar.leader_epochs import EpochHistory
from tests.internal_topics.coordinator_logs import batch, data_batch, key, value, write_segment
from tests.internal_topics.metadata_logs import topic_id
from tests.internal_topics.remote_logs import DELETING, FINISHED, update, upload, write_remote_log
from tests.support.broker_dirs import broker_dir
from tests.support.group_dirs import went_back
from tests.support.paths import ROOT
from tests.support.sector_faults import BadSectors, bad_sectors

FOLDER = ROOT / "tests" / "cli" / "transcripts"
NOW_MS = 1_795_250_600_000
FIRST, ACTIVE = f"{0:020d}.log", f"{297:020d}.log"
_RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")
_FREE = re.compile(r"[\d,]+ (bytes )?are free")
_ROOM = re.compile(r"needs up to \S+ \w+ of room")  # in blocks of the file system
_WRITTEN = re.compile(r", \S+ [KMG]iB to write")  # in blocks as well
_MOUNTED = re.compile(r"[^ ]+ (\w+ )?of \S+ \w+ free \(\d+ %\).*")  # of this machine
_NEEDED = re.compile(r"[\d,]+ bytes (or more )?are needed")
_STAGED = re.compile(r"/\S+/(\.out\.kseg)-\w+/(part-\S+?)-[0-9a-f]{8}-[0-9a-f]{8}\.")
_HELD = re.compile(r"(holds|holding) [1-9][\d,.]* (bytes|[KMG]iB)")  # journals contain inode numbers
_KEPT = re.compile(r"(kept for undo: \d+), [\d.]+ (KiB|bytes)")
_FREED = re.compile(r"[1-9][\d,.]* (?:bytes|[KMG]iB) (to be )?freed")
_STARTED = re.compile(r"^\S+Z (?=[a-z]+ of )", re.MULTILINE)


@dataclass(frozen=True)
class Incident:
    """make: creates the directory `data` in the given folder. commands: without `kseg`; a function runs in between. columns: of a terminal,
    None for none. variables: of the environment. disk: makes the disk below it fail while the commands run, not on a terminal."""

    name: str
    make: Callable[[Path], object]
    commands: tuple[str | Callable[[], None], ...]
    columns: int | None = None
    variables: tuple[tuple[str, str], ...] = ()
    disk: Callable[[pytest.MonkeyPatch], object] | None = None


def _sound(folder: Path) -> Path:
    (folder / "events.jsonl").write_text(_EVENTS)
    return broker_dir(folder / "data", 2, 4, running=False)


def _running(folder: Path) -> Path:
    (folder / "events.jsonl").write_text(_EVENTS)
    return broker_dir(folder / "data", 2, 4)


def _flipped(folder: Path) -> None:
    bad_crc(_running(folder) / "orders.01-2" / FIRST)


def _crashed(folder: Path) -> None:
    """Two logs torn by a power failure, one with a block of zeros, one without its indexes."""
    data = _running(folder)
    torn_tail(data / "orders.00-1" / ACTIVE)
    torn_tail(data / "orders.01-3" / ACTIVE)
    zero_block(data / "orders.00-2" / FIRST)
    for index in (data / "orders.01-0").glob("*index"):
        index.unlink()


def _replicas(folder: Path) -> None:
    """A missing replica, one of a topic that the cluster does not have, one that is being deleted, one twice."""
    data = _sound(folder)
    shutil.rmtree(data / "orders.00-3")
    shutil.copytree(data / "orders.00-0", data / "orders.09-0")
    (data / "orders.09-0" / "partition.metadata").write_text("version: 0\ntopic_id: q7n1YyJrRkW0u0c3dZ4v2g")
    (data / "orders.01-1").rename(data / f"orders.01-1.{'0a' * 16}-delete")


def _hanging(folder: Path) -> None:
    """A late batch of a producer whose transaction the coordinator has ended, one of a transaction in progress, and offsets of one that
    nobody knows. The broker runs: one that was stopped cleanly and has no producer snapshot forgets its transactions."""
    data = _sound(folder)
    (data / ".kafka_cleanshutdown").unlink()
    for partition in (
        "orders.00-0",
        "orders.00-1",
        "orders.00-2",
        "orders.00-3",
        "orders.01-0",
        "orders.01-3",
    ):
        shutil.rmtree(data / partition)
    now_ms = NOW_MS - 3_600_000
    for number, producer_id in ((1, 41), (2, 42)):
        late = data_batch(297, producer_id, 3, count=12, at_ms=now_ms)
        log = data / f"orders.01-{number}"
        for path in log.iterdir():
            if path.suffix in (".log", ".index", ".timeindex", ".snapshot", ".txnindex"):
                path.unlink()
        write_segment(log, late, base_offset=297)
    commit = value("__consumer_offsets", 1, 3, offset=7, leaderEpoch=-1, metadata="", commitTimestamp=now_ms)
    topic_partition = key("__consumer_offsets", 1, group="stuck", topic="orders.01", partition=1)
    options = {"transactional": True, "producer_id": 77, "producer_epoch": 0, "base_sequence": 0}
    write_segment(data / "__consumer_offsets-0", batch(0, (topic_partition, commit), at_ms=now_ms, **options))
    records = []
    for name, producer_id, status, listed in (("till-7", 41, 4, []), ("till-8", 42, 1, [2])):
        state = {
            "producerId": producer_id,
            "producerEpoch": 4 if status == 4 else 3,
            "transactionTimeoutMs": 7_200_000,
            "transactionStatus": status,
            "transactionPartitions": [{"topic": "orders.01", "partitionIds": listed}] if listed else [],
            "transactionLastUpdateTimestampMs": now_ms,
            "transactionStartTimestampMs": now_ms,
        }
        transactional_id = key("__transaction_state", 0, transactionalId=name)
        records.append((transactional_id, value("__transaction_state", 0, 1, **state)))
    write_segment(data / "__transaction_state-0", batch(0, *records, at_ms=now_ms))


def _tiered(folder: Path) -> None:
    """Offsets below 297 of one partition were uploaded and two segments between them deleted half way; one upload is under way."""
    data = _sound(folder)
    place = "orders.00", (data / "orders.00-2" / "partition.metadata").read_text()[-22:], 2
    first, second, third = (topic_id(number) for number in (1, 2, 3))
    for segment in sorted((data / "orders.00-2").glob("0*"))[:-6]:
        segment.unlink()
    write_remote_log(
        data / "__remote_log_metadata-0",
        [
            *(upload(place, first, 0, 98, {0: 0}), update(place, first, FINISHED)),
            *(upload(place, second, 99, 197, {0: 99}), update(place, second, FINISHED)),
            *(update(place, second, DELETING), upload(place, third, 198, 296, {0: 198})),
        ],
    )


def _torn(folder: Path) -> None:
    """For `_bad_disk`, in a valid directory."""
    _with_marked(_sound(folder))


def _bad_disk(patch: pytest.MonkeyPatch) -> None:
    """Two sectors of a closed log and one of an index cannot be read."""
    disk = bad_sectors(patch, BadSectors())
    disk.spoil(Path("data/orders.00-1") / FIRST, (2, 3))
    disk.spoil(Path("data/orders.01-2") / f"{297:020d}.timeindex", (0,))


def _crashed_with_marked(folder: Path) -> None:
    _crashed(folder)
    _with_marked(folder / "data")


def _with_marked(data: Path) -> None:
    """Two segments that retention has marked long ago, and records to append."""
    for partition in ("orders.00-3", "orders.01-1"):
        marked = data / partition / f"{0:020d}.log"
        marked.with_name(f"{990:020d}.log.deleted").write_bytes(marked.read_bytes())


def _backed_up(folder: Path) -> None:
    """A data directory and its backup: records of two leaders after the same ones, a log that continued, a flipped bit, a new topic."""
    data = _sound(folder)
    shutil.copytree(data, folder / "backup")
    for root, word, count in (("data", b"after the election", 5), ("backup", b"before it", 3)):
        _go_on(folder / root / "orders.00-1", 7 if root == "data" else 6, word, count)
    _go_on(data / "orders.00-2", 5, b"since the backup", 40)
    bad_crc(folder / "backup" / "orders.01-2" / FIRST)
    shutil.rmtree(folder / "backup" / "orders.01-3")


def _go_on(partition: Path, leader_epoch: int, word: bytes, count: int) -> None:
    with PartitionLog(PartitionTarget(str(partition))) as log:
        end = log.end_offset
    records = tuple(Record(end + at, NOW_MS + at, b"key-%d" % at, word) for at in range(count))
    with max(partition.glob("*.log")).open("ab") as active:
        active.write(encode_batch(NewBatch(records=records, leader_epoch=leader_epoch)))
    cache = partition / "leader-epoch-checkpoint"
    epochs = EpochHistory(decode_leader_epochs(cache.read_bytes()))
    epochs.assign(leader_epoch, end)
    cache.write_bytes(encode_leader_epochs(epochs.entries))


def _many(folder: Path) -> Path:
    """As under a running broker: 1,050 partitions."""
    (folder / "events.jsonl").write_text(_EVENTS)
    return broker_dir(folder / "data", 21, 50, linked=True)


def _a_bit_flips() -> None:
    """one bit of orders.07-31 flips"""
    log = Path("data/orders.07-31") / FIRST
    content = log.read_bytes()
    log.unlink()
    log.write_bytes(content)
    bad_crc(log)
    os.utime(log, ns=(NOW_MS * 1_000_000, NOW_MS * 1_000_000))


def _full_disk(patch: pytest.MonkeyPatch) -> None:
    """No byte is free, and none can be freed."""

    def none_free(path: str) -> room.FileSystem:
        return room.FileSystem(os.stat(path if os.path.exists(path) else os.curdir).st_dev, 4096, 0)

    def refused(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    patch.setattr(room, "file_system_of", none_free)
    patch.setattr(os, "posix_fallocate", refused)
    patch.setattr(Disk, "write", refused)
    patch.setattr(unreadable, "write", refused)


def _filling_disk(patch: pytest.MonkeyPatch) -> None:
    """There seems to be space, and then there is none: a quota, or another process writes as well."""

    def refused(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def some_free(path: str) -> room.FileSystem:
        return room.FileSystem(os.stat(path if os.path.exists(path) else os.curdir).st_dev, 4096, 1 << 30)

    patch.setattr(room, "file_system_of", some_free)
    patch.setattr(Disk, "write", refused)
    patch.setattr(unreadable, "write", refused)


_END = b"\x00end"
_EVENTS = "".join(f'{{"type":"record","key":"key-{n}","value":"late {n}"}}\n' for n in range(3))

# read-only commands of every kind, except those in _ON_A_BAD_DISK and the lists below
_READING = (
    "lookup --key key-5 --topic orders.00 data",
    "groups data",
    "transactions --topic orders.00 data",
    "metadata data",
    "undo --list data",
)
# the other commands, planned, applied and undone; for one topic, and one undamaged log of it
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
        _sound,
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
    Incident("running", _running, ("verify data", "recover data", "list data")),
    Incident(
        "one-flipped-bit",
        _flipped,
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
        _crashed,
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
        _hanging,
        (
            "transactions data",
            "transactions --json --topic orders.01 --partition 1 data",
            "transactions --verbose --topic orders.01 data",
            "lookup --transactional-id till-8 data",
            "transactions data/orders.01-1",
        ),
    ),
    Incident("replicas", _replicas, ("verify data", "recover data", "list data", "retain data")),
    Incident(
        "cluster-metadata",
        _replicas,
        (
            "metadata data",
            "metadata --topic orders.01 data",
            "metadata --history data",
            "metadata --offset 4 data",
            "metadata --offset 4 --kind topic --json data",
            "metadata data/orders.00-0",
        ),
    ),
    Incident("tiered", _tiered, ("list --remote data", "list --remote --verbose data")),
    Incident(
        "narrow-terminal",
        _flipped,
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
        _torn,
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
        disk=_bad_disk,
    ),
    Incident(
        "full-disk",
        _crashed_with_marked,
        (*_ON_A_BAD_DISK, "doctor data", "list data", *_READING, *_more("orders.01", "orders.01-1")),
        disk=_full_disk,
    ),
    Incident("filling-disk", _crashed_with_marked, _ON_A_BAD_DISK[2:], disk=_filling_disk),
    Incident(
        "running-1050-partitions",
        _many,
        (
            "verify data",
            "list data",
            *(line.replace("orders.00", "orders.07 --partition 3") for line in _READING),
            "retain data",
            "compact --cleanup-policy compact --topic orders.07 data",
            "doctor data",
            "recover data",
            *_more("orders.07", "orders.07-30"),
            _a_bit_flips,
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
        _backed_up,
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
    Incident("colours", _flipped, ("verify data", "recover data"), columns=100),
    Incident(
        "mistakes",
        _sound,
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


@contextlib.contextmanager
def stage(make: Callable[[Path], object]) -> Iterator[None]:
    """Runs `make` in a folder that is the current one meanwhile; the clock stands still."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), _still_clock():
        make(Path())
        for path in Path("data").rglob("*"):
            os.utime(path, ns=(NOW_MS * 1_000_000, NOW_MS * 1_000_000))
        bad_pages.forget()  # bad areas found by an earlier incident; its inodes may be reused
        yield
    bad_pages.forget()


def transcript(incident: Incident) -> str:
    """The commands as typed and their output, with the exit status of each."""
    with stage(incident.make), pytest.MonkeyPatch.context() as patch:
        if incident.disk is not None:
            incident.disk(patch)
        return "\n".join(reported(line, incident) for line in incident.commands)


def reported(line: str | Callable[[], None], incident: Incident | None = None) -> str:
    """The output of a command and its exit status, with variable parts replaced. incident: if it needs a terminal."""
    if not isinstance(line, str):
        line()
        return f"# {line.__doc__}\n"
    forget()
    words = shlex.split(line)
    terminal = incident is not None and incident.columns is not None
    status, printed = _on_terminal(words, incident) if incident and terminal else in_pipe(words)
    text = _FREE.sub("N are free", _RUN.sub("RUN", printed.decode().replace("\r\n", "\n")))
    text = _MOUNTED.sub("N GiB of N GiB free (N %); FILE SYSTEM at MOUNT (OPTIONS)", text)
    text = _ROOM.sub("needs up to N KiB of room", text)
    text = _WRITTEN.sub(", N MiB to write", text)
    text = _NEEDED.sub(r"N bytes \1are needed", text)
    text = _STAGED.sub(r"\1-RUN/\2-RUN.", text)
    text = _KEPT.sub(r"\1, N KiB", text)
    text = _FREED.sub(r"N KiB \1freed", text)
    text = _HELD.sub(r"\1 N KiB", _STARTED.sub("TIME ", text))
    return f"$ kseg {line}\n{text.replace(chr(27), '<ESC>')}(exit status {status})\n"


def forget() -> None:
    """Clear caches that a process of its own would not have: files in the place of others, with their inodes and times."""
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "kseg":
            for value in [*vars(module).values()]:
                if callable(clear := getattr(value, "cache_clear", None)):
                    clear()


def in_pipe(words: list[str]) -> tuple[int, bytes]:
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as file, _instead(1, file.fileno()), _instead(2, file.fileno()):
        stderr, sys.stderr = sys.stderr, open(2, "w", closefd=False)  # noqa: SIM115  (closed with its descriptor)
        try:
            status = run([*words, "--jobs", "1"] if words[0] not in ("undo", "read") else words)
        finally:
            sys.stderr = stderr
        file.seek(0)
        return status, file.read()


@contextlib.contextmanager
def _instead(descriptor: int, other: int) -> Iterator[None]:
    kept = os.dup(descriptor)
    os.dup2(other, descriptor)
    try:
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)


def _on_terminal(words: list[str], incident: Incident) -> tuple[int, bytes]:
    """In a process of its own, which ends when all its output was read: some kernels lose what a terminal still holds when its last process
    is gone."""
    read_side, write_side = os.pipe()
    child, master = pty.fork()
    if not child:
        os.close(write_side)
        status = 70
        with contextlib.suppress(BaseException):
            os.environ.pop("NO_COLOR", None)
            os.environ.update({"TERM": "xterm", "COLUMNS": str(incident.columns), **dict(incident.variables)})
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  (the process ends here)
            status = run([*words, "--jobs", "1", "--no-progress"])
        os.write(1, _END)
        os.read(read_side, 1)
        os._exit(status)
    os.close(read_side)
    printed = b""
    with contextlib.suppress(OSError):  # the error of a terminal whose other side is closed
        while not printed.endswith(_END) and (data := os.read(master, 1 << 16)):
            printed += data
    os.close(write_side)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(master)
    return status, printed.removesuffix(_END)


@contextlib.contextmanager
def _still_clock() -> Iterator[None]:
    really = kseg.cli.run.clock_ms
    kseg.cli.run.clock_ms = lambda: NOW_MS
    try:
        yield
    finally:
        kseg.cli.run.clock_ms = really


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for incident in INCIDENTS:
        (FOLDER / f"{incident.name}.txt").write_text(transcript(incident), encoding="utf-8")


if __name__ == "__main__":
    main()
