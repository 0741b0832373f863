"""Segments that a running broker uploads with Aiven's plugin for tiered storage, as reading commands see them while it runs.

The plugin is not in a Maven repository, so KSEG_TIERED_PLUGIN names a directory with its jars and their dependencies: the classes of core,
commons, storage/core, storage/filesystem and storage/s3, compiled against Kafka's jars (CONTRIBUTING.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.broker import Broker
from tests.kafka.conftest import require_kafka
from tests.support.command_rows import rows_of
from tests.support.s3_server import BUCKET, s3_server

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.skipif("KSEG_TIERED_PLUGIN" not in os.environ, reason="KSEG_TIERED_PLUGIN names no plugin"),
]

RECORDS = 400
PACKAGE = "io.aiven.kafka.tieredstorage"


def broker_with_plugin(folder: Path, storage: dict[str, str], *, is_compressed: bool) -> Broker:
    properties: dict[str, Any] = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": f"{PACKAGE}.RemoteStorageManager",
        "remote.log.storage.manager.class.path": f"{os.environ['KSEG_TIERED_PLUGIN']}/*",
        "remote.log.storage.manager.impl.prefix": "rsm.",
        "rsm.chunk.size": "3000",
        "rsm.compression.enabled": str(is_compressed).lower(),
        "rsm.key.prefix": "tiered/",
        **{f"rsm.storage.{name}": value for name, value in storage.items()},
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "remote.log.manager.task.interval.ms": "500",
        "log.retention.check.interval.ms": "300",
        "log.segment.delete.delay.ms": "100",
    }
    return Broker(folder / "broker", **properties)


@contextmanager
def stored(backend: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, str], str]]:
    """(properties of the backend, the path under which kseg reads it)."""
    if backend == "filesystem":
        (root / "store").mkdir()
        yield (
            {"backend.class": f"{PACKAGE}.storage.filesystem.FileSystemStorage", "root": str(root / "store")},
            str(root / "store" / "tiered"),
        )
        return
    with s3_server(root) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield (
            {
                "backend.class": f"{PACKAGE}.storage.s3.S3Storage",
                "s3.bucket.name": BUCKET,
                "s3.region": "us-east-1",
                "s3.endpoint.url": server.environment["AWS_ENDPOINT_URL"],
                "s3.path.style.access.enabled": "true",
                "aws.access.key.id": server.environment["AWS_ACCESS_KEY_ID"],
                "aws.secret.access.key": server.environment["AWS_SECRET_ACCESS_KEY"],
            },
            f"s3://{BUCKET}/tiered",
        )


@pytest.mark.parametrize("is_compressed", [True, False], ids=["compressed", "plain"])
@pytest.mark.parametrize("backend", ["filesystem", "s3"])
def test_uploaded_segments_are_read_while_the_broker_runs(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    is_compressed: bool,
) -> None:
    require_kafka()
    with (
        stored(backend, tmp_path, monkeypatch) as (storage, path),
        broker_with_plugin(tmp_path, storage, is_compressed=is_compressed) as broker,
    ):
        broker.create_topic(
            "orders",
            remote_storage_enable="true",
            local_retention_bytes="1",
            retention_ms="-1",
        )
        producer = broker.producer(compression_type="none")
        errors: list[Any] = []
        for number in range(RECORDS):
            value = b"%d " % number * 120
            producer.produce(
                "orders", value, str(number), partition=0, on_delivery=lambda error, _: errors.append(error)
            )
            if number % 10 == 9:
                producer.flush()
        producer.flush()
        assert not any(errors)
        local = broker.data / "orders-0"
        broker.wait_for("the local log's end", lambda: len([*local.glob("*.log")]) == 1)
        first_local = int(next(local.glob("*.log")).stem)
        consumed = [(record.offset, record.key) for record in broker.consume("orders")]

        orders = f"tiered:{path}/orders-0"
        rows = rows_of(capfd, "verify", "--deep", orders, status=0)
        assert not [row for row in rows if row["type"] == "finding" and row["severity"] == "error"]
        (listed,) = [
            row for row in rows_of(capfd, "list", f"tiered:{path}", status=0) if row["type"] == "partition"
        ]
        assert (listed["log_start_offset"], listed["log_end_offset"]) == (0, first_local)
        dumped = [
            row
            for row in rows_of(capfd, "dump", "--print-data-log", orders, status=0)
            if row["type"] == "record"
        ]
        assert [row["offset"] for row in dumped] == [*range(first_local)]
        assert [(row["offset"], row["key"]) for row in dumped] == [
            (offset, (key or b"").decode()) for offset, key in consumed[:first_local]
        ]
        for offset in (0, first_local // 2, first_local - 1):
            (found,) = [
                row
                for row in rows_of(capfd, "lookup", "--offset", offset, orders, status=0)
                if row["type"] == "lookup"
            ]
            assert found["found"] and found["record"]["key"] == str(offset)
    (partition,) = [
        row
        for row in rows_of(capfd, "list", "--remote", broker.data, status=0)
        if row["type"] == "remote_partition"
    ]
    assert partition["remote"] == [[0, first_local - 1]] and partition["missing"] == []
