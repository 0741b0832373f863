"""Directories of a real broker, running, stopped or killed, are not damaged for verify."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.verify_helpers import judge

if TYPE_CHECKING:
    from tests.kafka.scenario import Written

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("level", ["quick", "default", "deep"])
def test_a_stopped_broker_leaves_nothing_to_complain_of(everything: Written, level: str) -> None:
    verdict = judge(everything.stopped, level, now_ms=2**42)
    assert verdict.output("error", "warning") == set()


@pytest.mark.parametrize("level", ["quick", "default", "deep"])
def test_a_copy_of_a_running_broker_is_unclean_and_sound(everything: Written, level: str) -> None:
    verdict = judge(everything.live, level, now_ms=2**42)
    assert verdict.output("error", "warning") == set()
    assert "unclean-shutdown" in verdict.ids()
    if level != "quick":
        assert {"index-preallocated", "open-transaction"} <= verdict.ids()
