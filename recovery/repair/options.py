"""What `recover` was asked for, and what a broker would hand its log loading for one partition."""

import os
from dataclasses import dataclass
from enum import StrEnum

from kseg.segment import layout as L
from kseg.segment.state.producer import DEFAULT_EXPIRATION_MS


class Policy(StrEnum):
    """salvage: every valid batch stays. kafka: what a broker's log loading leaves."""

    SALVAGE = "salvage"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """The settings of a broker that its log loading depends on, under the names of the command's options.

    now_ms: the clock that producers expire by.
    """

    now_ms: int
    index_interval_bytes: int = L.DEFAULT_INDEX_INTERVAL_BYTES
    segment_index_bytes: int = L.DEFAULT_SEGMENT_INDEX_BYTES
    producer_id_expiration_ms: int = DEFAULT_EXPIRATION_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a broker knows of a partition before it opens it (Kafka: LogManager.loadLog; fact sheet §6.1).

    is_clean: the clean-shutdown marker was there. recovery_point, log_start_offset: from the checkpoints, 0 when
    they say nothing. high_watermark: from its checkpoint, None when it says nothing (the log end stands in). log_dir:
    the data directory they are of, None when it is not known or not to be asked.
    """

    is_clean: bool = False
    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int | None = None
    log_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """One run of `recover`. is_clean, recovery_point, log_start_offset: None asks the data directory.

    marked: data directories that count as marked though this run, or a killed one before it, took their marker away.
    apply: change the files; output: make a repaired copy below this directory instead (None: neither, plan only).
    is_nested: the copies of several data directories lie each in a directory of its name below `output`. run_id: names
    the journals of this run. hard_link: unchanged files of the copy are links.
    rebuild: all side files anew. topic_id: to write a missing partition.metadata with. quarantine: where what is
    taken out goes (None: beside the journal).
    """

    settings: LoadSettings
    policy: Policy = Policy.SALVAGE
    is_clean: bool | None = None
    recovery_point: int | None = None
    log_start_offset: int | None = None
    marked: frozenset[str] = frozenset()
    apply: bool = False
    run_id: str = ""
    output: str | None = None
    is_nested: bool = False
    hard_link: bool = False
    quarantine: str | None = None
    rebuild: bool = False
    mark_clean: bool = False
    topic_id: str | None = None
    drop_cache: bool = False

    def copy_of(self, log_dir: str | None) -> str | None:
        """Where the copy of a data directory goes, and those of its partitions below it; None without --output."""
        if self.output is None or log_dir is None or not self.is_nested:
            return self.output
        return os.path.join(self.output, os.path.basename(os.path.abspath(log_dir)))
