"""The reports of list, retain and compact: the sliders predict what the commands do."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kseg.cli.html.html_limits import LimitsData
from kseg.cli.main import run
from tests.support.browsers import opened
from tests.support.command_lines import Capfd

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.browsers import Scheme

# late enough for tombstones to be removed
NOW = 1795250600000 + 2 * 86_400_000
ALONE = ("--jobs", "1", "--no-progress", "--now", str(NOW))


@pytest.fixture(scope="module", params=["list", "retain", "compact"])
def command(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def pages(capture_small: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("pages")
    made = {name: place / f"{name}.html" for name in ("list", "retain", "compact")}
    for name, path in made.items():
        assert run([name, *ALONE, "--html", str(path), str(capture_small / "data")]) in (0, 1)
    return made


def lines(capfd: Capfd, *words: object) -> list[dict[str, Any]]:
    capfd.readouterr()
    run([*map(str, words), *ALONE, "--json"])
    return [json.loads(line) for line in capfd.readouterr().out.split("\n") if line]


def numbers(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8"))
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


TABLES = {
    "list": {"partition": "partitions", "log-dir": "log-dirs"},
    "retain": {"segment": "judged", "result": "results"},
    "compact": {"result": "results", "horizon": "horizons"},
}


def test_report_tables_have_the_rows_of_the_json_lines(
    command: str, pages: dict[str, Path], capture_small: Path, capfd: Capfd, chromium: Browser
) -> None:
    reported = lines(capfd, command, capture_small / "data")
    kinds = Counter(line["type"] for line in reported if line["type"] != "result" or "partition" in line)
    with opened(chromium, pages[command], scripts=False) as seen:
        for kind, table in TABLES[command].items():
            assert seen.page.locator(f"#{table} tbody tr").count() == kinds[kind], kind
        assert seen.page.locator("#findings tbody tr").count() == kinds["finding"]


def test_limit_reports_open_in_a_browser_without_errors(
    command: str, pages: dict[str, Path], chromium: Browser
) -> None:
    schemes: tuple[Scheme, ...] = ("light", "dark")
    for scheme in schemes:
        with opened(chromium, pages[command], scheme) as seen:
            assert seen.page.locator("section:visible").count() > 2
        assert (seen.complaints, seen.requests) == ([], [])


@pytest.mark.parametrize(("rule", "option"), [("retention_ms", "--retention-ms"), ("retention_bytes", "--retention-bytes")])  # fmt: skip
def test_retain_frees_what_the_slider_predicts(
    rule: str, option: str, pages: dict[str, Path], capture_small: Path, capfd: Capfd
) -> None:
    freed = numbers(pages["retain"])["freed"]
    steps = sorted({limit for topic in freed for limit, _, _ in topic.get(rule, ())})
    assert len(steps) > 3
    other = "--retention-bytes" if rule == "retention_ms" else "--retention-ms"
    for limit in (steps[0], steps[len(steps) // 2], steps[len(steps) // 2] + 1, steps[-1], steps[-1] + 1):
        promised = sum(size for topic in freed for least, size, _ in topic.get(rule, ()) if least >= limit)
        done = lines(capfd, "retain", option, limit, other, -1, capture_small / "data")
        assert promised == sum(line["bytes_freed"] for line in done if line["type"] == "result"), limit


def test_compact_saves_what_the_slider_predicts(
    pages: dict[str, Path], capture_small: Path, capfd: Capfd
) -> None:
    found = numbers(pages["compact"])["compactions"]
    assert any(after < before for _, before, after, _ in found)
    for limit in (0.0, 0.5, 1.0):
        promised = sum(before - after for _, before, after, ratio in found if ratio > limit)
        done = lines(capfd, "compact", "--min-cleanable-dirty-ratio", limit, capture_small / "data")
        results = [line for line in done if line["type"] == "result" and "partition" in line]
        assert promised == sum(line["bytes_before"] - line["bytes_after"] for line in results), limit


def test_slider_shows_an_answer_for_each_position(pages: dict[str, Path], chromium: Browser) -> None:
    freed = {topic["topic"]: topic for topic in numbers(pages["retain"])["freed"]}
    with opened(chromium, pages["retain"]) as seen:
        limits = seen.page.locator("#limits")
        limits.locator("select").first.select_option(label="metro-none")
        limits.locator("input").fill("0")
        output = limits.locator(".answer").inner_text()
        assert output.startswith("retention.ms=")
        assert f"{len(freed['metro-none']['retention_ms'])} segments" in output
        limits.locator("input").fill("1000")
        assert "frees 0 bytes" in limits.locator(".answer").inner_text()
        limits.locator("select").first.select_option(label="__consumer_offsets")
        assert limits.locator(".answer").inner_text() == "retention.ms frees nothing, whatever it is"
    assert (seen.complaints, seen.requests) == ([], [])


def test_many_slider_steps_are_merged_at_their_lowest_limits() -> None:
    data = LimitsData()
    count = 50_000
    for at in range(count):
        data.judged(
            {
                "partition": "orders-0",
                "base_offset": at,
                "bytes": 10,
                "largest_timestamp": at,
                "verdict": "keep",
            }
            | {"goes_at": {"retention_ms": count - at, "retention_bytes": None}}
        )
    data.settled({"command": "retain", "partition": "orders-0", "log_end_offset": count})
    freed: Any = data.as_data()["freed"]
    (topic,) = freed
    steps = topic["retention_ms"]
    assert len(steps) <= 20_000
    assert sum(size for _, size, _ in steps) == topic["bytes"] == 10 * count
    for limit in (1, 17, 20_000, count):
        promised = sum(size for least, size, _ in steps if least >= limit)
        assert 10 * (count - limit + 1) - 60 <= promised <= 10 * (count - limit + 1)
