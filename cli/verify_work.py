"""The work of `verify` with what the rooms below it know of each other's: a partition of a coordinator's topic is also loaded as its
coordinator loads it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kseg.recovery.broker_start.start_check import VerifyForStart
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import PartitionState
from kseg.segment.partition.targets import FileTarget, LogDirTarget, PartitionTarget

if TYPE_CHECKING:
    from kseg.recovery.verify.options import VerifyOptions
    from kseg.segment.findings import Finding

_GROUP_TOPICS = ("__consumer_offsets", "__share_group_state")
_TRANSACTION_TOPIC = "__transaction_state"


class VerifyWithLoads(VerifyForStart):
    """Records that a coordinator fails to load are findings of their partition; `--quick` does not look for them."""

    def further(
        self, target: FileTarget | PartitionTarget | LogDirTarget, options: "VerifyOptions"
    ) -> "Iterator[Finding]":
        name = own_partition_name(target.path) if isinstance(target, PartitionTarget) else None
        if name is None or name.state is not PartitionState.LIVE or options.level == "quick":
            return
        assert isinstance(target, PartitionTarget)
        if name.topic in _GROUP_TOPICS:
            from kseg.internal_topics.groups.groups import load_findings

            yield from load_findings(target)
        elif name.topic == _TRANSACTION_TOPIC:
            from kseg.internal_topics.transactions.load_check import check_transaction_log

            yield from check_transaction_log(target)
