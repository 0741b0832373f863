"""The text about the disk space that a plan needs."""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.segment.counted import counted
from kseg.segment.terminal import shown_path

_WORTH_SAYING_BYTES = 1 << 20


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
