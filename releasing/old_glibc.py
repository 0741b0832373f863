"""Versions of glibc's symbols in ELF files: the newest that is asked for, and references led to an older one.

A function that glibc has changed is there in each version. `.gnu.version_r` of a file names those that it asks for: a file, and for each
version the offset of its name in the table of names and the System V hash of it. `exp` of 2.29 differs from the one of 2.2.5 in how errors
are told to programs of the 1980s only, so a reference may name the older one: name and hash are written over.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

_VERNEED, _VERNAUX = struct.Struct("<HHIII"), struct.Struct("<IHHII")


def newest_glibc(names: Iterable[str]) -> tuple[int, ...]:
    """The newest of the versions `GLIBC_2.17`; those of other libraries and GLIBC_PRIVATE do not count."""
    found = (re.fullmatch(r"GLIBC_([0-9.]+)", name) for name in names)
    return max((tuple(map(int, each[1].split("."))) for each in found if each), default=(0, 0))


def versions(path: Path) -> set[str]:
    """All that a file asks for, of glibc and of other libraries."""
    return {name for _, name in _asked(path.read_bytes(), _tables(path))}


def lower(path: Path, older: Mapping[str, str]) -> None:
    """Write the older name over each version in `older` that a file asks for. Raises ValueError where the older name is not in the
    file's own table of names."""
    tables = _tables(path)
    data = bytearray(path.read_bytes())
    for at, name in list(_asked(data, tables)):
        if name in older:
            assert tables is not None
            known = data.find(b"\0" + older[name].encode("ascii") + b"\0", tables.names, tables.names_end) + 1
            if not known:
                raise ValueError(f"{path.name} does not name {older[name]}")
            _, flags, index, _, following = _VERNAUX.unpack_from(data, at)
            _VERNAUX.pack_into(
                data, at, system_v_hash(older[name]), flags, index, known - tables.names, following
            )
    path.write_bytes(data)


def system_v_hash(name: str) -> int:
    """As the ELF specification defines it."""
    value = 0
    for byte in name.encode("ascii"):
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


class _Tables(NamedTuple):
    """Where in a file the table of needed versions begins, and that of the names, to its end."""

    needed: int
    names: int
    names_end: int


def _tables(path: Path) -> _Tables | None:
    from elftools.elf.elffile import ELFFile  # with auditwheel; the tests of the gate do without

    with path.open("rb") as stream:
        for section in ELFFile(stream).iter_sections("SHT_GNU_verneed"):
            names = section.stringtable
            return _Tables(section["sh_offset"], names["sh_offset"], names["sh_offset"] + names["sh_size"])
    return None


def _asked(data: bytes | bytearray, tables: _Tables | None) -> Iterator[tuple[int, str]]:
    """The byte of each entry, and the version that it asks for."""
    if tables is None:
        return
    at = tables.needed
    while True:
        _, count, _, first, following = _VERNEED.unpack_from(data, at)
        entry = at + first
        for _ in range(count):
            _, _, _, name, after = _VERNAUX.unpack_from(data, entry)
            start = tables.names + name
            yield entry, data[start : data.index(0, start)].decode("ascii")
            entry += after
        if not following:
            return
        at += following
