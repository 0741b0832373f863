"""The inventory as people read it: a paragraph for each partition and data directory, then its files.

The library lists the files first and sums them up after; on paper the sum comes first.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.run_summary import counted
from kseg.cli.text.common import moment
from kseg.jobs.events import Event, Row
from kseg.segment.terminal import visible

Values = Mapping[str, Any]
SUMS = ("partition", "log-dir")


def sums_first(events: Iterator[Event]) -> Iterator[Event]:
    """The same events with each group of file rows behind the row that sums them up."""
    files: list[Event] = []
    for event in events:
        kind = event.values.get("type") if isinstance(event, Row) else None
        if kind in ("file", "directory"):
            files.append(event)
            continue
        yield event
        if kind in SUMS:
            yield from files
            files.clear()
    yield from files


def inventory_words(values: Values) -> Iterator[str]:
    """The lines for one row of `list`."""
    match values.get("type"):
        case "file" | "directory":
            yield _entry(values)
        case "partition":
            yield from _partition(values)
        case "log-dir":
            yield from _log_dir(values)
        case _:
            yield visible(str(dict(values)))


def _entry(values: Values) -> str:
    size = "" if values.get("size") is None else f"{values['size']:,}"
    when = "" if values.get("mtime") is None else moment(values["mtime"])
    state = "" if values.get("state") in (None, "live") else f" ({values['state']})"
    problem = f": {values['problem']}" if values.get("problem") else ""
    return visible(f"  {size:>14}  {when:24}  {values['kind']}{state}  {values['file']}{problem}")


def _partition(values: Values) -> Iterator[str]:
    state = f", {values['state']}" if values["state"] != "live" else ""
    topic_id = f", topic id {values['topic_id']}" if values.get("topic_id") else ""
    yield visible(f"{values['partition']} in {values['directory']}{state}{topic_id}")
    held = [counted(values["segments"], "segment"), f"{values['log_bytes']:,} bytes of log"]
    if values.get("records") is not None:
        held.append(f"{counted(values['records'], 'record')} in {_batches(values['batches'])}")
    elif values.get("batches") is not None:
        held.append(_batches(values["batches"]))
    yield f"  {', '.join(held)}; {counted(values['files'], 'file')} of {values['bytes']:,} bytes"
    if values.get("log_end_offset") is not None:
        yield f"  {_offsets(values)}"
    times = _times(values)
    if times:
        yield f"  {times}"
    for transaction in values.get("open_transactions") or ():
        yield (
            f"  open transaction of producer {transaction['producer_id']} (epoch {transaction['producer_epoch']}) "
            f"since offset {transaction['first_offset']}"
        )
    yield from _lacks(values)


def _log_dir(values: Values) -> Iterator[str]:
    known = [
        f"{name.replace('_', ' ')} {values[name]}"
        for name in ("node_id", "cluster_id", "directory_id")
        if values.get(name) is not None
    ]
    yield visible(f"data directory {values['directory']}{': ' if known else ''}{', '.join(known)}")
    stop = "shut down cleanly" if values["clean_shutdown"] else "no clean-shutdown marker"
    yield (
        f"  {counted(values['partitions'], 'partition')} of {counted(values['topics'], 'topic')}, "
        f"{values['bytes']:,} bytes, {stop}"
    )
    yield from _lacks(values)


def _offsets(values: Values) -> str:
    words = [f"offsets {values['log_start_offset']} to {values['log_end_offset']}"]
    if values.get("last_stable_offset") is not None:
        words.append(f"last stable {values['last_stable_offset']}")
    if values.get("high_watermark") is not None:
        words.append(f"high watermark {values['high_watermark']}")
    if values.get("leader_epochs"):
        epochs = values["leader_epochs"]
        words.append(
            f"leader epochs {epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else f"leader epoch {epochs[0]}"
        )
    return ", ".join(words)


def _times(values: Values) -> str:
    words: list[str] = []
    if values.get("earliest_timestamp") is not None:
        words.append(f"{moment(values['earliest_timestamp'])} to {moment(values['latest_timestamp'])}")
        if values.get("is_future"):
            words.append("in the future")
    words += values.get("timestamp_types") or ()
    words += ("uncompressed" if codec == "none" else codec for codec in values.get("codecs") or ())
    if values.get("magics"):
        words.append(f"magic {', '.join(map(str, values['magics']))}")
    return ", ".join(words)


def _lacks(values: Values) -> Iterator[str]:
    if values.get("missing"):
        yield visible(f"  missing: {', '.join(values['missing'])}")
    if values.get("unknown_files"):
        yield visible(f"  unknown: {', '.join(values['unknown_files'])}")


def _batches(number: int) -> str:
    return f"{number:,} batch" if number == 1 else f"{number:,} batches"
