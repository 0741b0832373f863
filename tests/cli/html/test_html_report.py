"""`--html`: the report contains what the JSON lines contain, works in a browser, and executes nothing from the evidence there."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fixtures.diseases import bad_crc
from kseg.cli.html.html_document import MARK, asset
from kseg.cli.main import run
from tests.support.browsers import opened
from tests.support.command_lines import Capfd

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.browsers import Scheme

# no processes besides the browser
ALONE = ("--jobs", "1", "--no-progress", "--now", "1795250600000")
# topic names, and therefore directory names, that an attacker may have chosen
HOSTILE = (
    "<img src=x onerror=window.hit=1>",
    "'\"><svg onload=window.hit=1>",
    "<script>window.hit=1<!--",
    "{{7*7}}${7*7}&lt;b&gt;&amp;",
    "\u202egnp.exe\u2028\u0007",
    os.fsdecode(b"\xff\xfe\xe9"),
)
CLUSTER = "</script><script>window.hit=1</script><!--"


@pytest.fixture(scope="module")
def damaged(capture_small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with damage in one partition, and with names that attack a program that displays them."""
    place = tmp_path_factory.mktemp("damaged") / "data"
    shutil.copytree(capture_small / "data", place)
    bad_crc(max((place / "stations-0").glob("*.log")), 0)
    for name in HOSTILE:
        shutil.copytree(place / "fares-0", place / f"{name}-0")
        bad_crc(min((place / f"{name}-0").glob("*.log")), 0)
    meta = place / "meta.properties"
    meta.write_text(re.sub("(?m)^cluster.id=.*$", lambda _: f"cluster.id={CLUSTER}", meta.read_text()))
    return place


def report(command: str, path: Path, target: Path, *words: str, status: int = 1) -> Path:
    assert run([command, *ALONE, *words, "--html", str(path), str(target)]) == status
    return path


@pytest.fixture(scope="module")
def doctor(damaged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report("doctor", tmp_path_factory.mktemp("doctor") / "doctor.html", damaged)


def lines(capfd: Capfd, *words: object) -> list[dict[str, Any]]:
    capfd.readouterr()
    run([*map(str, words), *ALONE, "--json"])
    return [json.loads(line) for line in capfd.readouterr().out.split("\n") if line]


# --- what it says


def test_report_tables_have_the_rows_of_the_json_lines(
    damaged: Path, doctor: Path, capfd: Capfd, chromium: Browser
) -> None:
    reported = lines(capfd, "doctor", damaged)
    types = Counter(line["type"] for line in reported)
    summary = reported[-1]
    with opened(chromium, doctor, scripts=False) as seen:
        assert len(seen.texts("#findings tbody tr")) == types["finding"]
        assert len(seen.texts("#costs tbody tr")) == types["damage"]
        assert len(seen.texts("#verified tbody tr")) == types["verified"]
        assert seen.texts(".steps code") == [line["command"] for line in reported if line["type"] == "step"]
        figures = dict(zip(seen.texts(".figures li"), seen.texts(".figures li b"), strict=True))
        by_name = {text.removeprefix(value).strip(): value for text, value in figures.items()}
        assert by_name["errors"] == f"{summary['errors']:,}"
        assert by_name["records"] == f"{summary['records']:,}"
        ids = Counter(seen.texts("#findings td:nth-child(2)"))
        assert ids == Counter(line["id"] for line in reported if line["type"] == "finding")


def test_report_verdict_equals_that_of_the_text(
    damaged: Path, doctor: Path, capfd: Capfd, chromium: Browser
) -> None:
    capfd.readouterr()
    run(["doctor", *ALONE, str(damaged)])
    text = capfd.readouterr().out.splitlines()
    with opened(chromium, doctor) as seen:
        assert seen.texts("h1") == [text[0]]
        assert seen.texts(".as-text")[0].splitlines()[1:3] == text[1:3]


def test_html_option_leaves_json_and_text_unchanged(damaged: Path, tmp_path: Path, capfd: Capfd) -> None:
    for form in (["--json"], [], ["--quiet"]):
        reported = []
        for html in ([], ["--html", str(tmp_path / "report.html")]):
            capfd.readouterr()
            status = run(["verify", *ALONE, *form, *html, str(damaged)])
            reported.append((status, capfd.readouterr().out))
        assert reported[0] == reported[1]


# --- in a browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_makes_no_network_requests_and_no_errors(
    doctor: Path, chromium: Browser, scheme: Scheme
) -> None:
    with opened(chromium, doctor, scheme) as seen:
        ink, paper = (
            seen.call(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor")
        )
        brightness = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (ink, paper)]
        assert (brightness[0] < brightness[1]) == (scheme == "light")
        seen.page.emulate_media(media="print")
        assert seen.call("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert seen.complaints == []
    assert seen.requests == []


def test_hostile_names_are_escaped_as_text(doctor: Path, chromium: Browser) -> None:
    with opened(chromium, doctor) as seen:
        seen.page.wait_for_load_state("load")
        assert seen.call("window.hit") is None
        assert seen.call("document.querySelectorAll('img, iframe, object, embed, link, form, a').length") == 0
        assert seen.call("document.querySelectorAll('main svg[onload], [onerror], [style*=expression]').length") == 0  # fmt: skip
        assert CLUSTER in seen.texts("#log-dirs td")
        paths = "\n".join(seen.texts("#verified td:first-child"))
        shown = (*HOSTILE[:4], r"\u202egnp.exe\u2028\x07", r"\xff\xfe\xe9")
        for name in shown:
            assert f"/{name}-0" in paths, name
    assert seen.complaints == []
    assert seen.requests == []


def test_content_security_policy_blocks_unescaped_scripts(
    doctor: Path, chromium: Browser, tmp_path: Path
) -> None:
    """The content security policy is the second line of defence: escaping is disabled here on purpose."""
    server = socket.create_server(("127.0.0.1", 0))
    server.setblocking(False)
    somewhere = f"http://127.0.0.1:{server.getsockname()[1]}"
    attack = (
        f"<img src={somewhere}/y><img src=x onerror='window.hit=1'><script>window.hit=2</script><a id=go href='javascript:window.hit=3'>x</a>"
        f"<link rel=stylesheet href='{somewhere}/x.css'><iframe srcdoc='<script>parent.hit=4</script>'></iframe>"
        "<p id=styled style='position:fixed'>x</p>"
    )
    broken = tmp_path / "broken.html"
    broken.write_bytes(doctor.read_bytes().replace(b"<main>", b"<main>" + attack.encode(), 1))
    with server, opened(chromium, broken) as seen:
        seen.page.locator("#go").click()
        assert seen.call("window.hit") is None
        assert seen.call("getComputedStyle(document.getElementById('styled')).position") == "static"
        refused = seen.call(
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return '' } catch (e) { return e.name } })()"
        )
        assert refused == "TypeError"  # refused by Trusted Types
        # nothing has connected to the server
        with pytest.raises(BlockingIOError):
            server.accept()
    assert len([each for each in seen.complaints if "Content Security Policy" in each]) >= 5


def test_report_tables_sort_and_filter(damaged: Path, doctor: Path, chromium: Browser) -> None:
    with opened(chromium, doctor) as seen:
        section = seen.page.locator("#verified")
        heads = section.locator("th").all_text_contents()
        records = f"td:nth-child({heads.index('Records') + 1})"

        def column() -> list[int]:
            return [int(text.replace(",", "")) for text in section.locator(records).all_text_contents()]

        before = column()
        section.get_by_role("button", name="Records").click()
        assert column() == sorted(before, reverse=True)
        section.get_by_role("button", name="Records").click()
        assert column() == sorted(before)
        section.locator("input").fill("stations partition")
        assert section.locator("tbody tr").count() == 1
        section.locator("input").fill("")
        assert column() == sorted(before)

        findings = seen.page.locator("#findings")
        findings.locator("select").select_option("error")
        assert set(findings.locator("td:first-child").all_text_contents()) == {"error"}
    assert seen.complaints == []


def test_assets_do_not_contain_the_end_tag_of_their_element() -> None:
    for name in ("report.js", "report.css"):
        assert not re.search("</(script|style)|<!--", asset(name), re.IGNORECASE)


# --- the file


def test_earlier_report_is_replaced_but_no_other_file(damaged: Path, tmp_path: Path, capfd: Capfd) -> None:
    path = tmp_path / "report.html"
    report("verify", path, damaged)
    first = path.read_bytes()
    assert first.startswith(MARK)
    report("verify", path, damaged, "--topic", "stations")
    assert path.read_bytes() != first
    assert os.listdir(tmp_path) == ["report.html"]

    notes = tmp_path / "notes.html"
    notes.write_text("<!doctype html><p>mine")
    link = tmp_path / "link.html"
    link.symlink_to(path)
    for taken in (notes, link, tmp_path):
        before = taken.read_bytes() if taken.is_file() else None
        assert run(["verify", *ALONE, "--html", str(taken), str(damaged)]) == 4
        assert "is not a report of kseg" in capfd.readouterr().err
        assert before == (taken.read_bytes() if taken.is_file() else None)


@pytest.mark.parametrize("place", [".", "stations-0"])
def test_report_inside_the_input_directory_is_refused(damaged: Path, place: str, capfd: Capfd) -> None:
    path = damaged / place / "report.html"
    assert run(["doctor", *ALONE, "--html", str(path), str(damaged)]) == 4
    assert "is in the input directory" in capfd.readouterr().err
    assert not path.exists()


def test_report_in_a_missing_directory_is_refused_before_the_work(tmp_path: Path, capfd: Capfd) -> None:
    assert run(["verify", "--html", str(tmp_path / "no" / "report.html"), str(tmp_path)]) == 4
    assert "is not a directory" in capfd.readouterr().err
