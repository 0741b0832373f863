"""Data directories of real brokers after a clean shutdown are valid, and findings about old ones are correct."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.start_directories import metadata_log_unclosed
from tests.support.trees import copy_tree
from tests.support.verify_helpers import judge

LEVELS = ("quick", "default", "deep")
OLD = (
    "0.9.0.1/2-compacted",
    "0.10.2.2/1-format-0.9.0.1",
    "0.10.2.2/3-compacted",
    "1.1.1/3-format-1.1",
    "1.1.1/4-compacted",
)
# findings that are normal for a directory of an old broker
HARMLESS = {
    "index-entry-old-style",
    "offset-gap",
    "mixed-magic",
    "checkpoint-orphan",
    "snapshot-leftover",
    "leftover-deleted",
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("state", ["before", "data"])
@pytest.mark.behaviour("V01", "V02", "V04")
def test_clean_stop_of_4_3_1_has_no_errors(state: str, level: str, capture_small: Path) -> None:
    verdict = judge(capture_small / state, level)
    assert verdict.output("error", "warning") == set()
    assert verdict.ids() <= HARMLESS
    assert verdict.sums["bytes_valid"] == verdict.sums["bytes_total"] > 40_000


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("state", OLD)
@pytest.mark.behaviour("V01")
def test_clean_stops_of_old_brokers_have_no_errors(state: str, level: str, legacy_small: Path) -> None:
    verdict = judge(legacy_small / "data" / state, level)
    assert verdict.output("error") == set()
    # a topic made for this has timestamps in the year 9999
    assert {path.split("/")[0] for kind, path in verdict.output("warning")} <= {"odd.times-0"}
    assert verdict.ids() <= HARMLESS | {"future-timestamp"}


def test_0_7_logs_have_only_their_real_damage(legacy_small: Path) -> None:
    assert judge(legacy_small / "data/0.7/1-written", "deep").findings == ()
    damaged = judge(legacy_small / "data/0.7/2-hurt", "deep")
    assert {(kind, path.split("/")[0]) for kind, path in damaged.output()} == {
        ("undecodable-batch", "attr-0"),
        ("bad-crc", "crc-0"),
        ("bad-crc", "crc-1"),
        ("bad-crc", "crc-2"),
        ("ancient-gap", "gap-0"),
        ("bad-magic", "magic-0"),
        ("torn-tail", "torn-0"),
        ("zero-tail", "torn-1"),
        ("torn-tail", "torn-2"),
        ("zero-tail", "zeros-0"),
    }


def test_records_of_old_brokers_are_all_counted(legacy_small: Path) -> None:
    directory = legacy_small / "data/0.10.2.2/3-compacted/comb.gzip-0"
    expected = legacy_small / "records/0.10.2.2/3-compacted/comb.gzip-0.jsonl"
    assert judge(directory, "deep").sums["records"] == len(expected.read_text().splitlines())


@pytest.mark.evidence("no-clean-marker")
def test_crashed_directory_is_only_unclean(capture_small: Path, tmp_path: Path) -> None:
    """The indexes of the active segment are preallocated, which is not an error."""
    directory = copy_tree(capture_small / "data", tmp_path / "data")
    (directory / ".kafka_cleanshutdown").unlink()
    for suffix, size in ((".index", 10_485_760), (".timeindex", 10_485_756)):
        log = max((directory / "metro-none-0").glob("*.log"))
        with log.with_suffix(suffix).open("r+b") as file:
            file.truncate(size)
    verdict = judge(directory)
    assert verdict.output("error", "warning") == set()
    assert {"unclean-shutdown", "index-preallocated"} <= verdict.ids()
    assert verdict.sums["bytes_padding"] > 20_000_000

    (directory / ".kafka_cleanshutdown").touch()
    assert judge(directory).output("error") == {("false-clean-shutdown", ".kafka_cleanshutdown")}


@pytest.mark.evidence("false-marker")
def test_clean_stop_of_4_4_has_no_errors(capture_small: Path, tmp_path: Path) -> None:
    """The indexes of the metadata log stay preallocated, because 4.4.0 closes that log as after a failure. The next start reads it in any
    case."""
    directory = copy_tree(capture_small / "data", tmp_path / "data")
    metadata_log_unclosed(directory)
    verdict = judge(directory)
    assert verdict.output("error", "warning") == set()
    assert "index-preallocated" in verdict.ids()


def test_metadata_log_without_its_first_snapshot_is_an_error(capture_small: Path, tmp_path: Path) -> None:
    directory = copy_tree(capture_small / "data" / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    (log,) = directory.glob("*.log")
    for file in list(directory.glob(f"{log.stem}.*")):
        file.unlink()
    (directory / f"{500:020d}.log").touch()
    (directory / f"{500:020d}.index").touch()
    verdict = judge(directory)
    assert "quorum-snapshot-missing" in verdict.ids("error")


def test_metadata_snapshot_without_its_footer_is_incomplete(capture_small: Path, tmp_path: Path) -> None:
    (snapshot,) = (capture_small / "data/__cluster_metadata-0").glob("*.checkpoint")
    data = snapshot.read_bytes()
    copy = tmp_path / snapshot.name
    copy.write_bytes(data)
    assert judge(copy, "deep").findings == ()
    end = 0
    while end + 12 + int.from_bytes(data[end + 8 : end + 12]) < len(data):
        end += 12 + int.from_bytes(data[end + 8 : end + 12])
    copy.write_bytes(data[:end])
    assert judge(copy).ids() == {"metadata-snapshot-incomplete"}
