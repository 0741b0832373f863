"""The filter options of dump and export, and the `Selection` that they build. `lookup --key` also has the options for ranges."""

import os
from typing import Annotated, NamedTuple

from kseg.cli.option_schema import FILTER, Option
from kseg.cli.options import Isolation, KeyEncoding, count_option, key_bytes, read_epoch, time_option
from kseg.inspection.record_filter import Selection
from kseg.segment.errors import UsageError

FromOffset = Annotated[int | None, Option(metavar="N", help="Only from this offset on.", panel=FILTER)]
ToOffset = Annotated[int | None, Option(metavar="N", help="Only below this offset.", panel=FILTER)]
FromTime = Annotated[
    int | None, time_option("Only from this time on: epoch milliseconds or ISO 8601.", FILTER)
]
ToTime = Annotated[int | None, time_option("Only before this time.", FILTER)]


class Filters(NamedTuple):
    """The records to select. --limit, which counts what the command shows, is declared by each command."""

    from_offset: FromOffset = None
    to_offset: ToOffset = None
    from_time: FromTime = None
    to_time: ToTime = None
    key: Annotated[
        tuple[str, ...],
        Option(metavar="KEY", help="Only records with this key; may be repeated.", panel=FILTER),
    ] = ()
    key_encoding: KeyEncoding = "utf8"
    key_regex: Annotated[
        str | None,
        Option(
            metavar="REGEX",
            help="Only records whose key contains a match (bytes as in Python: \\xff).",
            panel=FILTER,
        ),
    ] = None
    producer_id: Annotated[
        int | None, Option(metavar="N", help="Only batches of this producer.", panel=FILTER)
    ] = None
    leader_epoch: Annotated[
        int | None,
        Option(metavar="N", read=read_epoch, help="Only batches of this leader epoch.", panel=FILTER),
    ] = None
    control: Annotated[bool | None, Option(help="Only control records, or none.", panel=FILTER)] = None
    isolation: Isolation = "read_uncommitted"

    def selection(self, limit: int | None) -> Selection:
        """The selection. Raises UsageError."""
        refuse_reversed_ranges(self.from_offset, self.to_offset, self.from_time, self.to_time)
        return Selection(
            from_offset=self.from_offset,
            to_offset=self.to_offset,
            from_time_ms=self.from_time,
            to_time_ms=self.to_time,
            keys=tuple(key_bytes(each, self.key_encoding) for each in self.key),
            key_regex=_regex(self.key_regex),
            producer_id=self.producer_id,
            leader_epoch=self.leader_epoch,
            control=self.control,
            read_committed=self.isolation == "read_committed",
            limit=limit,
        )


def refuse_reversed_ranges(
    from_offset: int | None, to_offset: int | None, from_time: int | None, to_time: int | None
) -> None:
    """Raises UsageError for a range that ends before it begins. An empty one is allowed: a script that continues asks for it."""
    bounds = (("offset", from_offset, to_offset), ("time", from_time, to_time))
    for name, least, bound in bounds:
        if least is not None and bound is not None and least > bound:
            raise UsageError(f"--from-{name} is after --to-{name}: no record is in this range")


def limited(help: str) -> Option:
    """`--limit`, which counts what the command shows."""
    return count_option(help, FILTER)


def _regex(pattern: str | None) -> bytes | None:
    if pattern is None:
        return None
    import re

    raw = os.fsencode(pattern)
    try:
        re.compile(raw)
    except re.error as error:
        raise UsageError(f"--key-regex {pattern!r} is not a regular expression: {error}") from None
    return raw
