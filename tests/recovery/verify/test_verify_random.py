"""Random damage never raises an exception, and every byte that was read is valid, damaged or padding."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.verify_helpers import judge

pytestmark = pytest.mark.slow

LEVEL = st.sampled_from(("quick", "default", "deep"))
CHANGE = st.tuples(
    st.sampled_from(("flip", "set", "cut", "insert", "remove", "zero", "repeat")),
    st.floats(0, 1),
    st.integers(1, 300),
    st.integers(0, 2**31),
)


def changed(data: bytes, how: str, where: float, length: int, seed: int) -> bytes:
    at = int(where * len(data))
    noise = random.Random(seed).randbytes(length)
    match how:
        case "flip" if data:
            at = min(at, len(data) - 1)
            return data[:at] + bytes([data[at] ^ 1 << seed % 8]) + data[at + 1 :]
        case "set":
            return (data[:at] + noise + data[at + length :])[: max(len(data), at)]
        case "cut":
            return data[:at]
        case "insert":
            return data[:at] + noise + data[at:]
        case "remove":
            return data[:at] + data[at + length :]
        case "zero":
            return data[:at] + bytes(min(length, len(data) - at)) + data[at + length :]
        case _:
            return data[:at] + data[max(0, at - length) : at] + data[at:]


@settings(max_examples=150, deadline=None)
@given(
    files=st.lists(
        st.tuples(st.integers(0, 10**6), st.lists(CHANGE, min_size=1, max_size=4)), min_size=1, max_size=4
    ),
    level=LEVEL,
)
def test_random_damage_raises_nothing_and_accounts_for_every_byte(
    sound: Path, files: list[tuple[int, list[tuple[str, float, int, int]]]], level: str
) -> None:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(shutil.copytree(sound, Path(place) / "data"))
        everything = sorted(file for file in directory.rglob("*") if file.is_file())
        for number, changes in files:
            file = everything[number % len(everything)]
            for change in changes:
                file.write_bytes(changed(file.read_bytes(), *change))
        judge(directory, level)


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(
        (
            "00000000000000000005.log",
            "00000000000000000005.index",
            "00000000000000000005.timeindex",
            "00000000000000000005.txnindex",
            "00000000000000000005.snapshot",
            "00000000000000000005.kafka",
            "00000000000000000005-0000000001.checkpoint",
            "leader-epoch-checkpoint",
            "partition.metadata",
            "meta.properties",
            "quorum-state",
            ".kafka_cleanshutdown",
            "recovery-point-offset-checkpoint",
        )
    ),
    data=st.binary(max_size=600),
    level=LEVEL,
)
def test_random_files_raise_nothing(name: str, data: bytes, level: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / name
        file.write_bytes(data)
        judge(file, level)


@pytest.mark.parametrize("name", ["00000000000000000000.log", "00000000000000000000.index"])
def test_directory_in_place_of_a_file_raises_nothing(name: str, damaged: Path) -> None:
    file = damaged / "metro-0" / name
    file.unlink()
    file.mkdir()
    judge(damaged, "deep")


def test_unusable_file_is_reported_as_unreadable(damaged: Path) -> None:
    file = damaged / "metro-0" / "00000000000000000198.log"
    file.unlink()
    file.symlink_to("nowhere")
    verdict = judge(damaged, "deep")
    assert ("unreadable-file", "metro-0/00000000000000000198.log") in verdict.output("error")


@pytest.mark.parametrize("count", [20_000])
def test_log_of_only_contradictions_is_verified_in_linear_time(count: int, tmp_path: Path) -> None:
    """Every batch starts at the offset of the previous one. verify checks that for a while and then gives up, in linear time."""
    from kseg.segment.encoding.batch import encode_batch
    from kseg.segment.model import NewBatch, Record

    one = encode_batch(NewBatch(records=(Record(5, 0, None, b"v"),), leader_epoch=3))
    other = encode_batch(NewBatch(records=(Record(5, 0, None, b"w"),), leader_epoch=1))
    log = tmp_path / "00000000000000000000.log"
    log.write_bytes((one + other) * (count // 2))
    verdict = judge(log, "deep")
    assert "offset-not-monotonic" in verdict.ids("error")
    assert len(verdict.findings) < 1000
