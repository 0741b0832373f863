"""Keys are mapped to the same partitions as by Kafka's producer."""

from __future__ import annotations

import random

import pytest

from kseg.segment.encoding.partitioner import partition_for_key
from tests.kafka.oracle import Oracle

pytestmark = pytest.mark.kafka


def test_keys_of_every_length_get_the_partition_of_the_producer(oracle: Oracle) -> None:
    lots = random.Random(5)
    keys = [lots.randbytes(length) for length in range(70) for _ in range(20)]
    keys += [bytes([value]) * length for value in (0, 127, 128, 255) for length in range(1, 9)]
    for count in (1, 2, 3, 50, 1000, 2**31 - 1):
        assert [partition_for_key(key, count) for key in keys] == oracle.partitions_for_keys(keys, count)
