"""The records that a coordinator fails to load: for the findings of `verify` and `recover`, and the steps of `doctor`. A module of its own,
since `recover` does without the rest of `verify_work`, which takes longer to import."""

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


def record_findings(target: PartitionTarget) -> Iterator[Finding]:
    """The same without what the coordinator passes over, which a repair of the log puts in order."""
    for finding in coordinator_findings(target):
        from kseg.internal_topics.load_findings import SKIPPED  # few partitions have any

        if finding.id != SKIPPED:
            yield finding


def failing_offsets(target: PartitionTarget) -> list[int]:
    """The offsets of all records that the coordinator fails to load if those before it in the list are gone."""
    name = own_partition_name(target.path)
    if name is not None and name.topic in GROUP_TOPICS:
        from kseg.internal_topics.groups.groups import load_failures

        found = [each.offset for each in load_failures(target)]
    else:
        from kseg.internal_topics.load_findings import FAILS

        found = [
            each.first_offset
            for each in coordinator_findings(target)
            if each.id == FAILS and each.first_offset is not None
        ]
    return sorted({*found})
