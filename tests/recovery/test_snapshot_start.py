"""Snapshots of a metadata log with which no node starts. Each cut and flip was tried with a real 4.3.1 node."""

from __future__ import annotations

from pathlib import Path

import pytest

from kseg.internal_topics.metadata.bootstrap_metadata import bootstrap_fault
from kseg.recovery.broker_start.metadata_start import snapshot_fault


@pytest.fixture
def snapshot(capture_small: Path, tmp_path: Path) -> Path:
    """A header, one batch of records, and a footer."""
    (found,) = (capture_small / "data" / "__cluster_metadata-0").glob("*.checkpoint")
    copy = tmp_path / found.name
    copy.write_bytes(found.read_bytes())
    return copy


def bounds(data: bytes) -> list[int]:
    found = [0]
    while found[-1] < len(data):
        found.append(found[-1] + 12 + int.from_bytes(data[found[-1] + 8 : found[-1] + 12], "big"))
    return found


def exception_of(snapshot: Path, data: bytes) -> str | None:
    snapshot.write_bytes(data)
    fault = snapshot_fault(str(snapshot))
    return None if fault is None else fault.exception


def test_truncated_metadata_snapshot_fails_the_start(snapshot: Path) -> None:
    data = snapshot.read_bytes()
    _, records, footer, end = bounds(data)
    assert end == len(data) and exception_of(snapshot, data) is None
    assert exception_of(snapshot, b"") == "NoSuchElementException"
    assert exception_of(snapshot, data[:10]) == "NullPointerException"
    assert exception_of(snapshot, data[:61]) == "NoSuchElementException"
    for cut in (records, records + 20, records + 61, footer - 1):
        assert exception_of(snapshot, data[:cut]) == "IllegalStateException", cut
    # only the footer is lost
    for cut in (footer, footer + 10, footer + 59, end - 3):
        assert exception_of(snapshot, data[:cut]) is None, cut


def test_damaged_batch_of_a_metadata_snapshot_fails_the_start(snapshot: Path) -> None:
    data = snapshot.read_bytes()
    _, records, footer, _ = bounds(data)
    for at in (11, 16, 18, 22, 60, 70, records + 18, footer + 18):
        altered = bytearray(data)
        altered[at] ^= 1 << 6
        assert exception_of(snapshot, bytes(altered)) == "CorruptRecordException", at
    assert exception_of(snapshot, data + bytes(100)) == "CorruptRecordException"


def test_bytes_a_node_ignores_in_a_snapshot_do_not_fail_the_start(snapshot: Path) -> None:
    data = snapshot.read_bytes()
    for at in (7, 15):  # base offset, leader epoch
        altered = bytearray(data)
        altered[at] ^= 1
        assert exception_of(snapshot, bytes(altered)) is None, at
    for behind in (bytes(5), b"\x01" * 100):
        assert exception_of(snapshot, data + behind) is None


@pytest.fixture
def bootstrap(capture_small: Path, tmp_path: Path) -> Path:
    """A header, one batch of features, and a footer."""
    copy = tmp_path / "bootstrap.checkpoint"
    copy.write_bytes((capture_small / "data" / copy.name).read_bytes())
    return copy


def fault_of(bootstrap: Path, data: bytes) -> str | None:
    bootstrap.write_bytes(data)
    fault = bootstrap_fault(str(bootstrap))
    return None if fault is None else fault[0]


@pytest.mark.evidence("bootstrap-metadata")
def test_truncated_bootstrap_metadata_fails_the_start(bootstrap: Path) -> None:
    data = bootstrap.read_bytes()
    _, records, footer, _ = bounds(data)
    for cut in (0, 10, 60, records, records + 1, footer - 1):
        assert fault_of(bootstrap, data[:cut]) == "RuntimeException", cut
    for cut in (footer, footer + 4, len(data)):
        assert fault_of(bootstrap, data[:cut]) is None, cut


@pytest.mark.evidence("bootstrap-metadata")
def test_altered_bootstrap_metadata_fails_the_start(bootstrap: Path) -> None:
    data = bootstrap.read_bytes()
    _, records, footer, _ = bounds(data)
    name = data.index(b"metadata.version")
    for at, new, exception in (
        (18, b"\x07", None),  # checksums
        (records + 18, b"\x07", None),
        (records + 16, b"\x07", None),  # a magic
        (0, bytes(footer), "CorruptRecordException"),
        (records, bytes(50), "CorruptRecordException"),
        (records + 57, bytes(4), "IllegalArgumentException"),  # the number of records
        (footer + 57, bytes(4), "IllegalArgumentException"),
        (footer + 69, b"\x09", "RuntimeException"),  # the type of the footer
        (name, b"M", "RuntimeException"),
        (name - 3, bytes([76]), "RuntimeException"),  # the type of a record
    ):
        altered = data[:at] + new + data[at + len(new) :]
        assert fault_of(bootstrap, altered) == exception, at
