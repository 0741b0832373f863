"""Policy kafka compared with the real log loader: both load random directories, and the results are compared file by file.

`KSEG_DIRECTORIES` is the number of directories (default 150), half of them odd, `KSEG_DIRECTORIES_SEED` the first seed.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.healthy import T0
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.change.plan.content import Content, Fresh, Span
from kseg.change.plan.directory_image import DirectoryImage, steps_between
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import Remove, Rename, Truncate, Write
from kseg.recovery.loading.loader import load_as_broker
from kseg.recovery.policy import BrokerState, LoadSettings, Repair
from kseg.segment.encoding.batch import encode_batch
from kseg.segment.encoding.legacy import encode_message
from kseg.segment.model import NewBatch, Record
from kseg.segment.sidecar.snapshot import ProducerSnapshotEntry, encode_snapshot
from tests.kafka.disk_directories import disk_case
from tests.kafka.edge_directories import edge_case
from tests.kafka.odd_directories import foreign_case, odd_case
from tests.kafka.oracle import KafkaRaised, Oracle
from tests.kafka.random_directories import Case, random_case
from tests.support.trees import files_in, unchanged

pytestmark = pytest.mark.kafka
COUNT = int(os.environ.get("KSEG_DIRECTORIES", "150"))
FIRST_SEED = int(os.environ.get("KSEG_DIRECTORIES_SEED", "1"))
HALF = (COUNT + 1) // 2
CHUNK = 25


def planned(directory: Path, repair: Repair) -> dict[str, bytes]:
    """The files of an image."""
    found = files_in(directory)
    return {name: content_of(found, repair.image.content(name)) for name in repair.image}


def loaded_by_kafka(oracle: Oracle, case: Case) -> tuple[dict[str, bytes], dict[str, int]] | str:
    """(files, offsets) after the real load and a clean stop, or the name of the exception."""
    around, settings = case.broker_state, case.settings
    try:
        answer = oracle.partition(
            case.directory,
            clean=around.is_clean,
            recovery_point=around.recovery_point,
            log_start_offset=around.log_start_offset,
            now=settings.now_ms,
            producer_id_expiration_ms=settings.producer_id_expiration_ms,
            config={
                "index.interval.bytes": settings.index_interval_bytes,
                "segment.index.bytes": settings.segment_index_bytes,
                "remote.storage.enable": str(settings.topic.is_tiered).lower(),
            },
            tiered=settings.topic.is_tiered,
            delayed=True,
        )
    except KafkaRaised as raised:
        return raised.name.rpartition(".")[2]
    files = files_in(answer.directory)
    shutil.rmtree(answer.directory.parent)
    names = ("log_start_offset", "log_end_offset", "last_stable_offset", "recovery_point")
    return files, {name: answer.loaded[name] for name in names}


def differences(oracle: Oracle, case: Case) -> list[str]:
    """One line for each way in which our result differs from Kafka's."""
    theirs = loaded_by_kafka(oracle, case)
    with unchanged(case.directory):
        ours = load_as_broker(
            str(case.directory), inputs_of(str(case.directory)), case.broker_state, case.settings
        )
    if isinstance(theirs, str) or ours.load_failure is not None:
        load_failure = None if ours.load_failure is None else ours.load_failure.kafka_exception
        lost = theirs if isinstance(theirs, str) else None
        if lost == "OutOfMemoryError" and load_failure is not None:
            # Kafka took garbage for a size and allocated it; with a larger heap the load would fail where ours does
            return []
        return [] if load_failure == lost else [f"kafka died of {lost}, ours of {ours.load_failure}"]
    files, offsets = theirs
    made = planned(case.directory, ours)
    found = files_in(case.directory)
    lines = [
        f"{name}: {_shown(files.get(name))} by kafka, {_shown(made.get(name))} by ours, {_shown(found.get(name))} found"
        for name in sorted(files.keys() | made.keys())
        if files.get(name) != made.get(name)
    ]
    lines += [
        f"{name}: {value} by kafka, {getattr(ours, name)} by ours"
        for name, value in offsets.items()
        if value != getattr(ours, name)
    ]
    changed = {name for name in found.keys() | made.keys() if found.get(name) != made.get(name)}
    lines += [f"{name} changed without a reason" for name in sorted(changed - ours.why.keys())]
    if not lines and carried_out(case.directory, ours) != made:
        lines.append("the steps of the plan lead elsewhere")
    return lines


def carried_out(directory: Path, repair: Repair) -> dict[str, bytes]:
    """The directory after the steps of a plan were applied one after the other."""
    found = files_in(directory)
    files = dict(found)
    inputs = inputs_of(str(directory))
    for step in steps_between(DirectoryImage.of(inputs), repair.image, repair.why):
        match step:
            case Write():
                files[step.name] = content_of(found, step.content)
            case Truncate():
                files[step.name] = files[step.name][: step.size_bytes]
            case Rename():
                files[step.new_name] = files.pop(step.name)
            case Remove():
                del files[step.name]
    return files


def content_of(found: dict[str, bytes], content: Content) -> bytes:
    """The bytes of a planned file."""
    parts = []
    for piece in content:
        if isinstance(piece, Span):
            parts.append(found[piece.name][piece.position : piece.end_position])
        else:
            assert isinstance(piece, Fresh)
            parts.append(piece.data)
    return b"".join(parts)


def _shown(data: bytes | None) -> str:
    return "absent" if data is None else f"{len(data)} bytes {data[:60].hex()}"


@pytest.mark.evidence(
    "recovery-point",
    "log-start",
    "offset-index",
    "index-missing",
    "time-index",
    "index-size",
    "orphan-index",
    "transaction-index",
    "producer-snapshot",
    "no-snapshot",
    "epoch-file",
    "deleted-file",
    "cleaned-file",
    "swap-file",
    "topic-id-unreadable",
)
@pytest.mark.parametrize("make", [random_case, odd_case, foreign_case, edge_case, disk_case])
@pytest.mark.parametrize("chunk", range((HALF + CHUNK - 1) // CHUNK))
def test_policy_kafka_equals_the_log_loader_on_random_directories(
    oracle: Oracle, tmp_path: Path, make: Callable[[int, Path], Case], chunk: int
) -> None:
    failures = []
    for seed in range(FIRST_SEED + chunk * CHUNK, FIRST_SEED + min(HALF, (chunk + 1) * CHUNK)):
        place = tmp_path / str(seed)
        place.mkdir()
        case = make(seed, place)
        lines = differences(oracle, case)
        if lines:
            reported = f"seed {seed} ({', '.join(case.done)}; {case.broker_state}; {case.settings})"
            failures.append("\n    ".join([reported, *lines]))
        shutil.rmtree(place)
    assert not failures, "\n".join(failures)


def test_second_run_of_policy_kafka_equals_a_second_load(oracle: Oracle, tmp_path: Path) -> None:
    """The result of policy kafka is loaded again, as after a clean stop and as after a crash. A second run may plan something, such as
    removing a snapshot, only if a broker's second start does the same."""
    failures = []
    for seed in range(FIRST_SEED, FIRST_SEED + min(COUNT, 40)):
        place = tmp_path / str(seed)
        place.mkdir()
        case = random_case(seed, place)
        around, settings = case.broker_state, case.settings
        first = load_as_broker(str(case.directory), inputs_of(str(case.directory)), around, settings)
        if first.load_failure is not None:
            continue
        left = place / "again" / case.directory.name
        left.mkdir(parents=True)
        for name, data in planned(case.directory, first).items():
            (left / name).write_bytes(data)
        for is_clean in (True, False):
            known = replace(
                around,
                is_clean=is_clean,
                recovery_point=first.recovery_point,
                log_start_offset=first.log_start_offset,
            )
            lines = differences(oracle, Case(left, known, settings))
            if lines:
                failures.append("\n    ".join([f"seed {seed} ({', '.join(case.done)}; {known})", *lines]))
        shutil.rmtree(place)
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("seed", [90345, 401804, 402373, 413150])
def test_directories_that_once_differed_are_loaded_like_kafka(
    oracle: Oracle, tmp_path: Path, seed: int
) -> None:
    """Seeds with a negative last offset of a batch in a snapshot, a broken message that is read before the checksum of its gzip set, a
    control batch that ends inside its header, and partition.metadata, which a load reads last."""
    assert differences(oracle, random_case(seed, tmp_path)) == []


@pytest.mark.parametrize("seed", [912242, 912688, 1801621, 1908412, 1912616, 2301057])
def test_offset_edges_that_once_differed_are_loaded_like_kafka(
    oracle: Oracle, tmp_path: Path, seed: int
) -> None:
    """Seeds with producer batches that claim offset -1, a split segment of which a later part begins at the old base offset, a last
    offset of -2^63, a largest timestamp at an offset beyond 2^63."""
    assert differences(oracle, edge_case(seed, tmp_path)) == []


def _metadata_with_wide_blanks(directory: Path) -> None:
    (directory / "partition.metadata").write_text(f"version:  0\ntopic_id:\t{'A' * 21}")


def _metadata_of_one_line(directory: Path) -> None:
    (directory / "partition.metadata").write_text("version:\t0\n")


def _lowest_of_names(directory: Path) -> None:
    (directory / f"{-(2**63):021d}.log").write_bytes(b"")


def _digits_of_another_script(directory: Path) -> None:
    (directory / "\u0663.index.swap").write_bytes(b"")
    (directory / "\u0663.timeindex").write_bytes(b"")


def _marked_and_replaced(directory: Path) -> None:
    """When the .swap suffix is removed, the file has the name to which the index of the deleted segment is renamed."""
    (directory / f"{0:020d}.index.deleted.swap").write_bytes(bytes(8))


def _producer_of_long_ago(directory: Path) -> None:
    entry = ProducerSnapshotEntry(7, 0, 4, 0, 0, -(2**63), -1, None)
    (directory / f"{2:020d}.snapshot").unlink()
    (directory / f"{1:020d}.snapshot").write_bytes(encode_snapshot([entry]))


def _snappy_of_negative_length(directory: Path) -> None:
    log = directory / f"{0:020d}.log"
    packed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -5) + bytes(20)
    log.write_bytes(encode_message(1, 0, T0, 2, None, packed) + log.read_bytes())


def _gzip_that_ends_behind_a_fault(directory: Path) -> None:
    """A broker reads the size of the second message before it reaches the end of the stream."""
    log = directory / f"{0:020d}.log"
    deflate = zlib.compressobj(wbits=31)
    inner = encode_message(1, 0, T0, 0, None, b"value") + struct.pack(">qi", 1, 9) + bytes(9)
    packed = deflate.compress(inner) + deflate.flush(zlib.Z_SYNC_FLUSH)
    log.write_bytes(encode_message(1, 0, T0, 1, None, packed) + log.read_bytes())


def _gzip_that_ends(directory: Path) -> None:
    log = directory / f"{0:020d}.log"
    deflate = zlib.compressobj(wbits=31)
    packed = deflate.compress(encode_message(1, 0, T0, 0, None, b"value")) + deflate.flush(zlib.Z_SYNC_FLUSH)
    log.write_bytes(encode_message(1, 0, T0, 1, None, packed) + log.read_bytes())


@pytest.mark.parametrize(
    ("make", "around"),
    [
        (_metadata_with_wide_blanks, BrokerState()),
        (_metadata_of_one_line, BrokerState()),
        (_lowest_of_names, BrokerState()),
        (_digits_of_another_script, BrokerState()),
        (_marked_and_replaced, BrokerState(log_start_offset=50)),
        (_producer_of_long_ago, BrokerState(is_clean=True)),
        (_snappy_of_negative_length, BrokerState(is_clean=True)),
        (_gzip_that_ends_behind_a_fault, BrokerState(is_clean=True)),
        (_gzip_that_ends, BrokerState(is_clean=True)),
    ],
)
def test_partition_states_that_once_differed_are_loaded_like_kafka(
    oracle: Oracle, tmp_path: Path, make: Callable[[Path], None], around: BrokerState
) -> None:
    directory = tmp_path / "metro-0"
    with PartitionWriter(directory, start_offset=0, rules=RollRules()) as writer:
        for offset in range(2):
            record = Record(offset, T0, b"key", b"value")
            writer.append(encode_batch(NewBatch(records=(record,), leader_epoch=0)))
    make(directory)
    settings = LoadSettings(now_ms=T0 + 1000, segment_index_bytes=1000)
    assert differences(oracle, Case(directory, around, settings)) == []


@pytest.mark.evidence("producer-snapshot")
@pytest.mark.parametrize("offset", [72, 144, 160], ids=["old", "base", "end"])
@pytest.mark.parametrize("firsts", [(3, None), (None, 3), (3, 100), (100, 3), (3, 3)], ids=str)
def test_duplicate_producer_in_a_snapshot_is_loaded_like_kafka(
    oracle: Oracle, capture_small: Path, tmp_path: Path, offset: int, firsts: tuple[int | None, int | None]
) -> None:
    """The last entry counts, but the transaction of the first one stays open."""
    partition = shutil.copytree(capture_small / "data" / "metro-none-0", tmp_path / "metro-0")
    for path in partition.glob("*.snapshot"):
        path.unlink()
    entries = [
        ProducerSnapshotEntry(
            producer_id=1,
            producer_epoch=0,
            last_sequence=3,
            last_offset=5,
            offset_delta=0,
            timestamp_ms=T0,
            coordinator_epoch=0,
            current_txn_first_offset=first,
        )
        for first in firsts
    ]
    (partition / f"{offset:020d}.snapshot").write_bytes(encode_snapshot(entries))
    around = BrokerState(is_clean=True, recovery_point=160)
    assert not differences(oracle, Case(partition, around, LoadSettings(now_ms=T0 + 1000), []))
