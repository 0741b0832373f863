"""Text of the rows of `verify`, `lookup`, `read` and `list`, and the names of partitions in any text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kseg.cli.run_summary import RunSummary
from kseg.segment import layout as L
from kseg.segment.counted import counted
from kseg.segment.moments import moment
from kseg.segment.terminal import shown_path, visible

Values = Mapping[str, Any]


def damage_words(tally: RunSummary, noun: str = "file") -> str:
    """`2 errors, 1 warning in 12 files`: the last line of a dump with findings. noun: what a target is called."""
    failed = tally.targets_failed
    parts = [counted(tally.errors, "error"), counted(tally.warnings, "warning")]
    if failed:
        parts.append(f"{failed:,} not readable")
    return f"{', '.join(parts)} in {counted(tally.targets, noun)}"


# values that a payload decoder may have converted to text
DECODED = ("avro", "protobuf", "json-schema", "json")


def bytes_words(text: Any, encoding: Any) -> str:
    """A key or value of a JSON record: quoted text, a decoded value as JSON, or anything else after the name of its encoding."""
    if text is None:
        return "null"
    if encoding in (None, "utf8") and isinstance(text, str):
        return f'"{visible(text)}"'
    if encoding == "message" and isinstance(text, Mapping):
        return visible(_message_words(text))
    if encoding in DECODED or isinstance(text, (dict, list)):
        import json  # imported here, so that a text dump does not load it

        return visible(json.dumps(text, ensure_ascii=False))
    return f"{encoding}:{visible(str(text))}"


def _message_words(message: Mapping[str, Any]) -> str:
    """A message of one of Kafka's own topics: `OffsetCommitValue v4 {"offset":5,…}`."""
    version = message.get("version")
    name = message["name"] if version is None else f"{message['name']} v{version}"
    odd = [
        f"{each}: {message[each]}"
        for each in ("newer", "left_over_bytes", "remarks", "dialect")
        if each in message
    ]
    import json  # imported here, so that a text dump does not load it

    oddities = f" ({', '.join(odd)})" if odd else ""
    return f"{name} {json.dumps(message['data'], ensure_ascii=False, separators=(',', ':'))}{oddities}"


def plain_words(values: Values) -> Iterator[str]:
    """Any row: one `name: value` per line, the type as heading."""
    yield visible(str(values.get("type", "row")))
    for name, value in values.items():
        if name != "type":
            yield f"  {name.replace('_', ' ')}: {visible(str(value))}"


def read_words(values: Values) -> Iterator[str]:
    """One row of read: a record is a line, a batch a heading."""
    if values.get("type") == "read":
        yield _read_line(values)
    elif values.get("type") == "record":
        yield f"  {record_line(values)}"
    elif values.get("type") == "batch":
        yield (
            f"{shown_path(str(values['file']))} byte {values['position']}: batch {values['base_offset']}-"
            f"{values['last_offset']}, {values['size']:,} bytes, {values['compression']}"
        )
    else:
        yield from plain_words(values)


def _read_line(values: Values) -> str:
    """`orders-0 from offset 50: 594 bytes at byte 2158 of ….log, read with 600`."""
    head = f"{shown_path(str(values['partition']))} from offset {values['offset']}"
    if not values["size"]:
        return f"{head}: nothing yet, this is the end of the log"
    cut = ", the last message is cut" if values["cut"] else ""
    return (
        f"{head}: {values['size']:,} bytes at byte {values['position']} of {shown_path(str(values['segment']))}, "
        f"read with {values['max_bytes']:,}{cut}"
    )


def timestamp_of(values: Values) -> int | None:
    """The `timestamp` of a record or an answer in milliseconds; None if it has none."""
    timestamp_ms = values.get("timestamp")
    return timestamp_ms if isinstance(timestamp_ms, int) and timestamp_ms != L.NO_TIMESTAMP else None


def record_line(record: Values, most: int | None = None) -> str:
    """`offset 7 at 2024-05-01T12:00:00.123Z key "a" value "b" header "c"="d"`. most: characters of the key, of the value, and of all
    headers."""
    words = [f"offset {record.get('offset')}"]
    if (timestamp_ms := timestamp_of(record)) is not None:
        words.append(f"at {moment(timestamp_ms)}")
    if "control" in record:
        control = record["control"]
        return " ".join((*words, f"control record {_control_words(control)}"))
    for side in ("key", "value"):
        words.append(f"{side} {_cut(bytes_words(record.get(side), record.get(f'{side}_encoding')), most)}")
    for side in ("key", "value"):
        if f"{side}_error" in record:
            words.append(f"({side} not decoded: {visible(str(record[f'{side}_error']))})")
    headers = " ".join(_header_words(name, value) for name, value in record.get("headers") or ())
    return " ".join([*words, _cut(headers, most)]) if headers else " ".join(words)


def _header_words(name: Any, value: Any) -> str:
    is_encoded = isinstance(value, Mapping)
    shown = bytes_words(value["base64"], "base64") if is_encoded else bytes_words(value, "utf8")
    return f"header {bytes_words(name, 'utf8')}={shown}"


def _cut(words: str, most: int | None) -> str:
    if most is None or len(words) <= most:
        return words
    return f"{words[:most]}… ({len(words):,} characters, --verbose shows all)"


def _control_words(control: Any) -> str:
    """`COMMIT (coordinator epoch 8)`."""
    if not isinstance(control, Mapping):
        return visible(str(control))
    fields = [f"{name.replace('_', ' ')} {value}" for name, value in control.items() if name != "kind"]
    return visible(f"{control.get('kind')}{' (' + ', '.join(fields) + ')' if fields else ''}")


Place = tuple[str, str]  # the name of a partition and its directory


def place_of(values: Mapping[str, Any]) -> Place:
    return str(values["partition"]), str(values.get("directory") or values.get("path") or values["partition"])


def partition_words(places: Iterable[Place]) -> dict[Place, str]:
    """How each of the places of a text is called: by its name, or by its directory if another one has the same name."""
    different = [*dict.fromkeys(places)]
    numbers = Counter(name for name, _ in different)
    return {place: shown_path(place[0] if numbers[place[0]] == 1 else place[1]) for place in different}
