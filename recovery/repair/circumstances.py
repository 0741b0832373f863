"""What a broker would know of a partition before it loads it, unless the user says otherwise."""

from kseg.recovery.policy import Circumstances
from kseg.recovery.repair.options import RecoverOptions
from kseg.segment.partition.directory import own_partition_name
from kseg.segment.partition.names import Role
from kseg.segment.partition.surroundings import surroundings


def circumstances_of(directory: str, log_dir: str | None, options: RecoverOptions) -> Circumstances:
    """For the partition in `directory`: the user's word, else the files of its data directory, else 0 and unclean.

    log_dir: None when the data directory is not known. A checkpoint that cannot be read says nothing, as for a
    broker (Kafka: LogManager.loadLogs).
    """
    around = None if log_dir is None else surroundings(log_dir)
    name = own_partition_name(directory)

    def checkpointed(role: Role) -> int | None:
        if around is None or name is None:
            return None
        return around.offset(role, name.topic, name.partition)

    def chosen(said: int | None, role: Role) -> int:
        return said if said is not None else checkpointed(role) or 0

    is_clean = options.is_clean
    if is_clean is None:
        is_clean = around is not None and (around.is_clean or log_dir in options.marked)
    return Circumstances(
        is_clean=is_clean,
        recovery_point=chosen(options.recovery_point, Role.RECOVERY_POINTS),
        log_start_offset=chosen(options.log_start_offset, Role.LOG_START_OFFSETS),
        high_watermark=checkpointed(Role.HIGH_WATERMARKS),
        log_dir=log_dir,
    )
