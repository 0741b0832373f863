"""The results of a run of `recover` as partition outcomes, for the files of the data directory."""

from kseg.jobs.events import Failure
from kseg.recovery.repair.aligned_checkpoints import PartitionOutcome
from kseg.recovery.repair.rows import RecoverResult
from kseg.segment.partition.directory import own_partition_name


def outcome_of(result: RecoverResult) -> PartitionOutcome | None:
    name = own_partition_name(result.directory)
    if name is None:
        return None
    if result.first_base_offset is None:  # there is no log, which is not an error
        return PartitionOutcome(
            name=name,
            first_base_offset=0,
            log_start_offset=0,
            log_end_offset=0,
            recovery_point=0,
            changed=bool(result.steps),
            loses_bytes=bool(result.removed),
            doubt=result.doubt or "",
            is_misplaced=result.misplaced,
            is_left_damaged=result.left_damaged,
            is_known=False,
        )
    return PartitionOutcome(
        name=name,
        first_base_offset=result.first_base_offset,
        log_start_offset=result.log_start_offset,
        log_end_offset=result.log_end_offset,
        recovery_point=result.recovery_point,
        changed=bool(result.steps),
        loses_bytes=bool(result.removed),
        doubt=result.doubt or "",
        is_misplaced=result.misplaced,
        is_left_damaged=result.left_damaged,
    )


def outcome_of_failure(failure: Failure) -> PartitionOutcome | None:
    name = own_partition_name(failure.path)
    if name is None:
        return None
    return PartitionOutcome(
        name=name,
        first_base_offset=0,
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        doubt=f"cannot be recovered: {failure.sentence}",
        is_known=False,
    )
