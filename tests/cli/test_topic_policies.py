"""compact and retain change only topics with a matching cleanup.policy, with each topic's own settings."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kseg.cli.main import run
from tests.internal_topics.metadata_logs import (
    broker_config,
    config,
    record,
    topic,
    topic_id,
    write_log,
    write_meta_properties,
)
from tests.support.command_lines import Capfd, Rows, Say
from tests.support.trees import unchanged

LOG = "__cluster_metadata-0"
ON_THE_CLOCK = ("--now", "2100-01-01")
COMPACTED, DELETED, DEFAULT, OTHER = "accounts", "orders", "plain", "lost"


def changed(rows: Rows) -> set[str]:
    """The partitions for which something is planned."""
    return {
        row["partition"] for row in rows if "partition" in row and (row.get("steps") or row.get("deleted"))
    }


def unknown(rows: Rows) -> set[str]:
    return {Path(row["path"]).name for row in rows if row.get("id") == "policy-unknown"}


def settings(rows: Rows, name: str) -> dict[str, tuple[str, str]]:
    """Value and source of each setting for a topic's partition 0."""
    (row,) = [row for row in rows if row["type"] == "result" and row.get("partition") == f"{name}-0"]
    return {key: (each["value"], each["source"]) for key, each in row["settings"].items()}


def make(
    capture: Path, data: Path, *more: bytes, names: tuple[str, ...] = (COMPACTED, DELETED, DEFAULT)
) -> Path:
    """A data directory of topics, each with the records of one that has several segments, and its metadata log."""
    write_meta_properties(data)
    batches = []
    for number, name in enumerate(names):
        shutil.copytree(capture / "data" / "metro-none-0", data / f"{name}-0")
        (data / f"{name}-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(number)}")
        if name != OTHER:
            batches.append(topic(name, topic_id(number)))
    configs = [config(COMPACTED, "cleanup.policy", "compact"), config(DELETED, "cleanup.policy", "delete")]
    write_log(data / LOG, *batches, [*configs, *more])
    return data


# --- the incident


@pytest.mark.evidence("topic-policy")
@pytest.mark.parametrize("words", [[], ["--first-dirty-offset", "checkpoint"], ["--include-active"]])
def test_compact_skips_topics_with_policy_delete(
    data: Path, say: Say, words: list[str], capture_small: Path
) -> None:
    """A complete data directory of a real broker. compact used to change every topic with keys."""
    status, rows = say("compact", "--apply", *words, *ON_THE_CLOCK, data)
    assert status == 0
    reported = {row["partition"] for row in rows if row["type"] == "result" and "partition" in row}
    assert reported == {"stations-0", "__consumer_offsets-0", "__transaction_state-0"}
    for path in (capture_small / "data").glob("[fgm]*-[0-9]"):
        assert {file.name: file.read_bytes() for file in path.iterdir()} == {
            file.name: file.read_bytes() for file in (data / path.name).iterdir()
        }


@pytest.mark.evidence("topic-policy")
def test_retain_skips_topics_with_policy_compact(data: Path, say: Say, capture_small: Path) -> None:
    """retain used to delete all of `stations`."""
    status, rows = say("retain", "--retention-ms", "7d", "--apply", *ON_THE_CLOCK, data)
    assert status == 0
    assert "stations-0" not in changed(rows) and "metro-none-0" in changed(rows)
    assert not any(name.startswith("__") for name in changed(rows))
    before = {file.name: file.read_bytes() for file in (capture_small / "data" / "stations-0").iterdir()}
    assert before == {file.name: file.read_bytes() for file in (data / "stations-0").iterdir()}


@pytest.mark.parametrize("name", ["stations-0", "metro-none-0", "fares-0"])
def test_single_partition_takes_the_policy_from_its_log_dir(data: Path, say: Say, name: str) -> None:
    is_compacted = name == "stations-0"
    _, rows = say("compact", *ON_THE_CLOCK, data / name)
    assert bool(changed(rows)) is is_compacted
    _, rows = say("retain", "--retention-ms", "1", *ON_THE_CLOCK, data / name)
    assert bool(changed(rows)) is not is_compacted


# --- unknown


@pytest.mark.evidence("policy-unknown")
def test_topics_with_an_unknown_policy_are_not_changed(data: Path, say: Say, capfd: Capfd) -> None:
    shutil.rmtree(data / LOG)
    (data / "cleaner-offset-checkpoint").unlink()
    with unchanged(data):
        for words in (["compact"], ["retain", "--retention-ms", "1"]):
            status, rows = say(*words, "--apply", *ON_THE_CLOCK, "--topic", "[a-z]*", data)
            assert (status, changed(rows)) == (4, set())
            assert {"stations-0", "fares-0", "metro-lz4-0"} <= unknown(rows)
    for words in (["compact"], ["retain", "--retention-ms", "1"]):
        assert run([*words, "--apply", *ON_THE_CLOCK, str(data / "stations-0")]) == 4
        out, err = capfd.readouterr()
        assert "--metadata PATH, or --topic stations --cleanup-policy delete|compact settles it" in out
        assert "1 partition was skipped because the cleanup.policy is unknown: stations" in err


@pytest.mark.parametrize("topic", ["two words", "new\nline", os.fsdecode(b"\xff\xfe")])
def test_printed_policy_option_quotes_odd_topic_names(topic: str, data: Path, capfd: Capfd) -> None:
    shutil.copytree(data / "stations-0", data / f"{topic}-0")
    assert run(["compact", *ON_THE_CLOCK, str(data)]) == 5
    out = capfd.readouterr().out
    typed = out.split("or --topic ")[1].split(" --cleanup-policy")[0]
    echoed = subprocess.run(["bash", "-c", f"printf %s {typed}"], capture_output=True, check=True).stdout
    assert os.fsdecode(echoed) == topic


def test_topic_with_an_unknown_policy_is_named_once(data: Path, say: Say) -> None:
    """`gates-append` has two partitions, but one sentence is enough."""
    shutil.rmtree(data / LOG)
    for words in (["compact"], ["retain", "--retention-ms", "1"]):
        status, rows = say(*words, *ON_THE_CLOCK, "--topic", "gates-append", data)
        reported = [row for row in rows if row.get("id") == "policy-unknown"]
        assert (status, [Path(row["path"]).name for row in reported]) == (4, ["gates-append-0"])
        (failure,) = (row for row in rows if row["type"] == "error")
        assert "2 partitions were skipped" in failure["message"] and "gates-append" in failure["message"]


def test_policies_of_internal_topics_are_known_without_evidence(data: Path, say: Say) -> None:
    shutil.rmtree(data / LOG)
    (data / "cleaner-offset-checkpoint").unlink()
    status, rows = say("compact", *ON_THE_CLOCK, data)
    assert status == 5 and "__consumer_offsets-0" not in unknown(rows)
    assert settings(rows, "__consumer_offsets")["cleanup.policy"] == ("compact", "internal-topic")


@pytest.mark.evidence("cleaner-checkpoint")
def test_topic_in_the_cleaner_checkpoint_is_compacted(data: Path, say: Say) -> None:
    """The only evidence is cleaner-offset-checkpoint, which contains `stations`."""
    shutil.rmtree(data / LOG)
    _, rows = say("compact", *ON_THE_CLOCK, "--topic", "stations", data)
    assert changed(rows) == {"stations-0"}
    assert settings(rows, "stations")["cleanup.policy"] == ("compact", "cleaner-offset-checkpoint")
    status, rows = say("retain", "--retention-ms", "1", *ON_THE_CLOCK, "--topic", "stations", data)
    assert (status, changed(rows)) == (0, set())


def test_default_policy_that_the_cleaner_checkpoint_contradicts_is_not_used(
    capture_small: Path, tmp_path: Path, say: Say
) -> None:
    """The topic has no policy of its own but was compacted, so the broker's default differs from Kafka's, and only server.properties
    contains it."""
    data = make(capture_small, tmp_path / "data")
    (data / "cleaner-offset-checkpoint").write_text("0\n2\nplain 0 72\norders 0 72\n")
    words = ("--retention-ms", "1", *ON_THE_CLOCK, data)
    status, rows = say("retain", *words)
    assert (status, unknown(rows), changed(rows)) == (5, {"plain-0"}, {"orders-0"})
    for policy, gone in (("compact", {"orders-0"}), ("delete", {"orders-0", "plain-0"})):
        (tmp_path / "server.properties").write_text(f"log.cleanup.policy={policy}\n")
        _, rows = say("retain", "--server-properties", tmp_path / "server.properties", *words)
        assert (changed(rows), unknown(rows)) == (gone, set())


@pytest.mark.evidence("metadata-log")
@pytest.mark.parametrize("cut", [1, 40, 100, 200])
def test_policies_of_an_incomplete_metadata_log_are_not_used(data: Path, say: Say, cut: int) -> None:
    """The policy may have been changed in the lost part."""
    log = data / LOG / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-cut])
    with unchanged(data):
        status, rows = say(
            "retain", "--retention-ms", "1", "--apply", *ON_THE_CLOCK, "--topic", "[a-z]*", data
        )
    assert (status, changed(rows)) == (4, set())
    assert any(row.get("id") == "metadata-log-doubtful" for row in rows)
    status, rows = say(
        "retain",
        "--retention-ms",
        "1",
        *ON_THE_CLOCK,
        "--topic",
        "metro-none",
        "--cleanup-policy",
        "delete",
        data,
    )
    assert changed(rows) == {"metro-none-0"}


@pytest.mark.parametrize("change", ["unknown-name", "other-id", "removed"])
def test_topic_id_unknown_to_the_metadata_log_has_no_settings(
    capture_small: Path, tmp_path: Path, say: Say, change: str
) -> None:
    """There is another topic with that name, or none, so its settings do not apply to this directory."""
    names = (COMPACTED, DELETED, OTHER) if change == "unknown-name" else (COMPACTED, DELETED, DEFAULT)
    more = [record("RemoveTopicRecord", topicId=topic_id(2))] if change == "removed" else []
    data = make(capture_small, tmp_path / "data", *more, names=names)
    if change == "other-id":
        (data / "plain-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(77)}")
    status, rows = say("retain", "--retention-ms", "1", *ON_THE_CLOCK, data)
    assert (status, changed(rows), unknown(rows)) == (5, {"orders-0"}, {f"{names[2]}-0"})


# --- whose word counts


def test_setting_sources_have_kafkas_precedence(capture_small: Path, tmp_path: Path, say: Say) -> None:
    """topic config > dynamic broker config > dynamic default > server.properties > built in (Kafka: LogConfig, KafkaConfig)."""
    file = tmp_path / "server.properties"
    file.write_text("log.retention.minutes=7\nlog.retention.hours=1\nlog.retention.bytes=2000\n")
    words = ("--what-if", *ON_THE_CLOCK)
    more: list[bytes] = []
    for number, (layer, expected, with_file) in enumerate(
        (
            (b"", None, False),
            (b"", ("420000", "server-properties"), True),
            (broker_config("", "log.retention.ms", "5000"), ("5000", "default-broker-config"), True),
            (broker_config("9", "log.retention.ms", "4000"), ("5000", "default-broker-config"), True),
            (broker_config("1", "log.retention.ms", "3000"), ("3000", "broker-config"), True),
            (config(DELETED, "retention.ms", "2000"), ("2000", "topic-config"), False),
        )
    ):
        more += [layer] if layer else []
        data = make(capture_small, tmp_path / f"data-{number}", *more)
        given = ("--server-properties", file) if with_file else ()
        _, rows = say("retain", *given, *words, "--topic", DELETED, data)
        assert settings(rows, DELETED).get("retention.ms") == expected
        shutil.rmtree(data)
    data = make(capture_small, tmp_path / "data", *more)
    _, rows = say("retain", "--retention-ms", "1s", "--server-properties", file, *ON_THE_CLOCK, data)
    found = settings(rows, DELETED)
    assert found["retention.ms"] == ("1000", "option") and found["retention.bytes"] == (
        "2000",
        "server-properties",
    )
    assert found["cleanup.policy"] == ("delete", "topic-config")
    assert settings(rows, DEFAULT)["cleanup.policy"] == ("delete", "built-in-default")
    file.write_text("log.retention.hours=-1\n")
    _, rows = say("retain", "--server-properties", file, *ON_THE_CLOCK, "--topic", DEFAULT, data)
    assert settings(rows, DEFAULT)["retention.ms"] == ("3000", "broker-config")


def test_default_limits_apply_only_with_server_properties(
    capture_small: Path, tmp_path: Path, say: Say
) -> None:
    """Nothing is deleted for an unknown limit. If the file is given, properties that it does not contain have Kafka's defaults."""
    data = make(capture_small, tmp_path / "data")
    status, rows = say("retain", *ON_THE_CLOCK, data)
    assert (status, changed(rows)) == (0, set())
    (tmp_path / "server.properties").write_text("num.io.threads=8\n")
    _, rows = say("retain", "--server-properties", tmp_path / "server.properties", *ON_THE_CLOCK, data)
    assert changed(rows) == {"orders-0", "plain-0"}
    assert settings(rows, DELETED)["retention.ms"] == ("604800000", "built-in-default")


def test_retain_uses_the_limits_of_each_topic(capture_small: Path, tmp_path: Path, say: Say) -> None:
    more = [config(DELETED, "retention.bytes", "1200"), config(DEFAULT, "retention.ms", "-1")]
    data = make(capture_small, tmp_path / "data", *more)
    _, rows = say("retain", *ON_THE_CLOCK, data)
    assert changed(rows) == {"orders-0"}
    (result,) = [row for row in rows if row.get("partition") == "orders-0" and row["type"] == "result"]
    assert result["deleted"] == [0]


def test_options_override_limits_but_never_the_policy(capture_small: Path, tmp_path: Path, say: Say) -> None:
    data = make(capture_small, tmp_path / "data", config(COMPACTED, "delete.retention.ms", "9"))
    file = tmp_path / "topic.properties"
    file.write_text("retention.ms=1\n")
    for words in (["--retention-ms", "1"], ["--retention-bytes", "0"], ["--config", file]):
        _, rows = say("retain", *words, *ON_THE_CLOCK, data)
        assert changed(rows) == {"orders-0", "plain-0"}
    for words in (["--cleanup-policy", "delete"], ["--cleanup-policy", "compact,delete"]):
        _, rows = say("retain", "--retention-ms", "1", *words, *ON_THE_CLOCK, data)
        assert changed(rows) == {"accounts-0", "orders-0", "plain-0"}
    file.write_text("retention.ms=1\ncleanup.policy=compact\n")
    assert changed(say("retain", "--config", file, *ON_THE_CLOCK, data)[1]) == set()
    _, rows = say("compact", *ON_THE_CLOCK, data)
    assert changed(rows) == {"accounts-0"}
    assert settings(rows, COMPACTED)["delete.retention.ms"] == ("9", "topic-config")
    _, rows = say("compact", "--delete-retention-ms", "5", *ON_THE_CLOCK, data)
    assert settings(rows, COMPACTED)["delete.retention.ms"] == ("5", "option")
    _, rows = say("compact", "--config", file, *ON_THE_CLOCK, data)
    assert changed(rows) == {"accounts-0", "orders-0", "plain-0"}


def test_compact_uses_the_cleaner_settings_of_the_topic(
    capture_small: Path, tmp_path: Path, say: Say
) -> None:
    """No record is older than the topic's compaction lag, so nothing is cleaned, as by the broker's cleaner."""
    data = make(capture_small, tmp_path / "data", config(COMPACTED, "min.compaction.lag.ms", str(2**62)))
    _, rows = say("compact", *ON_THE_CLOCK, data)
    (result,) = [row for row in rows if row.get("partition") == "accounts-0" and row["type"] == "result"]
    assert (result["held_by"], result["steps"]) == ("min.compaction.lag.ms", 0)
    more = (config(COMPACTED, "internal.segment.bytes", "1"), config(COMPACTED, "segment.bytes", str(2**30)))
    data = make(capture_small, tmp_path / "other", *more)
    _, rows = say("compact", *ON_THE_CLOCK, data)
    by_topic = next(row for row in rows if row.get("partition") == "accounts-0" and row["type"] == "result")
    _, rows = say("compact", "--segment-bytes", "1GiB", *ON_THE_CLOCK, data)
    by_option = next(row for row in rows if row.get("partition") == "accounts-0" and row["type"] == "result")
    assert by_topic["segments_after"] > by_option["segments_after"]


def test_topic_with_an_invalid_setting_is_not_changed(capture_small: Path, tmp_path: Path, say: Say) -> None:
    data = make(capture_small, tmp_path / "data", config(DELETED, "retention.ms", "soon"))
    status, rows = say("retain", "--retention-bytes", "0", *ON_THE_CLOCK, data)
    assert (status, changed(rows), unknown(rows)) == (5, {"plain-0"}, {"orders-0"})


def test_metadata_option_names_a_metadata_log_elsewhere(
    capture_small: Path, tmp_path: Path, say: Say
) -> None:
    data = make(capture_small, tmp_path / "node" / "data")
    shutil.move(data / LOG, tmp_path / "elsewhere")
    assert say("retain", "--retention-ms", "1", *ON_THE_CLOCK, data)[0] == 4
    _, rows = say("retain", "--retention-ms", "1", *ON_THE_CLOCK, "--metadata", tmp_path / "elsewhere", data)
    assert changed(rows) == {"orders-0", "plain-0"}
    disk = tmp_path / "node" / "disk-2"
    write_meta_properties(disk)
    shutil.copytree(tmp_path / "elsewhere", disk / LOG)
    _, rows = say("retain", "--retention-ms", "1", *ON_THE_CLOCK, data)
    assert changed(rows) == {"orders-0", "plain-0"}
    assert say("retain", "--metadata", tmp_path / "nowhere", data)[0] == 3
    assert say("retain", "--metadata", data, data)[0] == 2
    write_meta_properties(data, cluster="x" * 22)
    assert say("retain", "--metadata", disk, data)[0] == 4


# --- marks


def test_purge_needs_no_policy_and_marks_nothing(data: Path, say: Say) -> None:
    """It does not mark anything else either, whatever the topics are configured to."""
    shutil.rmtree(data / LOG)
    marked = data / "metro-none-0" / f"{0:020}.log"
    marked.rename(f"{marked}.deleted")
    status, rows = say("retain", "--purge", "--apply", *ON_THE_CLOCK, "--topic", "metro-none", data)
    assert (status, unknown(rows)) == (0, set())
    assert not list((data / "metro-none-0").glob("*.log.deleted"))


def test_text_names_the_source_of_each_setting(capture_small: Path, tmp_path: Path, capfd: Capfd) -> None:
    data = make(capture_small, tmp_path / "data", config(COMPACTED, "delete.retention.ms", "9"))
    run(["retain", "--retention-ms", "20s", *ON_THE_CLOCK, str(data)])
    out = capfd.readouterr().out
    assert ": by cleanup.policy delete (topic config), retention.ms 20s (option)" in out
    assert ": by cleanup.policy delete (Kafka's default), retention.ms 20s (option)" in out
    run(["compact", *ON_THE_CLOCK, str(data)])
    out = capfd.readouterr().out
    assert "  by cleanup.policy compact (topic config), delete.retention.ms 9ms (topic config)" in out
    assert "3 × not-compacted: info: " in out
    run(["compact", "--verbose", *ON_THE_CLOCK, str(data)])
    out = capfd.readouterr().out
    assert "orders-0: info: its cleanup.policy is delete (topic config) (not-compacted)" in out
