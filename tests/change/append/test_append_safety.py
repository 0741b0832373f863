"""What `append` refuses, how it syncs, and that it can be undone completely."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures import healthy
from kseg.change.append.append import append, append_target
from kseg.change.append.batching import BatchRules
from kseg.change.append.flush import FlushCounter, FlushRules
from kseg.change.append.json_input import BadLine
from kseg.change.append.options import AppendOptions
from kseg.change.apply.journal_location import new_run_id
from kseg.change.apply.journal_scan import location_of
from kseg.change.apply.undo import undo
from kseg.jobs.events import Advance, Row
from kseg.segment.errors import Refused
from kseg.segment.partition.recognition import is_log_directory
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.sidecar.checkpoint import decode_offset_checkpoint
from tests.support import trees
from tests.support.append_helpers import NOW_MS, Appended, changes

# --- refusals


# --- flushing


def test_flush_rules_count_messages_and_time() -> None:
    now = [0]
    counter = FlushCounter(FlushRules(messages=10, interval_ms=5), 100, lambda: now[0])
    assert not counter.is_due(109) and counter.is_due(110)
    now[0] = 5_000_000
    assert counter.is_due(101) and not counter.is_due(100)
    counter.flushed(110)
    assert counter.flushes == 1 and not counter.is_due(119)
    assert not FlushCounter(FlushRules(), 0, lambda: now[0]).is_due(1 << 40)


def test_append_flushes_the_log_every_m_messages(
    tmp_path: Path, appended: Appended, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[int] = []
    real = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        forced.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    lines = [{"value": "x"} for _ in range(20)]
    result = appended(tmp_path / "f-0", lines, flush=FlushRules(messages=6), batch_records=2)
    assert result["flushes"] == 3
    size = (tmp_path / "f-0" / f"{0:020d}.log").stat().st_size
    assert forced == [size * 3 // 10, size * 6 // 10, size * 9 // 10, size]
    forced.clear()
    result = appended(tmp_path / "g-0", lines, flush=FlushRules(messages=6), codec=1, batch_records=2,
                      options={"kafka07": True})  # fmt: skip
    assert result["flushes"] == 3 and len(forced) == 4


# --- the log dir, and the way back


def test_append_updates_checkpoints_and_undo_restores_everything(tmp_path: Path, appended: Appended) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    before = trees.tree_state(log_dir)
    result = appended(log_dir / "metro-1", [{"value": f"v{n}" * 50} for n in range(200)], batch_records=5,
                      rolls=healthy.RULES)  # fmt: skip
    end = result["log_end_offset"]
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        entries = {
            (e.topic, e.partition): e.offset for e in decode_offset_checkpoint((log_dir / name).read_bytes())
        }
        assert entries["metro", 1] == end and entries["metro", 0] < end and len(entries) == 3
    assert (log_dir / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":17}'
    assert not (log_dir / ".lock").exists() and is_log_directory(str(log_dir))
    appended(log_dir / "new-0", [{"value": "a"}], options={"topic_id": healthy.TOPIC_ID})
    newest = max(log_dir.glob("kseg-journal-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    for journal in (newest, Path(str(result["journal"]))):
        place = location_of(str(journal))
        assert place is not None
        undo(place)
    assert changes(before, log_dir) == []


def test_unclean_log_dir_keeps_its_recovery_points(tmp_path: Path, appended: Appended) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    (log_dir / ".kafka_cleanshutdown").unlink()
    points = (log_dir / "recovery-point-offset-checkpoint").read_bytes()
    appended(log_dir / "metro-0", [{"value": "a"}])
    assert (log_dir / "recovery-point-offset-checkpoint").read_bytes() == points
    assert not (log_dir / ".kafka_cleanshutdown").exists()


def test_directory_without_segments_starts_at_the_first_lines_offset(
    tmp_path: Path, appended: Appended
) -> None:
    target = tmp_path / "bare-0"
    target.mkdir()
    (target / "partition.metadata").write_bytes(b"version: 0\ntopic_id: Pm0fXkDvQ0yTn7Qq3uXJ8A")
    before = trees.tree_state(target)
    result = appended(target, [{"value": "a", "offset": 5000}])
    assert (result["log_start_offset"], result["log_end_offset"]) == (5000, 5001)
    assert (target / f"{5000:020d}.log").exists()
    place = location_of(str(result["journal"]))
    assert place is not None
    undo(place)
    assert changes(before, target) == []


def asked(source: Path, *, apply: bool = True, **rules: Any) -> AppendOptions:
    return AppendOptions(
        source=str(source),
        apply=apply,
        run_id=new_run_id(NOW_MS),
        batches=BatchRules(now_ms=NOW_MS, **rules),
        rolls=healthy.RULES,
    )


@pytest.mark.parametrize("partition", ["metro-0", "early-0"])
def test_append_closed_early_is_reverted(tmp_path: Path, partition: str) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    before = trees.tree_state(log_dir)
    source = tmp_path / "lines.jsonl"
    source.write_bytes(b'{"value":"%s"}\n' % (b"a" * 2000) * 1200)
    events = append(append_target(str(log_dir / partition)), asked(source, batch_records=100))
    while not list(log_dir.glob("kseg-journal-*")):
        assert isinstance(next(events), Advance)
    assert trees.tree_state(log_dir) != before
    events.close()  # type: ignore[attr-defined]
    assert changes(before, log_dir) == []


# --- all of the input, or nothing


def bad_at_the_end(good: int) -> bytes:
    return b'{"value":"x"}\n' * good + b'{"value":1}\n'


@pytest.mark.parametrize("good", [0, 1, 2, 999])
@pytest.mark.parametrize("partition", ["metro-0", "new-0"])
@pytest.mark.parametrize("apply", [True, False])
def test_bad_line_anywhere_writes_nothing(tmp_path: Path, good: int, partition: str, apply: bool) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    source = tmp_path / "lines.jsonl"
    source.write_bytes(bad_at_the_end(good))
    with trees.unchanged(log_dir), pytest.raises(BadLine, match=f"line {good + 1}: its value is neither"):
        list(append(append_target(str(log_dir / partition)), asked(source, apply=apply, batch_records=1)))


def test_conflict_with_the_log_is_found_before_the_first_write(tmp_path: Path) -> None:
    """The input has offsets below the log end, a lower epoch, or data outside of the open transaction, far from its beginning."""
    log_dir = healthy.log_dir(tmp_path / "data")
    source = tmp_path / "lines.jsonl"
    good = [{"offset": 1_000_000 + n, "value": "x"} for n in range(100)]
    batch = {"type": "batch", "count": 1, "magic": 2, "compression": "none"}
    for bad in (
        [{"offset": 5, "value": "x"}],
        [{**batch, "leader_epoch": 9}, {"value": "a"}, {**batch, "leader_epoch": 3}, {"value": "b"}],
        [
            {**batch, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True},
            {"value": "a"},
            {**batch, "producer_id": 7, "producer_epoch": 0, "base_sequence": 1},
            {"value": "b"},
        ],
    ):
        source.write_text("".join(json.dumps(line) + "\n" for line in good + bad))
        with trees.unchanged(log_dir), pytest.raises(BadLine):
            list(append(append_target(str(log_dir / "metro-0")), asked(source)))


@pytest.mark.parametrize("kafka07", [False, True], ids=["now", "0.7"])
def test_append_plan_equals_the_result(tmp_path: Path, kafka07: bool) -> None:
    log_dir = tmp_path / "data" if kafka07 else healthy.log_dir(tmp_path / "data")
    log_dir.mkdir(exist_ok=True)
    source = tmp_path / "lines.jsonl"
    for name in ("metro-0", "fresh-0", "fresh-0"):
        source.write_text("".join(json.dumps({"value": f"{name} {n}" * 20}) + "\n" for n in range(300)))
        options = replace(asked(source, batch_records=7, codec=1), kafka07=kafka07)
        target = append_target(str(log_dir / name))
        (log_dir / name).mkdir(exist_ok=True)
        logs = {path: path.stat().st_size for path in (log_dir / name).glob("*.[lk]*")}
        with trees.unchanged(log_dir):
            (planned,) = (e for e in append(target, replace(options, apply=False)) if isinstance(e, Row))
        (done,) = (e for e in append(target, options) if isinstance(e, Row))
        assert not planned.values["applied"] and done.values["applied"]
        differing = {name for name, value in done.values.items() if planned.values[name] != value}
        assert differing == {"applied", "journal"}
        suffix = ".kafka" if kafka07 else ".log"
        grown = sum(path.stat().st_size - logs.get(path, 0) for path in (log_dir / name).glob(f"*{suffix}"))
        assert grown == done.values["bytes"] and grown > 0
        rolled = len(list((log_dir / name).glob(f"*{suffix}"))) - sum(p.suffix == suffix for p in logs)
        assert done.values["segments_rolled"] == rolled - (1 if planned.values["is_new"] else 0)


def changing(source: Path, when: Callable[[], bool], change: Callable[[], object], events: Any) -> None:
    """Consume the events, and change the input once `when` is true."""
    is_changed = False
    for _ in events:
        if not is_changed and when():
            is_changed = True
            change()
    assert is_changed


@pytest.mark.slow
@pytest.mark.parametrize("how", ["longer", "shorter", "another byte", "another line", "another file"])
@pytest.mark.parametrize("at", ["checking", "writing"])
def test_input_changed_between_check_and_write_is_refused(tmp_path: Path, how: str, at: str) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    before = trees.tree_state(log_dir)
    source = tmp_path / "lines.jsonl"
    last = b'{"value":"%s"}\n' % (b"a" * 2000)
    # several blocks, so that there is progress in between
    lines = last * 1200
    source.write_bytes(lines)

    def change() -> None:
        match how:
            case "longer":
                with source.open("ab") as file:
                    file.write(b'{"value":"b"}\n')
            case "shorter":
                os.truncate(source, len(lines) - len(last))
            case "another byte":
                with source.open("r+b") as file:
                    file.seek(len(lines) - 4)
                    file.write(b"b")
                os.utime(source, ns=(1, source.stat().st_mtime_ns))
            case "another line":
                with source.open("r+b") as file:
                    file.seek(len(lines) - len(last))
                    file.write(b"nonsense")
            case _:  # replaces the name; the opened file still exists
                (tmp_path / "other").write_bytes(b'{"value":"b"}\n')
                (tmp_path / "other").replace(source)

    def is_writing() -> bool:
        return bool(list(log_dir.glob("kseg-journal-*")))

    events = append(append_target(str(log_dir / "metro-0")), asked(source, batch_records=100))
    if how == "another file":
        changing(source, lambda: at == "checking" or is_writing(), change, events)
        return
    # whatever is read from a file that grows during the check has been checked
    if (how, at) == ("longer", "checking"):
        with pytest.raises(Refused, match=r"lines\.jsonl changed while it was read; nothing was appended"):
            changing(source, lambda: True, change, events)
    elif (how, at) == ("another line", "checking"):
        with pytest.raises(BadLine):
            changing(source, lambda: True, change, events)
    else:
        with pytest.raises(Refused, match=r"lines\.jsonl changed while it was read; nothing was appended"):
            changing(source, lambda: at == "checking" or is_writing(), change, events)
    assert changes(before, log_dir) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_new_files_belong_to_the_owner_of_the_partition(tmp_path: Path, appended: Appended) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    for path in (log_dir, *log_dir.rglob("*")):
        os.chown(path, 1234, 1235)
        if path.is_file():
            path.chmod(0o640)
    appended(
        log_dir / "metro-0", [{"value": "x" * 200} for _ in range(40)], rolls=healthy.RULES, batch_records=5
    )
    for path in (
        *(log_dir / "metro-0").iterdir(),
        *log_dir.glob("*checkpoint"),
        log_dir / ".kafka_cleanshutdown",
    ):
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1235), path
    assert (log_dir / "recovery-point-offset-checkpoint").stat().st_mode & 0o777 == 0o640


def test_nothing_to_append_changes_nothing(tmp_path: Path, appended: Appended) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    before = trees.tree_state(log_dir)
    result = appended(log_dir / "metro-0", b'{"type":"summary"}\n')
    assert changes(before, log_dir) == []
    assert (result["records"], result["journal"]) == (0, None)


def test_first_line_that_cannot_be_appended_changes_nothing(tmp_path: Path, appended: Appended) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    before = trees.tree_state(log_dir)
    for partition in ("metro-0", "new-0"):
        line = {"offset": 0 if partition == "metro-0" else -5, "value": "a"}
        with pytest.raises(BadLine, match="line 1"):
            appended(log_dir / partition, [line, {"value": "b"}])
        assert changes(before, log_dir) == []


def test_append_on_a_failing_disk_changes_nothing(
    tmp_path: Path, appended: Appended, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = healthy.log_dir(tmp_path / "data")
    before = trees.tree_state(log_dir)
    real, room = os.write, [5]

    def write(descriptor: int, data: bytes) -> int:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(28, os.strerror(28))
        return real(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(Refused, match="No space left on device"):
            appended(log_dir / "metro-0", [{"value": "x" * 300} for _ in range(60)], batch_records=1,
                     rolls=healthy.RULES)  # fmt: skip
    assert changes(before, log_dir) == []


def killed_after(writes: int, target: PartitionTarget, options: AppendOptions) -> bool:
    """Append in a process that is killed at its n-th write or rename; returns whether it was killed."""
    pid = os.fork()
    if pid == 0:
        left = [writes]

        def counted(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **named)

            return call

        for name in ("write", "pwrite", "replace", "unlink"):
            setattr(os, name, counted(getattr(os, name)))
        list(append(target, options))
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.slow
def test_append_killed_at_any_write_can_be_undone(tmp_path: Path) -> None:
    source = tmp_path / "lines.jsonl"
    source.write_text("".join(json.dumps({"value": f"v{n}" * 60}) + "\n" for n in range(40)))
    options = asked(source, batch_records=4)
    log_dir = healthy.log_dir(tmp_path / "data")
    before = trees.tree_state(log_dir)
    for name in ("metro-0", "fresh-0"):
        target = append_target(str(log_dir / name))
        for writes in range(0, 1000, 2):
            if not killed_after(writes, target, replace(options, run_id=new_run_id(NOW_MS))):
                break
            (log_dir / ".lock").unlink(missing_ok=True)
            marker = (log_dir / ".kafka_cleanshutdown").exists()
            journals = [path for path in log_dir.glob("kseg-journal-*.jsonl") if path.name not in before]
            if journals and not marker:
                with pytest.raises(Refused, match="append was interrupted"):
                    list(append(target, options))
            for journal in journals:
                place = location_of(str(journal))
                assert place is not None
                undo(place)
            if (log_dir / name).is_dir() and not any((log_dir / name).iterdir()):
                # killed between mkdir and journal, so the directory is empty
                (log_dir / name).rmdir()
            assert changes(before, log_dir) == [], (name, writes)
        assert writes > 30
        before = trees.tree_state(log_dir)
