"""`kseg what-if`: its lines, its table, and that its figures for limits and compaction equal those of retain and compact."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.inspection.test_what_if import write_log
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of

NOW = "1795450600000"
ALONE = ("--jobs", "1", "--no-progress", "--now", NOW)


def lines(capfd: Capfd, *words: object, status: int | None = 0) -> list[dict[str, Any]]:
    capfd.readouterr()
    ended = run([*map(str, words), *ALONE, "--json"])
    shown = capfd.readouterr()
    assert status is None or ended == status, shown.err
    return [json.loads(line) for line in shown.out.splitlines()]


def settings(reported: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in reported if line["type"] == "setting" and line["kind"] == kind]


def test_what_if_refuses_a_single_file_of_a_log(capture_small: Path, capfd: Capfd) -> None:
    log = next((capture_small / "data" / "stations-0").glob("*.log"))
    assert run(["what-if", str(log), *ALONE]) == 2
    assert capfd.readouterr().err == (
        f"kseg: {log} is one file of a log; name its partition directory to estimate its size\n"
    )


def test_what_if_limits_keep_what_retain_leaves(capture_small: Path, capfd: Capfd) -> None:
    data = capture_small / "data"
    for option, value in (("--retention-ms", "1d"), ("--retention-ms", "5d"), ("--retention-bytes", "4KiB")):
        kept = {
            line["topic"]: line["bytes"]
            for line in settings(lines(capfd, "what-if", option, value, data), "retention")
            if option[2:].replace("-", ".") in line["properties"]
        }
        other = {"--retention-ms": "--retention-bytes", "--retention-bytes": "--retention-ms"}[option]
        left: dict[str, int] = {}
        policy = ("--cleanup-policy", "delete")
        done = lines(capfd, "retain", option, value, other, -1, *policy, data, status=None)
        for line in done:
            if line["type"] == "segment":
                topic = line["partition"].rpartition("-")[0]
                left[topic] = left.get(topic, 0) + (line["bytes"] if line["verdict"] == "keep" else 0)
        assert left
        assert {topic: size for topic, size in kept.items() if topic in left} == left


def test_what_if_compaction_keeps_what_compact_leaves(capture_small: Path, capfd: Capfd) -> None:
    data = capture_small / "data"
    words = ("--cleanup-policy", "compact", "--include-active", "--topic", "stations")
    (result,) = [
        line
        for line in lines(capfd, "compact", *words, data, status=None)
        if line["type"] == "result" and "partition" in line
    ]
    (line,) = settings(lines(capfd, "what-if", "--compaction", "--topic", "stations", data), "compaction")
    assert line["bytes"] == result["bytes_after"]
    assert line["records_without_key"] == result["invalid_records"]
    assert line["bytes_now"] == result["bytes_before"]


def test_what_if_lines_of_a_topic(tmp_path: Path, capfd: Capfd) -> None:
    for number in range(3):
        write_log(tmp_path / f"orders-{number}", number, 300 * (number + 1))
    reported = lines(capfd, "what-if", "--sample", "400KiB", tmp_path)
    (topic,) = [line for line in reported if line["type"] == "topic"]
    held = sum(log.stat().st_size for log in tmp_path.rglob("*.log"))
    assert (topic["topic"], topic["partitions"], topic["bytes"]) == ("orders", 3, held)
    assert not topic["is_all"]
    assert topic["codecs"] == {"none": 1.0}
    codecs = settings(reported, "codec")
    assert [(line["codec"], line["level"]) for line in codecs] == [
        *(("none", None), ("gzip", None), ("snappy", None), ("lz4", None)),
        *(("zstd", 1), ("zstd", 3), ("zstd", 9)),
    ]
    for line in codecs[1:]:
        assert line["bytes_least"] < line["bytes"] < line["bytes_most"]
        assert (line["exact"], line["confidence"], line["where"]) == (False, 0.95, "topic")
        assert line["cpu_s_per_gib"] > 0
    zstd = codecs[-1]
    assert zstd["properties"] == {"compression.type": "zstd", "compression.zstd.level": "9"}
    batching = settings(reported, "batching")
    assert [(line["batch_size"], line["linger_ms"], line["codec"]) for line in batching] == [
        *((65536, 20, None), (65536, 20, "zstd"), (262144, 100, None), (262144, 100, "zstd")),
    ]
    assert all(line["where"] == "producer" for line in batching)
    assert reported[-1]["type"] == "summary"


def test_what_if_text_starts_with_the_verdict(tmp_path: Path, capfd: Capfd) -> None:
    write_log(tmp_path / "orders-0", 3, 400)
    words = ("--codec", "lz4", "--codec", "zstd:9", "--retention-ms", "7d")
    assert run(["what-if", *ALONE, *words, str(tmp_path)]) == 0
    text = capfd.readouterr().out.splitlines()
    assert "in 1 topic: with zstd level 9 about" in text[0]
    table = [line.split() for line in text[3:]]
    assert text[3].split()[:2] == ["SETTING", "BYTES"]
    assert [row[0] for row in table[1:5]] == ["lz4", "zstd", "retention.ms", "retention.bytes"]
    assert "topic: compression.type=zstd compression.zstd.level=9" in text[5]


def test_what_if_has_no_batching_for_internal_topics(capture_small: Path, capfd: Capfd) -> None:
    reported = lines(capfd, "what-if", "--topic", "__consumer_offsets", capture_small / "data")
    assert settings(reported, "codec")
    assert settings(reported, "batching") == []


def test_what_if_gives_the_same_result_for_any_number_of_jobs(capture_small: Path, capfd: Capfd) -> None:
    def without_cpu(jobs: str) -> list[dict[str, Any]]:
        reported = rows_of(capfd, "what-if", "--jobs", jobs, "--now", NOW, capture_small / "data", status=0)
        return [{name: value for name, value in line.items() if name != "cpu_s_per_gib"} for line in reported]

    assert without_cpu("1") == without_cpu("2")


def test_what_if_reports_unreadable_logs(capture_small: Path, tmp_path: Path, capfd: Capfd) -> None:
    data = tmp_path / "data"
    shutil.copytree(capture_small / "data", data)
    log = max((data / "fares-0").glob("*.log"))
    log.unlink()
    log.mkdir()
    reported = lines(capfd, "what-if", data, status=5)
    assert [Path(line["path"]).name for line in reported if line["type"] == "error"] == ["fares-0"]
    assert {line["topic"] for line in settings(reported, "codec")} >= {"metro-gzip", "stations"}


@pytest.mark.parametrize(
    "words", [("--codec", "brotli"), ("--codec", "zstd:99"), ("--sample", "0"), ("--batch-size", "10")]
)
def test_what_if_refuses_settings_that_kafka_rejects(
    words: tuple[str, str], capture_small: Path, capfd: Capfd
) -> None:
    assert run(["what-if", *words, str(capture_small / "data")]) == 2
    assert capfd.readouterr().out == ""


def test_what_if_names_batches_that_no_setting_changes(legacy_small: Path, capfd: Capfd) -> None:
    """Batches of message formats v0 and v1 stay as they are, so an "exact" size of theirs does not depend on a codec."""
    old = legacy_small / "data" / "0.9.0.1" / "2-compacted"
    assert run(["what-if", "--topic", "hive.none", str(old)]) == 0
    assert "no setting changes 100 % (message formats v0 and v1" in capfd.readouterr().out
    reported = lines(capfd, "what-if", "--topic", "hive.none", old)
    assert [line["fixed"] for line in reported if line["type"] == "topic"] == [1.0]
