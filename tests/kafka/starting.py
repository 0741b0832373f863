"""Compare the forecast of `kseg verify` for a broker's start on data directories with the start of a real broker, in the same terms."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kafka.broker import Broker, BrokerFailed
from tests.support.forked_programs import run_kseg

# the cleaner starts and the first checkpoints are written after the line that says that the broker has started
SETTLE_S = 2.0
# on a busy machine, settle for this fraction of the time that the start took
SETTLE_PER_START = 0.7

Segment = tuple[str, str, int]

_LOADED = re.compile(
    r"Completed load of Log\(dir=(.+?), (?:topicId=\S+, )?topic=(.+?), partition=(\d+), .*?logStartOffset=(-?\d+), logEndOffset=(-?\d+)\)"
)
_METADATA_END = re.compile(
    r"(?:LogLoader|UnifiedLog) partition=__cluster_metadata-0, .*Loading producer state till offset (-?\d+)"
)
_STRAY = re.compile(r"Log in (.+?) marked stray and renamed to (.+?) \(")
_PROMOTED = re.compile(r"Attempting to recover abandoned future log for .+? at Log\(dir=(.+?), ")
_OFFLINE = re.compile(r"Stopping serving logs in dir (\S+)|Failed to create or validate data directory (\S+)")
_SCANNED = re.compile(r"LogLoader partition=([^,]+), dir=(.+?)\] Recovering unflushed segment (\d+)")
_NO_INDEX = re.compile(r"Could not find offset index file corresponding to log file (.+?), recovering")
_INSANE_INDEX = re.compile(r"Found a corrupted index file corresponding to log file (.+?) due to")
_CUT = re.compile(r"Found invalid messages in log segment (.+?) at byte offset (\d+)\.")
_NOT_SERVED = re.compile(
    r"Unable to start fetching (\S+) with topic ID \S+ due to (?:Number|Illegal|NotLeader)"
)
_SERVED_LATER = re.compile(r"Log loaded for partition (\S+) with initial high watermark")
_LOG_NAME = re.compile(r"\d{20}\.log(\.swap)?")
_MADE = re.compile(r"Created log for partition (.+?) in ")


class PlainBroker(Broker):
    """A broker that does not format its data directories."""

    def _format(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class Foretold:
    """node: the row `broker-start`. partitions: the row of each partition directory, by path."""

    node: Mapping[str, Any]
    partitions: Mapping[Path, Mapping[str, Any]]


@dataclass(slots=True)
class Observed:
    """ends: (log start, log end) of each loaded log, by its directory. bytes_scanned: by log dir and partition. log: the broker's log."""

    outcome: str
    log: str
    ends: dict[Path, tuple[int, int]] = field(default_factory=dict)
    strays: set[str] = field(default_factory=set)
    promoted: set[str] = field(default_factory=set)
    offline: set[str] = field(default_factory=set)
    unserved: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    bytes_scanned: Counter[str] = field(default_factory=Counter)
    metadata_end: int | None = None


def foretold(log_dirs: Sequence[Path], *options: str) -> Foretold:
    done = run_kseg("verify", "--json", *options, *log_dirs)
    assert done.returncode in (0, 1, 5), done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    (node,) = (row for row in rows if row["type"] == "broker-start")
    starts = {
        Path(row["path"]): row["start"] for row in rows if row.get("start") and "partition" in row["start"]
    }
    return Foretold(node, starts)


def observed(root: Path, log_dirs: Sequence[Path], settle_s: float = SETTLE_S, **properties: str) -> Observed:
    """Start a broker on the directories, let it settle, and end it. The directories change."""
    return _observed(_node(root, log_dirs, **properties), log_dirs, settle_s)


def observed_until_killed(root: Path, log_dirs: Sequence[Path], settle_s: float = SETTLE_S) -> Observed:
    """The same with a broker that is killed, so the directories are as after a crash."""
    return _observed(_node(root, log_dirs), log_dirs, settle_s, is_killed=True)


def observed_apart(root: Path, log_dirs: Sequence[Path], settle_s: float = SETTLE_S) -> Observed:
    """The same with a separate process that is killed, so the directories are as after a crash and none of their files stays open."""
    return _observed(_node(root, log_dirs).apart(), log_dirs, settle_s)


def _node(root: Path, log_dirs: Sequence[Path], **properties: str) -> PlainBroker:
    return PlainBroker(root / "broker", log_dirs[0], log_dirs=",".join(map(str, log_dirs)), **properties)


def _observed(
    broker: PlainBroker, log_dirs: Sequence[Path], settle_s: float, *, is_killed: bool = False
) -> Observed:
    sizes = {
        path.with_suffix("") if path.suffix == ".swap" else path: _written_bytes(path)
        for log_dir in log_dirs
        if log_dir.is_dir()
        # a .swap log replaces the log of the same name
        for path in sorted(log_dir.glob("*/[0-9]*.log*"))
        if _LOG_NAME.fullmatch(path.name) and path.is_file() and not _is_dropped(path)
    }
    torn = {_segment(path): whole for path, size in sizes.items() if (whole := _whole_bytes(path)) < size}
    # a .swap log gets its index from the swap as well
    no_index = [
        path
        for path in sizes
        if not path.with_suffix(".index").exists() and not path.with_suffix(".log.swap").exists()
    ]
    lives = False
    try:
        began = time.monotonic()
        broker.start(attempts=1)
        started = time.monotonic()
        deadline = started + max(settle_s, SETTLE_PER_START * (started - began))
        while (lives := broker.is_running()) and time.monotonic() < deadline:
            time.sleep(0.1)
    except BrokerFailed:
        pass
    finally:
        if broker.is_running():
            end = broker.crash if is_killed else broker.abandon
            end()
    return _read(broker.log_text(), sizes, no_index, lives, torn)


def _read(
    log: str,
    sizes: Mapping[Path, int],
    no_index: Sequence[Path],
    lives: bool,
    torn: Mapping[Segment, int],
) -> Observed:
    """torn: the length up to the last complete batch of segments that end within a batch, whose truncation is not logged."""
    offline = {one or other for one, other in _OFFLINE.findall(log)}
    outcome = "starts-with-offline-log-dirs" if offline else "starts"
    seen = Observed(outcome if lives else "does-not-start", log, offline=offline)
    former = {new: old for old, new in _STRAY.findall(log)}
    for place, _, _, start, end in _LOADED.findall(log):
        directory = Path(former.get(place, place))
        seen.ends[directory] = int(start), int(end)
    seen.strays = {Path(place).name for place in former.values()}
    seen.promoted = {Path(place).name for place in _PROMOTED.findall(log)}
    # a log that was moved out of a directory that fails is refused until the controller has assigned the replica to where it is
    seen.unserved = set(_NOT_SERVED.findall(log)) - set(_SERVED_LATER.findall(log))
    seen.made = set(_MADE.findall(log))
    # the broker logs a missing index before anything else, but not if it recovers the segment anyway
    reported_missing = {Path(path) for path in _NO_INDEX.findall(log)}
    loaded = {str(path.parent) for path in seen.ends}
    scanned = [
        _segment(path) for path in reported_missing.union(no_index) if str(path.parent.parent) in loaded
    ]
    scanned += [_segment(Path(path)) for path in _INSANE_INDEX.findall(log)]
    scanned += [(place, name, int(base)) for name, place, base in _SCANNED.findall(log)]
    cut = {**torn, **{_segment(Path(path)): int(position) for path, position in _CUT.findall(log)}}
    size_of: dict[Segment, list[int]] = {}
    for path, size in sizes.items():
        size_of.setdefault(_segment(path), []).append(size)
    for place, name, base in scanned:
        # the live log and a moving one have the same name in the broker's log
        known = size_of.get((place, name, base), [0])
        seen.bytes_scanned[f"{place}/{name}"] += known.pop() if len(known) > 1 else known[0]
        if (place, name, base) in cut and known:
            # in case the segment is scanned again
            known[0] = min(known[0], cut[place, name, base])
    ends = _METADATA_END.findall(log)
    seen.metadata_end = int(ends[-1]) if ends else None
    return seen


def _is_dropped(log: Path) -> bool:
    """Whether a .swap log is deleted because an unfinished cleaning (.cleaned) began at or below it."""
    cleaned = [int(path.name.split(".")[0]) for path in log.parent.glob("[0-9]*.cleaned")]
    return log.suffix == ".swap" and min(cleaned, default=int(log.name.split(".")[0]) + 1) <= int(
        log.name.split(".")[0]
    )


def _written_bytes(log: Path) -> int:
    """The size without the zeros of a preallocated segment, at the first of which a recovery ends."""
    size_bytes, end = log.stat().st_size, 0
    if size_bytes % (1 << 20) and size_bytes % 1000 and size_bytes & (size_bytes - 1):
        return size_bytes
    data = log.read_bytes()
    while length := int.from_bytes(data[end + 8 : end + 12], "big"):
        end += 12 + length
    # a torn batch ends after the file
    return size_bytes if end > size_bytes or any(data[end:]) else end


def _whole_bytes(log: Path) -> int:
    """The size up to an incomplete batch; the whole size of a log that cannot be read."""
    path = log if log.exists() else log.with_name(f"{log.name}.swap")
    try:
        data, end = path.read_bytes(), 0
    except OSError:
        return path.stat().st_size
    while end + 12 <= len(data):
        length = int.from_bytes(data[end + 8 : end + 12], "big", signed=True)
        if length < 0 or end + 12 + length > len(data):
            break
        end += 12 + length
    return end


def _segment(log: Path) -> Segment:
    """Log dir, the broker's name of the partition regardless of the directory's suffix, and base offset."""
    topic, _, number = log.parent.name.partition(".")[0].rpartition("-")
    name = f"{topic}-{int(number)}" if number.lstrip("+").isdigit() else log.parent.name
    return str(log.parent.parent), name, int(log.stem)


def assert_as_foretold(forecast: Foretold, seen: Observed) -> None:
    """Compare the outcome, what is offline, stray or missing, and the offsets of every log."""
    node = forecast.node
    assert seen.outcome == node["outcome"], (node, seen.log[-4000:])
    if node["outcome"] == "does-not-start":
        assert node["exception"] in seen.log, (node, seen.log[-4000:])
    if seen.outcome == "does-not-start" and not seen.ends:
        truncated = {row["partition"] for row in node["partitions_truncated"]} - {"__cluster_metadata-0"}
        # an invalid name ends the start while the directories are still being listed
        assert not truncated or node["partitions_failed"] or "not in the form" in node["message"], node
        return
    for place in node["log_dirs_offline"]:
        # if something else ends the start, the broker meets only the first of the two
        assert node["outcome"] == "does-not-start" or place["exception"] in seen.log, (
            place,
            seen.log[-4000:],
        )
    for path, ends in seen.ends.items():
        row = forecast.partitions.get(path) or forecast.partitions.get(path.resolve())
        # a partition marked for deletion, or a nested data directory, which kseg does not take for a partition
        if row is None:
            assert path.name in (*node["partitions_stray"], *node["partitions_removed"])
        else:
            assert ends == (row["log_start_offset"], row["log_end_offset"]), (path, row)
    if seen.outcome == "does-not-start":
        return
    for row in node["partitions_shortened"]:
        place = Path(row["log_dir"], row["partition"])
        assert seen.ends[place] == (row["log_start_offset"], row["log_end_offset"])
    assert seen.offline == {place["log_dir"] for place in node["log_dirs_offline"]}
    failed = {Path(row["log_dir"], row["partition"]) for row in node["partitions_failed"]}
    given = set(map(Path, node["log_dirs"]))
    not_loaded = {
        path for path in forecast.partitions if path.parent in given and path.name != "__cluster_metadata-0"
    } - failed
    unloadable = {
        Path(place["log_dir"]) for place in node["log_dirs_offline"] if "startup" in place["message"]
    }
    assert set(seen.ends) & set(forecast.partitions) == {
        path for path in not_loaded if path.parent not in unloadable
    }
    if node["metadata"] != "unknown":
        assert seen.strays == set(node["partitions_stray"])
        assert seen.promoted == set(node["partitions_promoted"])
        # a log may be created just before the failure handler takes its directory offline
        at_once_offline = set(node["partitions_offline"]) if seen.offline else set()
        assert seen.made <= {*node["partitions_missing"], *node["partitions_stray"], *at_once_offline}
    # a directory that has a partition.metadata but no segment is loaded with a new, empty log
    begun = {path.name for path, (start, end) in seen.ends.items() if start == end}
    assert set(node["partitions_missing"]) <= seen.made | begun
    if seen.unserved:
        # whether the broker logs a partition without a directory depends on the order of two threads
        unserved = set(node["partitions_offline"])
        assert seen.unserved <= unserved
        assert unserved - seen.unserved <= unserved - {path.name for path in forecast.partitions}
    metadata = next(
        (row for path, row in forecast.partitions.items() if path.name == "__cluster_metadata-0"), None
    )
    if metadata is not None:
        assert seen.metadata_end == metadata["log_end_offset"]
    to_scan = Counter[str]()
    for path, row in forecast.partitions.items():
        if row["bytes_to_scan"] and path.parent in given - unloadable:
            to_scan[f"{path.parent}/{row['partition']}"] += row["bytes_to_scan"]
    # the load failed while it scanned a segment, and the directory is offline
    for path in failed:
        if path.parent in given and forecast.partitions.get(path):
            seen.bytes_scanned.pop(f"{path.parent}/{forecast.partitions[path]['partition']}", None)
    different = {
        key: (seen.bytes_scanned.get(key, 0), to_scan.get(key, 0)) for key in {*to_scan, *seen.bytes_scanned}
    }
    different = {key: both for key, both in different.items() if both[0] != both[1]}
    assert not different, different
    assert node["bytes_to_scan"] == sum(to_scan.values())
