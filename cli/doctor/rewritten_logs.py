"""The steps that write a log again from dumps, beside the data directory, and put it in the place of the one that is there."""

import os
from collections.abc import Iterable, Iterator, Sequence

from kseg.cli.doctor.next_step import (
    NextStep,
    lack_of_room,
    lack_of_room_outside,
    move_command,
    out_of_the_way,
    put_command,
)
from kseg.segment.partition.names import KSEG_DIRECTORY, NAME_BY_ROLE, Role
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted


def dump_command(path: str, bounds: str = "") -> str:
    """The command that prints every record of a log as it is: what is decoded or redacted cannot be appended. bounds: further options."""
    return f"kseg dump --json --raw --show-secrets --print-data-log{bounds} {shell_quoted(path)};"


def offset_options(name: str, ranges: Iterable[range]) -> str:
    return "".join(f" {name} {each.start}-{each.stop - 1}" for each in ranges)


def rewritten_log(
    why: str, path: str, dumps: Sequence[str], options: str, replaced: str, *, like: str
) -> Iterator[NextStep]:
    """why: what is wrong, and what to do. path: the directory that the result replaces. dumps: the commands (`dump_command`). options: of
    `append`. replaced: `path` in words. like: a log of about the size of the result."""
    log_dir, name = os.path.split(os.path.normpath(path))
    made = os.path.join(f"{places.abspath(log_dir)}-whole", name)
    anew, moved = out_of_the_way(made)  # append would add to it
    yield NextStep(
        f"{why}{moved}{lack_of_room(like, made)}",
        f"{anew}mkdir -p {shell_quoted(os.path.dirname(made))} && {{ {' '.join(dumps)} }} | "
        f"kseg append --apply --dumps {len(dumps)}{options} --from - {shell_quoted(made)}",
    )
    metadata = NAME_BY_ROLE[Role.PARTITION_METADATA]
    yield NextStep(
        f"Then put it in place of {replaced}, with its topic id.{lack_of_room_outside(path)}",
        f"cp -p {shell_quoted(os.path.join(path, metadata))} {shell_quoted(made)} && rm -r {shell_quoted(os.path.join(made, KSEG_DIRECTORY))} && "
        f"{put_command(made, path, first=move_command(path))}",
    )
