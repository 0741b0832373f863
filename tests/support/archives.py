"""Tar archives of directories, as written by backup tools."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard

from kseg.segment.storage.attached import detach_all
from kseg.segment.storage.local_copy import forget_copies


def tar_of(directory: Path, archive: Path, form: int = tarfile.PAX_FORMAT) -> Path:
    """An archive of a directory, compressed as its name says, with the directory's own name as the first level."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=form) as tar:
        tar.add(directory, directory.name)
    archive.write_bytes(compressed(plain.getvalue(), archive.name))
    return archive


def compressed(data: bytes, name: str) -> bytes:
    """Compressed as the name of the archive says."""
    if name.endswith((".gz", ".tgz")):
        return gzip.compress(data, 1, mtime=0)
    return zstandard.compress(data, 1) if name.endswith((".zst", ".tzst")) else data


@contextmanager
def nothing_attached() -> Iterator[None]:
    """Archives and stores attached inside are forgotten afterwards."""
    try:
        yield
    finally:
        detach_all()
        forget_copies()
