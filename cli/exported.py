"""What `export` says to people: a line for each partition."""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.stream import visible
from kseg.cli.tally import counted


def export_words(values: Mapping[str, Any]) -> Iterator[str]:
    """`orders-0: 3,000 records in 1 file, 52,113 bytes`."""
    files = values["files"]
    count = len(files) if isinstance(files, list) else files
    damage = f", {counted(values['damaged_bytes'], 'damaged byte')}" if values["damaged_bytes"] else ""
    yield visible(
        f"{values['partition']}: {counted(values['records'], 'record')} in {counted(count, 'file')}, "
        f"{counted(values['bytes'], 'byte')}{damage}"
    )
