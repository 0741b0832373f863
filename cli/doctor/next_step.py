"""One step of `kseg doctor`."""

import os
from collections.abc import Iterable, Iterator

from kseg.segment.counted import counted
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import KSEG_DIRECTORY
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shell_word
from kseg.segment.values import dataclass

ANY_SERVER = "HOST:PORT"  # placeholder for a bootstrap server
_CHANGING = ("mv", "mkdir", "rmdir", "sed", "chown")
_CHANGING_COMMANDS = ("undo", "recover", "retain", "append")
_APPENDING = " | kseg append --apply "


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
            or words[0] in _CHANGING
            or (words[0] == "kseg" and words[1] in _CHANGING_COMMANDS)
        )


def likewise(more: int, what: str, command: str, then: str = "list them") -> Iterator[NextStep]:
    """The step for further cases of the same kind, which get no step of their own; nothing if there are no such cases."""
    if more > 0:
        yield NextStep(f"Likewise for {counted(more, f'more {what}')}: {then}.", command)


def move_command(path: str) -> str:
    """The command that moves a path out of the data directory, to a place beside it: a broker fails on a directory inside that is not
    a partition. path: a directory in it, a file in a partition, or the journal of one."""
    log_dir, name = os.path.split(os.path.normpath(path))
    if os.path.basename(log_dir) == KSEG_DIRECTORY:
        log_dir = os.path.dirname(log_dir)
    if own_partition_name(log_dir) is not None:
        log_dir, partition = os.path.split(log_dir)
        name = f"{partition}-{name}"
    around, inner = os.path.split(places.abspath(log_dir))
    around = around if os.path.isabs(path) else os.path.relpath(around)
    return (
        f"mv {shell_quoted(path)} {shell_quoted(os.path.normpath(os.path.join(around, f'{inner}-{name}')))}"
    )


def find_copies_command(partitions: Iterable[str]) -> str:
    """The command that lists the directories on this machine that may be of one of these partitions: of its own name, with a suffix
    (`-stray`, `.bak`), and what `move_command` makes of the latter. An empty one is no copy. partitions: `orders-0`."""
    names = (name for each in partitions for name in (each, f"{each}[!0-9]*", f"*-{each}[!0-9]*"))
    wanted = " -o ".join(f"-name {shell_word(name)}" for name in names)
    return rf"find / -type d \( {wanted} \) -not -empty"
