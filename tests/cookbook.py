"""The incidents of docs/cookbook.md: the directories that reproduce them, and the output on the page.

`python -m tests.cookbook` runs every command of the page in order, in the directory of its incident, and updates the output and the exit
status on the page; prose and the broker's log lines stay. `tests/test_cookbook.py` fails if the page is stale, and
`tests/kafka/test_cookbook.py` starts a real broker on the same directories and looks for the log lines in its log.

A section of the page names its incident by `<!-- incident: NAME -->`. A `console` block contains commands (`$ kseg …`) and their output, a
`log` block lines of the broker's log, in which `…` replaces what differs from run to run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

from fixtures.diseases import flipped_bit, torn_tail
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.change.append.reopen import reopen_partition
from kseg.segment.model import NewBatch, Record
from kseg.segment.partition.partition_log import PartitionLog
from kseg.segment.partition.targets import PartitionTarget
from tests import transcript_incidents, transcripts
from tests.internal_topics.metadata_logs import config
from tests.support.group_dirs import went_back
from tests.support.known_topics import append
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "cookbook.md"
# lines of output that are shown; of longer output, the first and the last ones
LONGEST = 30
_SECTION = re.compile(r"^<!-- incident: (\S+) -->\n", re.MULTILINE)
_BLOCK = re.compile(r"^```(console|log)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_WRITTEN_S = 1_795_250_000  # in the hour of the capture
_ZSTD_ACTIVE = f"{132:020d}.log"


@dataclass(frozen=True)
class Incident:
    """make: creates the incident in the given folder. log_dirs: the `log.dirs` of its broker; none if a start does not show the
    incident. age: gives files other modification times, of which all have the same otherwise."""

    make: Callable[[Path], object]
    log_dirs: tuple[str, ...] = ()
    age: Callable[[Path], None] | None = None


@cache
def _capture() -> bytes:
    with tarfile.open(ROOT / "fixtures" / "capture-small.tar.xz") as packed:
        made = BytesIO()
        with tarfile.open(fileobj=made, mode="w") as kept:
            for member in packed:
                if member.name.startswith("capture-small/data"):
                    kept.addfile(member, packed.extractfile(member) if member.isreg() else None)
    return made.getvalue()


def _stopped(folder: Path) -> Path:
    """The data directory of a broker after a clean shutdown."""
    with tarfile.open(fileobj=BytesIO(_capture())) as packed:
        packed.extractall(folder, filter="data")
    return (folder / "capture-small" / "data").rename(folder / "data")


def _crashed(folder: Path) -> Path:
    """The data directory of a broker after a crash: no marker, and recovery points at the last roll."""
    data = _stopped(folder)
    (data / ".kafka_cleanshutdown").unlink()
    points = data / "recovery-point-offset-checkpoint"
    points.write_text(points.read_text().replace("metro-zstd 0 160", "metro-zstd 0 132"))
    return data


def _power_cut(folder: Path) -> None:
    torn_tail(_crashed(folder) / "metro-zstd-0" / _ZSTD_ACTIVE)


def _flipped(folder: Path) -> None:
    flipped_bit(_stopped(folder) / "metro-zstd-0" / f"{0:020d}.log", 2)


def _flipped_after_crash(folder: Path) -> None:
    data = _crashed(folder)
    points = data / "recovery-point-offset-checkpoint"
    points.write_text(points.read_text().replace("metro-zstd 0 132", "metro-zstd 0 0"))
    flipped_bit(data / "metro-zstd-0" / f"{0:020d}.log", 2)


def _foreign_folder(folder: Path) -> None:
    shutil.copytree(_stopped(folder) / "fares-0", folder / "data" / "fares-0.bak")


def _cut_checkpoint(folder: Path) -> None:
    file = _stopped(folder) / "recovery-point-offset-checkpoint"
    file.write_bytes(file.read_bytes()[:40])


def _lost_indexes(folder: Path) -> None:
    for index in (_stopped(folder) / "metro-lz4-0").glob("*.index"):
        index.unlink()


def _spoilt_epochs(folder: Path) -> None:
    (_stopped(folder) / "fares-0" / "leader-epoch-checkpoint").write_text("0\n1\n")


def _other_identity(folder: Path) -> None:
    (_stopped(folder) / "fares-0" / "partition.metadata").write_text(
        "version: 0\ntopic_id: q7n1YyJrRkW0u0c3dZ4v2g"
    )


def _twice(folder: Path) -> None:
    """A partition was copied by hand to a second disk, and the original was left in place."""
    data = _stopped(folder)
    second = folder / "data2"
    second.mkdir()
    text = (data / "meta.properties").read_text()
    (second / "meta.properties").write_text(text.replace("UsCu_Qd6HlJL_AROE7wUxg", "bS1yQ0tQS2m0r3H1c9Yw5A"))
    shutil.copytree(data / "metro-gzip-0", second / "metro-gzip-0")


def _no_identity(folder: Path) -> None:
    (_stopped(folder) / "meta.properties").unlink()


def _expired(folder: Path) -> None:
    """A backup that was restored after the retention time of two of its topics."""
    data = _stopped(folder)
    append(data, *(config(topic, "retention.ms", "604800000") for topic in ("metro-gzip", "metro-zstd")))


def _uncleaned(folder: Path) -> None:
    """A client without a check of its timestamps has written to a compacted topic for days."""
    data = _stopped(folder)
    directory = data / "stations-0"
    with PartitionLog(PartitionTarget(str(directory))) as log:
        partition = reopen_partition(log, RollRules(segment_bytes=4000))
    end = 300
    with PartitionWriter(directory, partition=partition, existing=os.listdir(directory)) as writer:
        for number in range(8):
            keys = (b"central", b"station %d" % number)
            records = (Record(end + at, -5000, key, b"v" * 1000) for at, key in enumerate(keys))
            writer.append(NewBatch(records=tuple(records), leader_epoch=0, is_copy=True))
            end += len(keys)
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        text = (data / name).read_text()
        (data / name).write_text(text.replace("stations 0 300", f"stations 0 {end}"))


def _written_for_days(folder: Path) -> None:
    logs = sorted((folder / "data" / "stations-0").glob("*.log"), reverse=True)
    for days, path in enumerate(logs):
        os.utime(path, (_WRITTEN_S - days * 86_400,) * 2)


def _full(folder: Path) -> None:
    """The last append did not fit. Segments that retention had already marked still exist."""
    torn_tail(_crashed(folder) / "metro-zstd-0" / _ZSTD_ACTIVE)


INCIDENTS: Mapping[str, Incident] = {
    "power-cut": Incident(_power_cut, ("data",)),
    "flipped-byte": Incident(_flipped_after_crash, ("data",)),
    "consumer-stops": Incident(_flipped),
    "foreign-folder": Incident(_foreign_folder, ("data",)),
    "cut-checkpoint": Incident(_cut_checkpoint, ("data",)),
    "lost-indexes": Incident(_lost_indexes, ("data",)),
    "spoilt-epochs": Incident(_spoilt_epochs, ("data",)),
    "stray": Incident(_other_identity, ("data",)),
    "twice": Incident(_twice, ("data", "data2")),
    "hanging-transaction": Incident(transcript_incidents.INCIDENTS_BY_NAME["hanging-transaction"].make),
    "group-went-back": Incident(went_back),
    "no-identity": Incident(_no_identity, ("data",)),
    "full-disk": Incident(_full),
    "expired": Incident(_expired),
    "uncleaned": Incident(_uncleaned, age=_written_for_days),
}


@dataclass(frozen=True)
class Section:
    """A part of the page: the name of the incident, and the text up to the next part."""

    name: str
    text: str

    def blocks(self, kind: str) -> list[str]:
        """The contents of its blocks of a kind, `console` or `log`."""
        return [content for found, content in _BLOCK.findall(self.text) if found == kind]


def sections(page: str) -> list[Section]:
    """The sections of the page, in order."""
    _, *parts = _SECTION.split(page)
    return [Section(name, text) for name, text in zip(parts[::2], parts[1::2], strict=True)]


def made_anew(page: str, only: str | None = None) -> str:
    """The page with the current output of its commands. only: update this incident, and leave everything else as it is."""
    for section in sections(page):
        if only in (None, section.name):
            page = page.replace(section.text, _played(section))
    return page


def _played(section: Section) -> str:
    incident = INCIDENTS[section.name]
    with transcripts.stage(incident.make):
        if incident.age is not None:
            incident.age(Path())
        return _BLOCK.sub(_played_block, section.text)


def _played_block(block: re.Match[str]) -> str:
    if block[1] != "console":
        return block[0]
    commands = re.findall(r"^\$ (.*)$", block[2], re.MULTILINE)
    return "```console\n" + "\n".join(map(_console, commands)) + "```\n"


def _console(command: str) -> str:
    program, _, rest = command.partition(" ")
    if program != "kseg":
        done = subprocess.run(shlex.split(command), check=True, capture_output=True, text=True)
        return f"$ {command}\n{done.stdout}"
    head, *lines, status = transcripts.reported(rest).splitlines()
    if len(lines) > LONGEST:
        lines = [*lines[: LONGEST - 4], f"… {len(lines) - LONGEST + 2} more lines", *lines[-2:]]
    return "\n".join([head, *lines, status, ""])


def main() -> None:
    PAGE.write_text(made_anew(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
