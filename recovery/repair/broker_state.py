"""What a broker would know about a partition before it loads it, unless the user specifies it."""

from dataclasses import replace

from kseg.recovery.policy import BrokerState
from kseg.recovery.repair.options import RecoverOptions
from kseg.segment.partition.log_dir_state import read_log_dir_state
from kseg.segment.partition.log_start_trace import log_start_trace
from kseg.segment.partition.names import PartitionName, Role


def broker_state_of(
    directory: str, name: PartitionName | None, log_dir: str | None, options: RecoverOptions
) -> BrokerState:
    """State of one partition: from the options, else from the files of its data directory, else offset 0 and an unclean shutdown.

    directory: the partition's. name: None when the directory is not named like a partition. log_dir: None when the data directory
    is not known. An unreadable checkpoint counts as empty, as for a broker (Kafka: LogManager.loadLogs).
    """
    log_dir_state = None if log_dir is None else read_log_dir_state(log_dir)

    def checkpointed(role: Role) -> int | None:
        if log_dir_state is None or name is None:
            return None
        return log_dir_state.offset(role, name.topic, name.partition)

    def started() -> int | None:
        """The log start offset: the checkpoint entry, or the evidence in the partition if the checkpoint is lost."""
        entry = checkpointed(Role.LOG_START_OFFSETS)
        if (
            entry is not None
            or log_dir_state is None
            or name is None
            or Role.LOG_START_OFFSETS not in log_dir_state.lost
        ):
            return entry
        trace = log_start_trace(directory)
        return None if trace is None else trace.offset

    def chosen(given: int | None, found: int | None) -> int:
        return given if given is not None else found or 0

    is_clean = options.is_clean
    if name is not None and name.is_metadata_log:
        # the Raft layer loads this log, ignoring the clean-shutdown marker and checkpoints (Kafka: KafkaRaftLog.createLog)
        return BrokerState(
            is_clean=bool(is_clean),
            recovery_point=options.recovery_point or 0,
            log_start_offset=options.log_start_offset or 0,
            log_dir=log_dir,
        )
    if is_clean is None:
        is_clean = log_dir_state is not None and (log_dir_state.is_clean or log_dir in options.marked)
    return BrokerState(
        is_clean=is_clean,
        recovery_point=chosen(options.recovery_point, checkpointed(Role.RECOVERY_POINTS)),
        log_start_offset=chosen(options.log_start_offset, started()),
        high_watermark=checkpointed(Role.HIGH_WATERMARKS),
        first_dirty_offset=checkpointed(Role.CLEANER_OFFSETS) or 0,
        log_dir=log_dir,
    )


def broker_state_of_segment(
    directory: str,
    name: PartitionName | None,
    log_dir: str | None,
    next_segment: int | None,
    options: RecoverOptions,
) -> BrokerState:
    """State of one segment, to which the offsets of the whole log do not apply. A segment below the recovery point is loaded as after a
    clean shutdown: it is not scanned.

    log_dir: the data directory around the partition. next_segment: base offset of the next one, None if this is the last.
    """
    of_log = broker_state_of(directory, name, log_dir, options)
    is_flushed = next_segment is not None and next_segment <= of_log.recovery_point
    return replace(broker_state_of(directory, name, None, options), is_clean=of_log.is_clean or is_flushed)
