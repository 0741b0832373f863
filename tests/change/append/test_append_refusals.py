"""What `append` refuses before it changes anything."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures import healthy
from kseg.change.append.json_input import BadLine
from kseg.segment.errors import Refused, UsageError
from tests.support import trees
from tests.support.append_helpers import Appended


def without_last_bytes(path: Path, number: int) -> None:
    path.write_bytes(path.read_bytes()[:-number])


def with_more(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "tail": lambda directory: without_last_bytes(max(directory.glob("*.log")), 3),
    "index": lambda directory: with_more(max(directory.glob("*.index")), bytes(800)),
    "time index": lambda directory: with_more(
        max(directory.glob("*.timeindex")), struct.pack(">qi", 2**60, 2**30)
    ),
    "snapshot": lambda directory: without_last_bytes(max(directory.glob("*.snapshot")), 1),
    "swap": lambda directory: (directory / f"{0:020d}.log.swap").touch(),
    "missing": lambda directory: min(directory.glob("*.index")).unlink(),
    "epochs": lambda directory: (directory / "leader-epoch-checkpoint").write_bytes(b"0\n1\nnonsense\n"),
    "beyond": lambda directory: max(directory.glob("*.snapshot")).rename(directory / f"{9999:020d}.snapshot"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_append_refuses_a_partition_that_does_not_load_cleanly(
    tmp_path: Path, appended: Appended, damage: Callable[[Path], object]
) -> None:
    target = healthy.partition(tmp_path / "damaged-0")
    damage(target)
    with (
        trees.unchanged(target),
        pytest.raises(Refused, match=r"nothing was appended .kseg recover .*damaged-0"),
    ):
        appended(target, [{"value": "a"}])


@pytest.mark.parametrize(
    ("is_clean", "recovery_point", "is_refused"),
    [
        (False, None, True),
        (False, 0, True),
        (False, "of the active segment", False),  # a broker checks only that one
        (True, 0, False),  # a broker checks none
    ],
)
def test_append_refuses_damage_in_an_older_segment_that_a_broker_will_recover(
    tmp_path: Path, appended: Appended, is_clean: bool, recovery_point: int | str | None, is_refused: bool
) -> None:
    """tests/kafka/test_append.py shows what the broker does with it."""
    data = tmp_path / "data"
    data.mkdir()
    target = healthy.partition(data / "metro-0")
    logs = sorted(target.glob("*.log"))
    content = bytearray(logs[0].read_bytes())
    content[80] ^= 0xFF
    logs[0].write_bytes(content)
    point = int(logs[-1].stem) if isinstance(recovery_point, str) else recovery_point
    entries = [] if point is None else [f"metro 0 {point}"]
    (data / "recovery-point-offset-checkpoint").write_text("\n".join(["0", str(len(entries)), *entries, ""]))
    if is_clean:
        (data / ".kafka_cleanshutdown").touch()
    if not is_refused:
        appended(target, [{"value": "a"}])
        return
    with (
        trees.unchanged(target),
        pytest.raises(Refused, match=r"nothing was appended .kseg recover .*metro-0"),
    ):
        appended(target, [{"value": "a"}])


def test_append_refuses_paths_that_are_not_partitions(tmp_path: Path, appended: Appended) -> None:
    with pytest.raises(UsageError, match="it is not named topic-partition"):
        appended(tmp_path / "nonsense", [{"value": "a"}])
    (tmp_path / "file-0").write_bytes(b"")
    with pytest.raises(UsageError, match="is a file"):
        appended(tmp_path / "file-0", [{"value": "a"}])
    gone = healthy.partition(tmp_path / f"gone-0.{'a' * 32}-delete")
    with pytest.raises(Refused, match="is set aside as delete"):
        appended(gone, [{"value": "a"}])


def test_append_to_0_7_refuses_unsupported_features(tmp_path: Path, appended: Appended) -> None:
    target = tmp_path / "old-0"
    for line, why in (
        ({"value": None}, "no null messages"),
        ({"value": "a", "key": "k"}, "neither keys nor headers"),
        ({"value": "a", "magic": 2}, "no messages of magic 2"),
    ):
        with pytest.raises(BadLine, match=why):
            appended(target, [line], options={"kafka07": True})
    with pytest.raises(BadLine, match="no codec zstd"):
        appended(target, [{"value": "a"}], options={"kafka07": True}, codec=4)
    assert not target.exists()
    appended(target, [{"value": "a"}], options={"kafka07": True}, codec=1)
    # the existing files make it a 0.7 partition
    appended(target, [{"value": "b"}], codec=1)
    (file,) = target.glob("*.kafka")
    file.write_bytes(file.read_bytes()[:-1])
    with trees.unchanged(target), pytest.raises(Refused, match=r"is valid up to byte [1-9][0-9]* only"):
        appended(target, [{"value": "c"}])


def record(offset: int) -> dict[str, object]:
    return {"type": "record", "file": f"{0:020}.log", "position": 0, "offset": offset, "value": "a"}


SUMMARY = {"type": "summary", "targets_failed": 0, "interrupted": False}
LOST = {
    "type": "finding",
    "severity": "error",
    "path": "a.log",
    "first_offset": 1,
    "last_offset": 2,
    "message": "m",
}
CUT_OFF = {**LOST, "last_offset": None, "resumed_offset": None}
WHOLE = [record(0), LOST, SUMMARY, record(1), record(2), SUMMARY, record(3), LOST, SUMMARY]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (WHOLE, ""),
        # the cleaner has left nothing there
        ([*WHOLE[:3], SUMMARY, *WHOLE[6:]], ""),
        # at the end, where no dump has anything behind it
        (
            [*WHOLE[:7], {**LOST, "first_offset": 4, "last_offset": 9}, SUMMARY],
            "offsets 4 to 9 could not be read, and no other dump has them",
        ),
        # nothing tells how much is cut off at the end of a log
        ([*WHOLE[:1], CUT_OFF, *WHOLE[2:]], ""),
        (
            [*WHOLE[:7], {**CUT_OFF, "first_offset": 4}, SUMMARY],
            "everything from offset 4 on could not be read, and no other dump has it",
        ),
        ([*WHOLE[:1], {**CUT_OFF, "resumed_offset": 3}, *WHOLE[2:]], "line 2: a.log: m"),
        # one of two damages is damaged in the other one too
        (
            [*WHOLE[:4], {**LOST, "first_offset": 2}, *WHOLE[5:]],
            "offsets 1 to 2 could not be read, and no other dump has them",
        ),
        (WHOLE[:3] + WHOLE[6:], "it has 2 of 3 complete dumps"),
        (WHOLE[:4] + WHOLE[6:], "it has 2 of 3 complete dumps"),
        (WHOLE[:-1], "it has 2 of 3 complete dumps"),
        ([*WHOLE, record(4)], "it has 3 of 3 complete dumps, and more lines after the last"),
        ([*WHOLE[:3], LOST, *WHOLE[5:]], "offsets 1 to 2 could not be read, and no other dump has them"),
        ([*WHOLE[:3], {"type": "error", "message": "gone"}, *WHOLE[3:]], "line 4: gone"),
        ([*WHOLE[:3], {**LOST, "first_offset": None}, *WHOLE[3:]], "line 4: a.log: m"),
        (
            [*WHOLE[:5], {**SUMMARY, "interrupted": True}, *WHOLE[6:]],
            "line 6: the dump did not come to its end",
        ),
    ],
)
def test_append_refuses_incomplete_dumps(
    tmp_path: Path, appended: Appended, lines: list[dict[str, object]], why: str
) -> None:
    target = tmp_path / "made-0"
    if not why:
        records = [line for line in lines if line["type"] == "record"]
        assert appended(target, lines, options={"dumps": 3})["records"] == len(records)
        return
    with pytest.raises(Refused, match=f": {why}; nothing was appended$"):
        appended(target, lines, options={"dumps": 3})
    assert not target.exists()


PARTS = [record(0), LOST, SUMMARY, record(3), LOST, SUMMARY]


@pytest.mark.parametrize(
    ("given_up", "why"),
    [
        ((range(1, 3),), ""),
        ((range(2, 3), range(1, 2)), ""),
        ((range(9),), ""),
        ((range(2, 3),), "offset 1 could not be read, and no other dump has it"),
        ((range(1, 2),), "offset 2 could not be read, and no other dump has it"),
        ((range(3, 9),), "offsets 1 to 2 could not be read, and no other dump has them"),
    ],
)
def test_append_takes_dumps_that_lack_only_what_is_given_up(
    tmp_path: Path, appended: Appended, given_up: tuple[range, ...], why: str
) -> None:
    target, options = tmp_path / "made-0", {"dumps": 2, "given_up": given_up}
    if not why:
        assert appended(target, PARTS, options=options)["records"] == 2
        return
    with pytest.raises(Refused, match=f": {why}; nothing was appended$"):
        appended(target, PARTS, options=options)
    assert not target.exists()
