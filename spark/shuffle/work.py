"""`compact` of one partition whose keys are too many for one map: planned by a shuffle, applied as any other.

The driver looks at the partition, asks the cluster for the two passes (`passes`), and carries the plan out itself: new
logs lie on the shared file system by then, and get their names without a byte being moved.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from kseg.compaction.cleaner.options import CompactOptions
from kseg.compaction.cleaner.work import carry_out, prepare, scratch_directory
from kseg.segment.apply.journal import new_run_id
from kseg.segment.apply.together import LogTarget
from kseg.segment.apply.workplace import Workplace
from kseg.segment.events import Event
from kseg.segment.partition.names import FileState, Role, parse_file_name
from kseg.segment.targets import PartitionTarget, Target
from kseg.spark.shuffle.jobs import Jobs
from kseg.spark.shuffle.passes import ShuffledPasses

if TYPE_CHECKING:
    from pyspark import SparkContext


def is_too_large(target: Target, options: CompactOptions) -> bool:
    """Whether the keys of a partition may not fit the map of one pass: by the names of its files, which say how many
    offsets there are between the first and the last segment."""
    if not isinstance(target, PartitionTarget):
        return False
    try:
        names = map(parse_file_name, os.listdir(target.path))
    except OSError:
        return False
    bases = [
        name.base_offset
        for name in names
        if name.role is Role.LOG and name.state is FileState.LIVE and name.base_offset is not None
    ]
    first = min(bases, default=0)
    if options.first_dirty_offset is not None:
        first = max(first, options.first_dirty_offset)
    return max(bases, default=0) - first > options.settings.map_keys


def compact_by_shuffle(
    target: LogTarget, options: CompactOptions, context: "SparkContext"
) -> Iterator[Event]:
    """`compact` with its passes on the cluster; raises what it raises. Runs in the driver."""
    with ExitStack() as stack:
        workplace = None
        where = scratch_directory(target, options) if isinstance(target, PartitionTarget) else None
        if where is not None:
            workplace = Workplace(where, new_run_id(options.settings.now_ms))
            stack.callback(workplace.close)
        passes = partial(ShuffledPasses, Jobs(context, target.path), workplace)
        yield from carry_out((yield from prepare(target, options, passes)), options)
