"""Odd logs for the cleaner: as in `cleaning`, with batches that no current client writes and every cleaner reads, and with a log start
offset."""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

from kseg.segment import layout as L
from tests.kafka.cleaning import Case, random_case
from tests.kafka.foreign_logs import ForeignLog
from tests.kafka.odd_logs import OddLog


class OddKeyedLog(OddLog):
    """Without damaged records, at which a cleaner fails."""

    def __init__(self, rng: random.Random, start_offset: int) -> None:
        super().__init__(rng, start_offset)
        self._weights[-1] = 0
        self._odd = rng.sample(
            (
                self._odd_header,
                self._odd_attributes,
                self._odd_times,
                self._odd_control,
                self._odd_message,
                self._odd_set,
                self._odd_sequence,
                self._wide_batch,
            ),
            rng.choice((1, 1, 2)),
        )

    def nonsense(self) -> bytes:
        return self.batch()


class ForeignKeyedLog(ForeignLog):
    """Batches of clients with other libraries, otherwise as brokers write them."""

    def __init__(self, rng: random.Random, start_offset: int) -> None:
        super().__init__(rng, start_offset)
        self._weights[-1] = 0
        self._oddness = 0.0

    def nonsense(self) -> bytes:
        return self.batch()


def odd_clean_case(seed: int, parent: Path) -> Case:
    """Make the case with this seed below `parent`."""
    case = random_case(seed, parent, OddKeyedLog)
    rng = case.rng
    if rng.random() < 0.3:
        last = max(int(path.name.split(".")[0]) for path in case.directory.glob(f"*{L.LOG_SUFFIX}"))
        case.log_start_offset = rng.randint(0, last)
    if rng.random() < 0.2:
        paths = sorted(case.directory.glob(f"*{L.LOG_SUFFIX}"))
        for path in rng.sample(paths, min(len(paths), 2)):
            os.utime(path, ns=(0, rng.choice((0, 1, 10**18 * 4))))
    if rng.random() < 0.2:
        few = rng.choice((1, 5, 100_000))
        case.settings = replace(case.settings, delete_retention_ms=few)
    return case
