"""The step for a controller that allocates producer ids a second time: a record at the end of its metadata log makes it continue after
those in the logs (observed with 4.3.1, tests/kafka/test_new_metadata_log.py)."""

from collections.abc import Iterator, Sequence

from kseg.cli.doctor.next_step import NextStep, append_command
from kseg.internal_topics.metadata.reissued_producer_ids import record_line
from kseg.segment.diagnosis import ReissuedProducerIds


def skip_producer_ids(found: Sequence[tuple[str, ReissuedProducerIds]]) -> Iterator[NextStep]:
    """found: metadata logs of stopped controllers, each the only voter of its quorum."""
    for metadata_log, about in found:
        yield NextStep(
            f"Producers in the logs have ids up to {about.greatest_id}, but the controller allocates ids from {about.next_id} on, because its "
            "metadata log is new or an older copy: a broker acknowledges the first records of a new producer with such an id, but drops "
            "them. Before any node starts, add the record that makes the controller continue above these ids; `kseg undo` reverts that.",
            append_command([record_line(about)], metadata_log, f"--leader-epoch {about.epoch}"),
        )
