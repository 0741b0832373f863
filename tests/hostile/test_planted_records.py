"""Names in records may be anything: names of groups, members, topics, transactional ids, configurations. No command writes one to a
terminal unescaped or breaks a line at it, and the command suggested for a directory of any name can be pasted into a shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fixtures.diseases import bad_crc
from kseg.cli.main import run
from kseg.internal_topics.groups.group_records import CONSUMER_OFFSETS
from tests.hostile.test_planted_names import LOG, OWN_COLOURS, UNSEEN, on_terminal
from tests.internal_topics import metadata_logs as metadata
from tests.internal_topics.coordinator_logs import T0, batch, data_batch, key, value, write_segment
from tests.support.broker_dirs import broker_dir

NAMES = (
    *("line\nfeed", "escape\x1b[31m", "c1\x9b31m", "turned\u202egnp", "isolated\u2066x", "nothing\u200bthere", "tab\tx", "bell\x07"),
    *("null\0byte", "--apply", "quote'\"$(true)", "", "x" * 5000),
)  # fmt: skip
TRANSACTIONS = "__transaction_state"
COMMANDS = (
    *("verify", "doctor", "list --groups", "list --verbose", "recover", "compact", "retain --retention-ms 1"),
    *("groups", "groups --verbose", "groups --history", "transactions", "transactions --verbose"),
    *("metadata", "metadata --verbose", "metadata --history", "metadata --topic *", "metadata --kind config"),
    *("lookup --latest", "dump --format table", "what-if --codec none"),
)
DIRECTORY = os.fsdecode(b"a\n\x1b[31m \xffdir")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("records") / DIRECTORY / "data"
    metadata.write_meta_properties(data)
    made = [
        metadata.topic(name, metadata.topic_id(number))
        for number, name in enumerate(("fares", CONSUMER_OFFSETS, TRANSACTIONS, *NAMES), 5)
    ]
    settings = [[metadata.config(name, "retention.ms", "\x1b[31m7\n")] for name in NAMES]
    metadata.write_log(data / "__cluster_metadata-0", *made, *settings)
    _write_groups(data / f"{CONSUMER_OFFSETS}-0")
    _write_transactions(data / f"{TRANSACTIONS}-0")
    records = [(name.encode(), name.encode()) for name in NAMES]
    write_segment(data / "fares-0", batch(0, *records), data_batch(len(NAMES), 41, 3, count=2, at_ms=T0))
    other = broker_dir(data.parent.parent / "other", 1, 1)
    shutil.move(other / "orders.00-0", data / "fares-1")
    bad_crc(data / "fares-1" / LOG)
    return data


def _write_groups(directory: Path) -> None:
    records: list[tuple[bytes, bytes | None]] = []
    for name in NAMES:
        member: dict[str, object] = {
            "memberId": name,
            "groupInstanceId": name,
            "clientId": name,
            "clientHost": name,
        }
        member |= {"rebalanceTimeout": 60000, "sessionTimeout": 45000, "subscription": b"", "assignment": b""}
        fields: dict[str, object] = {
            "protocolType": "consumer",
            "generation": 7,
            "protocol": name,
            "leader": name,
        }
        group = value(CONSUMER_OFFSETS, 2, 3, **fields, currentStateTimestamp=T0, members=[member])
        records.append((key(CONSUMER_OFFSETS, 2, group=name), group))
        for offset, group_name, topic in ((9, name, "fares"), (3, name, "fares"), (7, f"of {name}", name)):
            commit: dict[str, object] = {
                "offset": offset,
                "leaderEpoch": -1,
                "metadata": name,
                "commitTimestamp": T0,
            }
            place = key(CONSUMER_OFFSETS, 1, group=group_name, topic=topic, partition=0)
            records.append((place, value(CONSUMER_OFFSETS, 1, 3, **commit)))
    records.append((key(CONSUMER_OFFSETS, 2, group="gone\x1b[31m"), None))
    write_segment(directory, *(batch(offset, each, at_ms=T0) for offset, each in enumerate(records)))


def _write_transactions(directory: Path) -> None:
    records = []
    for name in NAMES:
        state: dict[str, object] = {
            "producerId": 41,
            "producerEpoch": 3,
            "transactionTimeoutMs": 60000,
            "transactionStatus": 1,
        }
        state |= {"transactionLastUpdateTimestampMs": T0, "transactionStartTimestampMs": T0}
        partitions = [{"topic": topic, "partitionIds": [0]} for topic in (name, "fares")]
        state_value = value(TRANSACTIONS, 0, 1, **state, transactionPartitions=partitions)
        records.append((key(TRANSACTIONS, 0, transactionalId=name), state_value))
    write_segment(directory, *(batch(offset, each, at_ms=T0) for offset, each in enumerate(records)))


@pytest.mark.parametrize("command", COMMANDS)
def test_record_names_are_escaped_in_a_pipe(
    command: str, data: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    status = run([*command.split(), str(data)])
    # fails on bytes that are not UTF-8
    text = b"".join(capfdbinary.readouterr()).decode()
    assert status in (0, 1, 5), text
    assert not UNSEEN.search(text), UNSEEN.findall(text)
    assert "line\nfeed" not in text and "\t" not in text


@pytest.mark.parametrize("command", COMMANDS[::4])
def test_record_names_are_escaped_on_a_terminal(command: str, data: Path) -> None:
    _, shown = on_terminal([*command.split(), "--no-progress", str(data)])
    text = OWN_COLOURS.sub("", shown.decode("utf-8").replace("\r\n", "\n"))
    assert not UNSEEN.search(text), UNSEEN.findall(text)
    assert "line\nfeed" not in text


@pytest.mark.parametrize("command", ["verify", "doctor", "metadata", "recover", "transactions"])
def test_advised_commands_quote_record_names_for_a_shell(
    command: str, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run([command, str(data)])
    text = "".join(capfd.readouterr())
    advised = re.findall(r"kseg [a-z-]+ (?:-\S+ |[A-Za-z0-9_-]{22} )*(\$'(?:[^'\\]|\\.)*')", text)
    assert advised
    script = "for path in " + " ".join(advised) + '; do [ -e "$path" ] || exit 1; done'
    assert subprocess.run(["bash", "-c", script], check=False).returncode == 0, advised
