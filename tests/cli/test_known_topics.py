"""Topic ids are compared with the metadata log: a directory that a broker would rename as stray is an error, and recover corrects it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.internal_topics.metadata_logs import record, topic, topic_id
from tests.support.command_lines import Rows, Say
from tests.support.known_topics import FILE, LOG, append, ids, set_id
from tests.support.trees import unchanged


def reported(rows: Rows, kind: str) -> dict[str, str]:
    return {Path(row["path"]).name: row["message"] for row in rows if row.get("id") == kind}


def lose_file(data: Path) -> str:
    (data / "metro-none-0" / FILE).unlink()
    return "metro-none-0"


def unknown_id(data: Path) -> str:
    set_id(data / "metro-lz4-0", topic_id(9))
    return "metro-lz4-0"


def unknown_topic(data: Path) -> str:
    shutil.copytree(data / "metro-snappy-0", data / "nowhere-0")
    set_id(data / "nowhere-0", topic_id(8))
    return "nowhere-0"


def unknown_partition(data: Path) -> str:
    shutil.copytree(data / "metro-zstd-0", data / "metro-zstd-5")
    return "metro-zstd-5"


def future_of_unknown(data: Path) -> str:
    name = f"gates-append-0.{'a' * 32}-future"
    shutil.copytree(data / "gates-append-0", data / name)
    set_id(data / name, topic_id(7))
    return name


def removed_topic(data: Path) -> str:
    append(data, record("RemoveTopicRecord", topicId=ids(data)["metro-gzip"]))
    return "metro-gzip-0"


def made_again(data: Path) -> str:
    append(data, record("RemoveTopicRecord", topicId=ids(data)["stations"]), *topic("stations", topic_id(6)))
    return "stations-0"


def moved_to_another_node(data: Path) -> str:
    change: dict[str, Any] = {"replicas": [2], "isr": [2], "directories": [topic_id(5)], "leader": 2}
    append(data, record("PartitionChangeRecord", partitionId=1, topicId=ids(data)["gates-append"], **change))
    return "gates-append-1"


STRAYS = (
    lose_file,
    unknown_id,
    unknown_topic,
    unknown_partition,
    future_of_unknown,
    removed_topic,
    made_again,
    moved_to_another_node,
)


WITH_THE_RIGHT_ID = (unknown_partition, moved_to_another_node)


def advice_of(damage: Callable[[Path], str]) -> str:
    """If the id is right already, writing it again would change nothing."""
    if damage in WITH_THE_RIGHT_ID:
        return "its topic id is right, so no repair changes that"
    return "kseg recover --apply --topic-id "


@pytest.mark.parametrize("damage", WITH_THE_RIGHT_ID)
def test_rewriting_a_correct_topic_id_is_not_advised(
    data: Path, say: Say, damage: Callable[[Path], str]
) -> None:
    """This is why it is not advised: writing it again leaves the directory as stray as before, and recover reports that."""
    name = damage(data)
    wanted = ids(data)[name.rpartition("-")[0]]
    for _ in range(2):
        status, rows = say("recover", "--apply", "--topic-id", wanted, data / name)
        assert status == 1
        (result,) = (row for row in rows if row["type"] == "result" and row.get("partition") == name)
        assert "renamed as stray" in result["doubt"]
        assert wanted in (data / name / FILE).read_text()
    assert "--topic-id" not in reported(say("verify", data)[1], "becomes-stray")[name]


@pytest.mark.parametrize("damage", WITH_THE_RIGHT_ID)
def test_restoring_the_id_of_an_unassigned_partition_leaves_it_stray(
    data: Path, say: Say, damage: Callable[[Path], str]
) -> None:
    name = damage(data)
    wanted = ids(data)[name.rpartition("-")[0]]
    (data / name / FILE).unlink()
    assert say("recover", "--apply", "--topic-id", wanted, data / name)[0] == 1
    assert wanted in (data / name / FILE).read_text()
    assert set(reported(say("verify", data)[1], "becomes-stray")) == {name}


def test_intact_directory_has_no_strays(data: Path, say: Say) -> None:
    status, rows = say("verify", data)
    assert status == 0 and not reported(rows, "becomes-stray") and not reported(rows, "topic-id-conflict")


@pytest.mark.evidence("topic-id-known")
@pytest.mark.parametrize("damage", STRAYS)
@pytest.mark.parametrize("level", [(), ("--quick",)])
def test_directory_that_becomes_stray_is_an_error(
    data: Path, say: Say, damage: Callable[[Path], str], level: tuple[str, ...]
) -> None:
    """tests/kafka/test_strays.py shows these cases with a real broker. For a single partition, the metadata log of its data directory is
    read."""
    name = damage(data)
    with unchanged(data):
        for target in (data, data / name):
            status, rows = say("verify", *level, target)
            assert (status, set(reported(rows, "becomes-stray"))) == (1, {name})
            message = reported(rows, "becomes-stray")[name]
            plain = name.partition(".")[0]
            assert f"renames the directory to {plain}.…-stray" in message
            assert advice_of(damage) in message


def test_stray_message_names_the_topic_id_and_its_effect(data: Path, say: Say) -> None:
    lose_file(data), unknown_topic(data)
    _, rows = say("verify", data)
    found = reported(rows, "becomes-stray")
    wanted = ids(data)["metro-none"]
    assert "and recreates metro-none-0 empty" in found["metro-none-0"]
    assert f"kseg recover --apply --topic-id {wanted} {data / 'metro-none-0'}" in found["metro-none-0"]
    assert (
        "recreates" not in found["nowhere-0"] and f"--topic-id ID {data / 'nowhere-0'}" in found["nowhere-0"]
    )


@pytest.mark.parametrize("name", ["metro-none-0", "stations-0", "__consumer_offsets-0", "gates-append-1"])
@pytest.mark.parametrize(
    ("content", "policy"),
    [
        (None, "salvage"),
        (None, "kafka"),  # a broker fails on the other contents
        (b"", "salvage"),
        (b"garbage", "salvage"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "salvage"),
    ],
)
def test_recover_takes_the_id_from_the_metadata_log(
    capture_small: Path, data: Path, say: Say, name: str, content: bytes | None, policy: str
) -> None:
    """The file is missing or empty, or contains garbage or the zero id. The broker's file is restored byte for byte."""
    path = data / name / FILE
    path.unlink() if content is None else path.write_bytes(content)
    assert say("recover", "--policy", policy, data / name)[0] == 1
    status, rows = say("recover", "--policy", policy, "--apply", data)
    assert status == 0
    assert path.read_bytes() == (capture_small / "data" / name / FILE).read_bytes()
    result = next(row for row in rows if row["type"] == "result" and row.get("partition") == name)
    assert result["applied"] and result["doubt"] is None and result["removed"] == []
    assert say("verify", data)[0] == 0


def test_empty_stray_directory_needs_no_topic_id(data: Path, say: Say) -> None:
    """A broker renames it as stray and loses nothing, and verify and recover agree."""
    for file in (data / "fares-0").iterdir():
        file.unlink()
    assert say("verify", data / "fares-0")[0] == 0
    assert say("recover", "--apply", data / "fares-0")[0] == 0
    assert not (data / "fares-0" / FILE).exists()


def test_recover_output_has_the_restored_topic_id(data: Path, say: Say, tmp_path: Path) -> None:
    name = lose_file(data)
    with unchanged(data):
        assert say("recover", "--output", tmp_path / "copy", data / name)[0] == 0
    assert ids(data)["metro-none"] in (tmp_path / "copy" / name / FILE).read_text()


@pytest.mark.parametrize("damage", [each for each in STRAYS if each is not lose_file])
def test_recover_does_not_guess_a_topic_id(data: Path, say: Say, damage: Callable[[Path], str]) -> None:
    """An id of another topic may be the right one, so the exit status is 1 and the complete command is printed. The clean-shutdown marker
    is still true."""
    name = damage(data)
    before = (data / name / FILE).read_bytes()
    status, rows = say("recover", "--apply", data)
    assert status == 1
    assert advice_of(damage) in reported(rows, "becomes-stray")[name]
    result = next(row for row in rows if row["type"] == "result" and row.get("directory", "").endswith(name))
    assert (result["doubt"], result["misplaced"]) == (
        "is renamed as stray by a broker on its next start",
        True,
    )
    assert (data / name / FILE).read_bytes() == before
    assert (data / ".kafka_cleanshutdown").exists()
    assert say("recover", "--apply", "--mark-clean", data)[0] == 4


def test_topic_id_option_settles_a_conflict(data: Path, say: Say) -> None:
    """The id that the metadata log has for the topic name replaces another one. Any other id is still refused."""
    name = unknown_id(data)
    wanted = ids(data)["metro-lz4"]
    assert say("recover", "--apply", "--topic-id", topic_id(3), data / name)[0] == 4
    assert say("recover", "--apply", "--topic-id", wanted, data / name)[0] == 0
    assert wanted in (data / name / FILE).read_text() and say("verify", data)[0] == 0


def test_topic_id_of_a_recreated_topic_name_is_not_guessed(data: Path, say: Say) -> None:
    """The topic was deleted and created again. Without the file it is unknown to which of the two the records belong."""
    made_again(data)
    (data / "stations-0" / FILE).unlink()
    status, rows = say("recover", "--apply", data / "stations-0")
    assert status == 1 and not (data / "stations-0" / FILE).exists()
    assert "the name was that of a deleted topic too" in reported(rows, "becomes-stray")["stations-0"]
    assert say("recover", "--apply", "--topic-id", topic_id(6), data / "stations-0")[0] == 0


@pytest.mark.evidence("topic-id-conflict")
def test_partition_with_the_id_of_another_topic_is_an_error(data: Path, say: Say) -> None:
    """A broker does not serve it (InconsistentTopicIdException), but renames nothing."""
    set_id(data / "fares-0", ids(data)["metro-gzip"])
    status, rows = say("verify", data)
    assert status == 1 and not reported(rows, "becomes-stray")
    assert set(reported(rows, "topic-id-conflict")) == {"fares-0"}
    assert "InconsistentTopicIdException" in reported(rows, "topic-id-conflict")["fares-0"]
    assert say("recover", "--apply", data / "fares-0")[0] == 1
    wanted = ids(data)["fares"]
    assert say("recover", "--apply", "--topic-id", wanted, data / "fares-0")[0] == 0
    assert say("verify", data)[0] == 0


# --- a partition that was being created


def unfinished(data: Path) -> Path:
    """The state after a broker was killed while it created `made-0`: it flushes partition.metadata before the first record."""
    append(data, *topic("made", topic_id(4), directories=["UsCu_Qd6HlJL_AROE7wUxg"]))
    (data / ".kafka_cleanshutdown").unlink()
    path = data / "made-0"
    path.mkdir()
    (path / f"{0:020}.log").touch()
    (path / f"{FILE}.tmp").write_text(f"version: 0\ntopic_id: {topic_id(4)}")
    return path


@pytest.mark.evidence("topic-id-known")
def test_partition_whose_creation_was_interrupted_has_lost_nothing(data: Path, say: Say) -> None:
    path = unfinished(data)
    for target in (data, path):
        status, rows = say("verify", target)
        assert status == 0 and not reported(rows, "becomes-stray")
        message = reported(rows, "replica-unfinished")["made-0"]
        assert "to made-0.…-stray and recreates made-0 empty; nothing is lost" in message
    assert say("recover", "--apply", data)[0] == 0
    assert topic_id(4) in (path / FILE).read_text()
    assert not reported(say("verify", data)[1], "replica-unfinished")


@pytest.mark.parametrize("sign", ["a checkpoint", "a record", "a segment in its place", "a snapshot"])
def test_emptied_partition_that_had_records_is_an_error(data: Path, say: Say, sign: str) -> None:
    path = unfinished(data)
    log = path / f"{0:020}.log"
    if sign == "a checkpoint":
        points = data / "recovery-point-offset-checkpoint"
        version, count, *entries = points.read_text().splitlines()
        points.write_text("\n".join((version, str(int(count) + 1), *entries, "made 0 7", "")))
    elif sign == "a record":
        log.write_bytes((data / "metro-none-0" / log.name).read_bytes())
    elif sign == "a segment in its place":
        log.rename(path / f"{7:020}.log")
    else:
        shutil.copy(next((data / "stations-0").glob("*.snapshot")), path / f"{7:020}.snapshot")
    status, rows = say("verify", data)
    assert status == 1 and set(reported(rows, "becomes-stray")) == {"made-0"}
    assert not reported(rows, "replica-unfinished")


# --- no false alarm


@pytest.mark.parametrize("damage", [lose_file, unknown_id, unknown_topic, unknown_partition])
def test_no_strays_are_reported_without_a_metadata_log(
    data: Path, say: Say, tmp_path: Path, damage: Callable[[Path], str]
) -> None:
    name = damage(data)
    alone = tmp_path / "alone" / name
    shutil.copytree(data / name, alone)
    shutil.rmtree(data / LOG)
    for target in (data, data / name, alone):
        status, rows = say("verify", target)
        assert status == 0 and not reported(rows, "becomes-stray")


def test_metadata_option_gives_a_lone_copy_its_topic_id(data: Path, say: Say, tmp_path: Path) -> None:
    name = lose_file(data)
    alone = tmp_path / "alone" / name
    shutil.copytree(data / name, alone)
    assert say("verify", alone)[0] == 0
    assert say("verify", "--metadata", data, alone)[0] == 1
    assert say("recover", "--apply", "--metadata", data / LOG, alone)[0] == 0
    assert (alone / FILE).exists()


@pytest.mark.parametrize("cut", [1, 60, 200])
def test_incomplete_metadata_log_proves_no_stray(data: Path, say: Say, cut: int) -> None:
    """An unknown topic may be defined after the damage, but a deleted topic does not return."""
    unknown_id(data), unknown_topic(data), unknown_partition(data)
    log = data / LOG / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-cut])
    _, rows = say("verify", data)
    assert not reported(rows, "becomes-stray") and reported(rows, "metadata-log-doubtful")


def test_deleted_topic_is_stray_even_with_a_damaged_metadata_log(data: Path, say: Say) -> None:
    name = removed_topic(data)
    with (data / LOG / f"{0:020}.log").open("ab") as log:
        log.write(b"\x01" * 30)
    _, rows = say("verify", data)
    assert set(reported(rows, "becomes-stray")) == {name}


def test_old_and_renamed_stray_directories_are_not_reported_as_strays(
    legacy_small: Path, data: Path, say: Say
) -> None:
    for version in ("0.9.0.1/2-compacted", "1.1.1/4-compacted", "0.7/1-written"):
        _, rows = say("verify", "--quick", legacy_small / "data" / version)
        assert not reported(rows, "becomes-stray")
    for suffix in ("stray", "delete"):
        (data / "metro-none-0").rename(data / f"metro-none-0.{'b' * 32}-{suffix}")
        _, rows = say("verify", data)
        assert not reported(rows, "becomes-stray")
        (data / f"metro-none-0.{'b' * 32}-{suffix}").rename(data / "metro-none-0")
