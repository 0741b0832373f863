"""Create tar archives of directories as backup tools do."""

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
    """Create an archive of a directory, compressed according to its file name, with the directory's own name as the first level."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=form) as tar:
        tar.add(directory, directory.name)
    archive.write_bytes(compressed(plain.getvalue(), archive.name))
    return archive


def compressed(data: bytes, name: str) -> bytes:
    """The data, compressed according to the name of the archive."""
    if name.endswith((".gz", ".tgz")):
        return gzip.compress(data, 1, mtime=0)
    return zstandard.compress(data, 1) if name.endswith((".zst", ".tzst")) else data


@contextmanager
def nothing_attached() -> Iterator[None]:
    """Detach the archives and stores that were attached in the body."""
    try:
        yield
    finally:
        detach_all()
        forget_copies()
