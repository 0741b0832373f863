"""Options of `compact`: the topic and broker settings that decide what is removed, and what to do with the result."""

from enum import StrEnum

from kseg.change.run.options import ChangeOptions
from kseg.segment import layout as L
from kseg.segment.errors import UsageError
from kseg.segment.state.offset_map import SLOT_BYTES
from kseg.segment.state.producer import DEFAULT_EXPIRATION_MS
from kseg.segment.values import dataclass

DAY_MS = 86_400_000
DEFAULT_SEGMENT_BYTES = 1 << 30
DEFAULT_MAP_BYTES = 128 << 20
LOAD_FACTOR = 0.9  # Kafka's log.cleaner.io.buffer.load.factor


class Damaged(StrEnum):
    """How to handle damage: refuse the partition, or skip the segments that would be joined with the damaged one."""

    REFUSE = "refuse"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSettings:
    """now_ms: the clock. max_compaction_lag_ms: None when there is no such limit. map_bytes: of the offset map."""

    now_ms: int
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int | None = None
    min_cleanable_dirty_ratio: float = 0.0
    segment_bytes: int = DEFAULT_SEGMENT_BYTES
    segment_index_bytes: int = L.DEFAULT_SEGMENT_INDEX_BYTES
    index_interval_bytes: int = L.DEFAULT_INDEX_INTERVAL_BYTES
    map_bytes: int = DEFAULT_MAP_BYTES
    producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS

    def check(self) -> None:
        """Raises UsageError for an offset map that is too small for any key (Kafka's cleaner refuses it too) or unreasonably large, and for
        min.compaction.lag.ms above max.compaction.lag.ms (Kafka: LogConfig.validateValues)."""
        if self.map_keys < 1 or self.map_keys >= self.map_slots:
            raise UsageError(
                f"an offset map of {self.map_bytes} bytes cannot hold a single key; it needs at least {3 * SLOT_BYTES} bytes"
            )
        if self.map_slots > L.INT32_MAX:
            raise UsageError(f"the offset map cannot be {self.map_bytes} bytes")
        most_ms = self.max_compaction_lag_ms
        if most_ms is not None and self.min_compaction_lag_ms > most_ms:
            raise UsageError(
                f"min.compaction.lag.ms ({self.min_compaction_lag_ms}) is above max.compaction.lag.ms ({most_ms})"
            )

    @property
    def map_slots(self) -> int:
        return self.map_bytes // SLOT_BYTES

    @property
    def map_keys(self) -> int:
        """How many keys the map can hold (Kafka: slots × load factor, cast to an int)."""
        return int(self.map_slots * LOAD_FACTOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions(ChangeOptions):
    """One run of `compact`.

    first_dirty_offset: None is the log start; from_checkpoint reads the data directory instead. log_start_offset, high_watermark: None
    reads the data directory. include_active: roll the last segment first. top_keys: how many keys to name. jobs: processes for one log.
    """

    settings: CleanSettings
    first_dirty_offset: int | None = None
    from_checkpoint: bool = False
    log_start_offset: int | None = None
    high_watermark: int | None = None
    include_active: bool = False
    damaged: Damaged = Damaged.REFUSE
    top_keys: int = 10
    jobs: int = 1

    @property
    def writes(self) -> bool:
        return self.apply or self.output is not None
