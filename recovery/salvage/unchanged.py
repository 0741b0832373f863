"""Skip salvage for partitions that need no repair: the fast path of `verify.quick_check` decides that."""

from kseg.change.plan.directory_image import DirectoryImage
from kseg.recovery.policy import BrokerState, LoadSettings, Repair
from kseg.recovery.verify.quick_check import KnownState, quick_extent
from kseg.segment.files import DISK, Reader
from kseg.segment.partition.names import PartitionName, PartitionState


def unchanged_repair(
    directory: str,
    name: PartitionName,
    found: DirectoryImage,
    broker_state: BrokerState,
    settings: LoadSettings,
    reader: Reader = DISK,
) -> Repair | None:
    """The repair of a partition that needs none; None if the full salvage has to decide.

    name: of the partition in `directory`. found: all its files, and the image of the repair. reader: opens them.
    """
    if name.state is not PartitionState.LIVE or name.is_metadata_log:
        return None
    offsets = (
        broker_state.high_watermark or 0,
        broker_state.recovery_point,
        broker_state.first_dirty_offset,
    )
    known = KnownState(offsets, broker_state.log_start_offset, broker_state.is_clean, settings.now_ms)
    extent = quick_extent(directory, found, known, reader)
    # if some segments are only in remote storage, their epochs have to be checked
    if extent is None or (settings.topic.is_tiered and broker_state.log_start_offset < extent.first_offset):
        return None
    end = extent.end_offset
    return Repair(
        image=found,
        log_start_offset=min(
            settings.topic.log_start(broker_state.log_start_offset, extent.first_offset), end
        ),
        log_end_offset=end,
        last_stable_offset=end,
        recovery_point=broker_state.safe_point(end),
    )
