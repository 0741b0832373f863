"""Rows as words: what `verify`, `lookup`, `read` and `list` say to people."""

from collections.abc import Iterator, Mapping
from typing import Any

from kseg.cli.run_summary import RunSummary, counted
from kseg.segment.terminal import visible

Values = Mapping[str, Any]


def damage_words(tally: RunSummary, noun: str = "file") -> str:
    """`2 errors, 1 warning in 12 files`: the end of a dump that met something. noun: what a target is called."""
    failed = len(tally.failed_paths)
    parts = [counted(tally.errors, "error"), counted(tally.warnings, "warning")]
    if failed:
        parts.append(f"{failed:,} not readable")
    return f"{', '.join(parts)} in {counted(tally.targets, noun)}"


def verify_words(tally: RunSummary) -> str:
    """The summary line of verify: what was looked at, where every byte went, what was found."""
    sums = tally.sums
    looked = ", ".join(
        counted(sums[name], noun)
        for name, noun in (("files", "file"), ("batches", "batch"), ("records", "record"))
        if name in sums
    ).replace("batchs", "batches")
    if sums.get("sets_not_opened"):
        looked += f" and {counted(sums['sets_not_opened'], 'compressed set')} (--deep counts their records)"
    if "bytes_total" in sums:
        unreadable = sums.get("bytes_unreadable", 0)
        lost = f" ({unreadable:,} of them unreadable)" if unreadable else ""
        looked += (
            f"; {sums['bytes_total']:,} bytes: {sums.get('bytes_valid', 0):,} valid, "
            f"{sums.get('bytes_damaged', 0):,} damaged{lost}, {sums.get('bytes_padding', 0):,} padding"
        )
    failed = len(tally.failed_paths)
    verdict = f"{counted(tally.errors, 'error')}, {counted(tally.warnings, 'warning')}"
    if failed:
        verdict += f", {failed:,} of {counted(tally.targets, 'target')} failed"
    return f"{looked}; {verdict}" if looked else verdict


def bytes_words(text: Any, encoding: Any) -> str:
    """A key or value of a JSON record: quoted text, or the encoding's name before what is no text."""
    if text is None:
        return "null"
    if encoding in (None, "utf8"):
        return f'"{visible(str(text))}"'
    return f"{encoding}:{visible(str(text))}"


def plain_words(values: Values) -> Iterator[str]:
    """Any row: one `name: value` a line, the type as heading."""
    yield visible(str(values.get("type", "row")))
    for name, value in values.items():
        if name != "type":
            yield f"  {name.replace('_', ' ')}: {visible(str(value))}"


def lookup_words(values: Values) -> Iterator[str]:
    """One answer of lookup: what was found, where it lies, and how it was found."""
    if values.get("type") == "record":
        yield record_line(values)
        return
    if values.get("type") != "lookup":
        yield from plain_words(values)
        return
    name = visible(str(values.get("partition")))
    if not values.get("found"):
        yield f"{name}: nothing found"
    else:
        yield f"{name}: {', '.join(_answer(values))}"
        place = _place(values)
        if place:
            yield f"  in {place}"
        record = values.get("record")
        if record:
            yield f"  record {record_line(record)}"
    yield f"  {values.get('bytes_read') or 0:,} bytes read"
    for step in values.get("path") or ():
        yield f"    {visible(_step(step))}"


def read_words(values: Values) -> Iterator[str]:
    """One row of read: a record is a line, a batch a heading."""
    if values.get("type") == "read":
        yield _read_line(values)
    elif values.get("type") == "record":
        yield f"  {record_line(values)}"
    elif values.get("type") == "batch":
        yield (
            f"{visible(str(values['file']))} byte {values['position']}: batch {values['base_offset']}-"
            f"{values['last_offset']}, {values['size']:,} bytes, {values['compression']}"
        )
    else:
        yield from plain_words(values)


def _read_line(values: Values) -> str:
    """`orders-0 from offset 50: 594 bytes at byte 2158 of ….log, read with 600`."""
    head = f"{visible(str(values['partition']))} from offset {values['offset']}"
    if not values["size"]:
        return f"{head}: nothing yet, this is the end of the log"
    cut = ", the last message is cut" if values["cut"] else ""
    return (
        f"{head}: {values['size']:,} bytes at byte {values['position']} of {visible(str(values['segment']))}, "
        f"read with {values['max_bytes']:,}{cut}"
    )


def record_line(record: Values) -> str:
    """`offset 7 at 2024-05-01T12:00:00.123Z key "a" value "b" headers 2`."""
    words = [f"offset {record.get('offset')}"]
    if isinstance(record.get("timestamp"), int) and record["timestamp"] >= 0:
        words.append(f"at {moment(record['timestamp'])}")
    if "control" in record:
        words.append(f"control {visible(str(record['control']))}")
    words.append(f"key {bytes_words(record.get('key'), record.get('key_encoding'))}")
    words.append(f"value {bytes_words(record.get('value'), record.get('value_encoding'))}")
    if record.get("headers"):
        words.append(f"headers {len(record['headers'])}")
    return " ".join(words)


def moment(timestamp_ms: int) -> str:
    """Epoch milliseconds as ISO 8601 in UTC; outside the calendar the number itself."""
    import datetime

    try:
        second = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return second.isoformat(timespec="milliseconds") + "Z"


def _answer(values: Values) -> Iterator[str]:
    if values.get("offset") is not None:
        yield f"offset {values['offset']}"
    timestamp = values.get("timestamp")
    if isinstance(timestamp, int) and timestamp >= 0:
        yield f"timestamp {timestamp} ({moment(timestamp)})"
    if values.get("leader_epoch") is not None:
        yield f"leader epoch {values['leader_epoch']}"


def _place(values: Values) -> str:
    if values.get("segment") is None:
        return ""
    words = visible(str(values["segment"]))
    if values.get("position") is not None:
        words += f" at byte {values['position']}"
    if values.get("batch_base_offset") is not None:
        words += f", batch {values['batch_base_offset']}-{values.get('batch_last_offset')}"
    return words


def _step(step: Any) -> str:
    """`time-index orders-0/….timeindex: slot 2, offset 83`, or `no slot`."""
    if not isinstance(step, Mapping):
        return str(step)
    numbers = ", ".join(
        f"no {name.replace('_', ' ')}" if value is None else f"{name.replace('_', ' ')} {value}"
        for name, value in step.items()
        if name not in ("step", "file")
    )
    head = f"{step.get('step', '')} {step.get('file', '')}".strip()
    return f"{head}: {numbers}" if numbers else head
