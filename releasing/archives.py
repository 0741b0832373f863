"""Archives that are the same bytes each time: members in order, one time, no owner; and the list of their checksums."""

import gzip
import hashlib
import tarfile
from pathlib import Path


def write_tar(target: Path, root: Path, prefix: str, epoch_s: int) -> None:
    """All of `root` as `prefix/…` in a `.tar.gz`. epoch_s: the time of every member."""
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=epoch_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted([root, *root.rglob("*")]):
            relative = path.relative_to(root).as_posix()
            member = archive.gettarinfo(path, prefix if relative == "." else f"{prefix}/{relative}")
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch_s, 0, 0, "", ""
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            if member.isreg():
                with path.open("rb") as content:
                    archive.addfile(member, content)
            else:
                archive.addfile(member)


def checksums(directory: Path) -> str:
    """Lines as `sha256sum --check` reads them."""
    files = sorted(path for path in directory.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
