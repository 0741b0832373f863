"""Helpers of the append tests: append lines to a partition, and read a partition as lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fixtures import healthy
from kseg.change.append.append import append, append_target
from kseg.change.append.batching import BatchRules
from kseg.change.append.flush import FlushRules
from kseg.change.append.options import AppendOptions
from kseg.change.append.partition_writer import RollRules
from kseg.change.apply.journal_location import new_run_id
from kseg.inspection.dump.options import DumpOptions
from kseg.jobs.events import Row, Text
from kseg.segment.partition.targets import Expansion, FileTarget, resolve_targets
from tests.support import trees
from tests.support.one_target import dump

NOW_MS = healthy.T0
DECIDED_BY_BYTES = ("file", "position", "size", "crc")
Lines = list[dict[str, Any]]
Appended = Callable[..., Mapping[str, object]]


def dumped(directory: Path, suffix: str = ".log") -> bytes:
    """The lines of `dump --json --deep-iteration` for the segments of a directory."""
    out = b""
    for target in resolve_targets([str(directory)], expand=Expansion.FILES):
        if target.path.endswith(suffix):
            options = DumpOptions(format="json", deep_iteration=True)
            for event in dump(FileTarget(target.path), options):
                if isinstance(event, Text):
                    out += event.data
                elif isinstance(event, Row):
                    out += json.dumps(event.values).encode() + b"\n"
    return out


def without_bytes(data: bytes) -> Lines:
    """Batch and record lines without the fields that depend on the exact bytes."""
    rows = [json.loads(line) for line in data.splitlines()]
    return [
        {name: value for name, value in row.items() if name not in DECIDED_BY_BYTES}
        for row in rows
        if row["type"] in ("batch", "record")
    ]


def written_rows(directory: Path) -> Lines:
    return without_bytes(dumped(directory))


def appender(tmp_path: Path) -> Appended:
    """append(directory, lines, **rules of batches or options) → the result row."""

    def run(
        directory: Path,
        lines: bytes | Lines,
        *,
        rolls: RollRules | None = None,
        flush: FlushRules | None = None,
        options: Mapping[str, Any] | None = None,
        **rules: Any,
    ) -> Mapping[str, object]:
        data = lines if isinstance(lines, bytes) else b"".join(json.dumps(x).encode() + b"\n" for x in lines)
        source = tmp_path / "lines.jsonl"
        source.write_bytes(data)
        asked = AppendOptions(
            source=str(source),
            apply=True,
            run_id=new_run_id(NOW_MS),
            batches=BatchRules(**{"now_ms": NOW_MS, **rules}),
            rolls=rolls or RollRules(),
            flush=flush or FlushRules(),
            **(options or {}),
        )
        events = list(append(append_target(str(directory)), asked))
        (result,) = [event.values for event in events if isinstance(event, Row)]
        return result

    return run


def changes(before: dict[str, trees.Entry], directory: Path) -> list[str]:
    """The differences, without the modification times of directories: locks and journals are created and deleted in them."""
    now = trees.tree_state(directory)
    for name in before.keys() & now.keys():
        if before[name].kind == now[name].kind == "directory":
            now[name] = replace(now[name], mtime_ns=before[name].mtime_ns)
    return trees.differences(before, now)
