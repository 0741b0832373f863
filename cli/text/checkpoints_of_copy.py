"""What `recover --output` and `compact --output` print about the checkpoints beside the copies."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from kseg.segment.counted import listed
from kseg.segment.terminal import shell_quoted, shown_path

_MOST = 3


def carried_words(values: Mapping[str, Any]) -> Iterator[str]:
    """The checkpoint entries of the copies, and how to use them; nothing if there are none."""
    checkpoints: Mapping[str, Mapping[str, int]] = values.get("checkpoints") or {}
    output = str(values.get("output"))
    for name, offsets in checkpoints.items():
        entries = [f"{shown_path(partition)} {offset}" for partition, offset in offsets.items()]
        yield f"  {shell_quoted(os.path.join(output, name))}: {listed(entries, _MOST)}"
    if checkpoints:
        yield (
            "  to use the copies in a broker: with the broker stopped, move the partition directories into its data directory, and in its "
            "checkpoint files of the same names replace the lines of these partitions by those above; line 2 of each file is the number "
            "of lines that follow. Otherwise deleted records come back"
        )
