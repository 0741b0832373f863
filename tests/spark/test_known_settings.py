"""The driver reads the metadata log. Executors get plain values, each only those of its targets."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kseg.change.run.pipeline import groups_of
from kseg.cli.main import run
from kseg.cli.topic_evidence import Asked, topic_settings
from kseg.compaction.retention.options import Limits, RetainOptions
from kseg.compaction.retention.retain import retain_group
from kseg.segment.partition.targets import resolve_targets
from kseg.spark import cluster_fanout, scheduling
from tests.cli.test_known_topics import STRAYS
from tests.support.command_lines import Capfd
from tests.support.trees import unchanged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LATER = ("--now", "2100-01-01")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("compact", *LATER), 1),
        (("retain", "--retention-ms", "1", *LATER), 1),
        (("verify", "--quick"), 1),
        (("recover", *LATER), 1),
    ],
)
def test_topic_settings_on_a_cluster_give_the_local_output(
    local_spark: SparkSession,
    capture_small: Path,
    tmp_path: Path,
    words: tuple[str, ...],
    status: int,
    capfd: Capfd,
) -> None:
    data = shutil.copytree(capture_small / "data", tmp_path / "data")
    if words[0] in ("verify", "recover"):
        for damage in STRAYS:
            damage(data)
    reported = []
    with unchanged(data):
        for where in ((), ("--spark",)):
            assert run([*words, "--json", *where, str(data)]) in (status, 5)
            reported.append(capfd.readouterr().out)
    assert reported[0] == reported[1] and reported[0]


def test_task_gets_only_the_settings_of_its_targets(capture_small: Path) -> None:
    targets = resolve_targets([str(capture_small / "data")])
    topics, _ = topic_settings(targets, Asked())
    options = RetainOptions(limits=Limits(), now_ms=0, topics=topics)
    groups = groups_of(targets, len(targets))
    described = cluster_fanout.task_run(retain_group, groups, options)
    for group, unit in zip(groups, scheduling.weigh(groups, None), strict=True):
        given = scheduling.narrowed(described, (unit,)).options.topics
        assert given is not None and list(given) == [target.path for target in group.targets]
        assert pickle.loads(pickle.dumps(given)) == given
