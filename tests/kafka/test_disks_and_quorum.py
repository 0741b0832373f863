"""`kseg metadata` and `kseg list` on log dirs, voters and delegation tokens, compared with a real broker that has a dynamic quorum and two
log dirs: the answers of Admin's describeLogDirs, describeMetadataQuorum and describeDelegationToken at the same moment."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.java.uuids import uuid_bytes
from tests.kafka.broker import Broker, copy_tree_in_use, free_ports
from tests.kafka.cluster_admin import ClusterAdmin
from tests.kafka.conftest import require_kafka
from tests.kafka.metadata_truth import Row, rows_of
from tests.kafka.test_metadata_quorum import LOG, DynamicBroker

pytestmark = pytest.mark.kafka

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
TOKEN = (
    *("token_id", "owner", "requester", "renewers"),
    *("issue_timestamp", "max_timestamp", "expiration_timestamp"),
)


@dataclass
class Moment:
    """A copy of both log dirs of a running broker, and Admin's answer at that time."""

    copy: Path
    reported: dict[str, Any]


class AuthenticatedBroker(DynamicBroker):
    """A broker whose listener authenticates its clients: only such clients may have delegation tokens."""

    def _differing(self, usual: dict[str, str]) -> dict[str, str | None]:
        (port,) = free_ports(1)
        self.authenticated = f"127.0.0.1:{port}"
        more = f",SASL_PLAINTEXT://{self.authenticated}"
        return {
            **super()._differing(usual),
            "listeners": usual["listeners"] + more,
            "advertised.listeners": usual["advertised.listeners"] + more,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_alice="alice-secret";',
        }


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Moment]]:
    require_kafka()
    root = tmp_path_factory.mktemp("disks")
    data = root / "data"
    broker = AuthenticatedBroker(
        root / "broker",
        data / "a",
        log_dirs=f"{data / 'a'},{data / 'b'}",
        delegation_token_secret_key="the-master-key",
    )
    with broker:
        admin = ClusterAdmin(
            broker.authenticated,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_jaas_config=f'{PLAIN} username="alice" password="alice-secret";',
        )
        yield list(_live(broker, admin, root))
        admin.close()


def _live(broker: Broker, admin: ClusterAdmin, root: Path) -> Iterator[Moment]:
    producer = broker.producer(compression_type="none")
    for topic in ("fares", "rides"):
        broker.create_topic(topic, 3)
        for number in range(300):
            producer.produce(topic, value=b"v" * number, partition=number % 3)
    producer.flush()
    for renewer in ("User:bob", "User:carol"):
        admin.do("token", renewer, 3_600_000)
    admin.do("config", "BROKER", "1", {"cordoned.log.dirs": str(root / "data" / "b")})
    yield _moment(broker, admin, root / "first", {"bob", "carol"}, root / "data" / "b")
    admin.do("end-token", 0)
    admin.do("token", "User:dora", 7_200_000)
    # created in the log dir that is not cordoned
    broker.create_topic("late", 4)
    admin.do("config", "BROKER", "1", {"cordoned.log.dirs": str(root / "data" / "a")})
    yield _moment(broker, admin, root / "second", {"carol", "dora"}, root / "data" / "a")


def _moment(broker: Broker, admin: ClusterAdmin, copy: Path, renewers: set[str], cordoned: Path) -> Moment:
    """A copy made when the broker knows its tokens and has told the controller which log dirs are cordoned, and during which nothing
    changed."""
    reported: dict[str, Any] = {}

    def is_settled() -> bool:
        shutil.rmtree(copy, ignore_errors=True)
        before = admin.do("describe-more")
        copy_tree_in_use(cordoned.parent, copy)
        reported.update(admin.do("describe-more"))
        metadata = b"".join(path.read_bytes() for path in sorted((copy / "a" / LOG).glob("*.log")))
        is_known = {name for row in reported["tokens"] for name in row["renewers"]} == {
            f"User:{name}" for name in renewers
        }
        # tag 3 of BrokerRegistrationChangeRecord, 17 bytes: a list with one element
        is_noted = b"\3\x11\2" + uuid_bytes(_identity(cordoned)) in metadata
        return reported == before and is_known and is_noted and reported["cordoned"] == [str(cordoned)]

    broker.wait_for("a settled copy", is_settled)
    return Moment(copy, reported)


def _identity(log_dir: Path) -> str:
    lines = (log_dir / "meta.properties").read_text().splitlines()
    return next(line.removeprefix("directory.id=") for line in lines if line.startswith("directory.id="))


def _assert_reported(moment: Moment, rows: Sequence[Row]) -> None:
    """The tokens, cordoned directories and voters in the metadata log are reported."""
    tokens = [{name: row[name] for name in TOKEN} for row in rows if row["type"] == "token"]
    assert sorted(tokens, key=str) == sorted(moment.reported["tokens"], key=str) != []
    (broker,) = [row for row in rows if row["type"] == "broker"]
    cordoned = [_identity(moment.copy / disk.name) for disk in map(Path, moment.reported["cordoned"])]
    assert broker["cordoned_log_dirs"] == cordoned and len(cordoned) == 1
    assert rows[0]["voters"] == moment.reported["voters"] and len(rows[0]["voters"]) == 1


@pytest.mark.behaviour("M10")
@pytest.mark.parametrize("number", [0, 1])
def test_tokens_cordoned_log_dirs_and_voters_are_those_admin_describes(
    moments: list[Moment], number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    _assert_reported(moments[number], rows_of(capfd, moments[number].copy))


@pytest.mark.behaviour("M10")
def test_later_copy_gives_the_same_answers_for_an_earlier_time(
    moments: list[Moment], capfd: pytest.CaptureFixture[str]
) -> None:
    first = rows_of(capfd, moments[0].copy)[0]
    _assert_reported(moments[0], rows_of(capfd, "--offset", first["offset"], moments[1].copy, status=None))
    _assert_reported(moments[0], rows_of(capfd, "--at", first["timestamp"], moments[1].copy, status=None))


@pytest.mark.behaviour("M10")
@pytest.mark.parametrize("number", [0, 1])
def test_log_locations_and_sizes_are_those_admin_describes(
    moments: list[Moment], number: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """All logs are where the metadata log says, so none is missing. describeLogDirs leaves out the metadata log."""
    moment = moments[number]
    reported = {
        (Path(row["log_dir"]).name, row["topic"], row["partition"]): row["bytes"]
        for row in moment.reported["logs"]
    }
    directories = [row for row in rows_of(capfd, moment.copy) if row["type"] == "directory"]
    assert {row["status"] for row in directories} == {"known"}
    shown = {(Path(row["path"]).parent.name, row["topic"], row["partition"]) for row in directories}
    assert shown - {("a", "__cluster_metadata", 0)} == set(reported)
    assert run(["list", "--json", str(moment.copy)]) == 0
    listed = {}
    for row in map(json.loads, capfd.readouterr().out.splitlines()):
        if row["type"] == "partition":
            topic, _, partition = row["partition"].rpartition("-")
            listed[Path(row["directory"]).parent.name, topic, int(partition)] = row["log_bytes"]
    del listed["a", "__cluster_metadata", 0]
    assert listed == reported and len({disk for disk, _, _ in reported}) == 2
