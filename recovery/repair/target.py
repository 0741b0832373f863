"""The target of `recover`: a partition directory, or a single segment of it.

For a single segment only its own log and indexes are read and changed: producers, epochs and the other segments
belong to the partition, and the plan does not touch them.
"""

import os

from kseg.change.plan.directory_image import DirectoryImage
from kseg.change.plan.inputs import inputs_of
from kseg.change.plan.steps import FileIdentity
from kseg.change.run.run_lifecycle import log_dir_around
from kseg.segment.errors import UsageError
from kseg.segment.findings import Finding
from kseg.segment.layout import LOG_SUFFIX
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import INDEX_ROLES, PartitionName, Role, is_kafka07_log, parse_file_name
from kseg.segment.partition.targets import LogTarget, PartitionTarget
from kseg.segment.values import dataclass

_SEGMENT_FILES = (Role.LOG, Role.KAFKA07_LOG, *INDEX_ROLES)


@dataclass(frozen=True, slots=True)
class RecoveryTarget:
    """directory: as shown to the user. log_dir: the data directory whose files belong to the target, None if there is none, and for a
    single segment. around: the data directory whose broker loads the partition. found: all files of the partition. partition: the
    parsed name, None if it is not a partition's name. base_offset: of the only segment concerned, None for the whole partition."""

    directory: str
    log_dir: str | None
    around: str | None
    found: tuple[FileIdentity, ...]
    partition: PartitionName | None
    base_offset: int | None = None

    @property
    def inputs(self) -> tuple[FileIdentity, ...]:
        """The files that may be read."""
        return tuple(file for file in self.found if self._is_concerned(file.name))

    @property
    def name(self) -> str:
        """`topic-partition`, or the path if the directory has another kind of name."""
        return self.directory if self.partition is None else self.partition.text

    @property
    def next_segment(self) -> int | None:
        """Base offset of the segment after the only one concerned, None if there is none."""
        names = [parse_file_name(file.name) for file in self.found]
        offsets = [name.base_offset for name in names if name.role is Role.LOG and name.is_live]
        return min(
            (each for each in offsets if each is not None and each > (self.base_offset or 0)), default=None
        )

    @property
    def is_kafka07(self) -> bool:
        """Whether this is a log of Kafka 0.7."""
        return is_kafka07_log(parse_file_name(file.name) for file in self.inputs)

    def restricted(self, image: DirectoryImage) -> DirectoryImage:
        """The image without changes to files outside the target."""
        if self.base_offset is None:
            return image
        kept = DirectoryImage.of(self.found)
        for name in {*kept, *image}:
            if not self._is_concerned(name):
                continue
            if name in image:
                kept.write(name, image.content(name), image.like(name))
            else:
                kept.remove(name)
        return kept

    def concerns(self, finding: Finding) -> bool:
        """Whether a finding is about the target and not about files outside it."""
        return self.base_offset is None or self._is_concerned(os.path.basename(finding.path))

    def _is_concerned(self, file_name: str) -> bool:
        if self.base_offset is None:
            return True
        name = parse_file_name(file_name)
        return name.base_offset == self.base_offset and name.role in _SEGMENT_FILES and name.is_live


def recovery_target_of(target: LogTarget) -> RecoveryTarget:
    """The target for a path. Raises UsageError for a file that belongs to no segment, UnreadableInput when nothing can be listed."""
    if isinstance(target, PartitionTarget):
        return RecoveryTarget(
            target.path,
            target.log_dir,
            target.log_dir,
            inputs_of(target.path, follow_links=True),
            own_partition_name(target.path),
        )
    head, tail = os.path.split(target.path)
    name = parse_file_name(tail)
    if name.base_offset is None or name.role not in _SEGMENT_FILES:
        if name.base_offset is None and tail.endswith(LOG_SUFFIX):
            raise UsageError(
                f"{target.path} is not named like a segment file: rename it to its first offset in 20 digits, "
                f"such as {0:020d}{LOG_SUFFIX}, to recover it"
            )
        raise UsageError(f"{target.path} is not a segment file; name its partition directory to recover it")
    directory = head or os.curdir
    return RecoveryTarget(
        directory,
        None,
        log_dir_around(target),
        inputs_of(directory, follow_links=True),
        own_partition_name(directory),
        name.base_offset,
    )
