"""A node that shares its Java process starts, exits and halts as one with a process of its own does, and logs the same."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

if "CI" not in os.environ:  # there its absence is an error
    pytest.importorskip("confluent_kafka", reason="no broker is started: confluent-kafka is not installed")

from tests.cli.test_recover_metadata_log import TOPIC, without
from tests.kafka.conftest import require_kafka
from tests.kafka.start_cases import CASES
from tests.kafka.start_directories import Case
from tests.kafka.starting import Observed, observed, observed_apart
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka


def halts(data: Path) -> None:
    """By the fault handler of the controller or the broker, whichever reads the record first; each has its exception."""
    without(data, TOPIC)


ENDS: dict[str, Case] = {"halts": halts, **CASES}
# it goes by itself while its directories are checked, while its logs are loaded, and in a thread that reads metadata
IN_THE_GATE = ("meta.properties-of-tomorrow", "partition_twice", "halts")


@pytest.mark.parametrize("name", ENDS if os.environ.get("KSEG_BROKER_STARTS") == "all" else IN_THE_GATE)
def test_it_ends_as_in_a_process_of_its_own(name: str, capture_small: Path, tmp_path: Path) -> None:
    require_kafka()
    ours, theirs = (_seen(name, capture_small, tmp_path, is_apart) for is_apart in (False, True))
    assert ours.outcome == theirs.outcome
    assert _ended_by(ours) == _ended_by(theirs) or (name == "halts" and _ended_by(ours) and _ended_by(theirs))
    if ours.outcome != "does-not-start":  # else the order of threads decides what came before the end
        ours.log = theirs.log = ""
        assert ours == theirs


def _seen(name: str, capture_small: Path, root: Path, is_apart: bool) -> Observed:
    data = copy_tree(capture_small / "data", root / "node" / "data")
    more = ENDS[name](data)
    seen = (observed_apart if is_apart else observed)(root, [data] if more is None else [data, more])
    shutil.rmtree(root / "node")
    return seen


def _ended_by(seen: Observed) -> set[str]:
    """The exceptions that are logged as those which ended it."""
    return set(re.findall(r"fatal (?:exception|fault)[^\n]*\n(?:Caused by: )?([\w.$]+)", seen.log))
