"""The filter options that dump and export share, and the `Selection` that they make."""

import os
from collections.abc import Sequence
from typing import Annotated

from kseg.cli.declare import FILTER, Option
from kseg.cli.options import key_bytes, read_count, read_partition, read_time
from kseg.segment.errors import UsageError
from kseg.segment.selection import Selection

FromOffset = Annotated[
    int | None, Option("--from-offset", metavar="N", help="Only from this offset on.", panel=FILTER)
]
ToOffset = Annotated[
    int | None, Option("--to-offset", metavar="N", help="Only below this offset.", panel=FILTER)
]
FromTime = Annotated[
    int | None,
    Option(
        "--from-time",
        metavar="TIME",
        read=read_time,
        help="Only from this time on: epoch milliseconds or ISO 8601.",
        panel=FILTER,
    ),
]
ToTime = Annotated[
    int | None,
    Option("--to-time", metavar="TIME", read=read_time, help="Only before this time.", panel=FILTER),
]
Key = Annotated[
    tuple[str, ...],
    Option("--key", metavar="KEY", help="Only records with this key; may be repeated.", panel=FILTER),
]
KeyRegex = Annotated[
    str | None,
    Option(
        "--key-regex",
        metavar="REGEX",
        help="Only records whose key matches somewhere (bytes as in Python: \\xff).",
        panel=FILTER,
    ),
]
ProducerId = Annotated[
    int | None, Option("--producer-id", metavar="N", help="Only batches of this producer.", panel=FILTER)
]
LeaderEpoch = Annotated[
    int | None,
    Option(
        "--leader-epoch",
        metavar="N",
        read=read_partition,
        help="Only batches of this leader epoch.",
        panel=FILTER,
    ),
]
Control = Annotated[
    bool | None, Option("--control/--no-control", help="Only control records, or none.", panel=FILTER)
]


def limited(help: str) -> Option:
    """`--limit`, which counts what the command shows."""
    return Option("--limit", metavar="N", read=read_count, help=help, panel=FILTER)


def selection_of(
    *,
    from_offset: int | None,
    to_offset: int | None,
    from_time: int | None,
    to_time: int | None,
    key: Sequence[str],
    key_encoding: str,
    key_regex: str | None,
    producer_id: int | None,
    leader_epoch: int | None,
    control: bool | None,
    isolation: str,
    limit: int | None,
) -> Selection:
    """What the options select. Raises UsageError."""
    return Selection(
        from_offset=from_offset,
        to_offset=to_offset,
        from_time_ms=from_time,
        to_time_ms=to_time,
        keys=tuple(key_bytes(each, key_encoding) for each in key),
        key_regex=_regex(key_regex),
        producer_id=producer_id,
        leader_epoch=leader_epoch,
        control=control,
        read_committed=isolation == "read_committed",
        limit=limit,
    )


def _regex(pattern: str | None) -> bytes | None:
    if pattern is None:
        return None
    import re

    raw = os.fsencode(pattern)
    try:
        re.compile(raw)
    except re.error as error:
        raise UsageError(f"--key-regex {pattern!r} is no regular expression: {error}") from None
    return raw
