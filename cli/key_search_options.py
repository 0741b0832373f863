"""Options that narrow a search for a key, so that `lookup --key` need not read all data."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from kseg.cli.filters import FromOffset, FromTime, ToOffset, ToTime, refuse_reversed_ranges
from kseg.cli.option_schema import FILTER, Option
from kseg.cli.options import count_option
from kseg.segment.errors import UsageError
from kseg.segment.layout import INT64_MAX
from kseg.segment.partition.bounds import INT64_MIN, Bounds

if TYPE_CHECKING:
    from kseg.jobs.events import Event
    from kseg.segment.partition.targets import Target

MURMUR2 = "murmur2"


class KeySearch(NamedTuple):
    """Options that apply to --key only."""

    from_offset: FromOffset = None
    to_offset: ToOffset = None
    from_time: FromTime = None
    to_time: ToTime = None
    partitioner: Annotated[
        str | None,
        Option(
            choices=(MURMUR2,),
            help="Search only the partition that the Java client's default partitioner selects for the key. Assumes that every "
            "producer of the topic used it, and that the topic never had fewer partitions.",
            panel=FILTER,
        ),
    ] = None
    partition_count: Annotated[
        int | None,
        count_option(
            "How many partitions the topic has, for --partitioner. Default: what the metadata log says.",
            FILTER,
        ),
    ] = None

    def refuse_without_key(self) -> None:
        """Raises UsageError if one of them is given without --key."""
        for name, value in self._asdict().items():
            if value is not None:
                raise UsageError(f"--{name.replace('_', '-')} requires --key")

    @property
    def bounds(self) -> Bounds:
        """Raises UsageError."""
        refuse_reversed_ranges(self.from_offset, self.to_offset, self.from_time, self.to_time)
        return Bounds(
            0 if self.from_offset is None else self.from_offset,
            INT64_MAX if self.to_offset is None else self.to_offset,
            INT64_MIN if self.from_time is None else self.from_time,
            INT64_MAX if self.to_time is None else self.to_time,
        )

    def look(self, targets: "Sequence[Target]", options: Any) -> "tuple[object, Sequence[Event]]":
        """The options of a lookup; with --partitioner including the partition count of each topic among the targets.

        Raises UsageError if the partition count of a topic is unknown.
        """
        if self.partitioner is None:
            if self.partition_count is not None:
                raise UsageError("--partition-count requires --partitioner")
            return options, ()
        return replace(options, partition_counts=self._counts(targets)), ()

    def _counts(self, targets: "Sequence[Target]") -> dict[str, int]:
        from kseg.cli.topic_evidence import finder_for
        from kseg.segment.partition.directory import own_partition_name
        from kseg.segment.partition.targets import PartitionTarget, directory_of, log_dir_of

        finder = finder_for(targets, None)
        counts: dict[str, int] = {}
        for target in targets:
            directory = directory_of(target)
            name = own_partition_name(directory)
            if name is None or name.topic in counts:
                continue
            if self.partition_count is not None:
                counts[name.topic] = self.partition_count
                continue
            image = finder.image_for(log_dir_of(PartitionTarget(directory)))
            topics = {} if image is None or not image.is_certain else image.topics
            known = [topic for topic in topics.values() if topic.name == name.topic]
            if not known:
                raise UsageError(
                    f"no metadata log says how many partitions {name.topic} has: --partitioner requires --partition-count"
                )
            counts[name.topic] = len(known[0].partitions)
        return counts
