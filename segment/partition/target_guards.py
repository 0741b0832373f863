"""What a command that writes refuses about its targets: links, several parts of one log, an output inside its input."""

import os
from collections.abc import Iterator, Sequence

from kseg.segment.errors import Refused, UsageError
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import parse_file_name
from kseg.segment.partition.recognition import is_log_directory
from kseg.segment.partition.targets import FileTarget, LogDirTarget, PartitionTarget, Target, directory_of
from kseg.segment.storage import places


def links_below(paths: Sequence[str], targets: Sequence[Target]) -> list[str]:
    """Symbolic links to directories that are targets or on the way to them, each once. A broker follows them; their
    creator decides where they lead."""
    given = {path.rstrip(os.sep) or path for path in paths}
    seen: dict[str, bool] = {}
    for target in targets:
        directory = step = directory_of(target)
        if isinstance(target, LogDirTarget) and directory in given:
            continue
        while step not in seen and (step == directory or step not in given):
            seen[step] = places.islink(step)
            around = os.path.dirname(step)
            if isinstance(target, FileTarget) or directory in given or around in ("", step):
                break
            step = around
    return [path for path, is_link in seen.items() if is_link]


def refuse_parts(targets: Sequence[Target]) -> None:
    """Raises UsageError if several targets are of one log: each would be changed while the other ones are."""
    of_logs = [target for target in targets if isinstance(target, PartitionTarget) or _is_of_segment(target)]
    found: dict[str, str] = {}
    for target in of_logs if any(isinstance(each, FileTarget) for each in of_logs) else ():
        directory = places.realpath(directory_of(target))
        if directory in found:
            raise UsageError(
                f"{found[directory]} and {target.path} are of one log: name its directory, or one segment"
            )
        found[directory] = target.path


def _is_of_segment(target: Target) -> bool:
    return parse_file_name(os.path.basename(target.path)).base_offset is not None


def refuse_inside(output: str, targets: Sequence[Target]) -> None:
    """Raises Refused if an output is a directory of the targets, or is in a partition or data directory of theirs: a
    broker fails on an unknown directory there. A segment file outside a partition may have neighbours."""
    goal = os.path.join(places.realpath(output), "")
    for place in sorted({place for target in targets for place in _brokers_directories(target)}):
        if goal.startswith(os.path.join(places.realpath(place), "")):
            raise Refused(f"the output {output} is in the input directory {place}")
    for place in sorted({directory_of(target) for target in targets}):
        if goal == os.path.join(places.realpath(place), ""):
            raise Refused(f"the output {output} is in the input directory {place}")


def _brokers_directories(target: Target) -> Iterator[str]:
    """The directory of a target and the data directory around it, as far as a broker uses them."""
    directory = directory_of(target)
    if isinstance(target, FileTarget) and own_partition_name(directory) is None:
        return
    yield directory
    if isinstance(target, PartitionTarget):
        around = target.log_dir
    else:
        around = os.path.join(directory, os.pardir) if isinstance(target, FileTarget) else None
    if around is not None and is_log_directory(around):
        yield around
