"""A partition directory to damage, and what the damage functions need to know about it."""

from __future__ import annotations

import random
from pathlib import Path

from fixtures.healthy import T0
from kseg.recovery.policy import LoadSettings
from kseg.segment import layout as L
from kseg.segment.partition.topic_settings import REMOTE_STORAGE, Setting, Source, TopicSettings
from tests.kafka.random_logs import DAY_MS

SIDE_SUFFIXES = (L.OFFSET_INDEX_SUFFIX, L.TIME_INDEX_SUFFIX, L.TXN_INDEX_SUFFIX, L.SNAPSHOT_SUFFIX)
EPOCHS = "leader-epoch-checkpoint"
TIERED = TopicSettings({REMOTE_STORAGE: Setting("true", Source.TOPIC)})


class Ground:
    """A directory. rng: the source of randomness. log_end: of the log as written. done: the damage so far."""

    def __init__(self, rng: random.Random, directory: Path) -> None:
        self.rng = rng
        self.directory = directory
        self.done: list[str] = []
        self.log_end = 0
        self.settings = LoadSettings(
            now_ms=T0 + rng.choice((0, DAY_MS // 2, DAY_MS + 60_000, 10 * DAY_MS)),
            index_interval_bytes=rng.choice((0, 100, 400, 4096)),
            segment_index_bytes=rng.choice((60, 120, 1000, 1000, 1000, 4003)),
            producer_id_expiration_ms=rng.choice((DAY_MS, DAY_MS, 1000)),
            # drawn from a separate generator, so that a seed still produces the directory that it always has
            topic=TIERED if random.Random(str(rng.getstate()[1][:3])).random() < 0.2 else TopicSettings(),
        )

    def files(self, *endings: str) -> list[Path]:
        """Files with a base offset, and the leader epochs, by name."""
        found = [path for path in self.directory.iterdir() if path.name.endswith(endings)]
        return sorted(path for path in found if path.name == EPOCHS or path.name.split(".")[0].isdigit())

    def logs(self) -> list[Path]:
        return self.files(L.LOG_SUFFIX)

    def a_log(self) -> Path | None:
        logs = [path for path in self.logs() if path.stat().st_size]
        return self.rng.choice(logs) if logs else None

    def bounds(self, path: Path) -> list[int]:
        """Positions at which batches begin, by length fields, and the end of the file."""
        data, position, found = path.read_bytes(), 0, [0]
        while position + 17 < len(data):
            position += 12 + max(0, int.from_bytes(data[position + 8 : position + 12], "big", signed=True))
            found.append(min(position, len(data)))
        return sorted({*found, len(data)})

    def a_side_file(self, *suffixes: str) -> Path | None:
        found = self.files(*(suffixes or (*SIDE_SUFFIXES, EPOCHS)))
        return self.rng.choice(found) if found else None
