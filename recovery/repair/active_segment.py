"""`--mark-clean`: the index files of an empty active segment.

A broker creates them when it first appends to the segment or reads it, or when it stops (Kafka: LazyIndex). If it is killed right after it
rolled the log, they are missing. A load without the clean-shutdown marker creates them; a load with it, which expects them there, logs the
error "Could not find offset index file" and recovers the segment.
"""

from dataclasses import replace

from kseg.recovery.policy import Repair
from kseg.segment.partition.names import SUFFIX_BY_ROLE, Role, parse_file_name, segment_file_name

_INDEX_ROLES = (Role.OFFSET_INDEX, Role.TIME_INDEX)


def with_indexes_of_active_segment(repair: Repair) -> Repair:
    """Add the missing index files of the last segment, if that has no records; the time index only if another segment has one, or there is
    none."""
    names = [name for name in map(parse_file_name, repair.image) if name.is_live]
    bases = [name.base_offset for name in names if name.role is Role.LOG and name.base_offset is not None]
    if repair.load_failure is not None or not bases:
        return repair
    active = max(bases)
    if repair.image.size_bytes(segment_file_name(active, SUFFIX_BY_ROLE[Role.LOG])):
        return repair  # the indexes of a segment with records are rebuilt from its records
    has_times = len(bases) == 1 or any(name.role is Role.TIME_INDEX for name in names)
    wanted = _INDEX_ROLES if has_times else (Role.OFFSET_INDEX,)
    created = [segment_file_name(active, SUFFIX_BY_ROLE[role]) for role in wanted]
    created = [name for name in created if name not in repair.image]
    if not created:
        return repair
    image = repair.image.copy()
    for name in created:
        image.write(name, b"")
    why = dict.fromkeys(created, "created as a clean shutdown does: the active segment is empty")
    return replace(repair, image=image, why={**repair.why, **why})
