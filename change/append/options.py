"""Options of `append`."""

from dataclasses import field

from kseg.change.append.batching import BatchRules
from kseg.change.append.flush import FlushRules
from kseg.change.append.partition_writer import RollRules
from kseg.change.apply.keeping import BESIDE, Keeping
from kseg.segment.errors import FormatError, UsageError
from kseg.segment.partition.topic_settings import TopicSettings
from kseg.segment.sidecar.metadata_files import PartitionMetadata, encode_partition_metadata
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOptions:
    """source: where the lines are, `-` for standard input, None if only a marker is written (`BatchRules.marker`). apply: write; else only
    check and count. run_id: names the journals (`new_run_id`). follow_links: PATH may be a link. kafka07: a new PATH becomes a
    partition of Kafka 0.7.

    topic_id: for the `partition.metadata` of a new partition. start_offset: where a new one begins (None: where
    its first line does). dumps: how many complete dumps the lines are (module dumps); None: unknown. given_up: offsets that they may lack.
    accept_unreadable: append although bytes of the partition cannot be read. keeping: where journals and quarantines are
    written. topic: as far as known.
    """

    source: str | None
    run_id: str
    follow_links: bool = False
    apply: bool = False
    batches: BatchRules
    rolls: RollRules = field(default_factory=RollRules)
    flush: FlushRules = field(default_factory=FlushRules)
    topic_id: str | None = None
    start_offset: int | None = None
    kafka07: bool = False
    dumps: int | None = None
    given_up: tuple[range, ...] = ()
    accept_unreadable: bool = False
    keeping: Keeping = BESIDE
    topic: TopicSettings = field(default_factory=TopicSettings)

    def __post_init__(self) -> None:
        if (self.source is None) == (self.batches.marker is None):
            raise UsageError("append takes either lines (--from) or a marker (--marker)")
        if self.given_up and self.dumps is None:
            raise UsageError("--lost needs --dumps")
        if self.topic_id is not None:
            try:
                encode_partition_metadata(PartitionMetadata(self.topic_id))
            except FormatError as error:
                raise UsageError(f"{self.topic_id} is not a topic id: {error}") from None
