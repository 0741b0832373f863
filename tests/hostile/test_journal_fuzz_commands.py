"""Every command on a data directory with a tampered journal: a documented exit status, one sentence, and nothing lost.

A draw lets a command change a data directory, tampers with one of the journals that it left (as test_journal_fuzz does), and runs another
command there. Whatever the journal contains now, the program does not fail, nothing beside the data directory changes, and every byte that
a log loses is in one of kseg's files below the directory. If a journal is still signed, its undo may remove what the first command wrote.

Takes more than ten seconds, because each draw runs two or three complete commands.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from kseg.change.apply.journal_signature import is_signed
from kseg.cli.main import run
from tests.hostile.test_journal_fuzz import contents, tampered
from tests.support.change_cases import COMPACT, NOW, RECOVER, RETAIN

pytestmark = pytest.mark.slow

DRAWS = int(os.environ.get("KSEG_JOURNAL_COMMANDS", "120"))
SEED = int(os.environ.get("KSEG_JOURNAL_COMMANDS_SEED", "12"))
# 5: what was found was repaired, and something remains
STATUSES = {0, 1, 2, 3, 4, 5}

RETAINED = ["retain", "--apply", "--cleanup-policy", "delete", "--now", NOW, "--retention-ms", "1d"]
LAYS = {"recover": RECOVER, "compact": COMPACT, "retain": RETAIN, "append": COMPACT}
FIRST = {
    "recover": [*RECOVER.words, "--apply"],
    "compact": [*COMPACT.words, "--apply"],
    "retain": RETAINED,
}
APPEND = ["append", "--apply", "--now", NOW, "--from", "LINES"]
SECOND = (
    ["undo"],
    ["undo"],
    ["undo", "--finish"],
    ["undo", "--list"],
    [*RECOVER.words, "--apply"],
    [*COMPACT.words, "--apply"],
    RETAINED,
    APPEND,
    ["verify"],
    ["list"],
)
PARTITION = {"recover": "metro-zstd-0", "compact": "accounts-0", "retain": "orders-0", "append": "accounts-0"}


def logs(data: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data)): path.read_bytes() for path in sorted(data.glob("*/*.log"))}


def lost(before: Mapping[str, bytes], data: Path) -> list[str]:
    """The logs with bytes that are nowhere below the directory, either in a file or in a beginning and the pieces after it."""
    files = {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and not path.is_symlink()}
    found = []
    for name, content in before.items():
        if any(each.startswith(content) for each in files.values()):
            continue
        log = os.path.basename(name)
        cut = {
            int(path.name.removesuffix(".kept").rpartition("-")[2].split(".")[0]): each
            for path, each in files.items()
            if f"{log}.from-" in path.name and each in content
        }
        whole = b"".join(cut[at] for at in sorted(cut))
        beginning = content[: min(cut, default=0)]
        if (
            not whole
            or beginning + whole != content
            or not any(f.startswith(beginning) for f in files.values())
        ):
            found.append(name)
    return found


def words_at(words: list[str], case: str, root: Path, draw: random.Random) -> list[str]:
    partition = str(root / "data" / PARTITION[case])
    place = partition if words[0] == "append" else draw.choice((str(root / "data"), partition))
    return [str(root / "lines") if word == "LINES" else word for word in words] + ["--quiet", place]


def test_no_command_loses_data_to_a_tampered_journal(
    tmp_path: Path, capture_small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(SEED)
    statuses = set()
    for number in range(DRAWS):
        root = tmp_path / str(number)
        outside = root / "outside"
        outside.mkdir(parents=True)
        (outside / "precious").write_bytes(b"nobody may touch this")
        (root / "lines").write_text(
            "".join(json.dumps({"key": "k", "value": f"v{n}"}) + "\n" for n in range(5))
        )
        data = root / "data"
        case = draw.choice(sorted(LAYS))
        LAYS[case].lay(capture_small, data)
        start = logs(data)
        assert run(words_at(FIRST.get(case, APPEND), case, root, draw)) in (0, 1, 5)
        middle = logs(data)
        journals = sorted((*data.glob("kseg-journal-*.jsonl"), *data.glob("*/.kseg/*/journal.jsonl")))
        if not journals:
            continue
        path = draw.choice(journals)
        original = path.read_bytes()
        changed, words = tampered(original, draw, outside)
        path.write_bytes(changed)
        capfd.readouterr()
        second = words_at(draw.choice(SECOND), case, root, draw)
        around = contents(outside)
        reported = f"draw {number}: {case}, {words} in {path.relative_to(root)}, {second}"
        try:
            status = run(second)
        except BaseException as error:
            raise AssertionError(reported) from error
        err = capfd.readouterr().err
        assert status in STATUSES and "Traceback" not in err, f"{reported}: {status}\n{err}"
        statuses.add(status)
        assert contents(outside) == around, reported
        assert not lost(start, data), reported
        if not is_signed(changed[: changed.rfind(b"\n") + 1]) and second[0] == "undo" and len(journals) == 1:
            assert not lost(middle, data), reported
        shutil.rmtree(root)
    assert {0, 4} <= statuses
