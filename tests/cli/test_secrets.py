"""No output contains secrets unless requested: exports in every format, raw bytes, rows of every decoder; the text of `dump` warns."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import run
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.model import NewBatch, Record
from tests.cli.test_connect_topics import CONFIGS, encoded
from tests.cli.test_internal_topic_rows import (
    LOG,
    PASSWORD,
    SALT,
    SERVER,
    STORED,
    TIME_MS,
    config,
    log_of,
    scram,
)
from tests.support.registry_dirs import partition

# version 0, without voters and granting voters
LEADER_CHANGE = Record(5, TIME_MS, bytes.fromhex("0000 0002"), bytes.fromhex("0000 00000001 01 01 00"))
SECRETS = (SALT, STORED, SERVER, PASSWORD.encode(), b"hunter2")


def shown(data: bytes) -> set[bytes]:
    """The secrets that some bytes contain, in plain form, in hex, or in base64 at any position."""
    found = set()
    for each in SECRETS:
        forms = [each, each.hex().encode()]
        for shift in range(3):
            forms.append(b64encode(b"\0" * shift + each)[4 if shift else 0 : -4])
        if any(form in data for form in forms if len(form) > 4):
            found.add(each)
    return found


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    metadata = log_of(
        data / "__cluster_metadata-0",
        [
            (None, scram()),
            (None, config(4, "ssl.keystore.password", PASSWORD)),
            (None, config(4, "log.cleaner.threads", "2")),
            (None, scram()[:-5]),
            (None, config(2, "retention.ms", "77")),
        ],
    )
    with (metadata / LOG).open("ab") as log:
        log.write(encode_batch(NewBatch(records=(LEADER_CHANGE,), control=True)))
    partition(data / "connect-cluster-configs-0", encoded(CONFIGS))
    log_of(data / "orders-0", [(b"connector-a", json.dumps({"password": "hunter2"}).encode())])
    return data


def written(output: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted(output.rglob("part-*")))


FORMS = (
    ["parquet", "--compression", "none"],
    ["arrow"],
    ["json"],
    ["json", "--bytes", "hex"],
    ["json", "--value-format", "string"],
    ["csv"],
    ["csv", "--bytes", "base64", "--no-meta", "--no-key"],
)


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
@pytest.mark.parametrize("topic", ["__cluster_metadata", "connect-*"])
def test_export_redacts_secrets_unless_requested(
    data: Path, tmp_path: Path, topic: str, form: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    pytest.importorskip("pyarrow")
    words = ["export", "--no-progress", "--topic", topic, "--to", *form]
    assert run([*words, "--output", str(tmp_path / "out"), str(data)]) == 0
    assert not shown(written(tmp_path / "out"))
    assert capfdbinary.readouterr().err.count(b"secrets-redacted") == 1
    assert run([*words, "--show-secrets", "--output", str(tmp_path / "all"), str(data)]) == 0
    assert shown(written(tmp_path / "all"))
    assert b"secrets-redacted" not in capfdbinary.readouterr().err


def exported(data: Path, output: Path, *words: str) -> list[dict[str, Any]]:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert run(["export", "--to", "parquet", *words, "--output", str(output), str(data)]) == 0
    found: list[dict[str, Any]] = parquet.read_table(output).to_pylist()
    return found


def test_export_leaves_values_that_are_not_secret_unchanged(data: Path, tmp_path: Path) -> None:
    words = ["--topic", "__cluster_metadata", "--include-control", "--no-key"]
    plain = exported(data, tmp_path / "plain", *words)
    everything = exported(data, tmp_path / "everything", *words, "--show-secrets")
    replaced = [at for at, (one, other) in enumerate(zip(plain, everything, strict=True)) if one != other]
    # the record at 2 cannot be decoded, and the last one is a control record
    assert replaced == [0, 1, 3]
    assert {plain[at]["value"] for at in replaced} == {b"(redacted)"}
    for row, original in zip(plain, everything, strict=True):
        assert {**row, "value": None} == {**original, "value": None}
    assert everything[-1]["_meta"]["control"] and everything[-1]["value"]


def test_export_redacts_only_the_secrets_of_connectors(data: Path, tmp_path: Path) -> None:
    rows = exported(data, tmp_path / "out", "--topic", "connect-*")
    by_key = {row["key"].decode(): row["value"] for row in rows}
    properties = json.loads(by_key["connector-jdbc-source"])["properties"]
    assert properties["connection.password"] == "(redacted)" and properties["connection.user"] == "kc"
    assert by_key["connector-broken"] == b"(redacted)" and by_key["connector-gone"] is None
    assert by_key["commit-jdbc-source"] == json.dumps({"tasks": 13}).encode()


def test_export_does_not_redact_other_topics(data: Path, tmp_path: Path) -> None:
    (row,) = exported(data, tmp_path / "out", "--topic", "orders")
    assert row["value"] == b'{"password": "hunter2"}'
    (row,) = exported(data, tmp_path / "named", "--topic", "orders", "--connect-topic", "ord*")
    assert row["value"] == b'{"password":"(redacted)"}'


def test_export_to_stdout_or_with_a_limit_reports_redaction(
    data: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    pytest.importorskip("pyarrow")
    words = ["export", "--to", "csv", "--output", "-", "--limit", "1", "--topic", "__cluster_metadata"]
    assert run([*words, str(data)]) == 0
    out, err = capfdbinary.readouterr()
    assert b"(redacted)" in out and not shown(out) and b"secrets-redacted" in err


@pytest.mark.parametrize("name", ["__cluster_metadata-0", "connect-cluster-configs-0"])
def test_read_raw_refuses_bytes_with_a_secret(
    data: Path, name: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    words = ["read", "--offset", "0", "--no-progress", str(data / name)]
    for raw in (["--raw"], ["--framing", "message-set"]):
        assert run([*words, *raw]) == 4
        out, err = capfdbinary.readouterr()
        assert not out and b"--show-secrets" in err and not shown(err)
    assert run([*words, "--raw", "--show-secrets"]) == 0
    log = (data / name / LOG).read_bytes()
    assert log.startswith(capfdbinary.readouterr().out)


def test_read_raw_writes_bytes_without_a_secret(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    place = log_of(tmp_path / "__cluster_metadata-0", [(None, config(2, "retention.ms", "77"))])
    assert run(["read", "--offset", "0", "--raw", "--no-progress", str(place)]) == 0
    assert capfdbinary.readouterr().out == (place / LOG).read_bytes()


@pytest.mark.parametrize(
    "decoder", ["--offsets-decoder", "--remote-log-metadata-decoder", "--transaction-log-decoder"]
)
@pytest.mark.parametrize("name", ["__cluster_metadata-0", "connect-cluster-configs-0"])
def test_decoder_of_another_topic_shows_no_secret(
    data: Path, name: str, decoder: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    run(["dump", "--json", decoder, "--no-progress", str(data / name)])
    out = capfdbinary.readouterr().out
    assert b'"type":"record"' in out and not shown(out)


@pytest.mark.parametrize("flags", [[], ["--value-decoder-class"], ["--skip-record-metadata"]])
@pytest.mark.parametrize("name", ["__cluster_metadata-0", "connect-cluster-configs-0"])
def test_dump_text_with_secrets_warns_once_a_file(
    data: Path, name: str, flags: list[str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    words = ["dump", "--print-data-log", *flags, "--no-progress"]
    assert run([*words, str(data / name)]) == 0
    out, err = capfdbinary.readouterr()
    assert shown(out) and err.count(b"secrets-shown") == 1
    assert run([*words, "--show-secrets", str(data / name)]) == 0
    assert capfdbinary.readouterr() == (out, b"")


def test_dump_text_without_secrets_does_not_warn(
    data: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert run(["dump", "--deep-iteration", "--no-progress", str(data)]) == 0
    assert b"secrets-shown" not in capfdbinary.readouterr().err
    words = ["dump", "--print-data-log", "--from-offset", "4", "--no-progress"]
    assert run([*words, str(data / "__cluster_metadata-0")]) == 0
    assert b"secrets-shown" not in capfdbinary.readouterr().err
