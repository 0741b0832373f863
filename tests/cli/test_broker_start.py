"""The forecast of `verify` for a broker's start, as text and as JSON. A real broker confirms it in `tests/kafka/test_broker_start.py`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fixtures.diseases import bad_crc
from fixtures.side_diseases import leftover_swap
from kseg.cli.main import run
from kseg.cli.text.broker_start import broker_start_words
from kseg.recovery.broker_start.loaded_directory import LoadedDirectory
from kseg.recovery.broker_start.log_dir_start import Thrown
from kseg.recovery.broker_start.node_outcome import NodeStart
from kseg.segment.partition.names import METADATA_DIRECTORY
from kseg.segment.storage import places
from tests.internal_topics.metadata_logs import (
    CLUSTER,
    DIRECTORY,
    NODE,
    config,
    record,
    topic,
    topic_id,
    write_log,
)
from tests.kafka.start_cases import CASES
from tests.support.command_lines import Capfd
from tests.support.command_rows import rows_of
from tests.support.doctor_helpers import NOW
from tests.support.metadata_rows import BROKER
from tests.support.trees import copy_tree

Make = Callable[[str], list[Path]]
VERSION = record("FeatureLevelRecord", name="metadata.version", featureLevel=21)


@pytest.fixture
def made(capture_small: Path, tmp_path: Path) -> Make:
    """The log dirs of a case, one level deeper than those of others, because verify would consider a metadata log nearby."""

    def make(name: str) -> list[Path]:
        data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
        more = CASES[name](data)
        return [data] if more is None else [data, more]

    return make


def starts(capfd: Capfd, *arguments: object) -> list[dict[str, Any]]:
    rows = rows_of(capfd, "verify", *arguments)
    assert rows[-1]["type"] == "summary"
    return [row for row in rows if row["type"] == "broker-start"]


def forecast_lines(capfd: Capfd, *arguments: object) -> list[str]:
    capfd.readouterr()
    run(["verify", *map(str, arguments)])
    lines = capfd.readouterr().out.splitlines()
    first = next(at for at, line in enumerate(lines) if "4.3.1 broker" in line and "finding" not in line)
    return [lines[first], *[line for line in lines[first + 1 :] if line.startswith("  ")]]


def test_forecast_load_uses_the_settings_of_the_topic(made: Make, capfd: Capfd) -> None:
    """Observed with 4.3.1 (tests/kafka/test_broker_start.py)."""
    (data,) = made("offset_lowered_unclean")
    (row,) = starts(capfd, data)
    (cut,) = row["partitions_truncated"]
    assert (cut["partition"], cut["log_end_offset"]) == ("metro-none-0", 0)


def test_forecast_loads_a_log_behind_a_link(made: Make, capfd: Capfd) -> None:
    """Observed with 4.3.1 (tests/kafka/test_broker_start.py)."""
    (data,) = made("logs_behind_links_unclean")
    (row,) = starts(capfd, data)
    for log in (data / "metro-none-0").glob("*.log"):
        if log.is_symlink():
            log.readlink().rename(log)
    (whole,) = starts(capfd, data)
    assert (row["outcome"], row["partitions"]) == ("starts", 12)
    assert (row["bytes_to_scan"], row["logs_to_scan"]) == (whole["bytes_to_scan"], whole["logs_to_scan"])


def test_forecast_names_the_first_of_two_faults(made: Make, capfd: Capfd) -> None:
    """Observed with 4.3.1 (tests/kafka/test_broker_start.py)."""
    (data,) = made("epochs_and_high_watermarks_of_zeros")
    (row,) = starts(capfd, data)
    assert (row["outcome"], row["exception"]) == ("does-not-start", "IOException")
    assert "leader-epoch-checkpoint" in row["message"]


def test_forecast_uses_server_properties(capture_small: Path, tmp_path: Path, capfd: Capfd) -> None:
    """Observed with 4.3.1 (tests/kafka/test_server_properties.py)."""
    data = copy_tree(capture_small / "data", tmp_path / "node" / "data")
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=2\nlog.dirs={data}\n")
    (line,) = forecast_lines(capfd, "--server-properties", file, data)
    assert "does not start: RuntimeException: Stored node id 1 doesn't match previous node id 2" in line
    file.write_text(f"node.id=1\nlog.dirs={data} , {tmp_path}/missing\n")
    (line,) = forecast_lines(capfd, "--server-properties", file, data)
    assert f"No `meta.properties` found in {tmp_path}/missing" in line
    # a copy, whose original is elsewhere
    file.write_text("node.id=1\nlog.dirs=/data/of/the/original\n")
    assert starts(capfd, "--server-properties", file, data)[0]["outcome"] == "starts"
    other = copy_tree(data, tmp_path / "node" / "other")
    text = (other / "meta.properties").read_text().replace("directory.id=", "directory.id=A")
    (other / "meta.properties").write_text(text)
    shutil.rmtree(other / "__cluster_metadata-0")
    file.write_text(f"node.id=1\nlog.dirs={data},{other}\n")
    assert starts(capfd, "--server-properties", file, data)[0]["log_dirs_unchecked"] == [str(other)]
    lines = forecast_lines(capfd, "--server-properties", file, data)
    assert f"  log.dirs also has {other}, whose logs were not checked" in lines
    assert run(["verify", "--server-properties", str(tmp_path / "none"), str(data)]) == 3


def test_topic_configuration_of_an_older_version_prevents_the_start(made: Make, capfd: Capfd) -> None:
    """Observed with 4.3.1 (tests/kafka/test_broker_start.py)."""
    (data,) = made("topic_config_of_old")
    (row,) = starts(capfd, data)
    assert (row["outcome"], row["exception"]) == ("does-not-start", "ConfigException")
    assert (
        row["message"]
        == "Invalid value 40000 for configuration segment.bytes: Value must be at least 1048576"
    )
    rows = rows_of(capfd, "doctor", *NOW, data, status=1)
    (command,) = [row["command"] for row in rows if row["type"] == "step"]
    assert command.startswith("kafka-configs.sh") and command.endswith(
        "--entity-name fares --delete-config segment.bytes"
    )


def test_controller_starts_with_topic_configurations_of_older_versions(tmp_path: Path, capfd: Capfd) -> None:
    """A controller has no logs to configure. Observed with a controller of 3.9.1 that is followed by a 4.3.1 one, whose brokers do not
    start."""
    controller, broker, log = 3000, tmp_path / "broker", tmp_path / "data" / METADATA_DIRECTORY
    write_log(log, [VERSION, BROKER, *topic("fares", topic_id(1)), config("fares", "segment.bytes", "9000")])
    voters = [{"voterId": controller}]
    state = {
        "leaderId": controller,
        "leaderEpoch": 1,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": voters,
    }
    (log / "quorum-state").write_text(json.dumps(state | {"clusterId": "", "data_version": 0}))
    copy_tree(log.parent, broker)
    exceptions = []
    for node_id, data in ((controller, log.parent), (NODE, broker)):
        (data / "meta.properties").write_text(
            f"version=1\nnode.id={node_id}\ncluster.id={CLUSTER}\ndirectory.id={DIRECTORY}\n"
        )
        (row,) = starts(capfd, data)
        exceptions.append(row["exception"])
    assert exceptions == [None, "ConfigException"]


@pytest.mark.parametrize(
    ("case", "exception", "step"),
    [
        ("metadata_version_of_old", "IllegalArgumentException", "upgrade --metadata 3.3"),
        ("metadata_version_once_of_old", "IllegalArgumentException", "describe"),
        ("metadata_version_of_tomorrow", "IllegalArgumentException", "describe"),
        ("feature_of_tomorrow", "RuntimeException", "describe"),
        ("feature_once_of_tomorrow", "RuntimeException", "describe"),
    ],
)
def test_features_of_another_version_prevent_the_start(
    case: str, exception: str, step: str, made: Make, capfd: Capfd
) -> None:
    """Observed with 4.3.1 (tests/kafka/test_broker_start.py)."""
    (data,) = made(case)
    (row,) = starts(capfd, data)
    assert (row["outcome"], row["exception"]) == ("does-not-start", exception)
    rows = rows_of(capfd, "doctor", *NOW, data, status=1)
    (command,) = [row["command"] for row in rows if row["type"] == "step"]
    assert command.startswith("kafka-features.sh") and command.endswith(step)
    (node,) = [row for row in rows if row["type"] == "node"]
    assert (node["metadata_version"] == "UNKNOWN(99)") == (case == "metadata_version_of_tomorrow")


def test_undamaged_directory_starts_and_keeps_all_logs(made: Make, capfd: Capfd) -> None:
    (data,) = made("clean")
    (row,) = starts(capfd, data)
    assert row["outcome"] == "starts" and row["metadata"] == "whole"
    assert not [name for name, value in row.items() if name.startswith("partitions_") and value]
    metadata_bytes = sum(log.stat().st_size for log in (data / "__cluster_metadata-0").glob("*.log"))
    assert row["bytes_to_scan"] == metadata_bytes
    assert forecast_lines(capfd, data) == ["a 4.3.1 broker on node 1 starts, and keeps all of 12 logs"]


def test_directory_with_only_the_metadata_log_starts(made: Make, capfd: Capfd) -> None:
    """As on a controller, or in metadata.log.dir. verify used to say that such a directory has no metadata log."""
    (data,) = made("clean")
    (data / "meta.properties").write_text("version=1\nnode.id=3000\ncluster.id=Mz9XvQe1R0mU7bTq2LkP5w\n")
    for partition in data.iterdir():
        if partition.is_dir() and partition.name != "__cluster_metadata-0":
            shutil.rmtree(partition)
    (row,) = starts(capfd, data)
    assert (row["outcome"], row["metadata"]) == ("starts", "whole")
    assert forecast_lines(capfd, data) == [
        "a 4.3.1 broker on node 3000 starts, and keeps all of 1 log",
        "  it serves once the controller (node 1) runs",
    ]


def test_forecast_without_a_metadata_log_does_not_promise_to_keep_all_logs(made: Make, capfd: Capfd) -> None:
    """A broker whose own metadata log is gone knows no topics and renames all logs as stray."""
    first, second = forecast_lines(capfd, *made("metadata_log_gone"))
    assert first == "a 4.3.1 broker on node 1 starts, and loads all of 11 logs"
    assert second == "  without a metadata log it is unknown which of them it sets aside as stray"


def test_forecast_with_known_strays_says_that_others_are_unknown(made: Make, capfd: Capfd) -> None:
    (data,) = made("metadata_log_gone")
    (data / "metro-gzip-0").rename(data / f"metro-gzip-0.{'a' * 32}-delete")
    lines = forecast_lines(capfd, data)
    assert lines[0] == "a 4.3.1 broker on node 1 starts"
    assert "  without a metadata log it is unknown which of them it sets aside as stray" in lines


def test_forecast_for_a_directory_of_a_zookeeper_broker(made: Make, capfd: Capfd) -> None:
    """Observed: a 4.3.1 node of a new cluster, started on a data directory of Kafka 2.8.2, renamed all of its logs as stray."""
    (data,) = made("metadata_log_gone")
    (data / "meta.properties").write_text("broker.id=1\nversion=0\ncluster.id=xPh7qyG_RuGAPmZ3MMnC2g\n")
    (row,) = starts(capfd, data)
    assert row["from_zookeeper"] is True and row["metadata"] == "unknown"
    lines = forecast_lines(capfd, data)
    assert len(lines) == 2 and "used ZooKeeper, which Kafka 4 does not support" in lines[1]
    assert run(["doctor", str(data)]) == 0
    assert (
        "\n  node 1 of cluster xPh7qyG_RuGAPmZ3MMnC2g, written by a broker with ZooKeeper"
        in capfd.readouterr().out
    )


def test_broker_migrated_to_kraft_is_not_taken_for_zookeeper(made: Make, capfd: Capfd) -> None:
    (data,) = made("migrated_from_zookeeper")
    (data / "__cluster_metadata-0" / "quorum-state").write_text("garbage")
    (row,) = starts(capfd, data)
    assert row["from_zookeeper"] is False
    (verdict,) = forecast_lines(capfd, data)
    assert verdict.startswith("a 4.3.1 broker on node 1 does not start: UncheckedIOException: ")


def test_directory_of_2_1_without_cluster_id_does_not_start_4_3(made: Make, capfd: Capfd) -> None:
    """A 4.3.1 broker does not start with it; one of 2.1 does."""
    (data,) = made("metadata_log_gone")
    (data / "meta.properties").write_text("broker.id=1\nversion=0\n")
    verdict, note = forecast_lines(capfd, data)
    assert verdict.startswith(
        "a 4.3.1 broker on node 1 does not start: RuntimeException: Error: cluster ID not found in "
    )
    assert note.startswith("  the last broker here used ZooKeeper, which Kafka 4 does not support; ")


@pytest.mark.parametrize("options", [[], ["--quick"], ["--deep"], ["--jobs", "2"]])
def test_forecast_truncation_is_reported_with_the_lost_records(
    made: Make, capfd: Capfd, options: list[str]
) -> None:
    (data,) = made("unclean_from_the_start")
    log = data / "metro-none-0" / f"{72:020d}.log"
    bad_crc(log, 0)
    (row,) = starts(capfd, *options, data)
    lost = log.stat().st_size + (data / "metro-none-0" / f"{144:020d}.log").stat().st_size
    assert row["partitions_truncated"] == [
        {
            "partition": "metro-none-0",
            "log_dir": str(data),
            "log_start_offset": 0,
            "log_end_offset": 72,
            "bytes_lost": lost,
            "records_lost": 88,
        }
    ]
    assert f"  it truncates metro-none-0 at offset 72 (88 records, {lost:,} bytes)" in forecast_lines(
        capfd, data
    )


def test_log_that_ends_early_is_not_reported_as_kept(made: Make, capfd: Capfd) -> None:
    """No byte of it is removed, but verify used to predict that the broker keeps all logs."""
    (data,) = made("last_index_of_another_log")
    (row,) = starts(capfd, data)
    assert row["outcome"] == "starts" and not row["partitions_truncated"]
    assert row["partitions_shortened"] == [
        {
            "partition": "metro-none-0",
            "log_dir": str(data),
            "log_start_offset": 0,
            "log_end_offset": 144,
            "end_offset_in_files": 160,
        }
    ]
    assert (
        "  because of wrong indexes it ends metro-none-0 at offset 144 instead of 160, and assigns the offsets above to new records"
        in forecast_lines(capfd, data)
    )


def test_directory_named_like_a_metadata_segment_is_ignored(made: Make, capfd: Capfd) -> None:
    """A broker ignores such a directory, and so does the search for the latest epoch of the log."""
    (data,) = made("clean")
    (data / "__cluster_metadata-0" / f"{900:020d}.log").mkdir()
    (row,) = starts(capfd, data)
    assert (row["outcome"], row["partitions_unread"]) == ("starts", [])


@pytest.mark.parametrize("stop", ["clean", "unclean_from_the_start"])
def test_swapped_in_segment_is_not_a_loss(made: Make, capfd: Capfd, stop: str) -> None:
    """The replaced segment used to be counted as lost. The real log keeps the replacement (test_recover_differential.py)."""
    (data,) = made(stop)
    leftover_swap(data / "metro-none-0" / f"{72:020d}.log")
    (row,) = starts(capfd, data)
    assert row["outcome"] == "starts" and not row["partitions_truncated"]


def test_damage_below_the_recovery_point_is_not_met_after_a_clean_stop(made: Make, capfd: Capfd) -> None:
    (data,) = made("clean")
    bad_crc(data / "metro-none-0" / f"{72:020d}.log", 0)
    (row,) = starts(capfd, data)
    assert row["outcome"] == "starts" and not row["partitions_truncated"]


def test_failed_start_is_forecast_with_the_brokers_exception_message(made: Make, capfd: Capfd) -> None:
    dirs = made("partition_twice")
    (row,) = starts(capfd, *dirs)
    assert (row["outcome"], row["exception"]) == ("does-not-start", "IllegalStateException")
    assert row["message"].startswith("Duplicate log directories for fares-0 are found in both ")
    assert forecast_lines(capfd, *dirs)[0].startswith(
        "a 4.3.1 broker on node 1 does not start: IllegalStateException: "
    )


def test_offline_data_directory_takes_its_partitions_offline(made: Make, capfd: Capfd) -> None:
    first, second = made("second_with_foreign_recovery_points")
    shutil.move(first / "fares-0", second / "fares-0")
    (row,) = starts(capfd, first, second)
    assert row["outcome"] == "starts-with-offline-log-dirs"
    assert [place["log_dir"] for place in row["log_dirs_offline"]] == [str(second)]
    assert row["partitions_offline"] == ["fares-0"]


def test_missing_replica_of_an_offline_directory_is_not_created() -> None:
    """Observed with 4.3.1: "Skipping creation of log because there are potentially offline log directories"."""
    why = Thrown("FileSystemException", "b/fares-2/00000000000000000000.snapshot (Is a directory)")
    dirs = (LoadedDirectory("a", missing=["fares-1"]), LoadedDirectory("b", missing=["fares-0"]))
    row = NodeStart(directories=dirs, outcome="starts-with-offline-log-dirs", offline=(("b", why),)).as_row()
    assert (row["partitions_missing"], row["partitions_offline"]) == (["fares-1"], ["fares-0"])


def test_forecast_for_a_single_partition_covers_only_that_partition(made: Make, capfd: Capfd) -> None:
    (data,) = made("unclean_from_the_start")
    assert starts(capfd, data / "fares-0" / f"{0:020d}.log") == []
    (row,) = starts(capfd, "--topic", "fares", data)
    assert (row["outcome"], row["log_dirs"], row["partitions"]) == (None, [], 1)
    assert forecast_lines(capfd, data / "fares-0") == [
        "at its next start a 4.3.1 broker loads these partitions:",
        "  it scans 9.8 KiB of 1 log first, in about 1 s",
    ]
    (data / "fares-0" / "partition.metadata").write_bytes(b"")
    (row,) = starts(capfd, data / "fares-0")
    assert (row["outcome"], row["exception"]) == ("does-not-start", "NullPointerException")


def test_forecast_gives_each_node_its_own_verdict(made: Make, capfd: Capfd) -> None:
    (first,) = made("clean")
    other = shutil.copytree(first, first.parent / "other")
    meta = (other / "meta.properties").read_text()
    (other / "meta.properties").write_text(meta.replace("node.id=1", "node.id=2"))
    found = starts(capfd, first, other)
    assert [(row["node_id"], row["log_dirs"]) for row in found] == [(1, [str(first)]), (2, [str(other)])]


def test_forecast_lists_are_short_and_quiet_prints_none(made: Make, capfd: Capfd) -> None:
    (data,) = made("metadata_cut_without_snapshot")
    lines = forecast_lines(capfd, data)
    assert (
        lines[-1]
        == "  it sets aside as stray __consumer_offsets-0, __transaction_state-0, fares-0 and 4 more"
    )
    run(["verify", "--quiet", str(data)])
    assert "4.3.1 broker" not in capfd.readouterr().out


def test_forecast_does_not_examine_files_again(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing already knows which entries are directories in place of a file."""
    # its load is simulated
    (data,) = made("leader_epochs_foreign")
    asked: list[str] = []

    def isdir(path: str) -> bool:
        asked.append(path)
        return Path(path).is_dir()

    monkeypatch.setattr(places, "isdir", isdir)
    run(["verify", "--quiet", "--jobs", "1", str(data)])
    assert asked and not [
        path for path in asked if Path(path).is_relative_to(data / "fares-0") and Path(path).is_file()
    ]


def test_start_time_estimate_is_a_range_with_its_basis(made: Make, capfd: Capfd) -> None:
    (row,) = starts(capfd, *made("unclean"))
    assert row["batches_to_scan"] >= row["logs_to_scan"] > 1
    assert 0 < row["estimated_s"] < row["estimated_s_slow"]
    much = row | {
        "logs_to_scan": 400,
        "bytes_to_scan": 53 << 30,
        "estimated_s": 30.0,
        "estimated_s_slow": 400.0,
    }
    assert list(broker_start_words(much))[-1] == (
        "  it scans 53.0 GiB of 400 logs first, in 30 s (in memory, an idle machine) to 7 min (a spinning disk, a busy machine)"
    )
    clean = much | {"log_dirs_unclean": [], "partitions": 2000, "estimated_s": 10.0, "estimated_s_slow": 60.0}
    assert list(broker_start_words(clean))[-1] == (
        "  it loads 2,000 logs first, in 10 s (in memory, an idle machine) to 60 s (a spinning disk, a busy machine)"
    )
    assert "loads" not in "".join(broker_start_words(clean | {"estimated_s_slow": 1.0}))


# the time in which a 4.3.1 broker said it loaded all logs, by default after an unclean stop, on two processors that were also used
# otherwise: logs, bytes, batches, seconds
STARTS = {
    "4 logs of 512 MiB, 64 KiB a batch, in memory": (4, 2_147_241_718, 33_000, 1.9),
    "4 logs of 512 MiB, 64 KiB a batch, from the disk": (4, 2_147_241_718, 33_000, 5.9),
    "4 logs of 128 MiB, 171 bytes a batch, in memory": (4, 536_871_458, 3_140_000, 7.8),
    "4 logs of 128 MiB, 171 bytes a batch, on a busier machine": (4, 536_871_458, 3_140_000, 13.7),
    "4 logs of 128 MiB, 171 bytes a batch, from the disk": (4, 536_871_458, 3_140_000, 4.9),
    "1,000 logs of 1 MiB, in memory": (1000, 1_037_195_219, 64_000, 14.8),
    "1,000 logs of 1 MiB, from the disk": (1000, 1_037_195_219, 64_000, 16.0),
    "1,000 logs of 1 MiB, on a busier machine": (1000, 1_037_195_219, 64_000, 27.9),
    "2,000 logs of 16 KiB": (2000, 32_560_219, 2_000, 25.2),
    "2,000 logs of 16 KiB from the disk": (2000, 32_560_219, 2_000, 35.8),
    "2,000 logs of 16 KiB after a clean stop": (2000, 0, 0, 24.5),
}


@pytest.mark.parametrize(("logs", "bytes_", "batches", "took_s"), STARTS.values(), ids=STARTS.keys())
def test_measured_starts_lie_in_the_estimated_range(
    logs: int, bytes_: int, batches: int, took_s: float
) -> None:
    directory = LoadedDirectory("data", partitions=logs, bytes_to_scan=bytes_, batches_to_scan=batches)
    assert directory.load_s <= took_s <= directory.slow_load_s
    assert directory.slow_load_s < 13 * directory.load_s


def test_missing_metadata_version_prevents_the_start(tmp_path: Path, capfd: Capfd) -> None:
    """As with KRaft before 3.3; observed with the data directory of a 3.2.3 node."""
    data = tmp_path / "data"
    made = [record("RegisterBrokerRecord", brokerId=NODE, brokerEpoch=1), *topic("fares", topic_id(1))]
    write_log(data / "__cluster_metadata-0", made)
    (data / "meta.properties").write_text(
        f"version=1\nnode.id={NODE}\ncluster.id={CLUSTER}\ndirectory.id={DIRECTORY}\n"
    )
    (row,) = starts(capfd, data)
    assert (row["outcome"], row["exception"]) == ("does-not-start", "IllegalStateException")
    assert row["message"] == "Unknown metadata version for FeaturesImage: metadataVersion(Optional.empty)"
    write_log(
        data / "__cluster_metadata-0",
        [record("FeatureLevelRecord", name="metadata.version", featureLevel=30), *made],
    )
    (row,) = starts(capfd, data)
    assert row["outcome"] == "starts"
