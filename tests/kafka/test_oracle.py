"""Tests of the oracle itself: its answers about the captures are those that Kafka's own tools gave when the captures were made, and it does
not change them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka.oracle import DumpAnswer, Oracle
from tests.support.trees import unchanged

pytestmark = pytest.mark.kafka

DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
}
KINDS = ("*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot", "*.checkpoint")


def _flags(path: Path) -> list[str]:
    if path.suffix not in (".log", ".checkpoint"):
        return []
    decoder = next((flag for topic, flag in DECODERS.items() if path.parent.name.startswith(topic)), None)
    return ["--deep-iteration", "--print-data-log", *([decoder] if decoder else [])]


def _expected(base: Path) -> tuple[bytes, bytes, int]:
    texts = [Path(f"{base}{suffix}") for suffix in (".txt", ".err", ".rc")]
    out, err, status = (path.read_bytes() if path.exists() else b"" for path in texts)
    return out, err, int(status or 0)


def _output(answer: DumpAnswer, data: Path) -> tuple[bytes, bytes, int]:
    return answer.stdout, answer.stderr.replace(f"{data}/".encode(), b""), answer.status


@pytest.mark.parametrize(
    "partition", ["metro-zstd-0", "fares-0", "stations-0", *(f"{t}-0" for t in DECODERS)]
)
def test_oracle_dumps_equal_those_of_the_capture(oracle: Oracle, capture_small: Path, partition: str) -> None:
    data = capture_small / "data"
    files = sorted(path for kind in KINDS for path in (data / partition).glob(kind))
    assert files
    with unchanged(data / partition):
        for path in files:
            name = path.relative_to(data)
            answer = oracle.dump([*_flags(path), "--files", name], cwd=data)
            assert _output(answer, data) == _expected(capture_small / "expected" / name), name


def test_oracle_dumps_equal_those_of_the_old_brokers(oracle: Oracle, legacy_small: Path) -> None:
    for state in ("0.9.0.1/2-compacted", "0.10.2.2/3-compacted", "1.1.1/4-compacted"):
        data = legacy_small / "data" / state
        for path in sorted(data.glob("comb.lz4-0/*.log")):
            name = path.relative_to(data)
            answer = oracle.dump([*_flags(path), "--files", name], cwd=data)
            out, err, _ = _expected(legacy_small / "expected" / state / name)
            assert (answer.stdout, answer.stderr.replace(f"{data}/".encode(), b"")) == (out, err), (
                state,
                name,
            )


def test_oracle_dump_that_throws_keeps_the_printed_output(oracle: Oracle) -> None:
    answer = oracle.dump(["--files", "x.log"])
    assert answer.stdout == b"Dumping x.log\n"
    assert answer.status == 1
    assert answer.exception == 'java.lang.NumberFormatException: For input string: "x"'


def test_wrong_usage_ends_with_status_1_and_a_message_on_stderr(oracle: Oracle) -> None:
    answer = oracle.dump(["--deep-iteration"])
    assert (answer.stdout, answer.status, answer.exception) == (b"", 1, None)
    assert answer.stderr.startswith(b'Missing required argument "[files]"')


def test_oracle_output_has_the_paths_as_given(oracle: Oracle, tmp_path: Path) -> None:
    assert oracle.dump(["--files=x.foo"], cwd=tmp_path).stderr == b"Ignoring unknown file x.foo\n"
    absolute = oracle.dump(["--files", tmp_path / "00000000000000000000.log"])
    assert absolute.exception == f"java.nio.file.NoSuchFileException: {tmp_path}/00000000000000000000.log"


@pytest.mark.parametrize(
    ("data", "read"),
    [
        (b"plain \xc3\xa9", b"plain \xc3\xa9"),
        (b"\xff", b"\xef\xbf\xbd"),
        # A truncated three-byte sequence becomes one replacement character, and so do the three bytes of a lone surrogate (Python makes
        # three).
        (b"\xe2\x82z", b"\xef\xbf\xbdz"),
        (b"\xed\xa0\x80", b"\xef\xbf\xbd"),
    ],
)
def test_malformed_utf8_is_replaced_as_java_does(oracle: Oracle, data: bytes, read: bytes) -> None:
    assert oracle.utf8(data) == read


def test_oracle_process_ends_with_its_input(capture_small: Path, tmp_path: Path) -> None:
    """A log manager whose load fails early leaves a thread running, for which each test worker would wait at the end."""
    (tmp_path / "oracle").mkdir()
    with Oracle(tmp_path / "oracle") as judge:
        first, second = (judge.copy(capture_small / "data") for _ in range(2))
        (second / "no partition").mkdir()
        dirs = [str(first), str(second)]
        happened, _ = judge.ask("log_dirs", dirs=dirs, now=1_700_000_000_000, config={})
        assert happened["thrown"]["exception"] == "org.apache.kafka.common.KafkaException"
