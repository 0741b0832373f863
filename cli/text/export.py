"""The text of `export`: a line for each partition."""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.run_summary import RunSummary
from kseg.cli.text.amounts import size_words
from kseg.segment.counted import counted
from kseg.segment.terminal import visible


def export_words(values: Mapping[str, Any]) -> Iterator[str]:
    """`orders-0: 3,000 records in 1 file, 52,113 bytes`; for an export of all partitions together, by Spark, the output."""
    parts = [counted(values["records"], "record")]
    if values["files"] is not None:
        parts[0] += f" in {counted(len(values['files']), 'file')}"
        parts.append(counted(values["bytes"], "byte"))
    if values["damaged_bytes"]:
        parts.append(counted(values["damaged_bytes"], "damaged byte"))
    yield visible(f"{values['partition'] or values['output']}: {', '.join(parts)}")


def export_total(partitions: int, summary: RunSummary) -> str:
    sums = summary.sums
    damaged = f", {counted(sums['damaged_bytes'], 'damaged byte')}" if sums.get("damaged_bytes") else ""
    return (
        f"{counted(partitions, 'partition')}: {counted(sums.get('records', 0), 'record')} in {counted(sums.get('files', 0), 'file')}, "
        f"{size_words(sums.get('bytes', 0))}{damaged}"
    )
