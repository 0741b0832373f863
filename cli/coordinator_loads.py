"""The findings of `verify` and `recover` about records that a coordinator fails to load. A module of its own, since `recover` does without
the rest of `verify_work`, which takes longer to import."""

from collections.abc import Iterator

from kseg.segment.findings import Finding
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import GROUP_TOPICS, TRANSACTION_STATE_TOPIC, PartitionState
from kseg.segment.partition.targets import PartitionTarget


def coordinator_findings(target: PartitionTarget) -> Iterator[Finding]:
    """A finding for each record of a coordinator's topic that its coordinator fails to load, or skips; none for other partitions."""
    name = own_partition_name(target.path)
    if name is None or name.state is not PartitionState.LIVE:
        return
    if name.topic in GROUP_TOPICS:
        from kseg.internal_topics.groups.groups import load_findings

        yield from load_findings(target)
    elif name.topic == TRANSACTION_STATE_TOPIC:
        from kseg.internal_topics.transactions.load_check import check_transaction_log

        yield from check_transaction_log(target)
