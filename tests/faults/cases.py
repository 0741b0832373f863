"""Every command that changes files, each on a data directory in which it has something to do."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.shim import Machine
from tests.support.change_cases import COMPACT, NOW, RECOVER, RETAIN

Lay = Callable[[Path, Path], None]
Prepare = Callable[[Machine, Path], None]

_ONE_DAY = ("--retention-ms", "1d")


@dataclass(frozen=True, slots=True)
class Case:
    """lay: creates the data directory <root>/data from a capture. words: the command line; DATA, OUT, ASIDE and LINES stand for the data
    directory, an output beside it, a directory elsewhere and the lines to append. before: commands that are run on the directory first.
    purges: whether files are deleted for good."""

    lay: Lay
    words: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    purges: bool = False

    @property
    def has_output(self) -> bool:
        return "OUT" in self.words

    @property
    def can_be_undone(self) -> bool:
        """An export does not change what existed before, and the next export removes what a killed one left."""
        return not self.purges and self.words[0] != "export"

    @property
    def has_workers(self) -> bool:
        """A kill may hit a worker, in which case only its target fails and not the command."""
        return "2" in self.words

    @property
    def is_undo(self) -> bool:
        return self.words[0] == "undo"


def words_for(words: Sequence[str], root: Path) -> list[str]:
    """The command line, for a data directory below `root`."""
    places = {
        "DATA": str(root / "data"),
        "ORDERS": str(root / "data" / "orders-0"),
        "OUT": str(root / "out"),
        "ASIDE": str(root / "aside"),
        "LINES": str(root.parent / "lines.jsonl"),
        "NEW": str(root / "data" / "new-0"),
    }
    return [places.get(word, word) for word in words]


def lines_to_append(path: Path) -> None:
    path.write_text("".join(json.dumps({"value": "x" * 50 + str(number)}) + "\n" for number in range(40)))


def _rolled(lay: Lay) -> Lay:
    """A data directory without the side files of the first log."""

    def made(capture: Path, folder: Path) -> None:
        lay(capture, folder)
        for path in (folder / "fares-0").glob("*.index"):
            path.unlink()

    return made


def _unclean(capture: Path, made: Path) -> None:
    """A data directory without the clean-shutdown marker, on which a broker's load depends."""
    RECOVER.lay(capture, made)
    (made / ".kafka_cleanshutdown").unlink()


def _marked(capture: Path, made: Path) -> None:
    RETAIN.lay(capture, made)
    for path in (made / "orders-0").glob(f"{0:020}.*"):
        path.rename(f"{path}.deleted")


def _export(capture: Path, made: Path) -> None:
    made.mkdir(parents=True)
    for name in ("fares-0", "metro-none-0"):
        shutil.copytree(capture / "data" / name, made / name)


_RECOVER = (*RECOVER.words, "--jobs", "1")
_COMPACT = (*COMPACT.words, "--jobs", "1")
_RETAIN = ("retain", "--cleanup-policy", "delete", "--now", NOW, "--jobs", "1")
_APPEND = (
    "append",
    "--apply",
    "--from",
    "LINES",
    "--now",
    NOW,
    "--segment-bytes",
    "1KiB",
    "--batch-records",
    "10",
)

CASES = {
    "recover": Case(RECOVER.lay, (*_RECOVER, "--apply", "DATA")),
    "recover, two workers": Case(RECOVER.lay, (*RECOVER.words, "--jobs", "2", "--apply", "DATA")),
    "recover as a broker": Case(_unclean, (*_RECOVER, "--policy", "kafka", "--apply", "DATA")),
    "recover --rebuild": Case(_rolled(RECOVER.lay), (*_RECOVER, "--rebuild", "--apply", "DATA")),
    "recover --mark-clean": Case(RECOVER.lay, (*_RECOVER, "--mark-clean", "--apply", "DATA")),
    "recover --quarantine": Case(RECOVER.lay, (*_RECOVER, "--quarantine", "ASIDE", "--apply", "DATA")),
    "recover --output": Case(RECOVER.lay, (*_RECOVER, "--output", "OUT", "DATA")),
    "recover --output, links": Case(RECOVER.lay, (*_RECOVER, "--hard-link", "--output", "OUT", "DATA")),
    "compact --output": Case(COMPACT.lay, (*_COMPACT, "--output", "OUT", "DATA")),
    "recover --spark": Case(RECOVER.lay, (*RECOVER.words, "--spark", "--apply", "DATA")),
    "recover --output --spark": Case(RECOVER.lay, (*RECOVER.words, "--spark", "--output", "OUT", "DATA")),
    "compact --spark": Case(COMPACT.lay, (*COMPACT.words, "--spark", "--apply", "DATA")),
    "retain --spark": Case(
        RETAIN.lay,
        ("retain", "--cleanup-policy", "delete", "--now", NOW, "--spark", *_ONE_DAY, "--apply", "DATA"),
    ),
    "compact": Case(COMPACT.lay, (*_COMPACT, "--apply", "DATA")),
    "compact --include-active": Case(COMPACT.lay, (*_COMPACT, "--include-active", "--apply", "DATA")),
    "retain": Case(RETAIN.lay, (*_RETAIN, *_ONE_DAY, "--apply", "DATA")),
    "retain --purge": Case(RETAIN.lay, (*_RETAIN, *_ONE_DAY, "--purge", "--apply", "DATA"), purges=True),
    "retain --unmark": Case(_marked, (*_RETAIN, "--unmark", "--apply", "DATA")),
    "append": Case(RETAIN.lay, (*_APPEND, "ORDERS")),
    "append to a new one": Case(
        RETAIN.lay, (*_APPEND[:-1], "5", "--topic-id", "Pm0fXkDvQ0yTn7Qq3uXJ8A", "NEW")
    ),
    "undo recover": Case(RECOVER.lay, ("undo", "DATA"), ((*_RECOVER, "--apply", "DATA"),)),
    "undo recover as a broker": Case(
        _unclean, ("undo", "DATA"), ((*_RECOVER, "--policy", "kafka", "--apply", "DATA"),)
    ),
    "undo append": Case(RETAIN.lay, ("undo", "DATA"), ((*_APPEND, "ORDERS"),)),
    "export json": Case(
        _export, ("export", "--to", "json", "--no-meta", "--jobs", "1", "--output", "OUT", "DATA")
    ),
    "export parquet": Case(
        _export, ("export", "--to", "parquet", "--no-meta", "--jobs", "1", "--output", "OUT", "DATA")
    ),
}
