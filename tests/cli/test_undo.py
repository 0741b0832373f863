"""`kseg undo` end to end, and how the other commands report an unfinished change."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from kseg.change.apply.executor import Applied, apply_plan
from kseg.change.apply.unfinished import half_done
from kseg.change.plan.content import Span
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Plan, Remove, Truncate, Write
from kseg.cli.main import run
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.failing_disks import QuickDisk, Stopped, StoppingDisk
from tests.support.failing_renames import failing_renames
from tests.support.trees import differences, tree_state

ID = "20260101T000000Z-00000001"
LOG, INDEX = f"{0:020}.log", f"{0:020}.index"


def plan_for(partition: Path) -> Plan:
    size = (partition / LOG).stat().st_size
    return Plan(
        command="recover",
        directory=str(partition),
        inputs=inputs_of(str(partition)),
        steps=(
            Remove(INDEX, "anew"),
            Truncate(LOG, size // 2, "torn"),
            Write(f"{7:020}.snapshot", (Span(INDEX, 0, 8),), "anew"),
        ),
    )


def change(partition: Path) -> Applied:
    return apply_plan(plan_for(partition), journal_id=ID, disk=QuickDisk())


class HalfWay(StoppingDisk):
    """From the first step of the plan on, no operation has any effect."""

    def __init__(self) -> None:
        super().__init__(1 << 60)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.is_stopped = True


def stop_half_way(partition: Path) -> str:
    """Stop a change after its first step; returns the path of its journal."""
    with pytest.raises(Stopped):
        apply_plan(plan_for(partition), journal_id=ID, disk=HalfWay())
    assert not (partition / INDEX).exists()
    (journal,) = half_done(str(partition))
    return journal.path


def assert_as_before(directory: Path, before: dict[str, object]) -> None:
    """Compares the times of the directories as well, although a lock was created and removed in one of them."""
    assert differences(before, tree_state(directory)) == []  # type: ignore[arg-type]


def state(directory: Path) -> dict[str, object]:
    return dict(tree_state(directory))


@pytest.mark.parametrize("way", ["journal", "folder", "partition"])
def test_undo_restores_the_state_before_a_change(way: str, data: Path, capfd: Capfd) -> None:
    partition = data / "fares-0"
    before = state(data)
    journal = Path(change(partition).journal)
    given = {"journal": journal, "folder": journal.parent, "partition": partition}[way]
    assert run(["undo", str(given)]) == 0
    assert_as_before(data, before)
    assert capfd.readouterr().out == f"{partition}: as it was before recover (3 files)\n"


def test_undo_json_for_scripts(data: Path, capfd: Capfd) -> None:
    partition = data / "fares-0"
    journal = change(partition).journal
    assert run(["undo", "--json", journal]) == 0
    (row,) = (json.loads(line) for line in capfd.readouterr().out.splitlines())
    assert row == {
        "type": "result",
        "command": "undo",
        "directory": str(partition),
        "journal": journal,
        "state": "undone",
        "undid": "recover",
        "files": [INDEX, LOG, f"{7:020}.snapshot"],
    }


def test_undo_finish_completes_an_unfinished_change(data: Path, capfd: Capfd) -> None:
    partition = data / "fares-0"
    before, size = state(data), (partition / LOG).stat().st_size
    journal = stop_half_way(partition)
    assert run(["undo", "--finish", journal]) == 0
    assert capfd.readouterr().out == f"{partition}: completed; undo with: kseg undo {journal}\n"
    assert (partition / LOG).stat().st_size == size // 2
    assert run(["undo", "--quiet", journal]) == 0
    assert_as_before(data, before)


def test_undo_refuses_a_changed_file_and_undoes_the_others(data: Path, capfd: Capfd) -> None:
    first, second = change(data / "fares-0"), change(data / "metro-lz4-0")
    (data / "fares-0" / LOG).write_bytes(b"since")
    assert run(["undo", first.journal, second.journal]) == 5
    output = capfd.readouterr()
    assert f"{data}/fares-0/{LOG} changed since recover was here" in output.err
    assert "metro-lz4-0: as it was before recover" in output.out
    assert run(["undo", first.journal]) == 4


def test_undo_of_a_path_without_journal_is_refused(data: Path, capfd: Capfd) -> None:
    before = state(data)
    for given in (data / "fares-0", data / "fares-0" / LOG, data / f"kseg-journal-{ID}.jsonl"):
        assert run(["undo", str(given)]) == 3
    assert run(["undo"]) == 2
    assert state(data) == before
    assert len(capfd.readouterr().err.splitlines()) == 4


@contextmanager
def held_by_another_process(lock: Path) -> Iterator[None]:
    """A process that holds a lock as a broker does."""
    program = (
        "import fcntl, os, sys\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None and holder.stdin is not None
    try:
        assert holder.stdout.readline() == b"held\n"
        yield
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()


def test_undo_is_refused_while_the_lock_is_held(data: Path, capfd: Capfd) -> None:
    journal = change(data / "fares-0").journal
    with held_by_another_process(data / ".lock"):
        now = state(data)
        assert run(["undo", journal]) == 4
        assert state(data) == now
    assert f"{data} is in use by a broker or another kseg (process " in capfd.readouterr().err
    assert run(["undo", "--quiet", journal]) == 0
    assert (data / ".lock").exists(), "a lock file that was there stays"


def test_lock_is_held_during_a_change_and_removed_afterwards(data: Path) -> None:
    from kseg.change.apply.lock import locked

    with locked([str(data)]):
        # the same process may lock it again
        with locked([str(data)]):
            pass
        asked = subprocess.run(
            [
                sys.executable,
                "-c",
                "import fcntl, os, sys; fcntl.lockf(os.open(sys.argv[1], os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)",
                str(data / ".lock"),
            ],
            capture_output=True,
            check=False,
        )
        assert b"BlockingIOError" in asked.stderr
        # a worker process ends while its parent holds the lock
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        assert (data / ".lock").exists()
    assert not (data / ".lock").exists()
    descriptor = os.open(data / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(descriptor)


@pytest.mark.parametrize("command", ["verify", "list", "dump", "lookup", "read"])
def test_every_reading_command_reports_an_unfinished_change(command: str, data: Path, capfd: Capfd) -> None:
    partition = data / "fares-0"
    more = {"lookup": ["--latest"], "read": ["--offset", "0", "--max-bytes", "1KiB"]}.get(command, [])
    run([command, *more, str(partition)])
    assert "half-done-journal" not in "".join(capfd.readouterr())
    journal = stop_half_way(partition)
    status = run([command, *more, str(partition)])
    output = capfd.readouterr()
    (line,) = [line for line in (output.out + output.err).splitlines() if "(half-done-journal)" in line]
    assert line.startswith(
        f"{journal}: error: recover was interrupted; `kseg undo --finish {journal}` finishes it"
    )
    assert (line in output.out.splitlines()) == (command == "verify")
    assert status == 1


def test_verify_does_not_report_journals_as_unknown_files(data: Path, capfd: Capfd) -> None:
    def complaints() -> set[str]:
        rows = rows_of(capfd, "verify", data)
        return {f"{row['id']} {row['path']}" for row in rows if row["type"] == "finding"}

    before = complaints()
    apply_plan(
        Plan(
            command="recover",
            directory=str(data),
            inputs=inputs_of(str(data)),
            steps=(
                Write(
                    "recovery-point-offset-checkpoint", (Span("recovery-point-offset-checkpoint", 0, 0),), "x"
                ),
            ),
        ),
        journal_id=ID,
        disk=QuickDisk(),
    )
    assert list(data.glob("kseg-journal-*-old-*"))
    assert not [line for line in complaints() - before if "kseg" in line]


def test_undo_is_refused_while_a_clean_marker_relies_on_the_repair(data: Path, capfd: Capfd) -> None:
    """A broker would trust the marker and not read the damage (fact sheet §6.3d)."""
    (data / ".kafka_cleanshutdown").unlink()
    partition = data / "metro-none-0"
    os.truncate(partition / f"{72:020}.log", 4000)
    before = state(data)
    assert run(["recover", "--apply", "--mark-clean", "--quiet", str(data)]) == 0
    assert (data / ".kafka_cleanshutdown").exists()
    repaired = state(data)
    capfd.readouterr()
    (whole,) = data.glob("kseg-journal-*.jsonl")

    assert run(["undo", str(partition)]) == 4
    assert f"`kseg undo {whole}` reverts both" in capfd.readouterr().err
    assert_as_before(data, repaired)

    assert run(["undo", "--quiet", str(whole)]) == 0
    assert_as_before(data, before)


def test_one_partition_can_be_undone_alone_without_a_clean_marker(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    partition = data / "metro-none-0"
    os.truncate(partition / f"{72:020}.log", 4000)
    before = state(partition)
    assert run(["recover", "--apply", "--mark-clean", "--quiet", str(data)]) == 0
    (data / ".kafka_cleanshutdown").unlink()
    assert run(["undo", "--quiet", str(partition)]) == 0
    assert state(partition) == before


def is_a_step(path: str, new_path: str) -> bool:
    """Whether a rename puts a new file in its place, in a change of a partition, except an index, which comes before a log is truncated."""
    return "/.kseg/" in path and "/.kseg/" not in new_path and not new_path.endswith("index")


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("policy", ["salvage", "kafka"])
def test_change_can_be_undone_after_a_backup_of_hard_links(
    policy: str, is_done: bool, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cp -al` after the change links the journal and truncated logs as well: the undo refused, with its own command as the way to
    continue."""
    log = max((data / "metro-none-0").glob("*.log"))
    content = bytearray(log.read_bytes())
    content[200] ^= 1
    log.write_bytes(content)
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    damaged = tree_state(data)
    words = ["recover", "--policy", policy, "--apply", "--quiet", "--jobs", "1", str(data)]
    with nullcontext() if is_done else failing_renames(monkeypatch, errno.EIO, is_a_step):
        assert run(words) in ((0, 1) if is_done else (4, 5))
    backup = tmp_path / "backup"
    subprocess.run(["cp", "-al", str(data), str(backup)], check=True)
    linked = tree_state(backup)
    assert linked != damaged
    for path in (data, *sorted(data.glob("*/"))):
        if any(path.glob("kseg-journal-*")) or (path / ".kseg").exists():
            assert run(["undo", "--quiet", str(path)]) == 0
    assert differences(damaged, tree_state(data)) == []
    assert differences(linked, tree_state(backup)) == []


def test_path_without_a_journal_is_answered_with_the_one_that_has_it(
    data: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """After `recover FILE` or `recover --output DIR`, people give undo the file, or a part of the output, and once more what is gone."""
    partition, output = data / "metro-none-0", tmp_path / "repaired"
    with (partition / LOG).open("r+b") as log:
        log.truncate(100)
    before = tree_state(data)
    assert run(["recover", "--apply", str(partition / LOG)]) == 0
    assert _refusal(partition / LOG, capfd).endswith(
        f" is not a kseg journal; what was changed in its directory is undone with: kseg undo {partition}"
    )
    assert run(["undo", str(partition)]) == 0
    assert not differences(before, tree_state(data))
    assert _refusal(partition / LOG, capfd).endswith(" is not a kseg journal")

    assert run(["recover", "--output", str(output), str(data)]) == 0
    assert _refusal(output / "metro-none-0", capfd).endswith(
        f" contains no kseg journal; it was copied with others, which are removed together with: kseg undo {output}"
    )
    assert run(["undo", str(output)]) == 0
    assert _refusal(output, capfd) == f"kseg: cannot read {output}: No such file or directory"


def _refusal(path: Path, capfd: Capfd) -> str:
    capfd.readouterr()
    assert run(["undo", str(path)]) == 3
    return capfd.readouterr().err.strip()
