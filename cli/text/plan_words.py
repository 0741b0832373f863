"""The text that plans of `recover`, `compact` and `retain` share: disk space, sources of settings, checkpoints of copies."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kseg.cli.text.amounts import duration_words, size_words
from kseg.segment.counted import counted, listed
from kseg.segment.partition.topic_settings import Source
from kseg.segment.terminal import shell_quoted, shown_path, visible

_WORTH_SAYING_BYTES = 1 << 20
_CHECKPOINTS_SHOWN = 3


def room_words(values: Mapping[str, Any]) -> Iterator[str]:
    """A line for each file system on which space is short, or much of it is needed."""
    for room in values.get("room") or ():
        where, needed = shown_path(str(room["path"])), counted(room["needed"], "byte")
        if not room["fits"]:
            from kseg.change.apply.keeping import BESIDE
            from kseg.change.apply.room import advice

            short = f"{needed} needed on the file system of {where}, {room['free']:,} are free"
            if "free_files" in room:
                files = counted(room["needed_files"], "new file")
                short = f"{files} or more needed on the file system of {where}, {room['free_files']:,} of its inodes are free"
            yield f"  not enough disk space: {short}"
            yield f"  {advice(BESIDE)}"
        elif room["needed"] >= _WORTH_SAYING_BYTES:
            yield f"  needs {needed} of disk space on the file system of {where}"


def undo_words(values: Mapping[str, Any]) -> Iterator[str]:
    """Where removed bytes are kept, and the command that takes a change back; nothing for a plan."""
    if values.get("quarantine"):
        yield f"  removed bytes: {shell_quoted(str(values['quarantine']))}"
    if values.get("journal"):
        yield f"  undo with: kseg undo {shell_quoted(str(values['journal']))}"


def settings_words(values: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    """The line that names each setting with its source; nothing for a run that read no settings. names: the settings to mention."""
    settings = values.get("settings") or {}
    sources = [
        f"{name} {visible(_amount(name, settings[name]['value']))} ({Source(settings[name]['source']).words})"
        for name in names
        if name in settings
    ]
    if sources:
        yield f"  by {', '.join(sources)}"


def _amount(name: str, value: object) -> str:
    """Durations and sizes in readable form; -1 and anything that is not a number unchanged."""
    text = str(value)
    if not text.isdigit():
        return text
    if name.endswith(".ms"):
        return duration_words(int(text))
    return size_words(int(text)) if name.endswith(".bytes") else text


def carried_words(values: Mapping[str, Any]) -> Iterator[str]:
    """The checkpoint entries of the copies, and how to use them; nothing if there are none."""
    checkpoints: Mapping[str, Mapping[str, int]] = values.get("checkpoints") or {}
    output = str(values.get("output"))
    for name, offsets in checkpoints.items():
        entries = [f"{shown_path(partition)} {offset}" for partition, offset in offsets.items()]
        yield f"  {shell_quoted(os.path.join(output, name))}: {listed(entries, _CHECKPOINTS_SHOWN)}"
    if checkpoints:
        yield (
            "  to use the copies in a broker: with the broker stopped, move the partition directories into its data directory, and in its "
            "checkpoint files of the same names replace the lines of these partitions with those above; line 2 of each file is the number "
            "of lines that follow. Otherwise deleted records come back"
        )
