"""The step for a controller that allocates producer ids a second time: a record at the end of its metadata log makes it continue after
those in the logs (observed with 4.3.1, tests/kafka/test_new_metadata_log.py). Of several controllers, the others get a copy of that log."""

from collections.abc import Iterator, Sequence

from kseg.cli.doctor.next_step import NextStep, append_command, copy_command, move_command
from kseg.internal_topics.metadata.reissued_producer_ids import record_line
from kseg.segment.diagnosis import ReissuedProducerIds
from kseg.segment.terminal import shown_path


def skip_producer_ids(found: Sequence[tuple[str, ReissuedProducerIds]]) -> Iterator[NextStep]:
    """found: metadata logs of stopped controllers."""
    for metadata_log, about in sorted(found, key=lambda each: each[0] != each[1].newest):
        if metadata_log == about.newest:
            yield NextStep(
                f"Producers in the logs have ids up to {about.greatest_id}, but the controller allocates ids from {about.next_id} on, because its "
                "metadata log is new or an older copy: a broker acknowledges the first records of a new producer with such an id, but drops "
                "them. Before any node starts, add the record that makes the controller continue above these ids; `kseg undo` reverts that.",
                append_command([record_line(about)], metadata_log, f"--leader-epoch {about.epoch}"),
            )
        else:
            yield NextStep(
                f"The controller with {shown_path(metadata_log)} may be elected, and allocates ids from {about.next_id} on, which producers already "
                "have. Before any node starts, move that log out of the data directory, and copy the one with the record that prevents it.",
                copy_command(about.newest, metadata_log, first=move_command(metadata_log)),
            )
