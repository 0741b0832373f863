"""`kseg doctor`: it reports what the commands that it combines report, and its steps work exactly as printed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from fixtures.diseases import bad_crc, torn_tail
from kseg.cli.main import run
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.java.uuids import uuid_text
from kseg.segment.partition.names import METADATA_DIRECTORY
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.internal_topics import metadata_logs as metadata
from tests.internal_topics.coordinator_logs import batch, data_batch, write_segment
from tests.kafka.random_logs import resealed
from tests.support import trees
from tests.support.broker_dirs import broker_dir
from tests.support.command_lines import Capfd
from tests.support.command_rows import of_type, rows_of
from tests.support.doctor_helpers import NOW, beside, commands, doctor, text_of
from tests.support.group_dirs import broker, commit
from tests.support.known_topics import append
from tests.support.lock_holders import child, running_broker
from tests.support.lock_holders import run as run_of
from tests.support.transaction_dirs import LATER, PID, STATE, transaction, write_state
from tests.support.verify_helpers import judge

FIRST, ACTIVE = f"{0:020d}.log", f"{297:020d}.log"
PAGE = 60


def test_doctor_has_no_steps_for_an_undamaged_directory(tmp_path: Path, capfd: Capfd) -> None:
    data = broker_dir(tmp_path / "data", 2, 3, running=False)
    with trees.unchanged(data):
        rows = doctor(capfd, data, status=0)
        text = text_of(capfd, data)
    assert text[0].startswith("SOUND: no errors in 7 partitions") and text[0].endswith("a broker starts")
    assert text[-1] == "nothing to do"
    assert [row["type"] for row in rows[:2]] == ["log_dir", "node"]
    assert rows[0]["clean_shutdown"] is True and rows[0]["broker_running"] is False
    status = os.statvfs(data)
    assert rows[0]["total_bytes"] == status.f_blocks * status.f_frsize
    assert rows[0]["mount_point"] and os.path.ismount(rows[0]["mount_point"])
    assert rows[1]["cluster_id"] == metadata.CLUSTER and rows[1]["node_id"] == 1
    assert not of_type(rows, "step") and not of_type(rows, "damage")


def test_missing_clean_shutdown_marker_of_a_controller_needs_no_step(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """Observed: 3.9.1 and 4.3.1 with process.roles=controller leave these files after a clean stop."""
    data = tmp_path / "data"
    shutil.copytree(capture_small / "data" / METADATA_DIRECTORY, data / METADATA_DIRECTORY)
    properties = (capture_small / "data" / "meta.properties").read_text()
    (data / "meta.properties").write_text(properties.replace("node.id=1", "node.id=3000"))
    (row, *_) = doctor(capfd, data, status=0)
    assert row["clean_shutdown"] is None
    assert "  no broker is running" in text_of(capfd, data)
    assert judge(data).of("unclean-shutdown") == []
    # a broker creates the file when it starts
    (data / "replication-offset-checkpoint").touch()
    assert doctor(capfd, data, status=0)[0]["clean_shutdown"] is False
    assert judge(data).of("unclean-shutdown") != []


def _damaged(data: Path) -> None:
    bad_crc(data / "orders.01-2" / FIRST)
    torn_tail(data / "orders.00-1" / ACTIVE)


def test_doctor_reports_what_verify_and_recover_report(tmp_path: Path, capfd: Capfd) -> None:
    data = broker_dir(tmp_path / "data", 2, 3)
    _damaged(data)
    with trees.unchanged(data):
        rows = doctor(capfd, data, status=1)
        verified = rows_of(capfd, "verify", *NOW, data, status=1)
        planned = rows_of(capfd, "recover", *NOW, data, status=1)
    for kind in ("finding", "verified", "broker-start"):
        assert of_type(rows, kind) == of_type(verified, kind)
    costs = {row["partition"]: row["costs"] for row in of_type(planned, "result") if "partition" in row}
    damage = {row["partition"]: row["costs"] for row in of_type(rows, "damage")}
    assert damage == {name: costs[name] for name in ("orders.00-1", "orders.01-2")}
    assert damage["orders.01-2"]["salvage"]["records"] > 0
    counts = {row["partition"]: sum(row["findings"].values()) for row in of_type(rows, "damage")}
    assert sum(counts.values()) == of_type(rows, "summary")[0]["errors"]


def test_largest_losses_of_many_partitions_come_first_with_the_total(tmp_path: Path, capfd: Capfd) -> None:
    data = broker_dir(tmp_path / "data", 3, 4)
    partitions = sorted(data.glob("orders.*"))
    for partition in partitions:
        torn_tail(partition / ACTIVE)
    bad_crc(partitions[-1] / ACTIVE)
    rows = of_type(doctor(capfd, data, status=1), "damage")
    assert [row["partition"] for row in rows] == [partition.name for partition in partitions]
    lost = {
        policy: sum(row["costs"][policy]["records"] for row in rows if row["costs"][policy]["records"])
        for policy in ("salvage", "kafka")
    }
    unknown = [row["partition"] for row in rows if row["costs"]["salvage"]["records"] is None]
    text = text_of(capfd, data)
    at = text.index("what the damage costs:")
    costs = text[at + 1 : at + 11]
    assert costs[0].startswith(f"  {partitions[-1].name}: `recover")
    assert costs[8] == "  … and 4 more (--verbose shows all)"
    assert unknown == [] and lost["salvage"] < lost["kafka"]
    assert costs[9] == (
        f"  all 12: with `recover`, {lost['salvage']} records lost; without a repair, {lost['kafka']} records lost"
    )


def test_log_start_beyond_the_log_end_costs_all_records(data: Path, capfd: Capfd) -> None:
    (data / "log-start-offset-checkpoint").write_text("0\n1\nfares 0 5000\n")
    assert run(["doctor", str(data)]) == 1
    cost = "what the damage costs:\n  fares-0: `recover` loses nothing; a broker loses 89 records\n"
    assert cost in capfd.readouterr().out


def test_following_the_steps_of_doctor_leaves_nothing_to_do(tmp_path: Path, capfd: Capfd) -> None:
    data = broker_dir(tmp_path / "a data dir", 2, 3)
    _damaged(data)
    steps = commands(doctor(capfd, data, status=1))
    assert [shlex.split(step)[:3] for step in steps] == [
        ["kseg", "recover", str(data)],
        ["kseg", "recover", "--apply"],
        ["kseg", "doctor", str(data)],
    ]
    assert [run([*shlex.split(step)[1:], *NOW]) for step in steps] == [1, 0, 0]


def test_first_step_stops_a_running_broker(tmp_path: Path, capfd: Capfd) -> None:
    data = broker_dir(tmp_path / "data", 1, 2)
    bad_crc(data / "orders.00-1" / FIRST)

    with child(running_broker(data)) as other:
        process_id = other.pid
        assert other.output() == "in"
        rows = doctor(capfd, data, status=1)
        text = "\n".join(text_of(capfd, data))
    assert rows[0]["broker_running"] is True and rows[0]["broker_process_id"] == process_id
    assert f"A BROKER IS RUNNING here (process {process_id})" in text
    assert commands(rows)[0] == "kafka-server-stop.sh --node-id 1"
    # the lock is held by kseg, which kafka-server-stop.sh must not stop
    with child(run_of(data)) as other:
        assert other.output() == "in"
        rows = doctor(capfd, data, status=1)
    assert rows[0]["broker_running"] is False
    assert commands(rows) == commands(doctor(capfd, data, status=1))
    assert commands(rows)[0].startswith("kseg recover")


def test_first_step_undoes_an_unfinished_change(tmp_path: Path, capfd: Capfd) -> None:
    data = broker_dir(tmp_path / "data", 1, 2)
    bad_crc(data / "orders.00-1" / FIRST)
    assert run(["recover", "--apply", "--quiet", *NOW, str(data / "orders.00-1")]) == 0
    journals = list((data / "orders.00-1").rglob("journal*"))
    assert len(journals) == 1
    lines = journals[0].read_bytes().splitlines(keepends=True)
    # as if killed before its last line
    journals[0].write_bytes(b"".join(lines[:-1]))
    rows = doctor(capfd, data, status=1)
    words = [shlex.split(step)[:2] for step in commands(rows)]
    assert words == [["kseg", "undo"], ["kseg", "doctor"]]


def test_doctor_counts_leftovers_by_kind(tmp_path: Path, capfd: Capfd) -> None:
    data = broker_dir(tmp_path / "data", 1, 3, running=False)
    partition = data / "orders.00-0"
    for name, size in (
        (f"{7:020}.log.deleted", 100),
        (f"{7:020}.index.deleted", 8),
        (f"{0:020}.log.cleaned", 5),
    ):
        (partition / name).write_bytes(bytes(size))
    gone = data / f"gone-0.{'ab' * 16}-delete"
    gone.mkdir()
    (gone / FIRST).write_bytes(bytes(32))
    stray = shutil.copytree(partition, data / f"orders.00-9.{'cd' * 16}-stray")
    stray_bytes = sum(path.stat().st_size for path in stray.iterdir())
    rows = doctor(capfd, "--quick", data, status=0)
    assert {row["kind"]: (row["count"], row["bytes"]) for row in of_type(rows, "leftovers")} == {
        "deleted files": (2, 108),
        "unfinished cleaning": (1, 5),
        "deleted partitions": (1, 32),
        "stray partitions": (1, stray_bytes),
    }


def test_doctor_reports_hanging_transactions_and_offsets_beyond_the_log(tmp_path: Path, capfd: Capfd) -> None:
    """The printed commands contain a listener of the cluster, so they work as they are."""
    data = broker(tmp_path, batch(0, commit(4), commit(99, "late group")))
    shutil.rmtree(data / "__cluster_metadata-0")
    metadata.write_log(
        data / "__cluster_metadata-0",
        metadata.topic("fares", metadata.topic_id(5), 1),
        metadata.topic("orders", metadata.topic_id(7), 1),
        metadata.topic(STATE, metadata.topic_id(8), 1),
        metadata.topic("__consumer_offsets", metadata.topic_id(6), 1),
        [
            metadata.record(
                "RegisterBrokerRecord",
                brokerId=1,
                brokerEpoch=5,
                endPoints=[
                    {"name": "SSL", "host": "broker1", "port": 9093, "securityProtocol": 1},
                    {"name": "PLAIN", "host": "broker1", "port": 9092, "securityProtocol": 0},
                ],
            )
        ],
    )
    write_segment(data / "orders-0", batch(0, *[(b"k", b"v")] * 5), data_batch(5, PID, 0, count=2))
    write_state(data, transaction("payments", partitions=[("fares", 0)]))
    rows = rows_of(capfd, "doctor", "--now", LATER, data, status=1)
    hanging = rows_of(capfd, "transactions", "--now", LATER, data, status=1)
    hangs = [row for row in of_type(hanging, "transaction") if row["status"] == "hanging"]
    assert len(hangs) == 1 and of_type(rows, "transaction") == hangs
    offsets = of_type(rows, "offset")
    assert [(row["group"], row["offset"], row["status"]) for row in offsets] == [
        ("late group", 99, "beyond-log-end")
    ]
    assert of_type(rows, "node")[0]["bootstrap_server"] == "broker1:9092"
    abort = hangs[0]["abort_command"].replace("HOST:PORT", "broker1:9092")
    assert abort in commands(rows)
    reset = shlex.split(commands(rows)[-1])
    assert reset[0] == "kafka-consumer-groups.sh" and "late group" in reset and "fares:0" in reset
    # not to the log end at the time when it is typed in: producers may have appended records that the group has not read
    assert reset[reset.index("--to-offset") + 1] == str(offsets[0]["log_end_offset"])

    # the other replica has the same transaction, which is aborted once
    other = shutil.copytree(data, tmp_path / "other")
    metadata.write_meta_properties(other, node=2, directory="AsCu_Qd6HlJL_AROE7wUxg")
    both = rows_of(capfd, "doctor", "--now", LATER, data, other, status=1)
    assert len(of_type(both, "transaction")) == 2 and commands(both).count(abort) == 1


def test_doctor_advises_no_reset_for_an_offset_in_the_repaired_log(data: Path, capfd: Capfd) -> None:
    """Batches of another topic follow the log end and start at offset 0 again, so the log seems to end there. Resetting the group to that
    end would skip records that it has not read, because after step 2 the log has all of them."""
    (last, foreign) = (max((data / name).glob("*.log")) for name in ("metro-zstd-0", "gates-append-1"))
    with last.open("ab") as stream:
        stream.write(foreign.read_bytes())
    rows = doctor(capfd, data, status=1)
    assert "offset-not-monotonic" in {row["id"] for row in of_type(rows, "finding")}
    assert not of_type(rows, "offset")
    assert not any(step.startswith("kafka-consumer-groups.sh") for step in commands(rows))
    assert run(["recover", "--apply", "--quiet", str(data)]) == 0
    assert not of_type(doctor(capfd, data, status=0), "step")


def test_doctor_corrects_a_wrong_node_id(tmp_path: Path, capfd: Capfd) -> None:
    """With the wrong node id all partitions look stray. The step corrects it."""
    data = broker_dir(tmp_path / "data", 1, 2)
    metadata.write_log(
        data / "__cluster_metadata-0",
        metadata.topic("orders.00", uuid_text(bytes([1, 0] + [9] * 14)), 2),
        [
            metadata.record(
                "RegisterBrokerRecord", brokerId=1, brokerEpoch=5, logDirs=[metadata.DIRECTORY], endPoints=[]
            )
        ],
        [metadata.config("orders.00", "retention.ms", "-1")],
    )
    assert not any(step.startswith("sed ") for step in commands(doctor(capfd, data, status=0)))
    file = data / "meta.properties"
    right = file.read_text()
    file.write_text(right.replace("node.id=1", "node.id=7"))
    rows = doctor(capfd, data, status=1)
    assert {row["id"] for row in of_type(rows, "finding") if row["severity"] == "error"} == {"becomes-stray"}
    assert not any("--topic-id" in row["message"] for row in of_type(rows, "finding"))
    mend, again = of_type(rows, "step")
    assert "says node 7" in mend["why"] and "belongs to node 1:" in mend["why"]
    subprocess.run(mend["command"], shell=True, check=True)
    assert file.read_text() == right
    assert again["command"].startswith("kseg doctor")
    (data / "meta.properties.before").unlink()
    assert not commands(doctor(capfd, data, status=0))


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "gone"])
def test_doctor_asks_for_the_values_of_a_lost_meta_properties(
    is_there: bool, data: Path, capfd: Capfd
) -> None:
    """`recover` does not write meta.properties without these values, so following the advice of `recover` alone would never end."""
    properties = data / "meta.properties"
    before = dict(line.split("=", 1) for line in properties.read_text().splitlines() if line[0] != "#")
    if is_there:
        properties.write_bytes(b"")
    else:
        properties.unlink()
    rows = doctor(capfd, data, status=1)
    assert all(step["due"] for step in of_type(rows, "step"))
    plan, repair, again = commands(rows)
    assert text_of(capfd, data)[0].startswith("DAMAGED: " if is_there else "SOUND FILES in ")
    assert text_of(capfd, data)[0].endswith("; a 4.3.1 broker does not start")
    assert (plan, again) == (f"kseg recover {data}", f"kseg doctor {data}")
    values = {"N": before["node.id"], "ID": before["cluster.id"], "UUID": before["directory.id"]}
    words = [values.get(word, word) for word in shlex.split(repair)]
    assert words.count(before["cluster.id"]) == 1
    assert run(words[1:]) == 0
    assert commands(doctor(capfd, data, status=0)) == []
    after = dict(line.split("=", 1) for line in properties.read_text().splitlines() if line[0] != "#")
    assert after == before


def test_second_directory_without_meta_properties_takes_values_of_the_first(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """Only the directory's own id is asked for, and its partitions are not reported as missing in the first. Given this directory alone,
    the same command used to repair nothing."""
    data, second = beside(capture_small, tmp_path, "fares-0")
    shutil.rmtree(data / "fares-0")
    (second / "meta.properties").unlink()
    rows = doctor(capfd, data, second, status=1)
    assert {row["id"] for row in of_type(rows, "finding") if row["severity"] != "info"} == {
        "meta-properties-missing"
    }
    _, repair, _ = commands(rows)
    assert shlex.split(repair)[2:] == ["--apply", "--directory-id", "UUID", str(second), str(data)]
    assert run(shlex.split(repair.replace("UUID", "AsCu_Qd6HlJL_AROE7wUxg"))[1:]) == 0
    assert not commands(doctor(capfd, data, second, status=0))


def test_log_that_no_repair_makes_loadable_is_moved_out(tmp_path: Path, capfd: Capfd) -> None:
    """The log has a control batch with a valid CRC whose records cannot be decompressed with its codec. After a clean shutdown a broker
    does not read it."""
    data = broker_dir(tmp_path / "a data dir", 1, 2)
    marker = EndTransactionMarker(is_abort=False, coordinator_epoch=0, timestamp_ms=1_700_000_331_000)
    batch_bytes = encode_batch(end_transaction_batch(marker, 330, 4000, 1, 5))
    with (data / "orders.00-1" / ACTIVE).open("ab") as log:
        log.write(resealed(batch_bytes, {21: b"\0\x31"}))
    rows = doctor(capfd, data, status=1)
    assert of_type(rows, "broker-start")[0]["outcome"] == "does-not-start"
    assert run(["recover", "--apply", "--mark-clean", "--quiet", *NOW, str(data)]) == 4, "no way out"
    capfd.readouterr()
    for words in (["verify"], ["recover", "--apply"]):
        assert run([*words, *NOW, str(data)]) == 1
        assert f"next: kseg doctor {shlex.quote(str(data))}" in capfd.readouterr().out.splitlines()
    rows = doctor(capfd, data, status=1)
    steps = of_type(rows, "step")
    assert [step["command"].split()[0] for step in steps] == ["kseg", "mv", "kseg"]
    assert "fails on orders.00-1" in steps[1]["why"]
    assert run([*shlex.split(steps[0]["command"])[1:], "--quiet"]) in (0, 1)
    subprocess.run(steps[1]["command"], shell=True, check=True)
    assert (tmp_path / "a data dir-orders.00-1" / ACTIVE).exists()
    after = rows_of(capfd, *shlex.split(steps[2]["command"])[1:], *NOW)
    (start,) = of_type(after, "broker-start")
    assert start["outcome"] != "does-not-start" and not start["partitions_failed"]


def test_doctor_advises_no_repair_that_changes_nothing(data: Path, tmp_path: Path, capfd: Capfd) -> None:
    """Only the metadata log has the lost topic id of a partition. Plan and repair used to be advised all the same, again and again. They
    are advised if another partition can be repaired."""
    (data / "fares-0" / "partition.metadata").write_bytes(b"")
    (data / METADATA_DIRECTORY).rename(tmp_path / "aside")
    rows = doctor(capfd, data, status=1)
    (damage,) = of_type(rows, "damage")
    steps = [step for step in of_type(rows, "step") if step["due"]]
    assert [step["command"] for step in steps] == [f"kseg verify {data}/fares-0", f"kseg doctor {data}"]
    assert "has no readable topic id" in steps[0]["why"] and damage["doubt"]
    bad_crc(data / "metro-none-0" / FIRST)
    assert f"kseg recover --apply {data}" in commands(doctor(capfd, data, status=1))


def test_replica_that_may_never_have_existed_needs_no_repair(data: Path, capfd: Capfd) -> None:
    append(data, *metadata.topic("new", metadata.topic_id(4), directories=["UsCu_Qd6HlJL_AROE7wUxg"]))
    rows = doctor(capfd, data, status=0)
    assert "replica-unmade" in {row["id"] for row in of_type(rows, "finding")} and not commands(rows)


@pytest.mark.slow
def test_doctor_text_fits_one_page_for_any_amount_of_damage(tmp_path: Path, capfd: Capfd) -> None:
    data = broker_dir(tmp_path / "data", 4, 30)
    for partition in sorted(data.glob("orders.0[12]-*")):
        bad_crc(partition / FIRST)
        (partition / "leader-epoch-checkpoint").unlink()
    shutil.rmtree(data / "orders.03-7")
    (data / "recovery-point-offset-checkpoint").write_bytes(b"no checkpoint")
    text = text_of(capfd, data)
    assert text[0].startswith("DAMAGED: ")
    assert len(text) <= PAGE, len(text)
    assert any("and 52 more" in line for line in text), "the others are counted"


@pytest.mark.parametrize("kind", ["partition", "file"])
def test_doctor_accepts_a_partition_or_a_file(tmp_path: Path, capfd: Capfd, kind: str) -> None:
    data = broker_dir(tmp_path / "data", 1, 2)
    partition = data / "orders.00-1"
    bad_crc(partition / FIRST)
    rows = doctor(capfd, partition if kind == "partition" else partition / FIRST, status=1)
    assert [row["id"] for row in of_type(rows, "finding") if row["severity"] == "error"] == ["bad-crc"]
    assert commands(rows)[0] == f"kseg recover {partition}"


def test_doctor_reports_unreadable_paths(tmp_path: Path, capfd: Capfd) -> None:
    assert run(["doctor", str(tmp_path / "nowhere")]) == 3
    assert "No such file or directory" in capfd.readouterr().err
    assert run(["doctor", "--quick", "--deep", str(tmp_path)]) == 2


@pytest.mark.parametrize("is_inside", [False, True])
def test_doctor_moves_out_directories_that_prevent_a_start(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capfd, is_inside: bool
) -> None:
    """The printed commands work beside the data directory and inside it, and a broker starts afterwards."""
    (data / "a copy").mkdir()
    (data / "a copy" / "kept").write_text("kept")
    (data / "lost+found").mkdir()
    monkeypatch.chdir(data if is_inside else tmp_path)
    target = "." if is_inside else data.name
    steps = rows_of(capfd, "doctor", *NOW, target, status=1)
    commands = [row["command"] for row in steps if row["type"] == "step"]
    assert commands[-1] == f"kseg doctor {target}" and len(commands) == 3
    for command in commands[:-1]:
        subprocess.run(shlex.split(command), check=True)
    assert (tmp_path / f"{data.name}-a copy" / "kept").read_text() == "kept"
    assert run(["doctor", "--json", target]) == 0


def test_directory_named_like_another_topic_gets_its_own_name_back(
    capture_small: Path, tmp_path: Path, capfd: Capfd
) -> None:
    """It does not get the topic id of the other topic, whose records would then be mixed with its own."""
    data = Path(shutil.copytree(capture_small / "data", tmp_path / "node" / "data"))
    (data / "gates-append-0").rename(tmp_path / "gates-append-0")
    (data / "fares-0").rename(data / "gates-append-0")
    found = commands(doctor(capfd, data, status=1))
    assert f"mv -T {data}/gates-append-0 {data}/fares-0" in found
    assert not any("--topic-id" in command for command in found)


def test_last_step_of_doctor_repeats_the_given_options(data: Path, tmp_path: Path, capfd: Capfd) -> None:
    """Without server.properties, the second examination would not find that a directory of log.dirs is missing."""
    torn_tail(max((data / "fares-0").glob("*.log")))
    properties = tmp_path / "server.properties"
    properties.write_text(f"node.id=1\nlog.dirs={data},{tmp_path / 'missing'}\n")
    rows = rows_of(capfd, "doctor", "--server-properties", properties, data, status=1)
    again = [each for each in commands(rows) if each.startswith("kseg doctor")]
    assert again == [f"kseg doctor --server-properties {properties} {data}"]
