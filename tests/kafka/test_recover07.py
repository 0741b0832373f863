"""Policy kafka compared with Jafka's recovery of the same damage, and salvaged 0.7 logs read by Jafka."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kseg.change.plan.inputs import inputs_of
from kseg.recovery.kafka07.recover07 import recover07
from kseg.recovery.policy import BrokerState, Policy, Repair
from kseg.segment.kafka07.encoding07 import encode_message
from kseg.segment.kafka07.messages07 import Entry07, walk
from tests.kafka.oracle import KafkaRaised, Oracle
from tests.support.encoders import encode_set
from tests.support.plain_execution import contents, make
from tests.support.trees import copy_tree

pytestmark = pytest.mark.kafka

Message = tuple[int, bool, int, bytes]


def recovered(directory: Path, policy: Policy) -> Repair:
    return recover07(str(directory), inputs_of(str(directory)), policy, BrokerState())


def read(oracle: Oracle, directory: Path) -> list[Message]:
    """Every message that a consumer receives; fails if anything ends the reading early."""
    found: list[Message] = []
    for file in sorted(directory.glob("*.kafka")):
        given, ended = oracle.messages07(file)
        assert ended is None, f"{file.name}: {ended}"
        found += given
    return found


def damage(rng: random.Random, directory: Path) -> None:
    """One to four kinds of damage anywhere, half of them in the last file. The attributes byte is never damaged alone: the checksum does
    not cover it, and a set that became a plain message cannot be recognized."""
    sound = {path: path.read_bytes() for path in directory.glob("*.kafka")}
    _damaged(rng, directory)
    for path, before in sound.items():
        data = bytearray(path.read_bytes())
        for entry in walk(before):
            assert isinstance(entry, Entry07)
            place = entry.position + 5
            found = data[entry.position : entry.end_position]
            if len(found) == entry.size_bytes and found[5] != before[place]:
                found[5] = before[place]
                if found == before[entry.position : entry.end_position]:
                    data[place] = before[place]
        path.write_bytes(data)


def _damaged(rng: random.Random, directory: Path) -> None:
    for _ in range(rng.randint(1, 4)):
        names = sorted(directory.glob("*.kafka"))
        path = names[-1] if rng.random() < 0.5 else rng.choice(names)
        data = bytearray(path.read_bytes())
        if not data:
            continue
        at, length = rng.randrange(len(data)), rng.choice([1, 2, 8, 30, 200])
        match rng.randrange(5):
            case 0 | 1:
                data[at] ^= 1 << rng.randrange(8)
            case 2:
                data[at : at + length] = bytes(len(data[at : at + length]))
            case 3:
                data[at : at + length] = rng.randbytes(len(data[at : at + length]))
            case _ if path == names[-1]:
                data = data[: len(data) - length] if rng.random() < 0.5 else data + rng.randbytes(length)
        path.write_bytes(data)


def judged(oracle: Oracle, found: Path) -> dict[str, bytes] | str:
    """The files as Jafka leaves them, or the class of the exception that its load throws."""
    try:
        answer = oracle.ancient(found)
    except KafkaRaised as raised:
        return raised.name
    return {path.name: path.read_bytes() for path in answer.directory.iterdir()}


# The exceptions of 0.7 have other names in its Java port.
EXCEPTIONS = {
    "UnknownMagicByteException": "UnknownMagicByteException",
    "IllegalStateException": "IllegalStateException",
    "IndexOutOfBoundsException": "IndexOutOfBoundsException",
}


@pytest.mark.parametrize("seed", range(60))
def test_policy_kafka_equals_jafka_and_jafka_reads_the_salvage(
    oracle: Oracle, ancient_small: Path, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    found = copy_tree(ancient_small / "taps-0", tmp_path / "found")
    damage(rng, found)
    verdict = judged(oracle, found)
    repair = recovered(found, Policy.KAFKA)
    if "UnknownMagic" in verdict and repair.load_failure is None:
        last = max(found.glob("*.kafka")).read_bytes()
        # 0.7 reads magic 0, its Java port does not
        assert last[repair.removed[0].position + 4] == 0
    elif isinstance(verdict, str):
        assert repair.load_failure is not None, verdict
        assert EXCEPTIONS[repair.load_failure.kafka_exception] in verdict
    else:
        assert repair.load_failure is None and contents(repair.image, found) == verdict
    _salvage_is_read(oracle, ancient_small / "taps-0", found, tmp_path / "made")


def _salvage_is_read(oracle: Oracle, sound: Path, found: Path, place: Path) -> None:
    """Jafka opens the result, changes nothing, and returns every message that is valid in `found` at its offset."""
    repair = recovered(found, Policy.SALVAGE)
    made = make(repair, found, place)
    verdict = judged(oracle, made)
    assert verdict == {path.name: path.read_bytes() for path in made.iterdir()}
    given = read(oracle, made)
    original = read(oracle, sound)
    assert all(valid for _, valid, _, _ in given)
    swallowed = sum(removed.batches for removed in repair.removed)
    # gzip stores what it cannot compress, so a damaged set may contain a complete message, which is then found on its own
    payloads = {payload for _, _, _, payload in original}
    invented = [message for message in given if message not in original and message[3] not in payloads]
    zeros = sum("consumers receive zeros" in finding.message for finding in repair.findings)
    assert len(invented) <= zeros and not any(any(payload) for _, _, _, payload in invented)
    lost = [message for message in _of_whole_entries(oracle, sound, found) if message not in given]
    assert len(lost) <= swallowed


def _of_whole_entries(oracle: Oracle, sound: Path, found: Path) -> list[Message]:
    """What Jafka returns for each entry on its own, for the entries that are equal in the damaged and the valid directory."""
    messages: list[Message] = []
    for path in sorted(sound.glob("*.kafka")):
        data, now = path.read_bytes(), (found / path.name).read_bytes()
        for entry in walk(data):
            assert isinstance(entry, Entry07)
            place = slice(entry.position, entry.end_position)
            if now[place] == data[place]:
                alone = oracle.cwd / f"{int(path.stem) + entry.position:020}.kafka"
                alone.write_bytes(data[place])
                given, ended = oracle.messages07(alone)
                alone.unlink()
                assert ended is None
                messages += given
    return messages


def test_damaged_message_set_is_skipped(oracle: Oracle, tmp_path: Path) -> None:
    """Plain messages and gzip sets around a damaged gzip set, of which nothing is returned."""
    sets = [encode_set([b"x%d" % n, b"y" * 80], codec) for n, codec in enumerate((0, 1, 1, 0))]
    data = bytearray(b"".join(sets))
    data[len(sets[0]) + 25] ^= 1
    (tmp_path / "a-0").mkdir()
    (tmp_path / "a-0" / f"{0:020}.kafka").write_bytes(data)
    made = make(recovered(tmp_path / "a-0", Policy.SALVAGE), tmp_path / "a-0", tmp_path / "made-0")
    payloads = [payload for _, _, _, payload in read(oracle, made)]
    assert payloads == [b"x0", b"y" * 80, b"x2", b"y" * 80, b"x3", b"y" * 80]
    steps: list[dict[str, Any]] = [{"what": "append", "payloads": [b"behind"]}, {"what": "flush"}]
    answer = oracle.ancient(made, steps)
    assert answer.end_offset == len(data) + len(encode_message(b"behind"))
