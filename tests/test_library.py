"""`import kseg`: the public interface returns what the commands print, and its page is up to date."""

from __future__ import annotations

import base64
import doctest
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import kseg
from fixtures.diseases import bad_crc
from kseg.cli.main import run
from tests.support.broker_dirs import broker_dir
from tests.support.paths import ROOT
from tests.support.sector_faults import BadSectors, bad_sectors

PAGE = ROOT / "docs" / "library.md"
FIRST = f"{0:020d}.log"


def dumped(capfd: pytest.CaptureFixture[str], path: Path, *words: str) -> list[dict[str, Any]]:
    capfd.readouterr()
    run(
        [
            "dump",
            "--json",
            "--print-data-log",
            "--raw",
            "--show-secrets",
            "--bytes",
            "base64",
            "--no-control",
            *words,
            str(path),
        ]
    )
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    return [row for row in rows if row["type"] == "record" and not row["file"].endswith(".checkpoint")]


def as_dumped(record: kseg.Record) -> tuple[object, ...]:
    return (
        record.offset,
        record.timestamp_ms,
        _base64(record.key),
        _base64(record.value),
        [[name.decode(), _base64(value)] for name, value in record.headers],
    )


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def of_dump(row: dict[str, Any]) -> tuple[object, ...]:
    timestamp_ms = -1 if row["timestamp"] is None else row["timestamp"]
    return row["offset"], timestamp_ms, row["key"], row["value"], row["headers"]


def test_examples_of_the_library_page_run(
    capture_small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every example in docs/library.md runs, in order, on a copy of the capture."""
    shutil.copytree(capture_small / "data", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    parser = doctest.DocTestParser()
    test = parser.get_doctest(
        PAGE.read_text(encoding="utf-8").replace("```", ""), {}, "library", str(PAGE), 0
    )
    assert len(test.examples) >= 7
    reported: list[str] = []
    assert doctest.DocTestRunner().run(test, out=reported.append).failed == 0, "".join(reported)


@pytest.mark.parametrize("command", ["offsets", "committed"])
def test_library_records_equal_those_of_dump(
    capture_small: Path, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    """For every partition of a real broker: all records, and those that a reader of committed data gets."""
    words = ["--isolation", "read_committed"] if command == "committed" else []
    compared = 0
    with kseg.open(capture_small / "data") as logs:
        for partition in logs.partitions():
            found = [as_dumped(record) for record in partition.records(committed=command == "committed")]
            start = partition.log_start_offset
            expected = [row for row in dumped(capfd, Path(partition.path), *words) if row["offset"] >= start]
            assert found == [of_dump(row) for row in expected], partition
            compared += len(found)
    assert compared > 1000


def test_library_records_of_old_formats_equal_those_of_dump(
    legacy_small: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    compared = 0
    with kseg.open(legacy_small) as logs:
        for partition in logs.partitions():
            found = [as_dumped(record) for record in partition.records()]
            start = partition.log_start_offset
            expected = [row for row in dumped(capfd, Path(partition.path)) if row["offset"] >= start]
            assert found == [of_dump(row) for row in expected], partition
            compared += len(found)
    assert compared > 100


def test_library_reads_kafka_0_7_logs(ancient_small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    compared = 0
    with kseg.open(ancient_small) as logs:
        for partition in logs.partitions():
            capfd.readouterr()
            run(["dump", "--json", "--print-data-log", "--bytes", "base64", partition.path])
            rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
            expected = [(row["offset"], row["value"]) for row in rows if row["type"] == "record"]
            assert [(each.offset, _base64(each.value)) for each in partition.records()] == expected
            compared += len(expected)
            if expected:
                with pytest.raises(kseg.UsageError, match=r"Kafka 0\.7"):
                    next(partition.batches())
    assert compared > 10


def test_library_bounds_select_the_records(capture_small: Path) -> None:
    with kseg.open(capture_small / "data") as logs:
        metro = logs.partition("metro-lz4", 0)
        everything = list(metro.records())
        for start, end in ((0, 1), (11, 13), (95, 300), (160, None), (5, 5)):
            wanted = [each for each in everything if start <= each.offset < (1 << 62 if end is None else end)]
            assert list(metro.records(start, end)) == wanted
        first, last = everything[20].timestamp_ms, everything[60].timestamp_ms
        assert list(metro.records(start_ms=first, end_ms=last)) == everything[20:60]
        assert [metro.record(each.offset) for each in everything[:3]] == everything[:3]
        assert metro.record(160) is None and metro.record(-1) is None
        assert metro.offset_for_time(everything[33].timestamp_ms) == everything[33].offset
        assert metro.offset_for_time(1 << 60) is None
        fares = logs.partition("fares", 0)
        marker = next(each for each in fares.batches() if each.is_control)
        later = [each.offset for each in fares.records() if each.timestamp_ms >= marker.max_timestamp_ms]
        assert fares.offset_for_time(marker.max_timestamp_ms) == min([marker.base_offset, *later])
        batches = list(metro.batches())
        assert sum(each.count or 0 for each in batches) == len(everything)
        assert list(metro.batches(13, 14)) == [
            each for each in batches if each.base_offset <= 13 <= each.last_offset
        ]


def test_library_tables_have_the_same_records(capture_small: Path) -> None:
    with kseg.open(capture_small / "data") as logs:
        fares = logs.partition("fares", 0)
        table = fares.to_arrow(committed=True)
        assert table.column("offset").to_pylist() == [each.offset for each in fares.records(committed=True)]
        assert table.column("value").to_pylist() == [each.value for each in fares.records(committed=True)]
        assert fares.to_arrow(1000, columns=["value", "offset"]).column_names == ["value", "offset"]
        with pytest.raises(kseg.UsageError, match="no column colour"):
            next(fares.arrow_batches(columns=["colour"]))


def test_logs_can_be_closed_while_partitions_are_iterated(capture_small: Path) -> None:
    logs = kseg.open(capture_small / "data")
    partitions = logs.partitions()
    first = next(partitions)
    logs.close()
    assert next(partitions).path != first.path
    partitions.close()  # type: ignore[attr-defined]
    assert list(logs.partitions("metro-*"))


def test_missing_segment_is_unreadable_input(tmp_path: Path) -> None:
    data = broker_dir(tmp_path / "data", 1, 1)
    with kseg.open(data) as logs:
        orders = logs.partition("orders.00", 0)
        assert orders.log_end_offset > 0
        (data / "orders.00-0" / FIRST).unlink()
        with pytest.raises(kseg.UnreadableInput, match=FIRST):
            _ = orders.segments


def test_library_reports_damage_and_skips_it(tmp_path: Path) -> None:
    data = broker_dir(tmp_path / "data", 1, 1)
    with kseg.open(data) as logs:
        sound = list(logs.partition("orders.00", 0).records())
    bad_crc(data / "orders.00-0" / FIRST)
    found: list[kseg.Finding] = []
    with kseg.open(data) as logs:
        orders = logs.partition("orders.00", 0)
        left = list(orders.records(on_finding=found.append))
        assert [each.id for each in found] == ["bad-crc"]
        lost = [each for each in sound if each not in left]
        assert lost and all(
            found[0].first_offset <= each.offset <= found[0].last_offset  # type: ignore[operator]
            for each in lost
        )
        of_batches: list[kseg.Finding] = []
        batches = [each for each in orders.batches(on_finding=of_batches.append) if not each.is_control]
        assert sum(each.count or 0 for each in batches) == len(left)
        assert [each.id for each in of_batches] == ["bad-crc"]
        again: list[kseg.Finding] = []
        assert [each for each in orders.batches(on_finding=again.append) if not each.is_control] == batches
        # each call reports what it finds
        assert [each.id for each in again] == ["bad-crc"]
        assert "bad-crc" in [each.id for each in logs.verify()]
        assert list(orders.records()) == left


def test_library_findings_are_those_of_the_given_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unreadable bytes of another log, read earlier in this process, are not reported for a valid one."""
    data = broker_dir(tmp_path / "data", 1, 2)
    damaged, sound = (data / f"orders.00-{number}" for number in (0, 1))
    disk = bad_sectors(monkeypatch, BadSectors())
    disk.spoil(damaged / FIRST, [1])
    with kseg.open(damaged) as logs:
        assert len(list(logs.partition("orders.00", 0).records())) > 0
    with kseg.open(sound) as logs:
        assert "unreadable" not in [each.id for each in logs.verify()]
    with kseg.open(damaged) as logs:
        assert "unreadable" in [each.id for each in logs.verify()]


def test_library_raises_for_missing_paths_and_partitions(tmp_path: Path, capture_small: Path) -> None:
    with pytest.raises(kseg.UsageError):
        kseg.open()
    with pytest.raises(kseg.UnreadableInput):
        kseg.open(tmp_path / "nowhere")
    with kseg.open(capture_small / "data") as logs:
        with pytest.raises(kseg.UnreadableInput, match="no partition metro-none-7"):
            logs.partition("metro-none", 7)
        assert [each.topic for each in logs.partitions("metro-n*", 0)] == ["metro-none"]
    with pytest.raises(AttributeError):
        kseg.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_commands_do_not_import_the_library() -> None:
    code = "import sys, kseg.cli.main; sys.exit('kseg.library' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


CONSUMER = textwrap.dedent(
    """
    from collections.abc import Iterator

    import kseg


    def keys(path: str) -> Iterator[bytes]:
        with kseg.open(path) as logs:
            for partition in logs.partitions("orders*"):
                for record in partition.records(committed=True):
                    if record.key is not None:
                        yield record.key


    def errors(path: str) -> list[str]:
        with kseg.open(path) as logs:
            return [finding.id for finding in logs.verify("quick") if finding.severity == "error"]


    offset: int | None = kseg.open("x").partition("orders", 0).offset_for_time(5)
    wrong: str = kseg.open("x").partition("orders", 0).log_end_offset
    """
)


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_type_checkers_find_the_mistake_of_a_consumer(tmp_path: Path, checker: str) -> None:
    """Each type checker, in strict mode, finds the one mistake of a consumer and nothing else."""
    (tmp_path / "consumer.py").write_text(CONSUMER)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "include": ["consumer.py"]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    words = {
        "mypy": ["-m", "mypy", "--strict", "--follow-imports=silent", "consumer.py"],
        "pyright": ["-m", "basedpyright", "--level", "error"],
    }[checker]
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )
    wrong = [line for line in done.stdout.splitlines() if "consumer.py:" in line and "error" in line]
    assert len(wrong) == 1 and ("line" not in wrong[0]), done.stdout + done.stderr
    assert (
        f"consumer.py:{CONSUMER.splitlines().index(next(x for x in CONSUMER.splitlines() if x.startswith('wrong'))) + 1}"
        in wrong[0]
    )


def _environment() -> dict[str, str]:
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    return {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": os.pathsep.join(paths)}
