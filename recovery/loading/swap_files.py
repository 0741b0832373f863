"""What interrupted cleanings, splits and deletions left behind (fact sheet §6.2, steps 1 to 5; Kafka: LogLoader.load).

1. Every `.deleted` goes, except that of a KRaft snapshot. The smallest number of any `.cleaned` file is remembered.
2. Every `.swap` with a number at or above it goes: its split was not finished. Then all `.cleaned` go.
3. The `.log.swap` that are left span a range of offsets, from the smallest base to the greatest next offset. To find
   that out a broker opens them, and so makes an index that is missing, at its full size.
4. Every other file whose number lies in that range goes: segments that are replaced, their indexes and snapshots.
5. Every `.swap` gets its final name.
"""

from kseg.recovery.loading.kafka_exceptions import KafkaThrows
from kseg.recovery.loading.load_state import LoadState, offset_in_name
from kseg.recovery.loading.loss_report import report_whole
from kseg.recovery.loading.segment import LoadedSegment
from kseg.recovery.policy import LoadSettings
from kseg.segment import layout as L

_KRAFT_SNAPSHOT_DELETED = L.CHECKPOINT_SUFFIX + L.DELETED_SUFFIX


def settle_leftovers(place: LoadState, settings: LoadSettings) -> None:
    """Carry out the steps above. Raises KafkaThrows."""
    swaps = _remove_temporary_files(place)
    if not swaps:
        return
    begin, end = _replaced_range(place, settings, swaps)
    for name in place.listing():
        if not name.endswith(L.SWAP_SUFFIX) and _lies_in(name, begin, end):
            why = f"replaced by a finished cleaning or split of the offsets {begin} to {end - 1}"
            if name.endswith(L.LOG_SUFFIX):
                report_whole(place, name, offset_in_name(name), "leftover-swap", is_replaced=True)
            place.remove(name, why)
    for name in place.listing():
        if name.endswith(L.SWAP_SUFFIX):
            final_name = name.removesuffix(L.SWAP_SUFFIX)
            if final_name in place.image and final_name.endswith(L.LOG_SUFFIX):
                # an empty replacement spans no offsets, and takes the place of its namesake all the same
                report_whole(place, final_name, offset_in_name(final_name), "leftover-swap", is_replaced=True)
            place.rename(name, final_name, "a finished cleaning or split is completed")


def _remove_temporary_files(place: LoadState) -> list[str]:
    """Steps 1 and 2; the `.swap` files that count."""
    cleaned, swaps = [], []
    for name in place.listing():
        if name.endswith(L.DELETED_SUFFIX) and not name.endswith(_KRAFT_SNAPSHOT_DELETED):
            place.note("leftover-deleted", name, "the file is marked for deletion and goes")
            place.remove(name, "marked for deletion")
        elif name.endswith(L.CLEANED_SUFFIX):
            cleaned.append(name)
        elif name.endswith(L.SWAP_SUFFIX):
            swaps.append(name)
    least = min(map(offset_in_name, cleaned), default=L.INT64_MAX)
    kept = []
    for name in swaps:
        offset = offset_in_name(name)
        if offset >= least:
            message = (
                f"the replacement belongs to a cleaning or split of which {least} is not finished, and goes"
            )
            place.note("leftover-swap", name, message)
            place.remove(name, "part of a cleaning or split that was not finished")
        else:
            place.note("leftover-swap", name, "the replacement is finished and takes its place")
            kept.append(name)
    for name in cleaned:
        place.note("leftover-cleaned", name, "the file of an unfinished cleaning or split goes")
        place.remove(name, "left by an unfinished cleaning or split")
    return kept


def _replaced_range(place: LoadState, settings: LoadSettings, swaps: list[str]) -> tuple[int, int]:
    """Step 3: from the first offset to behind the last; an empty range when no log is among them."""
    begin, end = L.INT64_MAX, -L.INT64_MAX - 1
    for name in swaps:
        if name.removesuffix(L.SWAP_SUFFIX).endswith(L.LOG_SUFFIX):
            segment = LoadedSegment(place, offset_in_name(name), settings, L.SWAP_SUFFIX)
            begin, end = min(begin, segment.base_offset), max(end, segment.next_offset())
    return begin, end


def _lies_in(name: str, begin: int, end: int) -> bool:
    try:
        return begin <= offset_in_name(name) < end
    except KafkaThrows:
        return False
