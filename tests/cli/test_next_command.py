"""The suggested next command covers everything that was requested, has the real paths, and consists of existing commands."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kseg.cli.next_command import next_command
from kseg.cli.option_schema import parameters, quick_read
from kseg.cli.registry import COMMANDS, function_of
from kseg.cli.request import Request
from kseg.segment.findings import CATALOGUE
from kseg.spark.options import ClusterOptions


def advice_for(kinds: dict[str, str | Path], running: str, *paths: str | Path, **more: object) -> str:
    """kinds: ids of findings, with the path of each."""
    hints: dict[str, list[str]] = {}
    for kind, path in kinds.items():
        hints.setdefault(CATALOGUE[kind].hint, []).append(str(path))
    return next_command(hints, running, Request(tuple(map(str, paths)), **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("running", COMMANDS)
def test_advice_for_every_finding_is_a_valid_command_line(running: str) -> None:
    """One test for all findings, because two thousand tests would cost more than what they check."""
    cluster = ClusterOptions(master="spark://a:7077", conf=(("spark.log.level", "WARN"),), archives=("a#b",))
    advised = {
        kind: advice_for(
            {kind: "data dir/orders-0/00000000000000000000.log"},
            running,
            "data dir",
            topics=("a*", "b c"),
            partition=3,
            cluster=cluster,
            also={"--metadata": "m"},
        )
        for kind in CATALOGUE
    }
    assert {kind: advice for kind, advice in advised.items() if advice and not _is_command_line(advice)} == {}
    assert any(advised.values())


def _is_command_line(advice: str) -> bool:
    program, name, *words = shlex.split(advice)
    return (
        program == "kseg"
        and name in COMMANDS
        and quick_read(parameters(function_of(name)), words) is not None
    )


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    made = tmp_path / "log dir" / "orders-0"
    made.mkdir(parents=True)
    (made / f"{0:020}.log").touch()
    (made.parent / "meta.properties").touch()
    return made


def test_advice_covers_all_given_paths(partition: Path) -> None:
    log, data = partition / f"{0:020}.log", partition.parent
    other = partition.parents[1] / "other"
    other.mkdir()
    for running in ("verify", "dump"):
        assert advice_for({"bad-crc": log}, running, data) == f"kseg recover {shlex.quote(str(data))}"
        assert advice_for({"bad-crc": log}, running, data, other) == (
            f"kseg recover {shlex.quote(str(data))} {other}"
        )
        # a pattern that the shell found nothing for: the command would fail with it
        assert advice_for({"bad-crc": log}, running, data, "*/x.log") == (
            f"kseg recover {shlex.quote(str(data))}"
        )
    cluster = ClusterOptions(
        master="spark://host:7077", conf=(("spark.x", "a b"),), py_files=("a.py", "b.py")
    )
    assert advice_for(
        {"bad-crc": log},
        "verify",
        data,
        topics=("o*",),
        partition=0,
        cluster=cluster,
        also={"--metadata": "m"},
    ) == (
        "kseg recover --metadata m --topic 'o*' --partition 0 --spark --master spark://host:7077 --spark-conf "
        f"'spark.x=a b' --py-files a.py,b.py {shlex.quote(str(data))}"
    )
    assert advice_for({"bad-crc": log}, "verify", data, cluster=ClusterOptions()) == (
        f"kseg recover --spark {shlex.quote(str(data))}"
    )


def test_advised_repair_is_of_the_files_partition(partition: Path) -> None:
    log, data = partition / f"{0:020}.log", partition.parent
    assert advice_for({"bad-crc": log}, "dump", log) == f"kseg recover {shlex.quote(str(partition))}"
    marker = data / ".kafka_cleanshutdown"
    marker.touch()
    assert advice_for({"false-clean-shutdown": marker}, "verify", marker) == (
        f"kseg recover {shlex.quote(str(data))}"
    )


def test_advice_for_several_findings_prefers_the_repair(partition: Path) -> None:
    log, data = partition / f"{0:020}.log", partition.parent
    quoted = shlex.quote(str(data))
    found: dict[str, str | Path] = {"unknown-file": partition / "x", "undecodable-batch": log}
    assert advice_for(found, "verify", data) == f"kseg dump {shlex.quote(str(log))}"
    found["bad-crc"] = log
    assert advice_for(found, "verify", data) == f"kseg recover {quoted}"
    found["unreadable"] = log
    assert advice_for(found, "verify", data) == f"kseg recover --accept-unreadable {quoted}"
    found["half-done-journal"] = partition / "j"
    assert advice_for(found, "verify", data) == f"kseg undo {shlex.quote(str(partition / 'j'))}"
    assert advice_for({"unknown-file": partition / "x"}, "verify", data) == f"kseg list {quoted}"
    assert advice_for({"unknown-file": partition / "x"}, "list", data) == ""


def test_advice_for_a_file_outside_a_partition_names_the_file(tmp_path: Path) -> None:
    lone = tmp_path / "x.log"
    lone.touch()
    assert advice_for({"bad-crc": lone}, "dump", lone) == f"kseg verify --deep {lone}"
    segment = tmp_path / f"{0:020}.log"
    segment.touch()
    assert advice_for({"bad-crc": segment}, "dump", segment) == f"kseg recover {segment}"
