"""Steps that move directories out of a data directory: those whose names a broker cannot parse, and those that it serves nobody from."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from kseg.cli.doctor.next_step import NextStep, likewise, move_command
from kseg.cli.doctor.situation import Situation
from kseg.cli.next_command import command_line
from kseg.internal_topics.metadata.replica_directories import has_segment
from kseg.segment.counted import shown_of
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.names import contains_partition_name
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shown_path

_LISTED = 5  # directories with a step of their own
_OF_FILE_SYSTEM = "lost+found"


def foreign_steps(situation: Situation) -> Iterator[NextStep]:
    """A broker takes every directory for a partition, and fails on a name that is not a partition's."""
    renamed = situation.set_aside.values()  # these get their names back
    foreign = [path for path in situation.foreign if path not in renamed]
    shown = shown_of(len(foreign), _LISTED)
    former_names = {} if situation.has_metadata else _former_names(foreign)
    for path in foreign[:shown]:
        former_name = former_names.get(path)
        if former_name is not None:
            yield NextStep(
                f"A broker does not start with this name. {shown_path(former_name)} is missing here, "
                "although a checkpoint has an offset of it: rename the directory back, or, if it is not "
                "that partition, move it out of the data directory.",
                f"mv -T {shell_quoted(path)} {shell_quoted(os.path.join(os.path.dirname(path), former_name))}",
            )
        elif os.path.basename(path) == _OF_FILE_SYSTEM:
            yield _remove_lost_and_found(path)
        else:
            yield NextStep(
                "Move it out of the data directory: a broker does not start with it.",
                move_command(path),
            )
    copies = [path for path in situation.of_other_topics if path not in renamed]
    more = len(foreign) - shown
    shown = shown_of(len(copies), _LISTED)
    for path in copies[:shown]:
        yield NextStep(
            f"Move {shown_path(os.path.basename(path))} out of the data directory: by its topic id it is of "
            "another topic, and a broker serves nobody from it.",
            move_command(path),
        )
    command = command_line("list", {"--verbose": True}, situation.request)
    yield from likewise(more + len(copies) - shown, "directory", command)


def _remove_lost_and_found(path: str) -> NextStep:
    again = "The next fsck creates it again, so let log.dirs name a directory below the mount point."
    is_empty = False
    with suppress(OSError):  # of root
        is_empty = not places.listdir(path)
    if is_empty:
        return NextStep(f"Remove it: a broker does not start with it. {again}", f"rmdir {shell_quoted(path)}")
    return NextStep(
        f"Move it out of the data directory: a broker does not start with it. What fsck put there may be files of partitions. {again}",
        move_command(path),
    )


def _former_names(foreign: Sequence[str]) -> dict[str, str]:
    """Directories that were renamed from the name of a partition, with that name. Without a metadata log only the checkpoints tell which
    partitions a data directory had: theirs is the name if it is part of the new one, and no other directory has it or could have it."""
    found: dict[str, str] = {}
    for path in foreign:
        log_dir, name = os.path.split(path)
        checkpoints = read_log_dir_state(log_dir).checkpoints.values()
        noted = {f"{topic}-{number}" for offsets in checkpoints for topic, number in offsets}
        named = [each for each in noted if contains_partition_name(name, each)]
        former = [each for each in named if not places.lexists(os.path.join(log_dir, each))]
        if len(former) == 1 and has_segment(path):
            found[path] = former[0]
    count = Counter((os.path.dirname(path), name) for path, name in found.items())
    return {path: name for path, name in found.items() if count[os.path.dirname(path), name] == 1}
