"""The steps for the logs of topics that were deleted: a topic that was deleted by mistake is still there for a while.

A broker renames the directories of a deleted topic to `….<hex>-delete`, and deletes them log.segment.delete.delay.ms (a minute) after that,
or, if it is stopped before, after its next start (Kafka: LogManager.asyncDelete, loadLog; observed with 4.3.1). If they are moved out of
the data directory in time, and put in place of the partitions of a new topic, a broker serves all of their records again (observed with
4.3.1). That topic needs another name if the deleted one was created again, whose new records would be lost otherwise.
"""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kseg.cli.doctor.next_step import NextStep, move_out
from kseg.cli.next_command import command_line
from kseg.cli.request import Request
from kseg.inspection.disk_leftovers import Leftover, LeftoverKind
from kseg.internal_topics.broker_directories import end_offset_of
from kseg.internal_topics.metadata.replica_directories import topic_id_of
from kseg.segment.counted import counted, shown_of
from kseg.segment.partition.directory import partition_name
from kseg.segment.partition.targets import PartitionTarget
from kseg.segment.terminal import shown_path
from kseg.segment.values import dataclass

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder

_LISTED = 5  # directories with a step of their own


@dataclass(frozen=True, slots=True)
class DeletedLog:
    """The directory of a deleted topic's partition. is_name_taken: there is another topic with the name."""

    path: str
    is_name_taken: bool

    @property
    def partition(self) -> str:
        name = partition_name(os.path.basename(self.path))
        return os.path.basename(self.path) if name is None else name.text


def of_deleted_topics(leftovers: Sequence[Leftover], finder: "MetadataFinder") -> Iterator[DeletedLog]:
    """The directories marked for deletion that have records and whose topic is no longer in the metadata log. The others are those of
    replicas that were moved or reassigned."""
    for each in leftovers:
        if each.kind is not LeftoverKind.DELETED_PARTITIONS:
            continue
        image, topic_id = finder.governing_image(os.path.dirname(each.path)), topic_id_of(each.path).topic_id
        if image is None or not image.is_certain or topic_id is None or topic_id in image.topics:
            continue
        if end_offset_of(PartitionTarget(each.path)) > 0:
            name = partition_name(os.path.basename(each.path))
            yield DeletedLog(each.path, name is not None and name.topic in image.id_by_name)


def keep_deleted(logs: Sequence[DeletedLog], request: Request) -> Iterator[NextStep]:
    """Not due: most topics are deleted on purpose."""
    shown = shown_of(len(logs), _LISTED)
    explained: set[bool] = set()
    for log in logs[:shown]:
        words = f"Likewise {shown_path(log.partition)}."
        if log.is_name_taken not in explained:
            words = _explanation(log)
        explained.add(log.is_name_taken)
        yield move_out(words, log.path, is_due=False)
    more = len(logs) - shown
    if more > 0:
        command = command_line("list", {"--verbose": True}, request)
        yield NextStep(f"Likewise {counted(more, 'more log')}: list them.", command, is_due=False)


def _explanation(log: DeletedLog) -> str:
    own = shown_path(log.partition)
    back = "To get the topic back, create it again with as many partitions"
    place = f"the new directory {own}"
    if log.is_name_taken:
        back = "There is a new topic with its name. To get the old records back, create a topic with another name and as many partitions"
        place = "the directory of the same partition of that topic"
    return (
        f"The topic of {own} was deleted, and a broker deletes this log a minute after its start. If that was a mistake, move the log out of "
        f"the data directory first. {back}, stop the broker, put the log in the place of {place} (on each node with a replica), and follow "
        "`kseg doctor`, which gives it the new topic id."
    )
