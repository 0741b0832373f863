"""Every read-only command prints the same with --spark as without: text, JSON lines, messages and exit status.

On captures of real brokers and on directories with every kind of damage, in a session on this machine and on a real standalone cluster.
"""

from __future__ import annotations

import json as json_module
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fixtures import diseases, healthy
from kseg.cli.main import run
from tests.internal_topics.remote_logs import write_remote_log
from tests.support.archives import nothing_attached, tar_of
from tests.support.command_lines import Capfd
from tests.support.pairs import combinations
from tests.support.run_commands import as_without_spark
from tests.support.trees import copy_tree
from tests.transcript_incidents import INCIDENTS_BY_NAME

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
Unchanged = Callable[..., AbstractContextManager[None]]
Output = tuple[int, str, str]
Ask = Callable[[list[str]], Output]

NOW = ["--now", "2024-06-01T00:00:00Z"]
COMMANDS = {
    "verify-quick": ["verify", "--quick", *NOW],
    "verify": ["verify", *NOW],
    "verify-deep": ["verify", "--deep", *NOW],
    "list": ["list", *NOW],
    "dump": ["dump"],
    "dump-deep": ["dump", "--print-data-log"],
    "dump-offsets": ["dump", "--offsets-decoder"],
    "dump-metadata": ["dump", "--cluster-metadata-decoder"],
    "dump-table": ["dump", "--format", "table", "--deep-iteration", "--limit", "3"],
    "dump-committed": ["dump", "--deep-iteration", "--isolation", "read_committed"],
    "transactions": ["transactions", *NOW],
    "lookup-latest": ["lookup", "--latest"],
    "lookup-offset": ["lookup", "--offset", "7"],
    "lookup-time": ["lookup", "--timestamp", "2020-01-01T00:00Z"],
    "lookup-nothing": ["lookup", "--key", "no such key"],
}

# for damage, these are the same as another command with a different decoder or question; they run on the captures only
ALIKE = ("dump-offsets", "dump-metadata", "lookup-offset", "lookup-nothing")

# commands about a broker's internal topics, none of which is among the damaged partitions
INTERNAL = {
    "list-groups": ["list", "--groups", *NOW],
    "groups": ["groups", "--history"],
    "lookup-id": ["lookup", "--transactional-id", "till-0"],
    "metadata": ["metadata"],
    "metadata-history": ["metadata", "--history"],
}


def lines(commands: Mapping[str, list[str]]) -> list[Any]:
    """Each command as text and as JSON, in either session."""
    formats: tuple[list[str], ...] = ([], ["--json"])
    names = (list(commands), ("text", "json"), ("local", "standalone"))
    return combinations(list(commands.values()), formats, ("local", "standalone"), names=names)


@pytest.fixture
def ask(capfd: Capfd) -> Ask:
    """Exit status, stdout and stderr of a command line."""

    def output(words: list[str]) -> Output:
        status = run(words)
        return status, *capfd.readouterr()

    return output


@pytest.fixture(scope="module")
def diseased(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a partition for each kind of log damage, and a file that is not one of Kafka's."""
    home = healthy.log_dir(tmp_path_factory.mktemp("diseased") / "data")
    for number, disease in enumerate(diseases.LOG_DISEASES):
        partition = healthy.partition(home / f"ward-{number}")
        disease(sorted(partition.glob("*.log"))[1])
    (home / "ward-0" / "notes.txt").write_text("what is this?")
    return home


@pytest.mark.parametrize(
    ("words", "json", "any_spark"), lines({**COMMANDS, **INTERNAL}), indirect=["any_spark"]
)
def test_output_on_captures_is_the_same_with_spark(
    any_spark: SparkSession,
    words: list[str],
    json: list[str],
    capture_small: Path,
    unchanged: Unchanged,
    ask: Ask,
) -> None:
    line = [*words, *json, str(capture_small / "data")]
    with unchanged(capture_small):
        alone = ask(line)
        by_spark = ask([*line, "--spark"])
    assert (by_spark[0], *map(as_without_spark, by_spark[1:])) == alone
    assert alone[1]


@pytest.mark.parametrize(
    ("words", "json", "any_spark"),
    lines({name: words for name, words in COMMANDS.items() if name not in ALIKE}),
    indirect=["any_spark"],
)
def test_output_on_damaged_directories_is_the_same_with_spark(
    any_spark: SparkSession, words: list[str], json: list[str], diseased: Path, ask: Ask
) -> None:
    line = [*words, *json, str(diseased)]
    alone = ask(line)
    by_spark = ask([*line, "--spark"])
    assert (by_spark[0], *map(as_without_spark, by_spark[1:])) == alone
    assert alone[0] in (0, 1) and alone[1]


def test_output_of_archives_is_the_same_with_spark(
    any_spark: SparkSession,
    diseased: Path,
    capture_small: Path,
    tmp_path: Path,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers attach the archive as well. A relative path leads to another archive in the second run of the same workers."""
    for name, directory in (("one", diseased), ("two", capture_small / "data")):
        (tmp_path / name).mkdir()
        tar_of(directory, tmp_path / name / "backup.tar.gz")
        monkeypatch.chdir(tmp_path / name)
        line = [*COMMANDS["verify"], "backup.tar.gz"]
        with nothing_attached():
            alone = ask(line)
        with nothing_attached():
            by_spark = ask([*line, "--spark"])
        assert (by_spark[0], *map(as_without_spark, by_spark[1:])) == alone
        assert alone[0] == (1 if name == "one" else 0)


@pytest.mark.parametrize(
    "words", [[], ["--json"], ["--verbose"], ["--topic", "orders.00", "--partition", "1"]]
)
def test_list_remote_prints_the_same_with_spark(
    any_spark: SparkSession, words: list[str], tmp_path: Path, ask: Ask
) -> None:
    """Segments in remote storage, some missing offsets, and a record that cannot be read."""
    INCIDENTS_BY_NAME["tiered"].make(tmp_path)
    write_remote_log(tmp_path / "data" / "__remote_log_metadata-1", [b"\x01\x7f\x00"])
    line = ["list", "--remote", *words, str(tmp_path / "data")]
    alone = ask(line)
    by_spark = ask([*line, "--spark"])
    assert (by_spark[0], *map(as_without_spark, by_spark[1:])) == alone
    assert alone[0] == 1
    assert "remote-log-metadata-unreadable" in "".join(alone[1:])


@pytest.mark.parametrize("place", ["capture", "diseased"])
def test_doctor_prints_the_same_with_spark(
    any_spark: SparkSession, place: str, capture_small: Path, diseased: Path, ask: Ask
) -> None:
    rows = rows_of_doctor(ask, capture_small / "data" if place == "capture" else diseased)
    assert any(row["type"] == "step" for row in rows) or place == "capture"


def test_doctor_of_two_nodes_prints_the_same_with_spark(
    local_spark: SparkSession, moving_small: Path, tmp_path: Path, ask: Ask
) -> None:
    """One node has lost partitions, and the other has a replica of one of them."""
    cluster = copy_tree(moving_small, tmp_path / "cluster")
    for partition in (cluster / "node-2" / "more").glob("*-[01]*"):
        shutil.rmtree(partition)
    log_dirs = [cluster / f"node-{node}" / name for node in (1, 2) for name in ("data", "more")]
    rows = rows_of_doctor(ask, *log_dirs)
    found = {row["other"] for row in rows if row.get("id") == "replica-missing" and "other" in row}
    assert found == {str(cluster / "node-1" / "data" / "old-1")}


def rows_of_doctor(ask: Ask, *paths: Path) -> list[dict[str, object]]:
    """The rows without Spark, which must equal those with Spark except for the free space, which changes in the meantime."""
    line = ["doctor", "--json", *NOW, *map(str, paths)]

    def rows(output: Output) -> list[dict[str, object]]:
        found: list[dict[str, object]] = [json_module.loads(each) for each in output[1].splitlines()]
        return [{name: value for name, value in row.items() if "free" not in name} for row in found]

    alone = ask(line)
    by_spark = ask([*line, "--spark"])
    assert by_spark[0] == alone[0]
    assert rows((0, as_without_spark(by_spark[1]).replace(" --spark", ""), "")) == rows(alone)
    return rows(alone)


@pytest.mark.parametrize("command", ["verify", "list"])
def test_html_reports_are_the_same_with_spark(
    local_spark: SparkSession, command: str, diseased: Path, tmp_path: Path, ask: Ask
) -> None:
    """The pages differ only in their time and their command lines."""

    def page(name: str) -> str:
        text = as_without_spark((tmp_path / name).read_text()).replace("spark.html", "alone.html")
        return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z on ", "TIME on ", text).replace(" --spark", "")

    for name, words in (("alone.html", []), ("spark.html", ["--spark"])):
        assert ask([command, *NOW, "--html", str(tmp_path / name), *words, str(diseased)])[0] == 1
    assert page("spark.html") == page("alone.html")


def test_what_if_prints_the_same_with_spark(local_spark: SparkSession, capture_small: Path, ask: Ask) -> None:
    """Everything is the same except the measured processor time."""
    line = ["what-if", "--json", *NOW, "--topic", "metro-*", str(capture_small / "data")]

    def rows(output: Output) -> list[dict[str, object]]:
        found: list[dict[str, object]] = [json_module.loads(each) for each in output[1].splitlines()]
        return [{name: value for name, value in row.items() if "cpu" not in name} for row in found]

    alone, by_spark = ask(line), ask([*line, "--spark"])
    assert by_spark[0] == alone[0] == 0
    assert rows((0, as_without_spark(by_spark[1]), "")) == rows(alone)
    assert any("zstd" in str(row) for row in rows(alone))


def test_diff_prints_the_same_with_spark(
    local_spark: SparkSession, capture_small: Path, tmp_path: Path, ask: Ask
) -> None:
    data = capture_small / "data"
    shutil.copytree(data, tmp_path / "b")
    shutil.rmtree(tmp_path / "b" / "fares-0")
    diseases.bad_crc(min((tmp_path / "b" / "metro-lz4-0").glob("*.log")))
    line = ["diff", *NOW, str(data), str(tmp_path / "b")]
    for words in (line, [*line, "--json"]):
        alone, by_spark = ask(words), ask([*words, "--spark"])
        assert (by_spark[0], *map(as_without_spark, by_spark[1:])) == alone
        assert alone[0] == 1 and "fares-0" in alone[1] and "bad-crc" in alone[1]
