"""The `.kafka` files of a directory as the chain that a 0.7 broker requires: each starts where the previous one ends."""

from itertools import pairwise

from kseg.change.plan.steps import FileIdentity
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
