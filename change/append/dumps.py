"""Whether the lines are complete dumps. In `{ kseg dump …; kseg dump …; } | kseg append` the shell passes on what a dump has written that
failed or was killed, and the records that it lacks would be missing from the log without a word.

1. A dump that has come to its end writes its summary last.
2. It writes an error for a target that it could not read, and the summary counts it.
3. It writes a finding for damage inside a log, with the offsets that it could not read, also if it was not asked for these. Another
   dump between its neighbours does not: that is what it was added for, though the cleaner may have left nothing there. What is cut off at
   the end of a log may have no end. Offsets that the user has given up are not asked for.
"""

from collections.abc import Iterable, Iterator, Sequence

from kseg.change.append.json_input import COUNTED, Numbered, Row
from kseg.segment.counted import offsets_words
from kseg.segment.errors import Refused
from kseg.segment.findings import ERROR

_NOTHING = range(0)
_NO_END = 2**63 - 1


class Dumps:
    """Checks the lines of a number of dumps. name: of the input. given_up: offsets that may be missing."""

    def __init__(self, number: int, name: str, given_up: Sequence[range] = ()) -> None:
        self._number = number
        self._name = name
        self._given_up = sorted(given_up, key=lambda each: each.start)
        self._complete = 0
        # by dump: the first and the last offset that it has, and the ranges that it reports as lost
        self._found: list[range] = [_NOTHING]
        self._lost: list[list[range]] = [[]]

    def checked(self, rows: Iterable[Numbered]) -> Iterator[Numbered]:
        """Pass the lines on. Raises Refused when something is missing, at the latest after the last line."""
        for number, row in rows:
            self._note(number, row)
            yield number, row
        if self._complete != self._number or len(self._found[-1]):
            more = ", and more lines after the last" if self._complete == self._number else ""
            raise self._refused(f"it has {self._complete} of {self._number} complete dumps{more}")
        for lost in (each for ranges in self._lost for found in ranges for each in self._wanted(found)):
            if self._is_missing(lost):
                has_end = lost.stop < _NO_END
                words = (
                    offsets_words(lost.start, lost.stop - 1)
                    if has_end
                    else f"everything from offset {lost.start} on"
                )
                raise self._refused(
                    f"{words} could not be read, and no other dump has {'them' if has_end and len(lost) > 1 else 'it'}"
                )

    def _wanted(self, lost: range) -> Iterator[range]:
        """What is left of a range without the offsets that are given up."""
        for given_up in self._given_up:
            if _overlap(given_up, lost):
                if lost.start < given_up.start:
                    yield range(lost.start, given_up.start)
                lost = range(given_up.stop, max(given_up.stop, lost.stop))
        if len(lost):
            yield lost

    def _is_missing(self, lost: range) -> bool:
        """Whether each dump that may have to provide these offsets, between those before and those after it, reports some as lost."""
        may = []
        for place, ranges in enumerate(self._lost[: self._complete]):
            begin = max((each.stop for each in self._found[:place] if len(each)), default=0)
            end = min((each.start for each in self._found[place + 1 :] if len(each)), default=lost.stop)
            if _overlap(range(begin, end), lost):
                may.append(any(_overlap(each, lost) for each in ranges))
        return bool(may) and all(may)

    def _note(self, number: int, row: Row) -> None:
        kind = row.get("type", "record")
        if kind in COUNTED:
            self._note_offsets(row)
        elif kind == "error":
            raise self._refused(f"line {number}: {row.get('message')}")
        elif kind == "finding" and row.get("severity") == ERROR:
            first, last = row.get("first_offset"), row.get("last_offset")
            if last is None and row.get("resumed_offset", 0) is None:
                last = _NO_END - 1
            if type(first) is not int or type(last) is not int:
                raise self._refused(f"line {number}: {row.get('path')}: {row.get('message')}")
            self._lost[-1].append(range(first, last + 1))
        elif kind == "summary":
            if row.get("targets_failed") or row.get("interrupted"):
                raise self._refused(f"line {number}: the dump did not come to its end")
            self._complete += 1
            self._found.append(_NOTHING)
            self._lost.append([])

    def _note_offsets(self, row: Row) -> None:
        offset = row.get("offset")
        first, last = row.get("base_offset", offset), row.get("last_offset", offset)
        if type(first) is not int or type(last) is not int:
            return
        found = self._found[-1]
        start = min(found.start, first) if len(found) else first
        self._found[-1] = range(start, max(found.stop, last + 1))

    def _refused(self, why: str) -> Refused:
        return Refused(f"{self._name}: {why}; nothing was appended")


def _overlap(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop
