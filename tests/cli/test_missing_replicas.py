"""A missing partition directory: according to the metadata log the node has the replica, and a broker would create it again, empty."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from kseg.internal_topics.metadata import missing_replicas, replica_directories
from kseg.internal_topics.metadata.metadata_finder import MetadataFinder
from kseg.segment.diagnosis import MissingReplica
from tests.cli.test_known_topics import reported
from tests.internal_topics.metadata_logs import record, topic, topic_id
from tests.support.broker_dirs import broker_dir
from tests.support.command_lines import Say
from tests.support.known_topics import LOG, append, ids, set_id
from tests.support.lock_holders import child, running_broker
from tests.support.missing_replicas import KINDS, change, found_in, names, register
from tests.support.trees import unchanged


@pytest.mark.evidence("replica-missing")
@pytest.mark.parametrize("gone", [["fares-0"], ["gates-append-1"], ["__consumer_offsets-0", "stations-0"]])
def test_missing_partition_directory_is_an_error(data: Path, say: Say, gone: list[str]) -> None:
    """tests/kafka/test_strays.py shows what a broker does about it."""
    for name in gone:
        shutil.rmtree(data / name)
    with unchanged(data):
        for command in (("verify",), ("verify", "--quick"), ("list",)):
            status, rows = say(*command, data)
            assert (status, sorted(reported(rows, "replica-missing"))) == (1, gone)
    row = next(row for row in rows if row.get("id") == "replica-missing")
    assert row["severity"] == "error" and "recreates it empty" in row["message"]
    assert row["topic_id"] == ids(data)[row["topic"]]
    # the recovery points
    offsets = {"fares": 117, "gates-append": 30, "__consumer_offsets": 34}
    assert row["checkpointed_offset"] == offsets[row["topic"]]


@pytest.mark.evidence("replica-missing")
@pytest.mark.parametrize("keeps_id", [False, True])
@pytest.mark.parametrize("keeps_identity", [False, True])
def test_emptied_partition_directory_counts_as_missing(
    data: Path, say: Say, keeps_id: bool, keeps_identity: bool
) -> None:
    """tests/kafka/start_cases.py has the same case for a real broker: what is left is neither a log nor a replica."""
    for file in (data / "fares-0").iterdir():
        if not keeps_id or file.name != "partition.metadata":
            file.unlink()
    if not keeps_identity:
        (data / "meta.properties").unlink()
    start = (
        "starts it with an empty log"
        if keeps_id
        else "sets the directory aside as stray and recreates it empty"
    )
    with unchanged(data):
        for command in ("verify", "recover", "doctor"):
            status, rows = say(command, data)
            assert (status, set(reported(rows, "replica-missing"))) == (1, {"fares-0"})
            assert start in reported(rows, "replica-missing")["fares-0"]
    steps = [row["command"] for row in rows if row["type"] == "step"]
    assert any(step.startswith("find / -type d") and "fares-0" in step for step in steps)
    assert not any(step.startswith("kseg list") for step in steps)
    assert any("--cluster-id ID" in step for step in steps) is not keeps_identity
    assert not [row for row in rows if row["type"] == "damage"]


@pytest.mark.evidence("replica-missing")
def test_replicas_of_a_replaced_disk_are_missing(data: Path) -> None:
    """No log dir has its directory id, and the new one has an id that the node has not registered; tests/kafka/start_cases.py asks a
    broker. As long as another log dir may be elsewhere, nothing is reported."""
    shutil.copytree(data, old := data.parent / "old")
    properties = data / "meta.properties"
    properties.write_text(properties.read_text().replace("UsCu_Qd6HlJL_AROE7wUxg", topic_id(8)))
    # the old disk is beside it
    assert found_in(data) == {}
    shutil.rmtree(old)
    # all partitions are still here
    assert found_in(data) == {}
    shutil.rmtree(data / "fares-0")
    (finding,) = found_in(data)["replica-missing"]
    assert "log dir UsCu_Qd6HlJL_AROE7wUxg, which the node no longer has: at its" in finding.message
    register(data, "UsCu_Qd6HlJL_AROE7wUxg", topic_id(9))
    assert found_in(data) == {}


@pytest.mark.evidence("replica-missing")
def test_replicas_of_a_disk_removed_from_log_dirs_are_missing(data: Path) -> None:
    register(data, "UsCu_Qd6HlJL_AROE7wUxg", topic_id(9))
    change(data, "fares", replicas=[1], directories=[topic_id(9)])
    shutil.rmtree(data / "fares-0")
    assert found_in(data) == {}
    assert found_in(data, log_dirs=[data, data.parent / "unmounted"]) == {}
    assert names(found_in(data, log_dirs=[data])) == ["fares-0"]


def test_complete_directory_has_no_missing_replica(data: Path, say: Say) -> None:
    for command in ("verify", "list"):
        status, rows = say(command, data)
        assert status == 0 and not any(reported(rows, kind) for kind in KINDS)


def test_selected_topics_limit_the_check_for_missing_replicas(data: Path, say: Say) -> None:
    """If one topic or partition is selected, missing replicas of others are not checked."""
    shutil.rmtree(data / "fares-0")
    for words in ((data / "stations-0",), ("--topic", "stations", data)):
        status, rows = say("verify", *words)
        assert status == 0 and not reported(rows, "replica-missing")


def test_missing_replica_names_the_other_replicas(data: Path) -> None:
    shutil.rmtree(data / "fares-0")
    two: dict[str, Any] = {"replicas": [1, 2], "directories": ["UsCu_Qd6HlJL_AROE7wUxg", topic_id(5)]}
    change(data, "fares", isr=[1, 2], leader=2, **two)
    (finding,) = found_in(data)["replica-fetched-anew"]
    assert finding.severity == "warning" and "(node 2)" in finding.message
    none: dict[str, Any] = {"eligibleLeaderReplicas": [], "lastKnownElr": []}
    # the replica is fetched, whenever the broker starts
    change(data, "fares", isr=[2], leader=-1, **none)
    assert names(found_in(data), "replica-fetched-anew") == ["fares-0"]
    change(data, "fares", isr=[1, 2], leader=-1)
    (finding,) = found_in(data)["replica-missing"]
    assert finding.severity == "error" and "no node leads it, node 2 may lead as well" in finding.message
    change(data, "fares", isr=[1], leader=1)
    (finding,) = found_in(data)["replica-missing"]
    assert "node 2 are not in sync" in finding.message


def test_replica_never_created_is_not_an_error(data: Path) -> None:
    """The topic was created while this broker was down."""
    directory: dict[str, Any] = {"directories": ["UsCu_Qd6HlJL_AROE7wUxg"]}
    append(data, *topic("made-since", topic_id(4), **directory))
    assert names(found_in(data), "replica-unmade") == ["made-since-0"]
    # without it nothing indicates that the replica was never created
    (data / "recovery-point-offset-checkpoint").write_bytes(b"")
    assert names(found_in(data)) == ["made-since-0"]


@pytest.mark.usefixtures("no_pauses")
def test_topic_deleted_by_a_running_broker_is_not_missing(data: Path) -> None:
    """The broker writes the record first and then renames the directory, so the directory is missing only in an older image."""
    fares = ids(data)["fares"]

    def delete() -> None:
        append(data, record("RemoveTopicRecord", topicId=fares))
        (data / "fares-0").rename(data / f"fares-0.{'a' * 32}-delete")

    shutil.rmtree(data / "stations-0")
    with child(running_broker(data)) as broker:
        assert broker.output() == "in"
        assert names(found_in(data, meanwhile=delete)) == ["stations-0"]


@pytest.mark.usefixtures("no_pauses")
def test_topic_being_created_by_a_running_broker_is_not_missing(data: Path) -> None:
    """Under a new name, or under that of a topic that it has deleted in the meantime."""
    fares = ids(data)["fares"]
    here: dict[str, Any] = {"directories": ["UsCu_Qd6HlJL_AROE7wUxg"]}

    def create_again() -> None:
        append(data, record("RemoveTopicRecord", topicId=fares), *topic("fares", topic_id(4), **here))
        append(data, *topic("made-since", topic_id(5), **here))
        shutil.rmtree(data / "fares-0")

    with child(running_broker(data)) as broker:
        assert broker.output() == "in"
        assert found_in(data, meanwhile=create_again) == {}
        assert found_in(data) == {
            "replica-missing": ANY
        }  # the checkpoints still have the deleted topic's offset
    assert set(found_in(data)) == {"replica-missing", "replica-unmade"}


@pytest.mark.parametrize("suffix", ["future", "delete", "stray"])
def test_renamed_directories_beside_a_live_one_do_not_matter(data: Path, suffix: str) -> None:
    shutil.copytree(data / "fares-0", data / f"fares-0.{'a' * 32}-{suffix}")
    assert found_in(data) == {}


def test_future_log_replaces_a_missing_replica(data: Path) -> None:
    """A broker promotes the future log that is assigned to this directory, but does not use a stray one."""
    future, stray = (data / f"fares-0.{'a' * 32}-{suffix}" for suffix in ("future", "stray"))
    (data / "fares-0").rename(future)
    assert found_in(data) == {}
    future.rename(stray)
    (finding,) = found_in(data)["replica-missing"]
    assert f"{stray.name} was set aside" in finding.message
    assert isinstance(finding.diagnosis, MissingReplica) and finding.diagnosis.set_aside == str(stray)
    (stray / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(7)}")
    (finding,) = found_in(data)["replica-missing"]
    assert isinstance(finding.diagnosis, MissingReplica) and finding.diagnosis.set_aside is None


@pytest.mark.parametrize(
    ("renamed", "is_recognised"),
    [
        ("fares.old-0", True),
        ("fares-3", True),
        ("gates-append-0", True),
        ("fares-0.bak", True),
        ("fares-0 (copy)", True),
        ("old fares", True),
        ("fares-0.gone/fares", False),
    ],
)
def test_directory_renamed_by_hand_has_the_missing_log(data: Path, renamed: str, is_recognised: bool) -> None:
    """The directory is recognized by its topic id, even if it has the name of another topic's partition, or one that is not a
    partition's."""
    if (data / renamed).exists():
        shutil.rmtree(data / renamed)
    (data / renamed).parent.mkdir(exist_ok=True)
    (data / "fares-0").rename(data / renamed)
    finding = next(each for each in found_in(data)["replica-missing"] if each.path.endswith("fares-0"))
    assert isinstance(finding.diagnosis, MissingReplica)
    assert finding.diagnosis.set_aside == (str(data / renamed) if is_recognised else None)


def test_renamed_directories_are_told_apart_by_their_names(data: Path) -> None:
    """If two partitions of a topic have odd names, these distinguish them; of two copies it is unknown which one is the original."""
    for number in (0, 1):
        (data / f"gates-append-{number}").rename(data / f"gates-append-{number}.bak")
    found = {Path(each.path).name: each.diagnosis for each in found_in(data)["replica-missing"]}
    own = {name: each.set_aside for name, each in found.items() if isinstance(each, MissingReplica)}
    assert own == {f"gates-append-{number}": f"{data}/gates-append-{number}.bak" for number in (0, 1)}
    shutil.copytree(data / "gates-append-0.bak", data / "gates-append-0.old")
    (data / "gates-append-1.bak").rename(data / "gates-append-1")
    (finding,) = found_in(data)["replica-missing"]
    assert isinstance(finding.diagnosis, MissingReplica) and finding.diagnosis.set_aside is None


def test_directory_with_a_wrong_topic_id_is_not_missing(data: Path, say: Say) -> None:
    """Another finding reports that it becomes stray."""
    set_id(data / "fares-0", topic_id(9))
    assert found_in(data) == {}
    assert set(reported(say("verify", "--quick", data)[1], "becomes-stray")) == {"fares-0"}


@pytest.mark.parametrize("directories", [[topic_id(5)], ["AAAAAAAAAAAAAAAAAAAAAg"]])
def test_replica_assigned_to_another_log_dir_is_not_missing(data: Path, directories: list[str]) -> None:
    """It is assigned to another directory, or to a lost one, so this directory need not have it."""
    shutil.rmtree(data / "fares-0")
    change(data, "fares", directories=directories)
    assert found_in(data) == {}


def second_log_dir(data: Path, directory_id: str) -> Path:
    """A second log dir of the node, without its own metadata log."""
    other = data.parent / "data2"
    other.mkdir()
    text = (data / "meta.properties").read_text()
    (other / "meta.properties").write_text(text.replace("UsCu_Qd6HlJL_AROE7wUxg", directory_id))
    return other


def test_each_log_dir_lacks_only_its_assigned_replicas(data: Path, say: Say) -> None:
    """Alone or together, each log dir lacks only what is assigned to it. An unassigned replica may be in any of them."""
    other = second_log_dir(data, topic_id(5))
    partition_metadata = shutil.copy2(data / "stations-0" / "partition.metadata", data.parent)
    (data / "stations-0").rename(other / "stations-0")
    change(data, "stations", directories=[topic_id(5)])
    for targets in ((data,), (other,), (data, other), (data.parent,)):
        _, rows = say("verify", "--quick", *targets)
        assert not any(reported(rows, kind) for kind in KINDS), targets
    shutil.rmtree(other / "stations-0")
    assert found_in(data) == {} and names(found_in(other)) == ["stations-0"]
    change(data, "stations", directories=["AAAAAAAAAAAAAAAAAAAAAA"])
    register(data, "UsCu_Qd6HlJL_AROE7wUxg", topic_id(5))
    # the replica is unassigned and may be in either; one has it in its checkpoints
    assert names(found_in(data)) == ["stations-0"] and found_in(other) == {}
    shutil.copytree(data / "fares-0", other / "stations-0")
    shutil.copy2(partition_metadata, other / "stations-0")
    assert found_in(data) == {} and found_in(other) == {}
    shutil.rmtree(other / "stations-0")
    for checkpoint in data.glob("*-checkpoint"):
        lines = [line for line in checkpoint.read_text().splitlines()[2:] if not line.startswith("stations ")]
        checkpoint.write_text("\n".join(("0", str(len(lines)), *lines, "")))
    assert found_in(data) == {} and found_in(other) == {}


def test_replica_moved_between_log_dirs_is_not_missing(data: Path) -> None:
    """A broker loads the replica from the other directory and tells the controller. A copy of this directory does not count as another
    one."""
    partition_metadata = (data / "fares-0" / "partition.metadata").read_bytes()
    shutil.rmtree(data / "fares-0")
    shutil.copytree(data, data.parent / "copy")
    (data.parent / "copy" / "fares-0").mkdir()
    assert names(found_in(data)) == ["fares-0"]
    moved = second_log_dir(data, topic_id(5)) / "fares-0"
    moved.mkdir()
    # an empty directory is not a replica
    assert names(found_in(data)) == ["fares-0"]
    (moved / f"{0:020}.log").write_bytes(b"")
    # without its topic id a log becomes stray
    assert names(found_in(data)) == ["fares-0"]
    (moved / "partition.metadata").write_bytes(partition_metadata)
    assert found_in(data) == {}


@pytest.mark.parametrize("placed", ["AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ"])
def test_unassigned_replica_of_a_node_with_one_log_dir_is_missing(data: Path, placed: str) -> None:
    shutil.rmtree(data / "fares-0")
    change(data, "fares", directories=[placed])
    assert names(found_in(data)) == ["fares-0"]


META = "meta.properties"


def emptied(data: Path) -> None:
    (data / META).write_bytes(b"")


def garbage(data: Path) -> None:
    (data / META).write_bytes(bytes(range(255, 127, -1)))


def gone(data: Path) -> None:
    (data / META).unlink()


def without_node(data: Path) -> None:
    (data / META).write_text((data / META).read_text().replace("node.id=1\n", ""))


def zeros(data: Path) -> None:
    (data / META).write_bytes(bytes((data / META).stat().st_size))


LOST_PROPERTIES = [emptied, garbage, gone, without_node, zeros]


@pytest.mark.evidence("replica-missing")
@pytest.mark.parametrize("lose", LOST_PROPERTIES)
@pytest.mark.parametrize("missing", [["fares-0"], ["__consumer_offsets-0", "stations-0"]])
def test_lost_meta_properties_hides_no_missing_replica(
    data: Path, say: Say, lose: Callable[[Path], None], missing: list[str]
) -> None:
    """The metadata log tells to which node and directory the remaining partitions belong."""
    lose(data)
    before = [reported(say(command, data)[1], kind) for command in ("verify", "recover") for kind in KINDS]
    assert not any(before)
    for name in missing:
        shutil.rmtree(data / name)
    for command in ("verify", "recover"):
        status, rows = say(command, data)
        assert (status, sorted(reported(rows, "replica-missing"))) == (1, missing)
    status, rows = say("metadata", data)
    named = sorted(Path(str(row["path"])).name for row in rows if row.get("status") == "missing")
    assert (status, named) == (1, missing)


def test_log_dir_without_any_partitions_lacks_all_replicas(data: Path) -> None:
    emptied(data)
    for path in data.glob("*-[0-9]*"):
        if path.name != LOG:
            shutil.rmtree(path)
    assert "fares-0" in names(found_in(data))


@pytest.mark.parametrize("lose", LOST_PROPERTIES)
def test_metadata_log_in_another_log_dir_is_used_for_missing_replicas(
    data: Path, lose: Callable[[Path], None]
) -> None:
    """The second log dir is identified by its partitions; the first one has the metadata log and its own directory id."""
    other = second_log_dir(data, topic_id(5))
    register(data, "UsCu_Qd6HlJL_AROE7wUxg", topic_id(5))
    for name in ("stations", "fares"):
        (data / f"{name}-0").rename(other / f"{name}-0")
        change(data, name, directories=[topic_id(5)])
    lose(other)
    assert found_in(other) == found_in(data) == {}
    shutil.rmtree(other / "fares-0")
    assert found_in(data) == {} and names(found_in(other)) == ["fares-0"]
    shutil.rmtree(other / "stations-0")
    # nothing that identifies the directory is left
    if lose is not without_node:
        assert MetadataFinder([str(other)]).image_for(str(other)) is None


def test_copy_from_another_node_does_not_outvote_the_rest(data: Path) -> None:
    """A second node has other partitions, one of which was copied here."""
    made: dict[str, Any] = {"replicas": [2], "isr": [2], "leader": 2, "directories": [topic_id(6)]}
    node = record(
        "RegisterBrokerRecord", brokerId=2, incarnationId=topic_id(7), brokerEpoch=200, logDirs=[topic_id(6)]
    )
    append(data, node, *topic("aaa", topic_id(4), **made))
    shutil.copytree(data / "fares-0", data / "aaa-0")
    set_id(data / "aaa-0", topic_id(4))
    shutil.rmtree(data / "fares-0")
    emptied(data)
    assert names(found_in(data)) == ["fares-0"]


def test_two_nodes_with_equal_partitions_report_no_missing_replica(data: Path) -> None:
    """Both nodes have a replica of each partition, so nothing tells which of them this is."""
    node = record(
        "RegisterBrokerRecord", brokerId=2, incarnationId=topic_id(7), brokerEpoch=200, logDirs=[topic_id(6)]
    )
    append(data, node)
    for path in data.glob("*-[0-9]*"):
        name, _, number = path.name.rpartition("-")
        if name in ids(data):
            both: dict[str, Any] = {
                "replicas": [1, 2],
                "directories": ["UsCu_Qd6HlJL_AROE7wUxg", topic_id(6)],
            }
            change(data, name, int(number), isr=[1, 2], **both)
    shutil.rmtree(data / "fares-0")
    emptied(data)
    assert found_in(data) == {}


def test_doubtful_evidence_reports_no_missing_replica(data: Path) -> None:
    shutil.rmtree(data / "fares-0")
    assert names(found_in(data)) == ["fares-0"]
    log = data / LOG / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-60])
    assert found_in(data) == {}


# --- what recover says


def test_each_directory_is_read_once_for_any_number_of_missing_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kseg used to read every directory again for each missing replica, which took minutes with thousands of each."""
    data = broker_dir(tmp_path / "data", 2, 6)
    for number in (1, 3, 5):
        shutil.rmtree(data / f"orders.00-{number}")
    (data / "orders.01-4").rename(data / "orders.old-4")
    read: Counter[str] = Counter()
    whole = replica_directories.topic_id_of

    def counted(directory: str) -> replica_directories.TopicIdFile:
        read[Path(directory).name] += 1
        return whole(directory)

    for module in (missing_replicas, replica_directories):
        monkeypatch.setattr(module, "topic_id_of", counted)
    found = found_in(data)["replica-missing"]
    own = {
        Path(each.path).name: each.diagnosis.set_aside
        for each in found
        if isinstance(each.diagnosis, MissingReplica)
    }
    assert own == {
        **dict.fromkeys(["orders.00-1", "orders.00-3", "orders.00-5"]),
        "orders.01-4": str(data / "orders.old-4"),
    }
    assert set(read.values()) == {1}
