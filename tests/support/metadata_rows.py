"""Rows of `kseg metadata`, and records and directories for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from tests.internal_topics.metadata_logs import DIRECTORY, record, topic_id

LOG = "__cluster_metadata-0"
Row = dict[str, Any]
BROKER = record(
    "RegisterBrokerRecord",
    brokerId=1,
    incarnationId=topic_id(50),
    brokerEpoch=9,
    endPoints=[{"name": "PLAINTEXT", "host": "h", "port": 9092, "securityProtocol": 0}],
    features=[{"name": "metadata.version", "minSupportedVersion": 7, "maxSupportedVersion": 30}],
    rack="r",
    fenced=True,
    logDirs=[DIRECTORY],
)
CREDENTIAL = record(
    "UserScramCredentialRecord",
    name="alice",
    mechanism=1,
    salt=b"salt",
    storedKey=b"stored",
    serverKey=b"server",
    iterations=4096,
)
ACL = record(
    "AccessControlEntryRecord",
    id=topic_id(60),
    resourceType=2,
    resourceName="or",
    patternType=4,
    principal="User:alice",
    host="*",
    operation=3,
    permissionType=2,
)
TOKEN = record(
    "DelegationTokenRecord",
    owner="User:alice",
    requester="User:bob",
    renewers=["User:eve"],
    issueTimestamp=1,
    maxTimestamp=2,
    expirationTimestamp=3,
    tokenId="t",
)


def quota(entity: dict[str, str | None], key: str, value: float, *, remove: bool = False) -> bytes:
    parts = [{"entityType": kind, "entityName": name} for kind, name in entity.items()]
    return record("ClientQuotaRecord", entity=parts, key=key, value=value, remove=remove)


def setting(resource_type: int, resource_name: str, name: str, value: str | None) -> bytes:
    return record(
        "ConfigRecord", resourceType=resource_type, resourceName=resource_name, name=name, value=value
    )


def rows(capfd: pytest.CaptureFixture[str], *words: str | Path | int, status: int = 0) -> list[Row]:
    capfd.readouterr()
    assert run(["metadata", "--json", *map(str, words)]) == status
    return [json.loads(line) for line in capfd.readouterr().out.splitlines()]


def of(found: list[Row], kind: str) -> list[Row]:
    return [row for row in found if row["type"] == kind]


def one(found: list[Row], kind: str) -> Row:
    (row,) = of(found, kind)
    return row


def partition_dir(log_dir: Path, name: str, identity: str | None) -> Path:
    made = log_dir / name
    made.mkdir(parents=True)
    (made / f"{0:020}.log").write_bytes(b"")
    if identity is not None:
        (made / "partition.metadata").write_text(f"version: 0\ntopic_id: {identity}")
    return made
