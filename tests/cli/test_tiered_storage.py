"""Segments that a tiered-storage plugin uploaded are a partition like any other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.segment.errors import FormatError
from kseg.segment.files import MappedFile
from kseg.segment.storage import places
from kseg.segment.storage.tiered_manifest import decode_chunk_sizes, read_manifest
from tests.support.archives import nothing_attached, tar_of
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.tiered import TOPIC_ID, encode_sizes, upload


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    with nothing_attached():
        yield


@pytest.fixture
def partition(capture_small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(capture_small / "data" / "metro-zstd-0", tmp_path / "metro-zstd-0"))


@pytest.mark.parametrize("compression", [True, False])
@pytest.mark.parametrize("chunk_bytes", [100, 4096, 1 << 22])
@pytest.mark.parametrize(
    "command",
    [
        ["dump", "--print-data-log"],
        ["lookup", "--offset", "140", "--json"],
        ["lookup", "--latest", "--json"],
        ["read", "--offset", "0", "--json"],
    ],
    ids=" ".join,
)
def test_reading_commands_give_the_same_output_for_uploaded_segments(
    partition: Path, tmp_path: Path, command: list[str], chunk_bytes: int, compression: bool, capfd: Capfd
) -> None:
    upload(partition, tmp_path / "tiered", chunk_bytes=chunk_bytes, compression=compression)
    files = [path.name for path in partition.glob("*.log")]
    path = f"tiered:{tmp_path}/tiered/metro-zstd-0"
    targets = [([*command, str(partition)], [*command, path])]
    if command[0] == "dump":
        targets = [([*command, str(partition / name)], [*command, f"{path}/{name}"]) for name in files]
    for here, there in targets:
        status = run(here)
        expected = capfd.readouterr()
        assert run(there) == status == 0
        reported = capfd.readouterr()
        ours, theirs = reported.out.replace(path, str(partition)), expected.out
        if command[0] == "lookup":  # the amount read, and where the log start is recorded, differ
            assert _answer(ours) == _answer(theirs)
        else:
            assert ours == theirs


def _answer(text: str) -> dict[str, object]:
    row = json.loads(text)
    return {name: row[name] for name in ("found", "offset", "timestamp", "leader_epoch", "record")}


def test_listed_files_are_the_uploaded_ones(partition: Path, tmp_path: Path, capfd: Capfd) -> None:
    topic = upload(partition, tmp_path / "tiered")
    (topic / "0" / "00000000000000000777-tqimKeZwStOEOwRzT3L5oQ.log").write_bytes(
        b"an upload that did not end"
    )
    rows = rows_of(capfd, "list", f"tiered:{tmp_path}/tiered", status=0)
    sizes = {Path(row["file"]).name: row["size"] for row in rows if row["type"] == "file"}
    unfinished = sizes.pop("00000000000000000777-tqimKeZwStOEOwRzT3L5oQ.log")
    assert unfinished == 26
    assert sizes == {path.name: path.stat().st_size for path in partition.iterdir() if path.name in sizes}
    assert {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
    } <= set(sizes)


def test_verify_reads_every_chunk_and_names_a_damaged_one(
    partition: Path, tmp_path: Path, capfd: Capfd
) -> None:
    topic = upload(partition, tmp_path / "tiered")
    assert run(["verify", f"tiered:{tmp_path}/tiered/metro-zstd-0"]) == 0
    capfd.readouterr()
    with nothing_attached():
        # forget the listings and contents that were read before
        pass
    log = min(topic.rglob("*.log"))
    content = bytearray(log.read_bytes())
    content[:8] = bytes(8)
    log.write_bytes(content)
    assert run(["verify", f"tiered:{tmp_path}/tiered/metro-zstd-0"]) != 0
    reported = capfd.readouterr()
    assert (
        "chunk 0 of " in reported.out + reported.err
        and "cannot be decompressed" in reported.out + reported.err
    )


def test_archive_of_uploaded_segments_is_read(partition: Path, tmp_path: Path, capfd: Capfd) -> None:
    upload(partition, tmp_path / "tiered")
    archive = tar_of(tmp_path / "tiered", tmp_path / "t.tar.gz")
    assert run(["verify", f"tiered:{archive}/tiered"]) == 0
    assert capfd.readouterr().err == ""


def test_encrypted_segments_are_listed_and_not_read(partition: Path, tmp_path: Path, capfd: Capfd) -> None:
    upload(partition, tmp_path / "tiered", encrypted=True)
    path = f"tiered:{tmp_path}/tiered/metro-zstd-0/00000000000000000000.log"
    assert run(["dump", path]) == 3
    sentence = (
        f"kseg: cannot read {path}: the tiered-storage plugin has encrypted it, and kseg does not decrypt\n"
    )
    assert sentence in capfd.readouterr().err
    assert run(["list", f"tiered:{tmp_path}/tiered"]) != 0
    assert "has encrypted it" in capfd.readouterr().err


UPLOADED = [
    ("compressed/kafka", "fares-0", {"00000000000000000000": 68}),
    ("compressed/kafka", "metro-none-0", {"00000000000000000000": 72, "00000000000000000072": 144}),
    ("plain", "metro-gzip-0", {"00000000000000000000": 132}),
]


@pytest.mark.parametrize(("folder", "name", "segments"), UPLOADED, ids=lambda value: str(value)[:30])
def test_files_uploaded_by_the_plugin_are_read_byte_for_byte(
    tiered_small: Path, capture_small: Path, folder: str, name: str, segments: dict[str, int]
) -> None:
    """Every file of the segments that the plugin uploaded is shown, byte for byte."""
    shown = places.given(f"tiered:{tiered_small}/{folder}/{name}")
    source = capture_small / "data" / name
    expected = {f"{end:020d}.snapshot": source / f"{end:020d}.snapshot" for end in segments.values()}
    for stem in segments:
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            if (source / f"{stem}{suffix}").exists():
                expected[f"{stem}{suffix}"] = source / f"{stem}{suffix}"
    assert set(places.listdir(shown)) == {*expected, "leader-epoch-checkpoint"}
    for file, path in expected.items():
        with MappedFile(f"{shown}/{file}") as mapped:
            assert bytes(mapped.view) == path.read_bytes(), file


def test_uploaded_segments_are_not_reported_as_lacking_side_files(tiered_small: Path, capfd: Capfd) -> None:
    root = f"tiered:{tiered_small}/compressed/kafka"
    assert run(["verify", "--deep", root]) == 0
    reported = capfd.readouterr()
    assert reported.out.splitlines()[0] == "SOUND: no errors in 2 partitions"
    # nothing about a broker's start
    assert len(reported.out.splitlines()) == 2 and reported.err == ""
    assert run(["list", root]) == 0
    reported = capfd.readouterr()
    assert "uploaded by a tiered-storage plugin" in reported.out
    assert "missing" not in reported.out and "partition.metadata" not in reported.out


def test_encrypted_uploads_are_not_reported_as_damaged(tiered_small: Path, capfd: Capfd) -> None:
    for name in ("fares-0", "metro-gzip-0"):
        assert run(["verify", f"tiered:{tiered_small}/encrypted/{name}"]) == 3
        reported = capfd.readouterr()
        assert "DAMAGED" not in reported.out
        assert "the tiered-storage plugin has encrypted it, and kseg does not decrypt" in reported.err


def test_two_uploaded_topics_of_one_name_are_distinguished(
    partition: Path, tmp_path: Path, capfd: Capfd
) -> None:
    topic = upload(partition, tmp_path / "tiered")
    shutil.copytree(topic, topic.with_name("metro-zstd-AAAAAAAAAAAAAAAAAAAAAA"))
    rows = rows_of(capfd, "list", f"tiered:{tmp_path}/tiered", status=0)
    names = {row["partition"] for row in rows if row["type"] == "partition"}
    assert names == {f"metro-zstd-{TOPIC_ID}-0", "metro-zstd-AAAAAAAAAAAAAAAAAAAAAA-0"}


def test_tiered_path_refuses_changes_and_reports_a_missing_path(
    partition: Path, tmp_path: Path, capfd: Capfd
) -> None:
    upload(partition, tmp_path / "tiered")
    assert run(["recover", f"tiered:{tmp_path}/tiered/metro-zstd-0"]) == 4
    assert run(["list", f"tiered:{tmp_path}/tiered/nothing-0"]) == 3
    assert "nothing-0: No such file or directory" in capfd.readouterr().err


@pytest.mark.parametrize(
    "sizes", [[], [7], [5, 5], [1000000, 1000010, 1000020], [1, 70_000, 3, 2], [0, 2**31 - 1, 0, 9]]
)
def test_chunk_sizes_round_trip(sizes: list[int]) -> None:
    assert decode_chunk_sizes(encode_sizes(sizes)) == sizes


def test_chunk_sizes_of_the_plugin_are_decoded() -> None:
    """By the plugin's own description: three values. All but the last are stored as one byte that is added to a base."""
    assert decode_chunk_sizes(bytes.fromhex("00000003000f424001000a000f4254")) == [1000000, 1000010, 1000020]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "not JSON"),
        (b"[]", "not of version 1"),
        (b'{"version":"2"}', "not of version 1"),
        (b'{"version":"1"}', "no chunkIndex"),
        (b'{"version":"1","chunkIndex":{"originalFileSize":-1}}', "no usable originalFileSize"),
        (b'{"version":"1","chunkIndex":{"originalFileSize":5,"originalChunkSize":0}}', "no size"),
        (
            b'{"version":"1","chunkIndex":{"originalFileSize":5,"originalChunkSize":5,"type":"odd"}}',
            "unknown type",
        ),
        (
            b'{"version":"1","chunkIndex":{"originalFileSize":5,"originalChunkSize":5,"type":"variable","transformedChunks":"AAAA"}}',
            "chunk sizes of the manifest cannot be read",
        ),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_invalid_manifest_is_rejected(data: bytes, sentence: str) -> None:
    with pytest.raises(FormatError, match=sentence):
        read_manifest(data)
