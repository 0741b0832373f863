"""`compact` for partitions with too many keys for one map: planned by a shuffle, applied like any other compaction.

The driver examines such a partition, runs the two passes on the cluster (`shuffled_passes`), and applies the plan itself: by then the
new logs are on the shared file system and are only renamed. All other partitions are compacted by one task each
(`spark.cluster_fanout`).

A partition is chosen if, by the names of its files, there are more offsets between the first and the last segment than the map of one
pass can hold. If it turns out to have fewer keys, both ways produce the same bytes; if it has more, a shuffle takes one pass where a
local run with the same --map-memory takes several, each of which groups the segments again. The result is that of a local run with
room for all keys.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kseg.change.apply.journal_location import new_run_id
from kseg.change.run.pipeline import TargetGroup
from kseg.compaction.cleaner.compact import carry_out, prepare, scratch_directory
from kseg.compaction.cleaner.options import CompactOptions
from kseg.jobs.events import Event, Work
from kseg.jobs.guarded import guarded
from kseg.segment.partition.names import FileState, Role, parse_file_name
from kseg.segment.partition.targets import LogTarget, PartitionTarget, Target
from kseg.spark import cluster_fanout
from kseg.spark.options import ClusterOptions
from kseg.spark.shuffle.driver import Jobs
from kseg.spark.shuffle.exchange_dir import ExchangeDir
from kseg.spark.shuffle.shuffled_passes import ShuffledPasses

if TYPE_CHECKING:
    from pyspark import SparkContext


def is_too_large(target: Target, options: CompactOptions) -> bool:
    """Whether the keys of a partition may not fit into the map of one pass, judging by the number of offsets between the first and the
    last segment."""
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
    """`compact` with its passes on the cluster. Runs in the driver; raises what `compact` raises."""
    with ExitStack() as stack:
        exchange_dir = None
        where = scratch_directory(target, options) if isinstance(target, PartitionTarget) else None
        if where is not None:
            exchange_dir = ExchangeDir(where, new_run_id(options.settings.now_ms))
            stack.callback(exchange_dir.close)
        passes = partial(ShuffledPasses, Jobs(context, target.path), exchange_dir)
        yield from carry_out((yield from prepare(target, options, passes)), options)


def run(
    work: Work[TargetGroup, CompactOptions],
    groups: Sequence[TargetGroup],
    options: CompactOptions,
    cluster: ClusterOptions,
    finished: Callable[[TargetGroup], None] | None = None,
    notify: Callable[[str], None] | None = None,
    **more: Any,
) -> Iterator[Event]:
    """`spark.cluster_fanout.run`, except that a group of one partition that is too large for one map is compacted by a shuffle in its
    turn, using the whole cluster."""
    for is_large, stretch in groupby(groups, lambda group: _is_large(group, options)):
        if not is_large:
            yield from cluster_fanout.run(work, list(stretch), options, cluster, finished, notify, **more)
            continue
        compact = partial(compact_by_shuffle, context=cluster_fanout.ready(cluster, notify))
        for group in stretch:
            # the driver makes a single attempt, so there are no other attempts to coordinate with
            yield from guarded(compact, group.targets[0], replace(options, shared=None))
            if finished is not None:
                finished(group)


def _is_large(group: TargetGroup, options: CompactOptions) -> bool:
    return len(group.targets) == 1 and is_too_large(group.targets[0], options)
