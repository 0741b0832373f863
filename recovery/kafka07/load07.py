"""Policy `kafka` for 0.7: what its broker does when it opens a log (0.7.2: Log.loadSegments, FileMessageSet.recover).

1. Sort the files. Where one does not start at the end of the previous one, the load throws.
2. After a clean shutdown nothing more happens.
3. Otherwise read the last file: size, magic and checksum of each entry. It is truncated where an entry is incomplete, too
   small or does not match its checksum; an unknown magic throws. No other file is read, nor is any content.
"""

import os
from itertools import pairwise

from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.steps import FileIdentity
from kseg.recovery.kafka07.damage07 import DamagedBytes, ValidBytes, runs
from kseg.recovery.policy import LoadFailure, Removed, Repair
from kseg.segment.counted import counted
from kseg.segment.files import MappedFile
from kseg.segment.findings import Finding
from kseg.segment.kafka07.messages07 import End07, valid_prefix
from kseg.segment.partition.directory import partition_files
from kseg.segment.partition.names import Role, parse_file_name
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """One file. next_base: where the file after it begins, None for the last one of the directory."""

    name: str
    base_offset: int
    size_bytes: int
    next_base: int | None

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.size_bytes

    @property
    def joins(self) -> bool:
        return self.next_base is None or self.next_base == self.end_offset


def chain_of(directory: str, inputs: tuple[FileIdentity, ...]) -> tuple[Link, ...]:
    """The `.kafka` files in use among `inputs`, by offset. `inputs` may be a single file, so the directory determines which file
    follows it. Raises UnreadableInput."""
    bases = sorted(
        name.base_offset
        for _, name in partition_files(directory)
        if name.role is Role.KAFKA07_LOG and name.is_live and name.base_offset is not None
    )
    following = dict(pairwise(bases))
    links = []
    for file in inputs:
        name = parse_file_name(file.name)
        if name.role is Role.KAFKA07_LOG and name.is_live and name.base_offset is not None:
            base = name.base_offset
            links.append(Link(file.name, base, file.size_bytes, following.get(base)))
    return tuple(sorted(links, key=lambda link: (link.base_offset, link.name)))


def load_as_broker07(
    directory: str, links: tuple[Link, ...], image: DirectoryImage, *, is_clean: bool
) -> Repair:
    """The directory after a 0.7 broker has opened the log. links: at least one file. image: the directory as found. Raises
    UnreadableInput."""
    gap = next((link for link in links if not link.joins), None)
    if gap is not None:
        sentence = f"{gap.name} ends at {gap.end_offset}, but the next file starts at {gap.next_base}"
        finding = gap_finding(directory, gap)
        return Repair.without_log(image, (finding,), LoadFailure("IllegalStateException", sentence))
    last = links[-1]
    if is_clean or last.next_base is not None:
        return _opened(image, links, last.end_offset)
    path = os.path.join(directory, last.name)
    with MappedFile(path) as file:
        end = valid_prefix(file.view)
        if end.throws:
            load_failure, finding = _thrown(path, last, end)
            return Repair.without_log(image, (finding,), load_failure)
        if end.position == file.size_bytes:
            return _opened(image, links, last.end_offset)
        found = list(runs(file, start=end.position))
    image.truncate(last.name, end.position)
    cause = next(run.kind for run in found if isinstance(run, DamagedBytes))
    offset = last.base_offset + end.position
    length = last.size_bytes - end.position
    valid = sum(run.entries for run in found if isinstance(run, ValidBytes))
    message = f"a 0.7 broker truncates the file at the first invalid message, position {end.position}"
    lost = f"; {counted(valid, 'valid message')} after it lost as well" if valid else ""
    finding = Finding(cause, path, message + lost, end.position, length, offset, last.end_offset - 1)
    first_lost, last_lost = DamagedBytes(cause, end.position, last.size_bytes).offsets(last.base_offset)
    removed = Removed(last.name, end.position, length, first_lost, last_lost, cause, valid)
    return _opened(image, links, offset, (finding,), (removed,), {last.name: message})


def gap_finding(directory: str, link: Link) -> Finding:
    """The finding that the file after `link` does not begin where `link` ends."""
    message = f"the file ends at byte {link.end_offset} of the partition, but the next one starts at {link.next_base}"
    numbers = {"expected": link.end_offset, "found": link.next_base}
    return Finding("ancient-gap", os.path.join(directory, link.name), message, numbers=numbers)


def _opened(
    image: DirectoryImage,
    links: tuple[Link, ...],
    end_offset: int,
    findings: tuple[Finding, ...] = (),
    removed: tuple[Removed, ...] = (),
    why: dict[str, str] | None = None,
) -> Repair:
    return Repair(
        image=image,
        log_start_offset=links[0].base_offset,
        log_end_offset=end_offset,
        last_stable_offset=end_offset,
        recovery_point=links[-1].base_offset,
        why=why or {},
        findings=findings,
        removed=removed,
    )


def _thrown(path: str, last: Link, end: End07) -> tuple[LoadFailure, Finding]:
    offset = last.base_offset + end.position
    if end.cause == "unknown-magic":
        exception, words = "UnknownMagicByteException", "has a magic byte that is neither 0 nor 1"
    else:
        exception, words = "IndexOutOfBoundsException", "is too small for its magic"
    sentence = f"the message at position {end.position} of {last.name} {words}"
    return LoadFailure(exception, sentence), Finding("bad-magic", path, sentence, end.position, None, offset)
