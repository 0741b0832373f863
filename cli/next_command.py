"""The command suggested at the end of a run, ready to paste: derived from the catalogue's hints for the findings, or the one that
carries out a plan."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kseg.cli.option_schema import parameters
from kseg.cli.registry import COMMANDS, function_of
from kseg.cli.request import Request
from kseg.segment.errors import FormatError
from kseg.segment.quantities import Typed
from kseg.segment.storage import places
from kseg.segment.terminal import shell_quoted, shell_word

if TYPE_CHECKING:
    from kseg.jobs.events import Failure
    from kseg.spark.options import ClusterOptions

_MOST_AGAIN = 8
# Used if the catalogue's hint is a command that this version does not have, or the one that is running.
_INSTEAD = {"verify": "kseg dump {path}", "dump": "kseg verify --deep {path}", "doctor": "kseg dump {path}"}
# Options that are not repeated, because they do not affect the plan.
_NOT_OF_THE_PLAN = frozenset(
    [
        "--apply",
        "--output",
        "--hard-link",
        "--json",
        "--html",
        "--quiet",
        "--verbose",
        "--no-progress",
        "--jobs",
        "--drop-cache",
        "--top-keys",
        "--what-if",
    ]
)
_BUNDLES_OF_THE_PLAN = ("in_place", "identity", "broker", "limits", "marks", "cleaning")
_CHANGING = ("undo", "recover", "retain", "compact", "append")
# The first of these hints wins: commands that unblock others, then repairs, then closer examination.
_ORDER = ("undo", "recover", "doctor", "verify", "dump", "retain", "list")


def next_command(hints: Mapping[str, Sequence[str]], running: str, request: Request) -> str:
    """A complete command line, quoted for a shell; empty if there is nothing better than what was just done.

    hints: of the most severe findings, each with the first of the paths that it was given for.
    """
    told = list(filter(None, (_hint_for(hint, paths, running) for hint, paths in hints.items())))
    if not told:
        return ""
    verb = min((hint.split()[1] for hint, _ in told), key=_ORDER.index)
    same = [(hint, paths) for hint, paths in told if hint.split()[1] == verb]
    if verb in ("undo", "dump"):  # these take single files
        paths = dict.fromkeys(path for _, each in same for path in each)
        return " ".join(["kseg", verb, *map(shell_quoted, paths)])
    flags = {word: True for hint, _ in same for word in hint.split() if word.startswith("--")}
    wanted = [path for path in request.paths if places.lexists(path)] or request.paths
    targets = dict.fromkeys(_place_of(path, verb) for path in wanted)
    return command_line(verb, flags, replace(request, paths=tuple(targets)))


def once_more(failures: Iterable["Failure"], running: str, request: Request) -> str:
    """The command that retries the targets that an object store failed to return; empty for other failures. `diff` is repeated with
    both of its paths."""
    paths = [path for failure in failures for path in failure.paths or (failure.path,)]
    if running in ("diff", *_CHANGING) or not all(map(places.is_elsewhere, paths)):
        return ""
    again = [_place_of(path, running) for path in dict.fromkeys(paths)]
    inner = [
        path for path in again if not any(other != path and path.startswith(f"{other}/") for other in again)
    ]
    wanted = inner if len(inner) <= _MOST_AGAIN else request.paths
    return command_line(running, {}, replace(request, paths=tuple(dict.fromkeys(wanted))))


def plan_options(command: str, values: Mapping[str, Any]) -> dict[str, object]:
    """The given options that a plan depends on, by name; True for a flag. values: the values of the command's parameters."""
    given: dict[str, object] = {}
    for each in parameters(function_of(command)):
        if each.bundle is None:
            value = values[each.name]
        elif each.bundle.name in _BUNDLES_OF_THE_PLAN:
            value = getattr(values[each.bundle.name], each.name)
        else:
            continue
        if each.flags and each.flags[0] not in _NOT_OF_THE_PLAN:
            if each.shape == "pair" and value is not None:
                given[each.flags[0 if value else 1]] = True
            elif value != each.default:
                given[each.flags[0]] = value
    return given


def apply_command(command: str, given: Mapping[str, object], request: Request) -> str:
    """The command that carries out the displayed plan, quoted for a shell. given: as returned by `plan_options`."""
    wanted = tuple(path for path in request.paths if places.lexists(path)) or request.paths
    return command_line(command, {"--apply": True, **given}, replace(request, paths=wanted))


def command_line(command: str, given: Mapping[str, object], request: Request) -> str:
    """A command line, quoted for a shell: the given options, a tuple for one that is repeated, and those of the request that the command
    accepts."""
    words = ["kseg", command]
    further = {name: value for name, value in _accepted(command, request.also).items() if name not in given}
    for name, value in {**given, **further}.items():
        if value is True:
            words.append(name)
        elif isinstance(value, tuple):
            words += [word for each in value for word in (name, str(each))]
        elif value is not None and value is not False:
            words += [name, value.text if isinstance(value, Typed) else str(value)]
    accepted = _options_of(command)
    for topic in request.topics if "--topic" in accepted else ():
        words += ["--topic", topic]
    if request.partition is not None and "--partition" in accepted:
        words += ["--partition", str(request.partition)]
    if request.cluster is not None and "--spark" in accepted:
        words += _cluster_words(request.cluster)
    return " ".join([*map(shell_word, words), *map(shell_quoted, request.paths)])


def _cluster_words(cluster: "ClusterOptions") -> Iterator[str]:
    from kseg.spark.options import LOCAL_MASTER

    yield "--spark"
    if cluster.master != LOCAL_MASTER:
        yield from ("--master", cluster.master)
    for name, value in cluster.conf:
        yield from ("--spark-conf", f"{name}={value}")
    for option in ("py_files", "archives", "jars", "packages"):
        names = getattr(cluster, option)
        if names:
            yield from (f"--{option.replace('_', '-')}", ",".join(names))


def _options_of(command: str) -> set[str]:
    return {flag for parameter in parameters(function_of(command)) for flag in parameter.flags}


def _accepted(command: str, options: Mapping[str, object]) -> dict[str, object]:
    accepted = _options_of(command)
    return {name: value for name, value in options.items() if name in accepted}


def _hint_for(hint: str, paths: Sequence[str], running: str) -> tuple[str, Sequence[str]] | None:
    """The hint adapted to this run, with the paths that it applies to."""
    adapted = hint_of(hint, running)
    if adapted.startswith("kseg recover"):
        paths = [path for path in paths if _can_be_recovered(path)] or paths
        if not any(map(_can_be_recovered, paths)):
            adapted = _INSTEAD.get(running, "")
    if adapted and adapted.split()[1] in _CHANGING and any(map(places.is_elsewhere, paths)):
        adapted = _INSTEAD.get(running, "")
    return (adapted, paths) if adapted else None


def hint_of(hint: str, running: str) -> str:
    """The hint, or a substitute if it names the running command or one that does not exist; empty if there is no substitute."""
    if not hint:
        return ""
    verb = hint.split()[1]
    return hint if verb in COMMANDS and verb != running else _INSTEAD.get(running, "")


def _place_of(path: str, verb: str) -> str:
    """The target of a command for a requested path: for a file, the partition or the data directory that contains it."""
    if verb == "verify" or places.isdir(path):
        return path
    folder = os.path.dirname(path) or os.curdir
    return folder if _is_partition(folder) or _is_of_log_dir(path) else path


def _can_be_recovered(path: str) -> bool:
    """Whether `recover` can process a path: a directory, or a file whose name or location tells its log or data directory."""
    from kseg.segment.partition.names import parse_file_name

    if not places.exists(path):  # the path of a missing partition
        return places.isdir(os.path.dirname(path))
    folder, name = os.path.split(path)
    is_inside = _is_partition(folder or os.curdir) or _is_of_log_dir(path)
    return places.isdir(path) or is_inside or parse_file_name(name).base_offset is not None


def _is_of_log_dir(path: str) -> bool:
    from kseg.segment.partition.names import NAME_BY_ROLE, OFFSET_CHECKPOINT_ROLES, Role

    roles = (*OFFSET_CHECKPOINT_ROLES, Role.META_PROPERTIES, Role.CLEAN_SHUTDOWN)
    return os.path.basename(path) in {NAME_BY_ROLE[role] for role in roles}


def _is_partition(path: str) -> bool:
    from kseg.segment.partition.names import parse_partition_directory

    try:
        parse_partition_directory(os.path.basename(places.abspath(path)))
    except FormatError:
        return False
    return places.isdir(path)
