"""The broker log lines in the cookbook are those that a real broker writes when it starts on a directory with that incident."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests import cookbook
from tests.internal_topics.coordinator_logs import batch
from tests.kafka.broker import Broker
from tests.kafka.starting import PlainBroker, observed
from tests.support.group_dirs import commit

pytestmark = pytest.mark.kafka

SECTIONS = {section.name: section for section in cookbook.sections(cookbook.PAGE.read_text(encoding="utf-8"))}
STARTS = [name for name, incident in cookbook.INCIDENTS.items() if incident.log_dirs]


@pytest.mark.parametrize("name", STARTS)
def test_broker_logs_the_lines_of_the_cookbook(name: str, tmp_path: Path) -> None:
    incident = cookbook.INCIDENTS[name]
    incident.make(tmp_path)
    log = observed(tmp_path, [tmp_path / each for each in incident.log_dirs]).log
    shown = log.replace(f"{tmp_path}/", "")
    for line in "".join(SECTIONS[name].blocks("log")).splitlines():
        wanted = ".*".join(map(re.escape, line.split("…")))
        assert re.search(wanted, shown), f"{line}\n\n{shown[-6000:]}"


def test_coordinator_logs_the_lines_of_the_cookbook(capture_small: Path, tmp_path: Path) -> None:
    """A coordinator deletes offsets that expired long ago within seconds of its start."""
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "data"))
    directory = data / "__consumer_offsets-0"
    end = max(int(path.stem) for path in directory.glob("*.snapshot"))
    with max(directory.glob("*.log")).open("ab") as log:
        log.write(batch(end, commit(912)))
    often = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "500"}
    (line,) = "".join(SECTIONS["group-went-back"].blocks("log")).splitlines()
    wanted = ".*".join(map(re.escape, line.split("…")))
    broker: Broker = PlainBroker(tmp_path / "broker", data, **often)
    with broker:
        broker.wait_for(line, lambda: re.search(wanted, broker.log_text()) is not None)


@pytest.mark.parametrize("name", ["expired", "uncleaned"])
def test_retention_and_the_cleaner_log_the_lines_of_the_cookbook(name: str, tmp_path: Path) -> None:
    cookbook.INCIDENTS[name].make(tmp_path)
    broker: Broker = PlainBroker(tmp_path / "broker", tmp_path / "data")
    lines = "".join(SECTIONS[name].blocks("log")).splitlines()
    wanted = [".*".join(map(re.escape, line.split("…"))) for line in lines]

    def is_said() -> bool:
        shown = broker.log_text().replace(f"{tmp_path}/", "")
        return all(re.search(line, shown) for line in wanted)

    with broker:
        broker.wait_for(name, is_said)


def test_consumer_throws_the_exception_of_the_cookbook(tmp_path: Path) -> None:
    cookbook.INCIDENTS["consumer-stops"].make(tmp_path)
    broker: Broker = PlainBroker(tmp_path / "broker", tmp_path / "data")
    with broker:
        asked = {"topic": "metro-zstd", "partition": 0, "batches": [[12, 23], [24, 35], [36, 47]]}
        (row,) = broker.consume_patiently([asked])
    (line,) = re.findall(r"```text\n(.*)\n```", SECTIONS["consumer-stops"].text)
    assert f"24: {line}" in row["exceptions"]
