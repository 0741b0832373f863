"""The charts of a report show what is on the disk, and a large report stays small."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from fixtures.diseases import bad_crc, batch_spans, torn_tail, zero_block
from kseg.cli.html.html_document import asset
from kseg.cli.html.html_page import HtmlPage
from kseg.cli.main import run
from kseg.cli.report import Line
from kseg.cli.request import Request
from kseg.cli.run_summary import RunSummary
from kseg.segment.findings import Finding
from kseg.segment.partition.log_shape import EpochShape, LogShape, SegmentShape
from tests.support.browsers import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ALONE = ("--jobs", "1", "--no-progress", "--now", "1795250600000")
MOST_BYTES = 5_000_000


@pytest.fixture(scope="module")
def damaged(capture_small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pictures") / "data"
    shutil.copytree(capture_small / "data", place)
    bad_crc(place / "fares-0" / f"{0:020d}.log", 3)
    zero_block(place / "fares-0" / f"{68:020d}.log", 2)
    torn_tail(max((place / "metro-zstd-0").glob("*.log")))
    return place


@pytest.fixture(scope="module", params=["verify", "doctor"])
def page(request: pytest.FixtureRequest, damaged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("page") / "report.html"
    assert run([request.param, *ALONE, "--html", str(path), str(damaged)]) == 1
    return path


class Header(NamedTuple):
    last_offset: int
    max_timestamp_ms: int
    leader_epoch: int


def headers_of(log: Path) -> list[Header]:
    """The headers of the batches in a log, by the layout of Kafka's record batch."""
    data = log.read_bytes()
    found = []
    for at, _ in batch_spans(log):
        (base,) = struct.unpack_from(">q", data, at)
        (delta,) = struct.unpack_from(">i", data, at + 23)
        found.append(Header(base + delta, *struct.unpack_from(">q", data, at + 35), *struct.unpack_from(">i", data, at + 12)))  # fmt: skip
    return found


def numbers(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"))
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_embedded_d3_equals_the_published_release() -> None:
    output = json.loads(asset("d3.json"))
    text = asset(output["file"])
    assert hashlib.sha256(text.encode()).hexdigest() == output["sha256"]
    assert f" v{output['version']} " in text.splitlines()[0]
    assert "Permission to use, copy, modify" in asset(output["licence_file"])
    assert "</script" not in text


def test_chart_numbers_equal_those_of_the_files(damaged: Path, page: Path) -> None:
    data = numbers(page)
    by_name = {Path(each["path"]).name: each for each in data["partitions"]}
    assert set(by_name) == {each.name for each in damaged.iterdir() if each.is_dir()}
    for name, picture in by_name.items():
        logs = sorted((damaged / name).glob("*.log"))
        assert [each[0] for each in picture["segments"]] == [int(log.stem) for log in logs]
        assert [each[2] for each in picture["segments"]] == [log.stat().st_size for log in logs]
    assert sorted((name, each[5]) for name, picture in by_name.items() for each in picture["damage"]) == [
        ("fares-0", "bad-crc"),
        ("fares-0", "zero-filled"),
        ("metro-zstd-0", "torn-tail"),
    ]
    metro = by_name["metro-gzip-0"]
    headers = [
        header for log in sorted((damaged / "metro-gzip-0").glob("*.log")) for header in headers_of(log)
    ]
    assert metro["segments"][-1][1] == headers[-1].last_offset + 1
    assert metro["segments"][-1][4] == max(header.max_timestamp_ms for header in headers)
    assert [each[0] for each in metro["epochs"]] == sorted({header.leader_epoch for header in headers})


def test_codec_statistics_come_from_the_batches(capture_small: Path, tmp_path: Path) -> None:
    path, target = tmp_path / "report.html", capture_small / "data" / "metro-gzip-0"
    assert run(["verify", *ALONE, "--html", str(path), str(target)]) == 0
    sizes = [size for log in sorted(target.glob("*.log")) for _, size in batch_spans(log)]
    (codec,) = numbers(path)["codecs"]
    assert (codec["codec"], codec["batches"], codec["bytes"]) == ("gzip", len(sizes), sum(sizes))
    assert sum(count for _, count in codec["by_size"]) == len(sizes)
    assert all(2 ** (power - 1) <= max(sizes) and 2**power > min(sizes) for power, _ in codec["by_size"])
    assert 0 < codec["sampled_bytes"] < codec["content_bytes"]
    bodies = [
        log.read_bytes()[at + 61 : at + size] for log in target.glob("*.log") for at, size in batch_spans(log)
    ]
    assert codec["sampled"] <= len(bodies)
    assert codec["content_bytes"] <= sum(len(gzip.decompress(body)) for body in bodies)
    if codec["sampled"] == len(bodies):
        assert codec["sampled_bytes"] == sum(map(len, bodies))
        assert codec["content_bytes"] == sum(len(gzip.decompress(body)) for body in bodies)


def test_charts_are_drawn(damaged: Path, page: Path, chromium: Browser) -> None:
    with opened(chromium, page) as seen:
        names = seen.texts("#segments figcaption b")
        assert names == ["fares-0", "metro-zstd-0"]
        assert "2 damaged places" in seen.texts("#segments figcaption")[0]
        fares = seen.page.locator("#segments figure").first
        assert fares.locator("rect.segment").count() == 2 * len(list((damaged / "fares-0").glob("*.log")))
        # on both axes
        assert fares.locator("rect.damage").count() == 2 * 2
        field = seen.page.locator("#segments input")
        field.fill("stations-0")
        field.press("Enter")
        assert seen.texts("#segments figcaption b")[0] == "stations-0"
        topics = [text.split("  ")[0] for text in seen.texts("#topics text.name")]
        assert "fares" in topics
        assert seen.page.locator("#topics rect.leaf.damage").count() == 2
        assert {"gzip", "lz4", "none", "snappy", "zstd"} == set(seen.texts("#batches tbody td:first-child"))
        seen.page.locator("#topics g.topic", has_text="fares").click()
        assert seen.page.locator("#verified tbody tr").count() == 1
    assert seen.complaints == []
    assert seen.requests == []


def test_pointer_position_is_described_as_text(page: Path, chromium: Browser) -> None:
    with opened(chromium, page) as seen:
        seen.page.locator("#segments rect.damage").first.hover()
        reported = seen.texts(".tip")[0].splitlines()
        assert reported[0] == "bad-crc"
        assert reported[1].startswith("segment 0, bytes ")
    assert seen.complaints == []


def written(path: Path, partitions: int, segments: int) -> Path:
    """Write a report of a large data directory from the values that a run provides."""
    page = HtmlPage(str(path), "verify", 1795250600000)
    summary = RunSummary(partitions)
    for at in range(partitions):
        directory = f"/var/lib/kafka/data/payments.settlement.events.v{at % 90:02d}-{at // 90}"
        shapes = [
            SegmentShape(base, base + 10**6, 1 << 30, 4000, 1795250600000 + base // 100, 1795250700000 + base // 100)
            for base in range(0, segments * 10**6, 10**6)
        ]  # fmt: skip
        shape = LogShape(directory, segments << 30, shapes, [EpochShape(7, 0, 1795250600000)], {})
        row = {
            "type": "verified",
            "path": directory,
            "kind": "partition",
            "files": 5 * segments,
            "batches": 4000 * segments,
            "records": 10**6 * segments,
            "bytes_total": segments << 30,
            "bytes_damaged": at % 2 * 826,
            "bytes_padding": 0,
            "errors": at % 2,
            "warnings": 0,
            "infos": 0,
            "start": {"outcome": "unchanged", "log_end_offset": 10**6 * segments},
        }
        if at % 2:
            log = f"{directory}/{0:020d}.log"
            message = "no valid batch in the 826 bytes at position 874, offsets 12 to 23 (12 records) cannot be read; reading resumes at offset 24"
            finding = Finding("bad-crc", log, message, 874, 826, 12, 23)
            summary.count(finding)
            page.finding(finding)
        page.row(row, shape)
    page.finish(summary, Request(("/var/lib/kafka/data",)), [Line("DAMAGED", "error")], "")
    return path


@pytest.mark.parametrize("segments", [12, 400])
def test_report_of_2000_partitions_stays_small_and_opens(
    tmp_path: Path, chromium: Browser, segments: int
) -> None:
    path = written(tmp_path / "large.html", 2000, segments)
    assert path.stat().st_size < MOST_BYTES
    reported = numbers(path)["partitions"]
    assert {sum(each[6] for each in picture["segments"]) for picture in reported} == {segments}
    assert all(
        picture["segments"][0][6] == 1 for picture in reported if picture["damage"]
    )  # the damaged segment is not merged with others
    with opened(chromium, path) as seen:
        assert seen.page.locator("#verified tbody tr").count() == 2000
        assert seen.page.locator("#verified tbody tr:visible").count() == 100
        seen.page.locator("#verified .all").click()
        assert seen.page.locator("#verified tbody tr:visible").count() == 2000
        assert seen.page.locator("#segments figure").count() == 6
    assert seen.complaints == []
