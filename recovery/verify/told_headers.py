"""`dump` and `lookup` name the headers that `verify` names: base offsets and leader epochs stand outside the checksum.

A log is shown as its headers say, also where a flipped bit has made them wrong; who reads the answer must know. So

1. what an altered header leaves behind is looked for in passing (`segment.scanning.steadiness`). In most logs there is
   nothing of that, and nothing more is asked.
2. Else the headers are judged as `verify` judges them (`headers`), and its findings follow the answer: all of the log
   behind a dump, those about the offset asked for and the batch that was found behind a lookup.
"""

import os
from collections.abc import Iterator
from dataclasses import replace

from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.partition.names import FileName, Role
from kseg.segment.scanning.steadiness import Steadiness


def is_judged(name: FileName) -> bool:
    """Whether a file of this name is a log in use."""
    return name.role is Role.LOG and name.is_live and name.base_offset is not None


def altered(path: str, base_offset: int, seen: Steadiness | None = None) -> Iterator[Finding]:
    """What is wrong with the headers of a log. seen: what was seen of all of them. Raises UnreadableInput."""
    if seen is None or not seen.batches:
        seen = Steadiness()
        with MappedFile(path) as file:
            seen.walk(file.view)
    if not seen.proves(base_offset):
        yield from judged(path, base_offset)


def judged(path: str, base_offset: int, start: int = 0, stop: int | None = None) -> Iterator[Finding]:
    """The same of the batches from `start` on up to before `stop`, whatever was seen of them."""
    from kseg.recovery.verify.headers import judge_headers  # for the few logs that need it

    full = path if os.path.dirname(path) else os.path.join(os.curdir, path)
    for finding in judge_headers(full, base_offset, start, stop).findings:
        if finding.path == full:
            yield replace(finding, path=path)
