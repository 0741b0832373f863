"""The steps for the logs of topics that were deleted: a topic that was deleted by mistake is still there for a while.

A broker renames the directories of a deleted topic to `….<hex>-delete`, and deletes them log.segment.delete.delay.ms (a minute) after that,
or, if it is stopped before, after its next start (Kafka: LogManager.asyncDelete, loadLog; observed with 4.3.1). If they are moved out of
the data directory in time, and put in place of the partitions of a new topic, a broker serves all of their records again (observed with
4.3.1).
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

if TYPE_CHECKING:
    from kseg.internal_topics.metadata.metadata_finder import MetadataFinder

_LISTED = 5  # directories with a step of their own


def of_deleted_topics(leftovers: Sequence[Leftover], finder: "MetadataFinder") -> Iterator[str]:
    """The directories marked for deletion that have records and whose topic is no longer in the metadata log. The others are those of
    replicas that were moved or reassigned."""
    for each in leftovers:
        if each.kind is not LeftoverKind.DELETED_PARTITIONS:
            continue
        image, topic_id = finder.governing_image(os.path.dirname(each.path)), topic_id_of(each.path)[1]
        is_deleted = image is not None and image.is_certain and topic_id not in image.topics
        if is_deleted and topic_id is not None and end_offset_of(PartitionTarget(each.path)) > 0:
            yield each.path


def keep_deleted(directories: Sequence[str], request: Request) -> Iterator[NextStep]:
    """Not due: most topics are deleted on purpose."""
    shown = shown_of(len(directories), _LISTED)
    for number, path in enumerate(directories[:shown]):
        name = partition_name(os.path.basename(path))
        own = os.path.basename(path) if name is None else name.text
        words = f"Likewise {shown_path(own)}."
        if number == 0:
            words = (
                f"The topic of {shown_path(own)} was deleted, and a broker deletes this log a minute after its start. If that was a mistake, "
                "move the log out of the data directory first. To get the topic back, create it again with as many partitions, stop the broker, "
                f"put the log in the place of the new directory {shown_path(own)} (on each node with a replica), and follow `kseg doctor`, which gives "
                "it the new topic id."
            )
        yield move_out(words, path, is_due=False)
    more = len(directories) - shown
    if more > 0:
        command = command_line("list", {"--verbose": True}, request)
        yield NextStep(f"Likewise {counted(more, 'more log')}: list them.", command, is_due=False)
