"""Base offsets and leader epochs stand outside the CRC, so a flipped bit in one leaves a batch that reads as valid.

`dump` and `lookup` show a log as its headers say and name the altered ones behind the answer:

1. While batches are read, `segment.scanning.steadiness` checks that they follow each other as a broker writes them. In nearly every
   log they do, and nothing more is asked.
2. Otherwise the headers are judged as `verify` judges them, and its findings follow the answer. That judgement belongs to `recovery`;
   the caller hands it in as a `HeaderJudge`.
"""

from collections.abc import Callable, Iterable, Iterator

from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.partition.names import FileName, Role
from kseg.segment.scanning.steadiness import Steadiness

# (path of a log, its base offset, first position, last position) → findings about the headers in between; it can be pickled
HeaderJudge = Callable[[str, int, int, int | None], Iterable[Finding]]


def is_judged(name: FileName) -> bool:
    """Whether a file of this name is a log in use."""
    return name.role is Role.LOG and name.is_live and name.base_offset is not None


def altered(
    path: str, base_offset: int, judge: HeaderJudge, seen: Steadiness | None = None
) -> Iterator[Finding]:
    """What is wrong with the headers of a log. seen: what was seen of all of them. Raises UnreadableInput."""
    if seen is None or not seen.batches:
        seen = Steadiness()
        with MappedFile(path) as file:
            seen.walk(file.view)
    if not seen.proves(base_offset):
        yield from judge(path, base_offset, 0, None)
