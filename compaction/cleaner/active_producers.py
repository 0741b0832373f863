"""The last batch of each active producer, which is retained so that its sequence number survives (fact sheet §8.6)."""

from kseg.segment.state.producer import ProducerState
from kseg.segment.values import dataclass


@dataclass(frozen=True, slots=True)
class LastRecords:
    """data_offsets: (last offset, producer id) of the newest data batch of each producer that has one. marker_epochs: epoch by
    producer id, for producers of which only a marker is known."""

    data_offsets: tuple[tuple[int, int], ...] = ()
    marker_epochs: dict[int, int] | None = None

    def is_last_marker(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a control batch is the last batch that a broker keeps for a producer."""
        return self.marker_epochs is not None and self.marker_epochs.get(producer_id) == producer_epoch


def last_records(state: ProducerState) -> LastRecords:
    """The last records of all producers of a state (Kafka: UnifiedLog.lastRecordsOfActiveProducers)."""
    entries = state.snapshot()
    return LastRecords(
        tuple((entry.last_offset, entry.producer_id) for entry in entries if entry.last_offset >= 0),
        {entry.producer_id: entry.producer_epoch for entry in entries if entry.last_offset < 0},
    )
