"""What salvage answers where it has nothing to do: told by a glance (`verify.quick_check`), before anything is judged."""

from kseg.change.plan.directory_image import DirectoryImage
from kseg.recovery.policy import Circumstances, LoadSettings, Repair
from kseg.recovery.verify.quick_check import Known, extent_at_a_glance
from kseg.segment.partition.names import PartitionName, PartitionState


def left_alone(
    directory: str,
    name: PartitionName,
    found: DirectoryImage,
    circumstances: Circumstances,
    settings: LoadSettings,
) -> Repair | None:
    """The repair of a partition that is as it should be; None where that takes a closer look.

    name: of the partition in `directory`. found: all its files, and the image of the repair.
    """
    if name.state is not PartitionState.LIVE or name.is_metadata_log:
        return None
    offsets = (
        circumstances.high_watermark or 0,
        circumstances.recovery_point,
        circumstances.first_dirty_offset,
    )
    known = Known(offsets, circumstances.log_start_offset, circumstances.is_clean, settings.now_ms)
    extent = extent_at_a_glance(directory, found, known)
    if extent is None:
        return None
    end = extent.end_offset
    return Repair(
        image=found,
        log_start_offset=min(max(circumstances.log_start_offset, extent.first_offset), end),
        log_end_offset=end,
        last_stable_offset=end,
        recovery_point=circumstances.safe_point(end),
    )
