"""The table of `dump --format table`: one line per record, fitting a terminal."""

import os
from collections.abc import Mapping
from typing import Any

from kseg.cli.text.common import bytes_words, timestamp_of
from kseg.segment.moments import moment
from kseg.segment.storage import places

_KEY_CHARACTERS = 40
_MESSAGE_CHARACTERS = 120


class RecordTable:
    """Converts the rows of a dump into rows of the table. has_partitions: whether there are records of several partitions."""

    def __init__(self, has_partitions: bool) -> None:
        self._has_partitions = has_partitions

    def __call__(self, values: Mapping[str, Any]) -> Mapping[str, object] | None:
        """The row of a record in short form. Batches are left out; the entries of side files are passed on unchanged."""
        if values.get("type") == "batch":
            return None
        if values.get("type") != "record":
            return values
        shown: dict[str, object] = {"type": "record"}
        if self._has_partitions:
            shown["partition"] = os.path.basename(os.path.dirname(places.abspath(str(values["file"]))))
        shown["offset"] = values.get("offset")
        timestamp_ms = timestamp_of(values)
        shown["time"] = None if timestamp_ms is None else moment(timestamp_ms)
        if "control" in values:
            control = values["control"]
            kind = control.get("kind") if isinstance(control, Mapping) else control
            shown["key"], shown["value"] = None, f"control record {kind}"
        else:
            key = bytes_words(values.get("key"), values.get("key_encoding"))
            room = _MESSAGE_CHARACTERS if values.get("key_encoding") == "message" else _KEY_CHARACTERS
            shown["key"] = key if len(key) <= room else key[: room - 1] + "…"
            shown["value"] = bytes_words(values.get("value"), values.get("value_encoding"))
            for side in ("key", "value"):
                if f"{side}_error" in values:
                    shown["value"] = f"{shown['value']}  {side} not decoded: {values[f'{side}_error']}"
        if values.get("headers"):
            shown["value"] = f"{shown['value']}  headers: " + ", ".join(
                str(header[0]) for header in values["headers"]
            )
        return shown
