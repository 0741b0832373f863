"""A dynamic quorum (KIP-853): kraft.version comes from a control record, in the bootstrap snapshot and everywhere it is written later."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.cluster_admin import ClusterAdmin
from tests.kafka.conftest import require_kafka
from tests.kafka.formatting import format_with_tool
from tests.support.command_rows import rows_of

pytestmark = pytest.mark.kafka

LOG = "__cluster_metadata-0"


class DynamicBroker(Broker):
    """A node that is the first voter of a dynamic quorum, formatted with a SCRAM credential."""

    def _differing(self, usual: dict[str, str]) -> dict[str, str | None]:
        voter = usual["controller.quorum.voters"]
        return {
            "controller.quorum.voters": None,
            "controller.quorum.bootstrap.servers": voter.removeprefix("1@"),
        }

    def _format(self) -> None:
        if not (self.data / "meta.properties").exists():
            scram = ("--add-scram", "SCRAM-SHA-256=[name=alice,iterations=4096,password=secret]")
            file, cluster = self.root / "server.properties", "Mz9XvQe1R0mU7bTq2LkP5w"
            format_with_tool(file, cluster, "--standalone", *scram)


def reported(
    path: Path, capfd: pytest.CaptureFixture[str], kind: str, *words: str
) -> list[dict[str, object]]:
    rows = rows_of(capfd, "metadata", *words, path, status=0)
    return [
        {name: value for name, value in row.items() if name != "type"} for row in rows if row["type"] == kind
    ]


@pytest.mark.behaviour("M07")
def test_features_of_a_dynamic_quorum_are_those_admin_describes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    broker = DynamicBroker(
        tmp_path / "broker", authorizer_class_name=authorizer, super_users="User:ANONYMOUS"
    )
    with broker:
        admin = ClusterAdmin(broker.bootstrap)
        for number in range(60):  # enough for a snapshot
            admin.do("create", f"topic-{number}", 1, {})
        rows = admin.do("describe", [])["rows"]
        admin.close()
    features = {row["name"]: row["level"] for row in rows if row["type"] == "feature"}
    assert features["kraft.version"] == 1
    log = broker.data / LOG
    assert {row["name"]: row["level"] for row in reported(broker.data, capfd, "feature")} == features
    snapshots = sorted(log.glob("*.checkpoint"))
    # the snapshot from formatting, and one that the node generated
    assert len(snapshots) > 1
    for snapshot in snapshots:
        assert {"name": "kraft.version", "level": 1} in reported(snapshot, capfd, "feature")
    credential = {"user": "alice", "mechanism": "SCRAM-SHA-256", "iterations": 4096}
    assert reported(broker.data / "bootstrap.checkpoint", capfd, "scram") == [credential]
    assert reported(broker.data, capfd, "scram", "--offset", "40") == [credential]
