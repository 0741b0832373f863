"""Check base offsets and leader epochs, which the CRC does not cover: a batch with a flipped bit there reads as valid.

`dump` and `lookup` show a log as its headers describe it, and report altered headers after the answer:

1. While batches are read, `segment.scanning.header_continuity` checks that they follow each other as a broker writes them. In
   nearly every log they do, and no more is needed.
2. Otherwise the headers are checked as in `verify`, and the findings follow the answer. That check belongs to `recovery`; the
   caller passes it in as a `HeaderCheck`.
"""

from collections.abc import Callable, Iterable, Iterator

from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.partition.names import FileName, Role
from kseg.segment.scanning.header_continuity import HeaderContinuity

# (path of a log, its base offset, first position, last position) → findings about the headers in between; it can be pickled
HeaderCheck = Callable[[str, int, int, int | None], Iterable[Finding]]


def is_live_log(name: FileName) -> bool:
    """Whether the name is that of a live log."""
    return name.role is Role.LOG and name.is_live and name.base_offset is not None


def altered(
    path: str, base_offset: int, header_check: HeaderCheck, seen: HeaderContinuity | None = None
) -> Iterator[Finding]:
    """Findings about the headers of a log. seen: collected while they were read. Raises UnreadableInput."""
    if seen is None or not seen.batches:
        seen = HeaderContinuity()
        with MappedFile(path) as file:
            seen.walk(file.view)
    if not seen.proves(base_offset):
        yield from header_check(path, base_offset, 0, None)
