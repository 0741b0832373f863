"""Records of Kafka's own topics: kseg prints what DumpLogSegments prints for complete, truncated and damaged ones."""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from kseg.cli.main import run
from kseg.inspection.dump.options import DumpOptions
from kseg.internal_topics.message_programs import program_of
from kseg.internal_topics.record_text import TopicText
from kseg.internal_topics.topic_names import TOPICS
from kseg.segment.kernel.message_fields import FRAMED
from tests.kafka.dump_cases import our_text
from tests.kafka.message_cases import (
    Pair,
    class_of,
    mutants,
    of_topic,
    random_records,
    random_values,
    truncated,
    write_log,
)
from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka

LOG = "00000000000000000000.log"
SEED = int(os.environ.get("KSEG_DECODED_SEED", "1"))
MUTANTS = int(os.environ.get("KSEG_DECODED_MUTANTS", "20000"))
# the process may grow by less than the text of one batch of mutants
MAX_GROWTH_KIB = 64 * 1024


def assert_equal_text(oracle: Oracle, directory: Path, decoder: str, records: list[Pair]) -> None:
    log = write_log(directory / LOG, records)
    options = DumpOptions(print_data_log=True, decoder=TopicText(TOPICS[decoder]))
    reported = oracle.dump([f"--{decoder}-decoder", "--files", str(log)])
    assert reported.exception is None and reported.status == 0
    ours = our_text(log, options).splitlines()
    theirs = reported.stdout.splitlines()
    for our_line, their_line in zip(ours, theirs, strict=True):
        # the digits of a double depend on the version of Java: 17 prints more than necessary
        assert our_line == their_line or _doubles(our_line) == _doubles(their_line)
    # the code path for records that are requested one by one
    skipping = DumpOptions(print_data_log=True, skip_record_metadata=True, decoder=TopicText(TOPICS[decoder]))
    kernel = [line for line in our_text(log, skipping).split(b"\n")[2:] if not line.startswith(b"baseOffset")]
    one_by_one = []
    for offset, (key, value) in enumerate(records):
        text = TopicText(TOPICS[decoder]).text(offset, key, value)
        assert text.crash is None
        named = ((b" key: ", text.key), (b" payload: ", text.payload))
        one_by_one.append(b"|" + b"".join(name + part for name, part in named if part is not None))
    assert b"\n".join([*one_by_one, b""]) == b"\n".join(kernel)


def _doubles(line: bytes) -> bytes:
    return re.sub(rb'(?<="value":)[-\d.E]+', lambda match: repr(float(match[0])).encode(), line)


@pytest.mark.parametrize("decoder", TOPICS)
def test_every_record_type_and_version_is_printed_like_the_real_tool(
    oracle: Oracle, tmp_path: Path, decoder: str
) -> None:
    records = random_records(oracle, random.Random(SEED), TOPICS[decoder], 20)
    assert_equal_text(oracle, tmp_path, decoder, records)


@pytest.mark.parametrize("decoder", TOPICS)
def test_json_of_messages_equals_that_of_kafkas_converters(oracle: Oracle, decoder: str) -> None:
    rng = random.Random(SEED)
    keys, values = of_topic(TOPICS[decoder])
    program = program_of(TOPICS[decoder])
    asked = [
        (class_of(message), version, random_values(rng, message.fields, version), type_id)
        for type_id, message in values.items()
        for version in range(message.versions.first, message.last_version + 1)
        for _ in range(10)
    ]
    found = oracle.messages([each[:3] for each in asked])
    for (_, version, _, type_id), (data, text) in zip(asked, found, strict=True):
        if program.ops[0] == FRAMED:
            value, key = bytes((1, type_id, version)) + data, None
        else:
            blank = random_values(random.Random(0), keys[type_id].fields, 0)
            key = type_id.to_bytes(2, "big") + oracle.messages([(class_of(keys[type_id]), 0, blank)])[0][0]
            value = version.to_bytes(2, "big") + data
        if decoder == "remote-log-metadata" or type_id == 2:
            # these are printed in another form, and compared with the tool
            continue
        payload = TopicText(TOPICS[decoder]).text(0, key, value).payload
        assert payload is not None and payload.decode().endswith(f'"data":{text}}}')


@pytest.mark.parametrize("decoder", TOPICS)
def test_records_truncated_at_every_byte_are_printed_like_the_real_tool(
    oracle: Oracle, tmp_path: Path, decoder: str
) -> None:
    records = random_records(oracle, random.Random(SEED + 1), TOPICS[decoder], 1)
    assert_equal_text(oracle, tmp_path, decoder, list(truncated(records)))


def test_damaged_records_are_printed_like_the_real_tool(oracle: Oracle, tmp_path: Path) -> None:
    """KSEG_DECODED_MUTANTS records; 20,000 take Java half a minute."""
    rng = random.Random(SEED + 2)
    for round_number, decoder in enumerate(TOPICS):
        records = random_records(oracle, rng, TOPICS[decoder], 4)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert_equal_text(oracle, tmp_path, decoder, list(mutants(rng, records, MUTANTS // len(TOPICS))))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert round_number == 0 or grown < MAX_GROWTH_KIB


FLAGS_BY_TOPIC = {TOPICS[decoder]: f"--{decoder}-decoder" for decoder in TOPICS}
WAYS: tuple[list[str], ...] = ([], ["--skip-record-metadata"], ["--deep-iteration", "--max-bytes", "2000"])


def assert_same_command(
    oracle: Oracle, capfdbinary: pytest.CaptureFixture[bytes], flags: Sequence[str], files: Sequence[Path]
) -> None:
    reported = oracle.dump_in_place([*flags, "--files", ",".join(map(str, files))])
    assert run(["dump", "--no-progress", "--quiet", *flags, *map(str, files)]) in (0, 1)
    assert capfdbinary.readouterr().out == reported.stdout, flags


@pytest.mark.behaviour("D10")
def test_decoded_files_of_brokers_equal_the_real_tool(
    oracle: Oracle,
    capture_small: Path,
    legacy_small: Path,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """Logs and snapshots of 4.3.1, one of them as bootstrap.checkpoint, several files at once, and commits of brokers 0.9 to 1.1."""
    data = shutil.copytree(capture_small / "data", tmp_path / "data")
    snapshot, log = (
        next((data / "__cluster_metadata-0").glob(f"*.{suffix}")) for suffix in ("checkpoint", "log")
    )
    bootstrap = Path(shutil.copy(snapshot, tmp_path / "bootstrap.checkpoint"))
    assert_same_command(oracle, capfdbinary, ["--cluster-metadata-decoder"], [bootstrap, snapshot, log])
    for topic, flag in FLAGS_BY_TOPIC.items():
        for path in sorted(data.glob(f"{topic}-*/*.log")):
            for way in WAYS:
                assert_same_command(oracle, capfdbinary, [flag, *way], [path])
    old = sorted(legacy_small.glob("data/**/__consumer_offsets-*/*.log"))
    for path in old:
        copy = Path(shutil.copy(path, tmp_path / path.name))
        assert_same_command(oracle, capfdbinary, ["--offsets-decoder"], [copy])


def test_decoder_of_another_topic_prints_like_the_real_tool(
    oracle: Oracle, capture_small: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    data = shutil.copytree(capture_small / "data", tmp_path / "data")
    log = data / "__transaction_state-0" / LOG
    for flag in FLAGS_BY_TOPIC.values():
        assert_same_command(oracle, capfdbinary, [flag], [log])
    remote = "--remote-log-metadata-decoder"
    assert_same_command(oracle, capfdbinary, [remote], [data / "__cluster_metadata-0" / LOG])


def test_decoder_class_options_print_like_the_real_tool(
    oracle: Oracle, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    package = "org.apache.kafka.tools.api"
    log = write_log(
        tmp_path / LOG, [(b"\xff" * 4, bytes(7) + b"\x09more"), (None, b"\0" * 8), (b"abcd", None)]
    )
    flags = [f"--key-decoder-class={package}.IntegerDecoder", f"--value-decoder-class={package}.LongDecoder"]
    assert_same_command(oracle, capfdbinary, flags, [log])


@pytest.mark.behaviour("D10")
def test_dump_continues_where_the_real_tool_ends(
    oracle: Oracle, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    key = bytes.fromhex("0001 0001 67 0001 74 00000003")
    log = write_log(tmp_path / LOG, [(key, None), (None, b"x"), (key, None)])
    reported = oracle.dump_in_place(["--offsets-decoder", "--files", str(log)])
    assert reported.exception is not None and "missing key" in reported.exception
    assert run(["dump", "--no-progress", "--offsets-decoder", str(log)]) == 1
    out, err = capfdbinary.readouterr()
    assert out.startswith(reported.stdout) and out.count(b"<DELETE>") == 2
    assert reported.exception.rpartition(".")[2].encode() in err
