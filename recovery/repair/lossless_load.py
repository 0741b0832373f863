"""Whether a load after a crash loses nothing, so that salvage would not keep more: known without running salvage.

Salvage reads the whole log and plans every file anew, which takes twice as long as the load and the check of its result. After most
crashes it would only confirm that nothing is lost. That is certain if all of the following hold:

1. The load removed nothing, and wrote only side files.
2. The check of its result reads every batch, and finds nothing but open transactions: no damage, and no gap between offsets.
3. Nothing that the load rewrote or removed knew of a batch beyond the log end: no index, snapshot or checkpoint.
4. Retention deletes no segment of the result, which a wrong time index might have caused.
"""

from collections.abc import Sequence

from kseg.change.plan.steps import Plan
from kseg.recovery.policy import BrokerState, Repair
from kseg.recovery.repair.options import RecoverOptions
from kseg.recovery.repair.target import RecoveryTarget
from kseg.segment.findings import Finding
from kseg.segment.partition.names import INDEX_ROLES, Role, parse_file_name

_WRITTEN_BY_LOAD = frozenset((*INDEX_ROLES, Role.PRODUCER_SNAPSHOT, Role.LEADER_EPOCHS))
_OF_NO_LOSS = "open-transaction"


def is_written_by_load(plan: Plan, broker_state: BrokerState) -> bool:
    """Whether a plan changes only what a broker's load writes anew after a crash."""
    names = (parse_file_name(step.name) for step in plan.steps)
    return not broker_state.is_clean and all(name.role in _WRITTEN_BY_LOAD and name.is_live for name in names)


def loses_nothing(
    recovery_target: RecoveryTarget,
    repair: Repair,
    broker_state: BrokerState,
    options: RecoverOptions,
    afterwards: Sequence[Finding] | None,
) -> bool:
    """Points 1 to 4 for a load that wrote only side files. afterwards: what a check of its result finds, None if there was none. Raises
    UnreadableInput."""
    if repair.removed or afterwards is None or any(each.id != _OF_NO_LOSS for each in afterwards):
        return False
    known = max(
        broker_state.high_watermark or 0, broker_state.recovery_point, broker_state.first_dirty_offset
    )
    return known <= repair.log_end_offset and not (
        _knows_of_more(recovery_target, repair.log_end_offset) or _expires(recovery_target, repair, options)
    )


def _knows_of_more(recovery_target: RecoveryTarget, end_offset: int) -> bool:
    from kseg.recovery.verify.partition_files import known_batch_ends
    from kseg.segment.partition.directory import list_partition

    directory = list_partition(recovery_target.directory)
    return any(known.offset >= end_offset for known in known_batch_ends(directory, None))


def _expires(recovery_target: RecoveryTarget, repair: Repair, options: RecoverOptions) -> bool:
    from kseg.recovery.repair.retention_after_load import deletes_any, time_limit

    topic = options.topic_of(recovery_target.directory)
    limit = time_limit(topic, recovery_target.partition, options.settings.now_ms)
    directory, inputs = recovery_target.directory, recovery_target.inputs
    return limit is not None and deletes_any(directory, inputs, repair.image, limit)
