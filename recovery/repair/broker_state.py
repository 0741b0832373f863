"""What a broker would know of a partition before it loads it, unless the user says otherwise."""

from kseg.recovery.policy import Circumstances
from kseg.recovery.repair.options import RecoverOptions
from kseg.segment.partition.log_dir_state import surroundings
from kseg.segment.partition.log_start_trace import log_start_trace
from kseg.segment.partition.names import PartitionName, Role


def circumstances_of(
    directory: str, name: PartitionName | None, log_dir: str | None, options: RecoverOptions
) -> Circumstances:
    """For one partition: the user's word, else the files of its data directory, else 0 and unclean.

    directory: the partition's. name: None when the directory is not named like a partition. log_dir: None when the data directory is not known. A checkpoint that cannot be read says nothing, as for a
    broker (Kafka: LogManager.loadLogs).
    """
    around = None if log_dir is None else surroundings(log_dir)

    def checkpointed(role: Role) -> int | None:
        if around is None or name is None:
            return None
        return around.offset(role, name.topic, name.partition)

    def started() -> int | None:
        """Where the log starts: the checkpoint's entry, or a trace of it where the file is lost."""
        entry = checkpointed(Role.LOG_START_OFFSETS)
        if entry is not None or around is None or name is None or Role.LOG_START_OFFSETS not in around.lost:
            return entry
        trace = log_start_trace(directory)
        return None if trace is None else trace.offset

    def chosen(said: int | None, found: int | None) -> int:
        return said if said is not None else found or 0

    is_clean = options.is_clean
    if is_clean is None:
        is_clean = around is not None and (around.is_clean or log_dir in options.marked)
    return Circumstances(
        is_clean=is_clean,
        recovery_point=chosen(options.recovery_point, checkpointed(Role.RECOVERY_POINTS)),
        log_start_offset=chosen(options.log_start_offset, started()),
        high_watermark=checkpointed(Role.HIGH_WATERMARKS),
        first_dirty_offset=checkpointed(Role.CLEANER_OFFSETS) or 0,
        log_dir=log_dir,
    )
