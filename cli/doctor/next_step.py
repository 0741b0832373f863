"""One step of `kseg doctor`, and the commands that several kinds of steps use."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from kseg.change.apply.room import rooms_for_copy
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.cli.text.amounts import size_words
from kseg.segment.counted import counted, shown_of
from kseg.segment.mounts import is_mount_point
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import (
    COPYING_SUFFIX,
    KSEG_DIRECTORY,
    MAX_DIRECTORY_NAME,
    NAME_BY_ROLE,
    Role,
)
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shell_word, shown_path
from kseg.segment.values import dataclass

ANY_SERVER = "HOST:PORT"  # placeholder for a bootstrap server
_LISTED = 5  # replicas with a step of their own
_CHANGING = ("mv", "mkdir", "rmdir", "sed", "chown")
_CHANGING_COMMANDS = ("undo", "recover", "retain", "compact", "append")
_APPENDING = " | kseg append --apply "
_MOVED = f".moved{COPYING_SUFFIX}"
# for `find`: nothing of what `copy_command` did not complete
NO_PARTIAL_COPIES = f"-not -path '*{COPYING_SUFFIX}*'"


@dataclass(frozen=True, slots=True)
class NextStep:
    """why: what the step is for, in a sentence or two. command: ready to paste. is_due: False if nothing is wrong, only suspicious or
    untidy."""

    why: str
    command: str
    is_due: bool = True

    @property
    def needs_stopped_broker(self) -> bool:
        """Whether it changes a data directory, or plans a change of it."""
        words = self.command.split()
        return (
            _APPENDING in self.command
            or (COPYING_SUFFIX in self.command and NO_PARTIAL_COPIES not in self.command)
            or words[0] in _CHANGING
            or (words[0] == "kseg" and words[1] in _CHANGING_COMMANDS)
        )


def likewise(more: int, what: str, command: str, then: str = "list them") -> Iterator[NextStep]:
    """The step for further cases of the same kind, which get no step of their own; nothing if there are no such cases."""
    if more > 0:
        yield NextStep(f"Likewise for {counted(more, f'more {what}')}: {then}.", command)


def replicas_shown(number: int, request: Request) -> int:
    """How many of so many replicas get a step of their own."""
    return number if request.is_verbose else shown_of(number, _LISTED)


def further_replicas(more: int, what: str, request: Request) -> Iterator[NextStep]:
    """The step for those that do not get one."""
    command = command_line("doctor", {"--verbose": True}, request)
    yield from likewise(more, what, command, "print the command for each")


def move_out(why: str, path: str, *, is_due: bool = True) -> NextStep:
    """The step that moves a path out of the data directory. path: as below."""
    goal = _outside(path)
    if _is_copied(path, goal):
        why += f" The data directory is a file system of its own, so this is a copy to another one; any place outside will do.{lack_of_room(path, goal)}"
    return NextStep(why, move_command(path), is_due)


def append_command(lines: Iterable[str], directory: str, *options: str) -> str:
    """The command that appends these JSON lines to a partition. directory: of the partition. options: further ones of `append`."""
    from kseg.segment.partition.derived_state import is_marked_clean

    given = " ".join(("--from", "-", *options, shell_quoted(directory)))
    append = f"printf '%s\\n' {' '.join(map(shell_quoted, lines))}{_APPENDING}{given}"
    return recovered_first(append, directory, is_crashed=not is_marked_clean(directory))


def recovered_first(append: str, directory: str, *, is_crashed: bool) -> str:
    """A command that appends to a partition, with its recovery before it if its broker was not stopped cleanly: its indexes may be
    preallocated, and nothing is appended then."""
    return f"kseg recover --apply {shell_quoted(directory)} && {append}" if is_crashed else append


def move_command(path: str) -> str:
    """The command that moves a path out of the data directory, to a place beside it: a broker fails on a directory inside that is not
    a partition. path: a directory in it, a file in a partition, or the journal of one.

    If the data directory is a mount point, that is a copy, of which `mv` would leave a part under the path's own name if it were
    interrupted while it deletes. So the path gets a name with which no broker starts before it is deleted."""
    goal = _outside(path)
    moved = f"mv {shell_quoted(path)} {shell_quoted(goal)}"
    if places.islink(path):
        # a relative one would refer to nothing there
        return f"{moved} && ln -sfn {shell_quoted(places.realpath(path))} {shell_quoted(goal)}"
    if is_mount_point(path):
        return f"mkdir {shell_quoted(goal)} && {unmounting(path, goal)}"
    if _device(path) == _device(goal):
        return moved
    if not places.isdir(path):
        return f"{copy_command(path, goal)} && rm {shell_quoted(path)}"
    gone = _with_ending(os.path.normpath(path), _MOVED)
    return f"{copy_command(path, goal)} && mv -T {shell_quoted(path)} {shell_quoted(gone)} && rm -r {shell_quoted(gone)}"


def out_of_the_way(copy: str) -> tuple[str, str]:
    """The beginning of a command that makes a copy, and the sentence about it, if something is there already: it may be the only whole log
    by now."""
    if not places.lexists(copy):
        return "", ""
    return (
        f"{move_command(copy)} && ",
        f" What is at {shown_path(copy)} from an earlier attempt is moved beside it first.",
    )


def elect_command(server: str) -> str:
    """server: HOST:PORT of a broker."""
    return f"kafka-leader-election.sh --bootstrap-server {server} --election-type preferred --all-topic-partitions"


def link_to_mount(path: str) -> NextStep:
    """The step for a partition directory that is a mount point."""
    goal = _outside(path)
    return NextStep(
        f"A broker can neither rename nor delete {shown_path(path)}, because it is a mount point. Mount what is there outside the data "
        "directory (in /etc/fstab too), and let a link take its place: a broker follows it.",
        f"mkdir {shell_quoted(goal)} && {unmounting(path, goal)} && ln -s {shell_quoted(places.abspath(goal))} {shell_quoted(path)}",
        is_due=False,
    )


def unmounting(path: str, goal: str) -> str:
    """The command that mounts what is mounted at `path` at `goal` instead, and removes `path`. It works for every kind of file system; a
    `tmpfs` would lose its contents if it were mounted nowhere in between."""
    old, new = shell_quoted(path), shell_quoted(goal)
    return f"mount --bind {old} {new} && umount {old} && rmdir {old}"


def _outside(path: str) -> str:
    """A free name beside the data directory of a path."""
    log_dir, name = os.path.split(os.path.normpath(path))
    if os.path.basename(log_dir) == KSEG_DIRECTORY:
        log_dir = os.path.dirname(log_dir)
    if own_partition_name(log_dir) is not None:
        log_dir, partition = os.path.split(log_dir)
        name = f"{partition}-{name}"
    around, inner = os.path.split(places.abspath(log_dir))
    around = around if os.path.isabs(path) else os.path.relpath(around)
    return _free_name(os.path.normpath(os.path.join(around, f"{inner}-{name}")))


def _free_name(path: str) -> str:
    """`path`, with a number if it is taken: an earlier step has moved something there, which `mv` would replace, or move into."""
    endings = itertools.chain(("",), (f".{number}" for number in itertools.count(2)))
    return next(each for ending in endings if not places.lexists(each := _with_ending(path, ending)))


def _with_ending(path: str, ending: str) -> str:
    """`path`, whose name is cut if it would be too long with this ending."""
    around, name = os.path.split(path)
    while len(os.fsencode(name + ending)) > MAX_DIRECTORY_NAME:
        name = name[:-1]
    return os.path.join(around, name + ending)


def copy_command(source: str, path: str, *, how: str = "", first: str = "") -> str:
    """The command that copies a directory or file to `path`. The copy gets its name only when it is complete and on disk. Until then a
    broker does not start with the directory: if the disk becomes full or the power fails, a log that lacks its end, or its
    beginning, would lead. It can be given again. how: the command that copies; by default one that copies what links
    refer to. first: a command that makes room at `path` once the copy is complete."""
    copying = _with_ending(os.path.normpath(path), COPYING_SUFFIX)
    commands = [
        # of an earlier copy, whose source may have had other files
        *([f"rm -r {shell_quoted(copying)}"] if places.lexists(copying) else []),
        f"{how or _copying(source)} -T {shell_quoted(source)} {shell_quoted(copying)}",
        f"sync -f {shell_quoted(copying)}",
        *filter(None, [first]),
        f"mv -T {shell_quoted(copying)} {shell_quoted(path)}",
    ]
    return " && ".join(commands)


def _copying(source: str) -> str:
    """The command that copies a directory or file: a link to a partition, or to a file of it, would be copied as a link, and what a broker
    then deletes under one of the names would be gone under both."""
    with suppress(OSError):
        inside = places.listdir(source) if places.isdir(source) else ()
        if any(places.islink(each) for each in (source, *(os.path.join(source, name) for name in inside))):
            return "cp -aL"
    return "cp -a"


def lack_of_room(source: str, path: str) -> str:
    """The sentence that a copy of a directory needs more room than there is at `path`; empty if there is enough, or that is unknown."""
    return "".join(
        f" The copy needs {size_words(room.needed_bytes)}, and {size_words(room.free_bytes)} are free there: make room first."
        for room in rooms_for_copy(source, path)
        if not room.is_enough
    )


def lack_of_room_outside(path: str) -> str:
    """The sentence that `move_command` copies a path to a file system without enough room for it; empty as above."""
    goal = _outside(path)
    if not _is_copied(path, goal):
        return ""
    return "".join(
        f" Moving {shown_path(path)} out needs {size_words(room.needed_bytes)} in {shown_path(os.path.dirname(places.abspath(goal)))}, and "
        f"{size_words(room.free_bytes)} are free there: make room first, or move it to any other place outside."
        for room in rooms_for_copy(path, goal)
        if not room.is_enough
    )


def _is_copied(path: str, goal: str) -> bool:
    """Whether moving a path copies its contents."""
    return _device(path) != _device(goal) and not places.islink(path) and not is_mount_point(path)


def put_command(source: str, path: str, *, first: str = "") -> str:
    """The command that gives a directory the name `path`, which is copied if it is on another file system. first: as above."""
    if _device(source) != _device(path):
        return copy_command(source, path, first=first)
    return f"{first} && mv -T {shell_quoted(source)} {shell_quoted(path)}"


def _device(path: str) -> int:
    """The file system of the directory around a path, which may not exist yet."""
    around = os.path.dirname(places.abspath(path))
    while not places.lexists(around):
        around = os.path.dirname(around)
    return places.stat(around).st_dev


def find_copies_command(partitions: Iterable[str]) -> str:
    """The command that lists the directories on this machine that may be of one of these partitions: of its own name, with a suffix
    (`-stray`, `.bak`), and what `move_command` makes of the latter. An empty one is no copy, and neither is one that `copy_command` did not
    complete. partitions: `orders-0`."""
    names = (name for each in partitions for name in (each, f"{each}[!0-9]*", f"*-{each}[!0-9]*"))
    wanted = " -o ".join(f"-name {shell_word(name)}" for name in names)
    return rf"find / -type d \( {wanted} \) -not -empty {NO_PARTIAL_COPIES}"


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
