"""Commands that write accept paths on disk only: an object store and a tar archive are read, never changed."""

from collections.abc import Sequence

from kseg.segment.errors import Refused
from kseg.segment.storage.attached import is_elsewhere


def refuse_read_only(command: str, paths: Sequence[str]) -> None:
    """Raises Refused if a path that a command would change is in an object store or a tar archive."""
    for path in paths:
        if is_elsewhere(path):
            raise Refused(
                f"kseg {command} works on directories on disk only, and {path} is in an object store or a tar archive: "
                "copy the directory to a disk first (verify, list, dump, lookup, read and export read it where it is)"
            )
