"""The next command to type: from the hint that the catalogue gives for a finding, or what carries a plan out."""

import os
import shlex
from collections.abc import Mapping, Sequence

from kseg.cli.registry import COMMANDS
from kseg.segment.errors import FormatError
from kseg.segment.findings import Finding
from kseg.segment.terminal import shell_quoted

# What to look at when the catalogue's own advice is a command that this version does not have, or the one running.
_INSTEAD = {"verify": "kseg dump {path}", "dump": "kseg verify --deep {partition}"}


def next_command(finding: Finding, running: str) -> str:
    """A whole command line, quoted for a shell; empty when there is nothing better than what was just done."""
    hint = hint_of(finding.kind.hint, running)
    if hint.startswith("kseg recover") and not _can_be_recovered(finding.path):
        hint = _INSTEAD.get(running, "")
    return hint.format(**_places(finding.path)) if hint else ""


def apply_command(
    command: str, given: Mapping[str, object], topics: Sequence[str], paths: Sequence[str]
) -> str:
    """The command that carries out the plan that was shown, quoted for a shell. given: the options that the plan hangs
    on, by name; True is a flag, None and False were not given."""
    words = ["kseg", command, "--apply"]
    for name, value in given.items():
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words += [name, str(value)]
    for topic in topics:
        words += ["--topic", topic]
    return " ".join([*map(shlex.quote, words), *map(shell_quoted, paths)])


def hint_of(hint: str, running: str) -> str:
    verb = hint.split()[1]
    return hint if verb in COMMANDS and verb != running else _INSTEAD.get(running, "")


def _places(path: str) -> dict[str, str]:
    """The file, its partition directory and its log dir, as far as the names tell."""
    if _is_partition(path):
        partition, log_dir = path, os.path.dirname(path) or "."
    elif os.path.isdir(path):
        partition = log_dir = path
    else:
        folder = os.path.dirname(path) or "."
        is_inside = _is_partition(folder)
        partition = folder if is_inside else path
        log_dir = (os.path.dirname(folder) or ".") if is_inside else folder
    places = {"path": path, "partition": partition, "log_dir": log_dir}
    return {name: shell_quoted(place) for name, place in places.items()}


def _can_be_recovered(path: str) -> bool:
    """Whether it is a directory, or a file that says by its name or its place to which log it belongs."""
    from kseg.segment.partition.names import parse_file_name

    folder, name = os.path.split(path)
    return (
        os.path.isdir(path) or _is_partition(folder or ".") or parse_file_name(name).base_offset is not None
    )


def _is_partition(path: str) -> bool:
    from kseg.segment.partition.names import parse_partition_directory

    try:
        parse_partition_directory(os.path.basename(os.path.abspath(path)))
    except FormatError:
        return False
    return os.path.isdir(path)
