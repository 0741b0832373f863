"""Whether the lines are complete dumps. In `{ kseg dump …; kseg dump …; } | kseg append` the shell passes on what a dump has written that
failed or was killed, and the records that it lacks would be missing from the log without a word.

1. A dump that has come to its end writes its summary last.
2. It writes an error for a target that it could not read, and the summary counts it.
3. It writes a finding for damage inside a log, with the offsets that it could not read. Another dump has records among them:
   that is what it was added for.
"""

from collections.abc import Iterable, Iterator

from kseg.change.append.first_lines import COUNTED, Numbered
from kseg.change.append.json_input import Row
from kseg.segment.errors import Refused
from kseg.segment.findings import ERROR


class Dumps:
    """Checks the lines of a number of dumps. name: of the input."""

    def __init__(self, number: int, name: str) -> None:
        self._number = number
        self._name = name
        self._complete = 0
        # by dump: the ranges of offsets that it has, ascending, and those that it reports as lost
        self._found: list[list[range]] = [[]]
        self._lost: list[list[range]] = [[]]

    def checked(self, rows: Iterable[Numbered]) -> Iterator[Numbered]:
        """Pass the lines on. Raises Refused when something is missing, at the latest after the last line."""
        for number, row in rows:
            self._note(number, row)
            yield number, row
        if self._complete != self._number or self._found[-1]:
            more = ", and more lines after the last" if self._complete == self._number else ""
            raise self._refused(f"it has {self._complete} of {self._number} complete dumps{more}")
        for place, ranges in enumerate(self._lost):
            others = [found for other, found in enumerate(self._found) if other != place]
            for lost in ranges:
                if not any(_overlap(each, lost) for found in others for each in found):
                    raise self._refused(
                        f"offsets {lost.start} to {lost.stop - 1} could not be read, and no other dump has them"
                    )

    def _note(self, number: int, row: Row) -> None:
        kind = row.get("type", "record")
        if kind in COUNTED:
            self._note_offsets(row)
        elif kind == "error":
            raise self._refused(f"line {number}: {row.get('message')}")
        elif kind == "finding" and row.get("severity") == ERROR:
            first, last = row.get("first_offset"), row.get("last_offset")
            if type(first) is not int or type(last) is not int:
                raise self._refused(f"line {number}: {row.get('path')}: {row.get('message')}")
            self._lost[-1].append(range(first, last + 1))
        elif kind == "summary":
            if row.get("targets_failed") or row.get("interrupted"):
                raise self._refused(f"line {number}: the dump did not come to its end")
            self._complete += 1
            self._found.append([])
            self._lost.append([])

    def _note_offsets(self, row: Row) -> None:
        offset = row.get("offset")
        first, last = row.get("base_offset", offset), row.get("last_offset", offset)
        if type(first) is not int or type(last) is not int:
            return
        found = self._found[-1]
        if found and found[-1].start <= first <= found[-1].stop:
            found[-1] = range(found[-1].start, max(found[-1].stop, last + 1))
        else:
            found.append(range(first, last + 1))

    def _refused(self, why: str) -> Refused:
        return Refused(f"{self._name}: {why}; nothing was appended")


def _overlap(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop
