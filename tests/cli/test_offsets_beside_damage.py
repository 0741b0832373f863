"""All commands agree on damage beside altered offsets, in cases where a long run of `test_one_answer` found different answers: what is a
copy, which of two batches is altered, and what stays lost over several rounds of salvage."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.diseases import batch_spans
from kseg.cli.main import run
from tests.cli.test_one_answer import cleaned, partitions, plain, put
from tests.support.answers import LEVELS, altered, common_answers
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

__all__ = ["cleaned", "partitions", "plain"]  # fixtures


@pytest.mark.evidence("damage-offsets")
def test_batch_with_the_offsets_of_another_is_not_a_copy(plain: Path, capfd: Capfd) -> None:
    """Bit 4 of offset 90 is flipped, so the batch claims 74 to 77, which an earlier batch has. Damage directly after it begins at 94."""
    path = min(plain.glob("*.log"))
    spans = list(batch_spans(path))
    altered_at, (damage, _) = spans[27][0], spans[28]
    put(path, (altered_at + 7, bytes([90 ^ 16])), (damage, b"\x55" * (path.stat().st_size - damage)))
    assert [answer[2:6] for answer in common_answers(plain, capfd)] == [
        (damage, path.stat().st_size - damage, 94, 101)
    ]


@pytest.mark.evidence("damage-offsets")
def test_altered_batch_is_not_the_one_that_damage_follows(cleaned: Path, capfd: Capfd) -> None:
    """The first batch claims 32 to 37, the second one 6 to 11, and the damage begins at 12."""
    path = min(cleaned.glob("*.log"))
    spans = list(batch_spans(path))
    put(path, (7, b"\x20"), (spans[2][0], b"\x55" * (spans[-1][0] - spans[2][0])))
    assert [answer[4] for answer in common_answers(cleaned, capfd)] == [12]
    assert [answer[2:6] for answer in altered(rows_of(capfd, "verify", cleaned))] == [(0, 8, 0, 5)]


@pytest.mark.evidence("damage-offsets")
def test_impossible_offset_is_named_before_damage_at_the_log_end(plain: Path, capfd: Capfd) -> None:
    path = max(plain.glob("*.log"))
    (altered_at, _), (damage, size) = list(batch_spans(path))[-2:]
    put(path, (altered_at + 4, b"\x80"), (damage + size - 9, b"\x55" * 9))
    assert [answer[2:6] for answer in common_answers(plain, capfd)] == [(damage, size, 327, 329)]
    assert [answer[2:6] for answer in altered(rows_of(capfd, "verify", plain))] == [(altered_at, 8, 324, 326)]


@pytest.mark.evidence("damage-offsets")
def test_offsets_lost_in_damage_stay_lost_when_another_batch_moves(plain: Path, capfd: Capfd) -> None:
    """A batch with the offsets after the log end moves there and gets the leader epoch of its new neighbours, which takes another round.
    The repaired log has a gap only where the damage was."""
    path = min(plain.glob("*.log"))
    spans = list(batch_spans(path))
    moved, (damage, size) = spans[23], spans[17]
    put(path, (moved[0] + 6, b"\x01"), (damage + 70, b"\x55" * 20))
    data = path.read_bytes()
    behind = spans[24][0]
    path.write_bytes(data[:behind] + data[spans[25][0] :])
    planned = rows_of(capfd, "recover", plain)
    (result,) = (row for row in planned if row["type"] == "result")
    assert result["log_end_offset"] == 334
    assert [tuple(removed[name] for name in LEVELS) for removed in result["removed"]] == [
        (damage, size, 59, 62, 4)
    ]
    assert result["costs"]["salvage"]["records"] == 4


@pytest.mark.evidence("damage-offsets")
def test_batch_whose_restored_offset_fills_a_gap_does_not_move_to_the_log_end(
    plain: Path, capfd: Capfd
) -> None:
    path = min(plain.glob("*.log"))
    sound = path.read_bytes()
    altered_at, _ = list(batch_spans(path))[23]
    put(path, (altered_at + 6, b"\x01"), (altered_at - 5, b"\x55" * 3))
    lost = common_answers(plain, capfd)
    assert [answer[4:6] for answer in lost] == [(73, 73)]
    assert [answer[4:] for answer in altered(rows_of(capfd, "verify", plain))] == [(74, 77, 330)]
    assert run(["recover", "--apply", "--quiet", str(plain)]) == 0
    assert path.read_bytes().endswith(sound[altered_at:])


@pytest.mark.evidence("damage-offsets")
def test_zeros_before_a_batch_do_not_prove_that_its_offset_is_0(cleaned: Path, capfd: Capfd) -> None:
    """Offset 0 is lost as well, but the batch after the zeros does not have it."""
    first, second = sorted(cleaned.glob("*.log"))[:2]
    put(first, (60, b"\x55" * 30))
    zeroed, _ = list(batch_spans(second))[-1]
    put(second, (zeroed - 20, bytes(28)))
    common_answers(cleaned, capfd)
    assert run(["recover", "--apply", "--quiet", str(cleaned)]) == 0
    assert int.from_bytes(first.read_bytes()[:8], "big") > 0
