"""Output formats of `dump`: the class that writes a log in each of them, and how names are printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.jobs.events import Row, Text
from kseg.segment.partition.names import FileName, Role
from kseg.segment.storage.places import is_elsewhere

if TYPE_CHECKING:
    from kseg.inspection.dump.log_rows import LogRows
    from kseg.inspection.dump.log_text import LogText


def as_java_shows(path: str) -> str:
    """The path as java.io.File prints it: no double slashes, no trailing slash. Paths that are not on a disk stay as they are."""
    if is_elsewhere(path):
        return path
    while "//" in path:
        path = path.replace("//", "/")
    return path.rstrip("/") or path


def as_json(row: Row) -> Text:
    from kseg.segment.json_line import json_line  # imported here, so that a text dump does not load json

    return Text(json_line(row.values))


def dumper(shape: str) -> type[LogText | LogRows]:
    # imported here, so that a dump in one format does not load the others
    if shape == "kafka":
        from kseg.inspection.dump.log_text import LogText

        return LogText
    if shape == "json":
        from kseg.inspection.dump.log_json import LogJson

        return LogJson
    from kseg.inspection.dump.log_rows import LogRows

    return LogRows


def heading(name: FileName) -> str | None:
    match name.role:
        case Role.BOOTSTRAP_SNAPSHOT:
            return "KRaft bootstrap snapshot"
        case Role.METADATA_SNAPSHOT if name.epoch is not None:
            return f"Snapshot end offset: {name.base_offset}, epoch: {name.epoch}"
        case Role.LOG if name.base_offset is not None:
            return f"Log starting offset: {name.base_offset}"
    return None
