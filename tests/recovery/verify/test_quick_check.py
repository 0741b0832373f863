"""The quick check accepts ordinary partitions, and never one in which the full check finds anything."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from fixtures.diseases import put
from kseg.change.append.partition_writer import PartitionWriter, RollRules
from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.inputs import inputs_of
from kseg.recovery.loading.loader import load_as_broker
from kseg.recovery.policy import BrokerState, Repair
from kseg.recovery.salvage.fixpoint import findings_afterwards
from kseg.recovery.salvage.image_reader import ImageReader
from kseg.recovery.salvage.salvage import salvage
from kseg.recovery.salvage.unchanged import unchanged_repair
from kseg.segment.model import NewBatch, Record
from kseg.segment.new_files import write_new_file
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.sidecar.snapshot import SnapshotCorrupt, decode_snapshot, encode_snapshot
from kseg.segment.state.control import EndTransactionMarker, end_transaction_batch
from tests.support.salvage_helpers import SETTINGS

T0 = 1_700_000_000_000
TOPIC_ID = "Pm0fXkDvQ0yTn7Qq3uXJ8A"
DAMAGES = int(os.environ.get("KSEG_GLANCES", "400"))
FIRST_SEED = int(os.environ.get("KSEG_GLANCES_SEED", "0"))
CLEAN = BrokerState(is_clean=True)
LATEST_EPOCH = 7
EPOCHS = "leader-epoch-checkpoint"


def ordinary(directory: Path, start: int = 0) -> Path:
    """Four segments by two leaders, from an idempotent producer and one that is not."""
    rules = RollRules(segment_bytes=2000, index_interval_bytes=300)
    with PartitionWriter(directory, topic_id=TOPIC_ID, rules=rules) as writer:
        for turn in range(40):
            offset = 5 * turn
            records = tuple(
                Record(at, T0 + 1000 * at, b"key %d" % (at % 9), b"value %d" % at)
                for at in range(offset, offset + 5)
            )
            is_idempotent = turn % 3 > 0
            writer.append(
                NewBatch(
                    records=records,
                    leader_epoch=3 if turn < 25 else LATEST_EPOCH,
                    producer_id=1000 if is_idempotent else -1,
                    producer_epoch=0 if is_idempotent else -1,
                    base_sequence=5 * (2 * (turn // 3) + turn % 3 - 1) if is_idempotent else -1,
                )
            )
    return directory


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = ordinary(tmp_path_factory.mktemp("ordinary") / "trams-0")
    assert len(list(directory.glob("*.log"))) > 3
    return directory


def glance(partition: Path, broker_state: BrokerState = CLEAN) -> Repair | None:
    found = DirectoryImage.of(inputs_of(str(partition)))
    name = own_partition_name(str(partition))
    assert name is not None
    return unchanged_repair(str(partition), name, found, broker_state, SETTINGS)


def judged(partition: Path, broker_state: BrokerState = CLEAN) -> Repair:
    return salvage(str(partition), inputs_of(str(partition)), broker_state, SETTINGS)


def assert_as_checked_in_full(partition: Path, broker_state: BrokerState = CLEAN) -> Repair | None:
    """The result of the quick check. If it accepts the partition, the full check must give the same result."""
    output = glance(partition, broker_state)
    if output is not None:
        assert output == judged(partition, broker_state)
    return output


def trams(directory: Path) -> Path:
    """The path of a copy inside a data directory."""
    return directory / "trams-0"


@pytest.mark.parametrize(
    "broker_state",
    [
        CLEAN,
        BrokerState(),
        BrokerState(recovery_point=50, high_watermark=200, log_start_offset=7, first_dirty_offset=100),
    ],
)
def test_quick_check_accepts_an_ordinary_partition(sound: Path, broker_state: BrokerState) -> None:
    output = assert_as_checked_in_full(sound, broker_state)
    assert output is not None
    assert (output.log_end_offset, output.last_stable_offset) == (200, 200)
    assert not output.why and not output.findings


def test_quick_check_accepts_a_log_without_its_first_segments(sound: Path, tmp_path: Path) -> None:
    partition = Path(shutil.copytree(sound, trams(tmp_path)))
    bases = sorted(int(log.stem) for log in partition.glob("*.log"))
    for file in partition.glob(f"{bases[0]:020d}.*"):
        file.unlink()
    assert glance(partition, CLEAN) is None
    assert [found.id for found in judged(partition, CLEAN).findings] == ["log-start-gap"]
    # a broker that deletes segments moves the first epoch's start offset
    (partition / EPOCHS).write_text(f"0\n2\n3 {bases[1]}\n{LATEST_EPOCH} 125\n")
    output = assert_as_checked_in_full(partition)
    assert output is not None
    assert output.log_start_offset == bases[1]


@pytest.mark.parametrize(
    "broker_state",
    [
        BrokerState(is_clean=True, high_watermark=201),
        BrokerState(is_clean=True, recovery_point=201),
        BrokerState(is_clean=True, first_dirty_offset=201),
        BrokerState(is_clean=True, log_start_offset=201),
    ],
)
def test_quick_check_rejects_checkpoint_offsets_beyond_the_log(
    sound: Path, broker_state: BrokerState
) -> None:
    assert glance(sound, broker_state) is None


IN_TRANSACTION = NewBatch(
    records=(Record(0, T0, b"k", b"v"),),
    leader_epoch=0,
    transactional=True,
    producer_id=7,
    producer_epoch=0,
    base_sequence=0,
)


def test_quick_check_rejects_a_transaction_marker(tmp_path: Path) -> None:
    with PartitionWriter(trams(tmp_path), topic_id=TOPIC_ID) as writer:
        writer.append(IN_TRANSACTION)
        assert_as_checked_in_full(trams(tmp_path))
        writer.append(end_transaction_batch(EndTransactionMarker(False, 1, T0), 1, 7, 0, 0))
    assert glance(trams(tmp_path)) is None


def test_quick_check_rejects_an_unfinished_transaction(tmp_path: Path) -> None:
    with PartitionWriter(trams(tmp_path), topic_id=TOPIC_ID) as writer:
        writer.append(IN_TRANSACTION)
    assert glance(trams(tmp_path)) is None


# --- damage


def _bit(partition: Path, chance: random.Random) -> None:
    file = chance.choice(sorted(file for file in partition.iterdir() if file.stat().st_size))
    at = chance.randrange(file.stat().st_size)
    put(file, at, bytes([file.read_bytes()[at] ^ 1 << chance.randrange(8)]))


def _header_bit(partition: Path, chance: random.Random) -> None:
    """Flip a bit in the first 17 bytes of a batch, which no checksum covers."""
    file = chance.choice(sorted(partition.glob("*.log")))
    data, starts, position = file.read_bytes(), [], 0
    while position < len(data):
        starts.append(position)
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    at = chance.choice(starts) + chance.randrange(17)
    put(file, at, bytes([data[at] ^ 1 << chance.randrange(8)]))


def _cut(partition: Path, chance: random.Random) -> None:
    file = chance.choice(sorted(file for file in partition.iterdir() if file.stat().st_size))
    with file.open("r+b") as stream:
        stream.truncate(chance.randrange(file.stat().st_size))


def _grown(partition: Path, chance: random.Random) -> None:
    file = chance.choice(sorted(partition.iterdir()))
    put(file, file.stat().st_size, bytes(chance.choice((1, 8, 12, 61))))


def _gone(partition: Path, chance: random.Random) -> None:
    chance.choice(sorted(partition.iterdir())).unlink()


def _renamed(partition: Path, chance: random.Random) -> None:
    file = chance.choice(sorted(partition.glob("0*")))
    to = chance.choice(
        (f"{int(file.stem) + 5:020d}{file.suffix}", f"{file.name}.deleted", f"{file.name}.swap")
    )
    if not (partition / to).exists():
        file.rename(partition / to)


def _emptied(partition: Path, chance: random.Random) -> None:
    chance.choice(sorted(partition.iterdir())).write_bytes(b"")


def _batches_gone(partition: Path, chance: random.Random) -> None:
    file = chance.choice(sorted(partition.glob("*.log")))
    data = file.read_bytes()
    size = 12 + int.from_bytes(data[8:12], "big")
    file.write_bytes(data[size:])


def _another_producer(partition: Path, chance: random.Random) -> None:
    """A snapshot with a valid checksum and different content."""
    file = chance.choice(sorted(partition.glob("*.snapshot")))
    entries = list(decode_snapshot(file.read_bytes()))
    if not entries:
        return
    field = chance.choice(entries[0]._fields[:-1])
    entries[0] = entries[0]._replace(**{field: getattr(entries[0], field) + chance.choice((-1, 1))})
    file.unlink()
    write_new_file(file, encode_snapshot(entries))


def _epochs(partition: Path, chance: random.Random) -> None:
    lines = [f"{chance.randrange(9)} {chance.randrange(0, 205, 5)}" for _ in range(chance.randrange(3))]
    text = "\n".join(("0", str(len(lines)), *lines, ""))
    (partition / "leader-epoch-checkpoint").write_text(text)


def _foreign(partition: Path, chance: random.Random) -> None:
    name = chance.choice(("notes.txt", "7.log", f"{900:020d}.snapshot", f"{900:020d}.index", "x.tmp"))
    (partition / name).write_bytes(chance.choice((b"", b"something")))


DAMAGE: tuple[Callable[[Path, random.Random], None], ...] = (
    *(_bit, _header_bit, _header_bit, _cut, _grown, _gone, _renamed, _emptied),
    *(_batches_gone, _another_producer, _epochs, _foreign),
)


@pytest.mark.parametrize("part", range(4))
def test_quick_check_accepts_only_what_the_full_check_accepts(sound: Path, tmp_path: Path, part: int) -> None:
    for seed in range(FIRST_SEED + part, FIRST_SEED + DAMAGES, 4):
        chance = random.Random(seed)
        partition = Path(shutil.copytree(sound, trams(tmp_path / str(seed))))
        done = [chance.choice(DAMAGE) for _ in range(chance.choice((1, 1, 1, 2)))]
        around = chance.choice(
            (CLEAN, CLEAN, BrokerState(recovery_point=100), BrokerState(high_watermark=180))
        )
        try:
            for damage in done:
                # no file of the kind is left, or it is damaged
                with suppress(IndexError, SnapshotCorrupt):
                    damage(partition, chance)
            assert_as_checked_in_full(partition, around)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {[damage.__name__ for damage in done]}") from error
        shutil.rmtree(partition.parent)


LOADS = 40


def crashed(partition: Path, rng: random.Random) -> None:
    """Side files are missing or truncated, and bytes of logs are missing or altered."""
    for file in sorted(partition.iterdir()):
        if file.suffix != ".log" and rng.random() < 0.5:
            file.unlink()
        elif file.suffix == ".index" and rng.random() < 0.2:
            os.truncate(file, file.stat().st_size // 16 * 8)
    if rng.random() < 0.6:
        log = rng.choice(sorted(partition.glob("*.log")))
        if rng.random() < 0.5:
            os.truncate(log, rng.randrange(log.stat().st_size))
        else:
            put(log, rng.randrange(log.stat().st_size), bytes([rng.randrange(256)]))


def test_quick_check_of_a_load_result_equals_salvage(sound: Path, tmp_path: Path) -> None:
    """`recover --policy kafka` runs the quick check on the files as they will be after the load."""
    ordinary_ones = 0
    for seed in range(LOADS):
        partition = Path(shutil.copytree(sound, trams(tmp_path / str(seed))))
        crashed(partition, random.Random(seed))
        name, inputs = own_partition_name(str(partition)), inputs_of(str(partition))
        broker_state = BrokerState(recovery_point=50 * (seed % 3))
        repair = load_as_broker(str(partition), inputs, broker_state, SETTINGS)
        if repair.load_failure is not None:
            continue
        given = str(partition), inputs, repair, broker_state, SETTINGS
        expected = findings_afterwards(*given)
        assert findings_afterwards(*given, name) == expected, seed
        image_reader = ImageReader(str(partition), repair.image)
        assert name is not None
        quick = unchanged_repair(str(partition), name, repair.image, broker_state, SETTINGS, image_reader)
        ordinary_ones += quick is not None
    assert ordinary_ones > LOADS // 8
