"""Missing replicas in the text of `recover`, and the step that gives one its directory back where its log is under another name: `doctor`
has the same."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from kseg.segment.counted import counted, listed
from kseg.segment.findings import CATALOGUE, ERROR
from kseg.segment.partition.directory import partition_name
from kseg.segment.partition.names import PartitionState
from kseg.segment.terminal import shell_quoted, shown_path, visible

_NAMED = 5
Values = Mapping[str, Any]


def rename_back(path: str, found: str) -> tuple[str, str]:
    """A sentence and a command. path: where the metadata log has the replica. found: the directory with its topic id."""
    name = partition_name(os.path.basename(found))
    state = None if name is None else name.state
    own, there = shown_path(os.path.basename(path)), shown_path(os.path.basename(found))
    goal = path
    if state in (PartitionState.FUTURE, PartitionState.DELETE):  # a broker serves it from there
        goal = os.path.join(os.path.dirname(found), os.path.basename(path))
    if state is PartitionState.FUTURE:
        sentence = (
            f"{own} was being moved to another log dir: if there is no complete copy of it, rename what was copied "
            "so far to its name, or a broker empties that too. A broker serves it from there."
        )
    elif state is PartitionState.DELETE:
        sentence = (
            f"{there}, which is marked for deletion, has a log of {own}: if there "
            "is no better copy, give it its name back before a broker starts and deletes it. A broker serves it from there."
        )
    else:
        is_stray = state is PartitionState.STRAY
        what = "was set aside as stray" if is_stray else f"is in {there}, according to the topic id"
        sentence = f"{own} {what}, and the metadata log assigns it to this directory: rename it back, or a broker recreates it empty."
    return sentence, f"mv -T {shell_quoted(found)} {shell_quoted(goal)}"


def lost_replicas(values: Values) -> dict[str, str | None]:
    """The partitions of a data directory that a broker would create empty, without a replica to fetch from, and the directories that have
    their logs under other names."""
    missing = values.get("replicas_missing") or ()
    return {
        str(each["partition"]): each["set_aside"]
        for each in missing
        if CATALOGUE[each["finding"]].severity == ERROR
    }


def missing_words(values: Values) -> Iterator[str]:
    """What a person can do about replicas that a broker would create empty."""
    replicas = lost_replicas(values)
    found = {name: set_aside for name, set_aside in replicas.items() if set_aside is not None}
    lost = [name for name in replicas if name not in found]
    if lost:
        yield (
            f"  still missing: {counted(len(lost), 'replica')} ({visible(listed(lost, _NAMED))}); a broker recreates missing replicas "
            "empty when it starts: put the directories back first, from a copy or another log dir, or start it and lose their records"
        )
    for name, set_aside in list(found.items())[:_NAMED]:
        sentence, command = rename_back(os.path.join(str(values["log_dir"]), name), set_aside)
        yield f"  {sentence}"
        yield f"       {command}"
    if len(found) > _NAMED:
        yield f"  likewise for {counted(len(found) - _NAMED, 'more replica')}; `kseg verify --verbose` names the directory of each"
