"""transaction.version is lowered to 0 after producers have used the second protocol: whether their ids can be used, before and
after the step of `doctor`."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.kafka.broker import Broker
from tests.kafka.conftest import require_kafka
from tests.kafka.shared_java import run_java
from tests.kafka.transaction_clients import TransactionClients
from tests.support.command_rows import of_type, rows_of
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

FARES = "fares"


def _features(broker: Broker, *words: str) -> None:
    done = run_java("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", broker.bootstrap, *words)
    assert done.returncode == 0, done.stdout + done.stderr


def _commit(broker: Broker, name: str) -> str:
    """Empty, or why a new producer with this transactional id cannot be used."""
    try:
        with TransactionClients(broker.bootstrap) as clients:
            clients.ask("begin", name)
            clients.ask("send", name, FARES, 0, 1)
            clients.ask("commit", name)
    except RuntimeError as error:
        return str(error)
    return ""


@pytest.mark.evidence("transaction-version-lowered")
def test_ids_of_the_second_protocol_fail_at_level_0_until_the_step_of_doctor(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_kafka()
    broker = Broker(tmp_path / "broker")
    with broker:
        broker.create_topic(FARES)
        assert _commit(broker, "second") == ""
        with TransactionClients(broker.bootstrap) as clients:
            clients.ask("begin", "open")
            clients.ask("send", "open", FARES, 0, 1)
            _features(broker, "downgrade", "--feature", "transaction.version=0")
        assert _commit(broker, "first") == ""
    rows = rows_of(capfd, "transactions", broker.data, status=1)
    (finding,) = of_type(rows, "finding")
    assert (finding["id"], finding["transactional_ids"]) == ("transaction-version-lowered", 1)
    rows = rows_of(capfd, "doctor", broker.data, status=1)
    (step,) = (row["command"] for row in of_type(rows, "step") if row["due"])
    copy = Broker(tmp_path / "other", copy_tree(broker.data, tmp_path / "copy"))
    with copy:
        assert "The version of API is not supported" in _commit(copy, "second")
        assert _commit(copy, "open") == _commit(copy, "first") == ""
    with broker:
        _features(broker, *shlex.split(step)[3:])
        assert _commit(broker, "second") == _commit(broker, "open") == _commit(broker, "first") == ""
    assert not of_type(rows_of(capfd, "transactions", broker.data, status=0), "finding")
