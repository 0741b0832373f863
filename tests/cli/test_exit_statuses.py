"""The exit status of every command for directories in every state, compared with the rule of the command contract (`cli/run_summary.py`);
and no command hangs if a pipe is in place of a file.

A status other than 0 has a reason: 1 something was found or is due, 2 no target of the requested kind, 3 something cannot be read, 5 some
of the targets failed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fixtures.diseases import bad_crc
from kseg.cli.main import run
from tests.support.broker_dirs import broker_dir
from tests.support.command_lines import Capfd
from tests.support.other_users import NOBODY, import_everything, run_as_nobody
from tests.support.pairs import ALL
from tests.support.status_cases import (
    COMMANDS,
    FIRST,
    NOT_READABLE,
    OF_A_PARTITION,
    OTHER,
    PARTITION,
    SOUND,
    Make,
    a_file,
    damaged,
    empty,
    healthy,
    missing,
    of_something_else,
)
from tests.support.trees import tree_state

# only a command that hangs reaches it
LIMIT_S = 120


DAMAGED = {
    **SOUND,
    **dict.fromkeys(("verify", "doctor", "dump", "read", "transactions", "export", "diff", "recover"), 1),
    "compact": 5,  # the other partition is planned
}
IS_NO_DIRECTORY = {
    # with a warning, because Kafka's tool skips such a file
    **dict.fromkeys(("verify", "doctor", "list", "dump"), 0),
    **dict.fromkeys(
        (
            "recover",
            "recover --apply",
            "compact",
            "retain",
            "groups",
            "metadata",
            "what-if",
            "diff",
            "append",
        ),
        2,
    ),
    **dict.fromkeys(("lookup", "read", "transactions", "export", "undo", "undo --list", "undo --forget"), 3),
}
CASES: dict[str, tuple[Make, dict[str, int]]] = {
    "healthy": (healthy, SOUND),
    "damaged": (damaged, DAMAGED),
    "empty": (empty, {**NOT_READABLE, "append": 2}),  # its name is not that of a partition
    "missing": (missing, {**dict.fromkeys(COMMANDS, 3), "append": 2}),
    "something-else": (of_something_else, {**NOT_READABLE, "append": 2}),
    "file": (a_file, IS_NO_DIRECTORY),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return broker_dir(tmp_path_factory.mktemp("base") / "base", 1, 2, running=False)


@pytest.fixture
def root(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return _furnished(base, tmp_path)


def _furnished(base: Path, root: Path) -> Path:
    shutil.copytree(base, root / "base")
    (root / "lines").write_text('{"type":"record","value":"x"}\n')
    return root


@contextmanager
def _limited() -> Iterator[None]:
    """Interrupt an open that waits for the other end of a pipe."""

    def end(_signal: int, _frame: object) -> None:
        raise TimeoutError("the command hangs")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _statuses(
    root: Path, make: Make, run: Callable[[list[str]], int] = run, commands: Iterable[str] = COMMANDS
) -> dict[str, int]:
    found = {}
    for command in commands:
        words, target = COMMANDS[command], make(root)
        if command in OF_A_PARTITION and (target / PARTITION).is_dir():
            target /= PARTITION
        with _limited():
            found[command] = run([*command.split(), *words, str(target)])
        for path in (root / "data", root / "out"):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    return found


@pytest.mark.parametrize("case", CASES)
def test_every_command_exits_with_the_status_of_the_contract(case: str, root: Path) -> None:
    make, expected = CASES[case]
    assert _statuses(root, make) == expected


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.mkdir()


def _socket(path: Path) -> None:
    # because the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
        made.bind(path.name)


def _device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("not root: no device can be made")


def _dangling_link(path: Path) -> None:
    path.symlink_to("not here")


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": _pipe,
    "directory": _directory,
    "socket": _socket,
    "device": _device,
    "dangling link": _dangling_link,
}
OTHERS = ("metadata", "groups", "undo", "undo --list", "undo --forget")
# Commands that read the log fail for its partition, as for an unreadable one. The other partitions are processed.
ODD_LOG = {**SOUND, **{command: 5 for command in COMMANDS if command not in OTHERS}}
ODD_LOG |= {"verify": 1, "doctor": 1, "read": 3, "append": 3}
# Commands that do not need the side file work; those that open or replace it fail.
CHANGES = {"recover": 5, "recover --apply": 5, "compact": 5}
ODD: dict[str, dict[str, int]] = {
    f"{FIRST}.log": ODD_LOG,
    f"{297:020d}.log": ODD_LOG,
    f"{FIRST}.index": {**SOUND, **CHANGES, "verify": 1, "doctor": 1, "dump": 5, "read": 3},
    f"{FIRST}.timeindex": {
        **SOUND,
        **CHANGES,
        "verify": 1,
        "doctor": 1,
        "dump": 5,
        "retain": 5,
        "what-if": 5,
    },
    f"{FIRST}.txnindex": {**SOUND, **CHANGES, "verify": 1, "doctor": 1, "dump": 5},
    f"{297:020d}.snapshot": {
        **SOUND,
        "verify": 1,
        "doctor": 1,
        "dump": 5,
        "recover": 1,
        "recover --apply": 1,
    },
    "leader-epoch-checkpoint": {
        **SOUND,
        **CHANGES,
        "verify": 1,
        "doctor": 1,
        "lookup": 5,
        "compact": 1,
        "retain": 5,
        "append": 3,
    },
    "partition.metadata": {**SOUND, **CHANGES, "verify": 1, "doctor": 1, "list": 5, "compact": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ODD)
def test_every_command_treats_a_non_regular_file_alike(name: str, kind: str, root: Path) -> None:
    """export, lookup, what-if and retain used to skip a pipe in place of a log, recover planned a repair that it then refused, and verify
    reported a directory in its place as valid.

    Which files a command opens does not depend on what is in their place, so each command is run with two of the kinds for each file, and
    with each kind for several files. With KSEG_COMBINATIONS=all, every command is run with every kind for every file."""
    turn = [*ODD].index(name) + [*KINDS].index(kind)
    asked = [
        command for number, command in enumerate(COMMANDS) if ALL or (turn + number) % len(KINDS) in (0, 2)
    ]

    def make(root: Path) -> Path:
        healthy(root)
        (root / "data" / PARTITION / name).unlink(missing_ok=True)
        KINDS[kind](root / "data" / PARTITION / name)
        return root / "data"

    assert _statuses(root, make, commands=asked) == {command: ODD[name][command] for command in asked}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("meta.properties", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"),
        *(".kafka_cleanshutdown", ".lock", "bootstrap.checkpoint", f"__cluster_metadata-0/{FIRST}.log"),
    ],
)
def test_no_command_hangs_on_a_pipe_in_place_of_a_file(name: str, root: Path) -> None:
    def make(root: Path) -> Path:
        healthy(root)
        (root / "data" / name).unlink(missing_ok=True)
        os.mkfifo(root / "data" / name)
        return root / "data"

    found = _statuses(root, make)
    assert set(found.values()) <= {0, 1, 2, 3, 4, 5}
    # a broker accepts a pipe as its lock file
    if name != ".lock":
        assert (found["verify"], found["doctor"]) == (1, 1)


def test_pipe_is_reported_as_not_a_regular_file(tmp_path: Path, capfd: Capfd) -> None:
    os.mkfifo(tmp_path / "meta.properties")
    (tmp_path / "t-0").mkdir()
    assert run(["list", str(tmp_path)]) == 5
    assert f"cannot read {tmp_path / 'meta.properties'}: not a regular file" in capfd.readouterr().err


# --- what this user may not read or change


def _log_unreadable(data: Path) -> None:
    (data / PARTITION / f"{FIRST}.log").chmod(0)


def _index_unreadable(data: Path) -> None:
    (data / PARTITION / f"{FIRST}.index").chmod(0)


def _checkpoint_unreadable(data: Path) -> None:
    (data / "recovery-point-offset-checkpoint").chmod(0)


def _partition_unlistable(data: Path) -> None:
    (data / PARTITION).chmod(0)


def _read_only(data: Path) -> None:
    for path in (data, *data.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)


def _closed(data: Path) -> None:
    data.chmod(0)


# Earliest offset, limits of retention and the log end for an append are found without reading the first log.
_NOT_ITS_CONTENT = {command: SOUND[command] for command in ("lookup", "retain", "append")}
_UNLISTABLE = {**ODD_LOG, "verify": 5, "doctor": 5, "undo --list": 3, "undo --forget": 3}
FORBIDDEN: dict[str, tuple[Callable[[Path], None], dict[str, int]]] = {
    "log unreadable": (_log_unreadable, {**ODD_LOG, **_NOT_ITS_CONTENT}),
    "index unreadable": (_index_unreadable, ODD[f"{FIRST}.index"]),
    "checkpoint unreadable": (
        _checkpoint_unreadable,
        {**SOUND, "verify": 1, "doctor": 1, "list": 5, "recover": 5, "recover --apply": 5},
    ),
    "partition unlistable": (_partition_unlistable, _UNLISTABLE),
    "read-only": (_read_only, {**SOUND, "recover --apply": 4}),
    "closed": (_closed, NOT_READABLE | {"undo --list": 3, "undo --forget": 3, "undo": 3, "append": 3}),
}


@pytest.fixture
def open_root(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The same directories outside of pytest's, which other users cannot enter."""
    with tempfile.TemporaryDirectory(prefix="kseg-test-") as made:
        made_root = _furnished(base, Path(made))
        made_root.chmod(0o777)
        monkeypatch.chdir(made_root)
        yield made_root


@pytest.fixture(scope="module")
def everything_imported(base: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import all of kseg and what its commands need from the standard library. Done once for all tests, because it stays imported."""
    import_everything()
    root = _furnished(base, tmp_path_factory.mktemp("imported"))
    with contextlib.chdir(root):
        for make in (healthy, damaged, missing):
            _statuses(root, make)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="not root: no child can become another user")
@pytest.mark.parametrize("case", FORBIDDEN)
def test_every_command_exits_with_the_contract_status_without_permission(
    case: str, open_root: Path, everything_imported: None
) -> None:
    damage, expected = FORBIDDEN[case]

    def make(root: Path) -> Path:
        data = healthy(root)
        for path in (data, *data.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        damage(data)
        return data

    assert _statuses(open_root, make, run_as_nobody) == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="not root: no child can become another user")
@pytest.mark.parametrize("is_listed_again", [True, False])
def test_unlistable_partition_does_not_prevent_other_repairs(
    is_listed_again: bool, open_root: Path, everything_imported: None
) -> None:
    """With a clean-shutdown marker, all partitions are planned before anything changes. The marker is removed for the repair and not
    restored."""
    data = healthy(open_root)
    log = data / PARTITION / f"{FIRST}.log"
    bad_crc(log)
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    for path in (data, *data.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    before = tree_state(data)
    (data / OTHER).chmod(0)
    assert run_as_nobody(["recover", "--quiet", str(data)]) == 5
    assert run_as_nobody(["recover", "--quiet", "--apply", str(data)]) == 5
    assert not (data / ".kafka_cleanshutdown").exists()
    assert run(["verify", "--quiet", str(data / PARTITION)]) == 0
    if is_listed_again:
        (data / OTHER).chmod(0o755)
        assert run(["undo", "--quiet", str(data)]) == 0
    # the journal of the run names the partitions that it has changed
    else:
        assert run_as_nobody(["undo", "--list", "--quiet", str(data)]) == 0
        assert run_as_nobody(["undo", "--quiet", str(data)]) == 0
        (data / OTHER).chmod(0o755)
    # the user who undoes has not signed the journals, so the removed files are kept
    for path in data.rglob("*.kept"):
        path.unlink()
    assert {name: entry.content for name, entry in tree_state(data).items()} == {
        name: entry.content for name, entry in before.items()
    }


def test_append_refuses_a_directory_that_is_not_a_partition(root: Path, capfd: Capfd) -> None:
    """append used to create a segment in a data directory itself."""
    for make, why in ((healthy, "is a data directory"), (of_something_else, "is not named topic-partition")):
        data = make(root)
        before = sorted(data.rglob("*"))
        assert run(["append", "--apply", "--from", "lines", str(data)]) == 2
        assert why in capfd.readouterr().err
        assert sorted(data.rglob("*")) == before
        shutil.rmtree(data)


def test_file_that_is_not_kafkas_is_not_reported_as_sound(root: Path, capfd: Capfd) -> None:
    for command in ("verify", "doctor"):
        assert run([command, str(a_file(root))]) == 0
        assert capfd.readouterr().out.startswith("NOTHING VERIFIED, 1 warning")


def test_unknown_policy_message_names_the_options_that_set_one(root: Path, capfd: Capfd) -> None:
    """`kseg list`, which used to be advised, does not show policies. The message names the options that set one."""
    # remove both metadata logs, because one beside the directory would count
    for data in (healthy(root), root / "base"):
        shutil.rmtree(data / "__cluster_metadata-0")
    assert run(["retain", "--retention-ms", "7d", str(root / "data")]) == 4
    shown = capfd.readouterr()
    assert "policy-unknown" in shown.out + shown.err and "--cleanup-policy" in shown.err
    assert "next:" not in shown.out + shown.err
