"""A tar archive as a tree of files: every format of backups, and every kind of damage."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.segment.errors import UnreadableInput
from kseg.segment.files import MappedFile, read_small
from kseg.segment.probe import Probe
from kseg.segment.storage import places, tar_archive
from kseg.segment.storage.archive_bytes import ArchiveBytes, ForwardStream, LocalBytes
from kseg.segment.storage.attached import damaged_archives
from kseg.segment.storage.origin import Item, ItemKind
from kseg.segment.storage.tar_archive import TarArchive
from tests.support.archives import compressed, nothing_attached, tar_of

FORMS = ("b.tar", "b.tar.gz", "b.tgz", "b.tar.zst", "b.tzst")


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    with nothing_attached():
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files with sizes around those at which reading changes, and a name too long for a plain header."""
    rng = random.Random(17)
    folder = tmp_path / "data"
    (folder / "a-0").mkdir(parents=True)
    for name, size in (("empty", 0), ("one", 1), ("small", 700), ("middle", 300_000), ("large", 5 << 20)):
        (folder / "a-0" / name).write_bytes(rng.randbytes(size))
    (folder / ("ö" * 90)).write_bytes(b"long name")
    os.utime(folder / "a-0" / "one", ns=(5, 1_700_000_000_123_456_700))
    return folder


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_file_in_an_archive_is_read_like_one_on_disk(folder: Path, name: str, form: int) -> None:
    archive = str(tar_of(folder, folder.parent / name, form))
    assert places.given(archive) == archive

    for path in sorted(folder.rglob("*")):
        inside = f"{archive}/data/{path.relative_to(folder)}"
        assert places.isdir(inside) == path.is_dir()
        assert places.isfile(inside) == path.is_file()
        if path.is_dir():
            assert sorted(places.listdir(inside)) == sorted(entry.name for entry in path.iterdir())
            continue
        content = path.read_bytes()
        assert places.stat(inside).st_size == len(content)
        assert places.stat(inside).st_mtime_ns // 10**9 == path.stat().st_mtime_ns // 10**9
        with MappedFile(inside) as file:
            assert bytes(file.view) == content
            assert file.is_unchanged(places.stat(inside))
        assert read_small(inside) == content
        with Probe(inside) as probe:
            assert probe.read(len(content) // 2, 100) == content[len(content) // 2 :][:100]
    assert damaged_archives() == []
    assert places.lexists(f"{archive}/nothing") is False
    with pytest.raises(UnreadableInput, match=r"nothing: No such file or directory"):
        MappedFile(f"{archive}/nothing")
    with pytest.raises(UnreadableInput, match="not a regular file"):
        MappedFile(f"{archive}/data")


@pytest.mark.parametrize("name", ["b.tar", "b.tar.zst"])
def test_part_of_an_archive_member_is_fetched_in_part(folder: Path, name: str) -> None:
    archive = places.given(str(tar_of(folder, folder.parent / name)))
    content = (folder / "a-0" / "large").read_bytes()
    with MappedFile(f"{archive}/data/a-0/large", random_access=True) as file:
        assert file.is_in_part
        file.need(1_000_000, 1_000_100)
        assert bytes(file.sparse_view[1_000_000:1_000_100]) == content[1_000_000:1_000_100]
        assert not any(file.sparse_view[2_000_000:2_100_000])
        assert bytes(file.view) == content


def test_compressed_archive_without_scratch_space_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tar_archive._Scratch, "has_room_for", lambda self, size_bytes: False)
    archive = places.given(str(tar_of(folder, folder.parent / "b.tar.zst")))
    for _ in range(2):
        for name in ("large", "small", "middle"):
            assert read_small(f"{archive}/data/a-0/{name}") == (folder / "a-0" / name).read_bytes()
    with MappedFile(f"{archive}/data/a-0/large", random_access=True) as file:
        # because each range would need a pass over the archive
        assert not file.is_in_part


def test_sparse_archive_member_has_its_holes(tmp_path: Path) -> None:
    """GNU tar -S stores a broker's preallocated file like this (PAX format 1.0)."""
    stored = b"".join(f"{number}\n".encode() for number in (2, 512, 512, 4096, 0)).ljust(512, b"\0")
    stored += b"A" * 512
    info = tarfile.TarInfo("GNUSparseFile.0/a-0/0.index")
    info.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "a-0/0.index",
        "GNU.sparse.realsize": "4096",
    }
    info.size = len(stored)
    for name in ("s.tar", "s.tar.gz"):
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w") as tar:
            tar.addfile(info, io.BytesIO(stored))
        (tmp_path / name).write_bytes(compressed(plain.getvalue(), name))
        inside = places.given(str(tmp_path / name)) + "/a-0/0.index"
        assert places.getsize(inside) == 4096
        assert read_small(inside) == bytes(512) + b"A" * 512 + bytes(3072)


def test_links_and_devices_in_an_archive_are_not_files(tmp_path: Path) -> None:
    archive = tmp_path / "odd.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("../out", "/abs", "./dot", "a/b/../../../out", "twice", "dir/file"):
            tar.addfile(_info(name, 2), io.BytesIO(b"ok"))
        tar.addfile(_info("twice", 5), io.BytesIO(b"later"))
        for name, kind, target in (
            ("link", tarfile.SYMTYPE, "/etc/passwd"),
            ("device", tarfile.CHRTYPE, ""),
            ("pipe", tarfile.FIFOTYPE, ""),
            ("hard", tarfile.LNKTYPE, "dir/file"),
            ("hard-out", tarfile.LNKTYPE, "/etc/passwd"),
        ):
            info = _info(name, 0)
            info.type, info.linkname = kind, target
            tar.addfile(info)
    path = places.given(str(archive))

    kinds = {
        name: (places.isfile(f"{path}/{name}"), places.isdir(f"{path}/{name}"))
        for name in places.listdir(path)
    }
    nothing = dict.fromkeys(("link", "device", "pipe", "hard-out"), (False, False))
    files = dict.fromkeys(("abs", "dot", "twice", "hard"), (True, False))
    assert kinds == {**nothing, **files, "dir": (False, True)}
    assert read_small(f"{path}/twice") == b"later"
    assert read_small(f"{path}/hard") == b"ok"
    for name in nothing:
        with pytest.raises(UnreadableInput, match="not a regular file"):
            read_small(f"{path}/{name}")


@pytest.mark.parametrize("name", ["b.tar", "b.tar.gz", "b.tar.zst"])
def test_truncated_archive_shows_what_is_left_and_is_reported(folder: Path, name: str) -> None:
    whole = tar_of(folder, folder.parent / name).read_bytes()
    reached = 0
    for number, size in enumerate((len(whole) // 2, len(whole) * 9 // 10)):
        archive = folder.parent / f"{number}{name}"
        archive.write_bytes(whole[:size])
        tree = TarArchive(_bytes_of(archive), str(archive))
        assert tree.damage is not None
        assert tree.damage.startswith("the archive ends too early (")
        for file, item in tree.listing("data/a-0").items():
            content = (folder / "a-0" / file).read_bytes()
            assert tree.read(f"data/a-0/{file}", item, 0, item.size_bytes) == content[: item.size_bytes]
            if 0 < item.size_bytes < len(content):
                reached += 1
                assert (
                    f"of data/a-0/{file} only {item.size_bytes} of {len(content)} bytes are there"
                    in tree.damage
                )
    assert reached


@pytest.mark.parametrize("is_cut", [False, True])
def test_every_byte_of_a_truncated_compressed_stream_is_read(folder: Path, is_cut: bool) -> None:
    """The stream has two gzip members with padding between and after them, and is cut in the second, which is smaller than a read."""
    plain = tar_of(folder, folder.parent / "b.tar").read_bytes()
    half = len(plain) // 2
    members = [gzip.compress(part) + bytes(700) for part in (plain[:half], plain[half:])]
    archive = folder.parent / "b.tar.gz"
    archive.write_bytes(b"".join(members)[: -800 if is_cut else None])
    stream = ForwardStream(_bytes_of(archive), str(archive))
    found = stream.read(len(plain) + 1)
    assert plain.startswith(found) and stream.position == len(found)
    assert (stream.damage is not None) == is_cut
    assert half < len(found) < len(plain) if is_cut else found == plain


def test_damaged_tar_header_is_not_the_end(folder: Path) -> None:
    archive = tar_of(folder, folder.parent / "b.tar")
    with tarfile.open(archive) as tar:
        at = tar.getmember("data/a-0/small").offset
    data = bytearray(archive.read_bytes())
    data[at + 150] ^= 0x55
    archive.write_bytes(data)
    path = places.given(str(archive))
    ((where, sentence),) = damaged_archives()
    assert where == path
    assert sentence.endswith(f"at position {at})")


@pytest.mark.parametrize("content", [b"", b"not a tar archive, but long enough for a header" * 30])
@pytest.mark.parametrize("name", FORMS)
def test_file_that_is_not_an_archive_is_refused_in_one_sentence(
    tmp_path: Path, name: str, content: bytes
) -> None:
    (tmp_path / name).write_bytes(compressed(content, name))
    with pytest.raises(UnreadableInput, match="not a tar archive"):
        places.given(str(tmp_path / name))


def test_compressed_archive_without_a_complete_block_is_not_called_empty(folder: Path) -> None:
    whole = tar_of(folder, folder.parent / "b.tar.zst").read_bytes()
    archive = folder.parent / "cut.tar.zst"
    archive.write_bytes(whole[:20])
    with pytest.raises(UnreadableInput, match=r"not a tar archive \(nothing of it can be decompressed\)"):
        places.given(str(archive))


def test_randomly_damaged_archive_is_a_tree_or_an_error(folder: Path) -> None:
    rng = random.Random(1)
    for name in FORMS:
        whole = tar_of(folder, folder.parent / name).read_bytes()
        for _ in range(12):
            data = bytearray(whole)
            for _ in range(rng.randint(1, 20)):
                data[rng.choice((rng.randrange(len(data)), rng.randrange(min(len(data), 4096))))] = (
                    rng.randrange(256)
                )
            archive = folder.parent / f"x{name}"
            archive.write_bytes(data)
            try:
                tree = TarArchive(_bytes_of(archive), str(archive))
                for inside, item in _files(tree, ""):
                    assert len(tree.read(inside, item, 0, item.size_bytes)) == item.size_bytes
            except OSError as error:
                assert error.strerror


def _files(tree: TarArchive, inside: str) -> Iterator[tuple[str, Item]]:
    for name, item in tree.listing(inside).items():
        path = f"{inside}/{name}".lstrip("/")
        if item.kind is ItemKind.DIRECTORY:
            yield from _files(tree, path)
        elif item.kind is ItemKind.FILE and item.size_bytes < 1 << 24:
            yield path, item


def _bytes_of(archive: Path) -> ArchiveBytes:
    return LocalBytes(str(archive))


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size = size
    return info
