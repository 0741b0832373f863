"""Output formats of `dump`: the class that writes a log in each of them, and how names are printed."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from kseg.jobs.events import Row, Text
from kseg.segment.java.java_text import LONG_BITS, parse_integer
from kseg.segment.partition.names import INDEX_ROLES, FileName, Role, parse_given_name
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


def given_name(path: str) -> FileName:
    """The name of a file that is dumped. Kafka's tool also reads a number below 0, at which no log can begin (`5.log` and `-5.log` are
    dumped; observed with 4.3.1)."""
    name = parse_given_name(os.path.basename(path))
    if name.base_offset is None and (name.role is Role.LOG or name.role in INDEX_ROLES):
        number = parse_integer(name.name.partition(".")[0], LONG_BITS)
        return name if number is None else replace(name, base_offset=number)
    return name


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
