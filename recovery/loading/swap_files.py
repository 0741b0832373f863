"""Complete interrupted cleanings, splits and deletions (fact sheet §6.2, steps 1 to 5; Kafka: LogLoader.load).

1. Delete every `.deleted`, except that of a KRaft snapshot. Note the smallest offset of any `.cleaned` file.
2. Delete every `.swap` at or above it: its split was not finished. Then delete all `.cleaned`.
3. The remaining `.log.swap` span a range of offsets, from the smallest base offset to the largest next offset. To find
   it a broker opens them, and so creates a missing index at its full size.
4. Delete every other file whose offset is in that range: segments that are replaced, their indexes and snapshots.
5. Rename every `.swap` to its final name.
"""

from kseg.recovery.loading.kafka_exceptions import BrokerException
from kseg.recovery.loading.load_state import LoadState, offset_in_name
from kseg.recovery.loading.loss_report import report_removed_log
from kseg.recovery.loading.segment import LoadedSegment
from kseg.recovery.policy import LoadSettings
from kseg.segment import layout as L
from kseg.segment.counted import offsets_words

_KRAFT_SNAPSHOT_DELETED = L.CHECKPOINT_SUFFIX + L.DELETED_SUFFIX


def resolve_leftovers(load_state: LoadState, settings: LoadSettings) -> None:
    """Carry out the steps above. Raises BrokerException."""
    swaps = _remove_temporary_files(load_state)
    if not swaps:
        return
    begin, end = _replaced_range(load_state, settings, swaps)
    for name in load_state.listing():
        if not name.endswith(L.SWAP_SUFFIX) and _is_in_range(name, begin, end):
            why = f"replaced by a finished cleaning or split of {offsets_words(begin, end - 1)}"
            if name.endswith(L.LOG_SUFFIX):
                report_removed_log(load_state, name, offset_in_name(name), "leftover-swap", is_replaced=True)
            load_state.remove(name, why)
    for name in load_state.listing():
        if name.endswith(L.SWAP_SUFFIX):
            final_name = name.removesuffix(L.SWAP_SUFFIX)
            if final_name in load_state.image and final_name.endswith(L.LOG_SUFFIX):
                # an empty replacement spans no offsets, but it still replaces the segment of the same name
                report_removed_log(
                    load_state, final_name, offset_in_name(final_name), "leftover-swap", is_replaced=True
                )
            load_state.rename(name, final_name, "a finished cleaning or split is completed")


def _remove_temporary_files(load_state: LoadState) -> list[str]:
    """Steps 1 and 2; returns the `.swap` files that remain."""
    cleaned, swaps = [], []
    for name in load_state.listing():
        if name.endswith(L.DELETED_SUFFIX) and not name.endswith(_KRAFT_SNAPSHOT_DELETED):
            load_state.note("leftover-deleted", name, "the file is marked for deletion and is deleted")
            load_state.remove(name, "marked for deletion")
        elif name.endswith(L.CLEANED_SUFFIX):
            cleaned.append(name)
        elif name.endswith(L.SWAP_SUFFIX):
            swaps.append(name)
    least = min(map(offset_in_name, cleaned), default=L.INT64_MAX)
    kept = []
    for name in swaps:
        offset = offset_in_name(name)
        if offset >= least:
            message = f"the replacement belongs to a cleaning or split whose file {least} is unfinished, and is deleted"
            load_state.note("leftover-swap", name, message)
            load_state.remove(name, "part of an unfinished cleaning or split")
        else:
            load_state.note("leftover-swap", name, "the replacement is complete and gets its final name")
            kept.append(name)
    for name in cleaned:
        load_state.note("leftover-cleaned", name, "the file of an unfinished cleaning or split is deleted")
        load_state.remove(name, "left by an unfinished cleaning or split")
    return kept


def _replaced_range(load_state: LoadState, settings: LoadSettings, swaps: list[str]) -> tuple[int, int]:
    """Step 3: from the first offset to the one after the last; an empty range if no `.log.swap` is among them."""
    begin, end = L.INT64_MAX, -L.INT64_MAX - 1
    for name in swaps:
        if name.removesuffix(L.SWAP_SUFFIX).endswith(L.LOG_SUFFIX):
            segment = LoadedSegment(load_state, offset_in_name(name), settings, L.SWAP_SUFFIX)
            begin, end = min(begin, segment.base_offset), max(end, segment.next_offset())
    return begin, end


def _is_in_range(name: str, begin: int, end: int) -> bool:
    try:
        return begin <= offset_in_name(name) < end
    except BrokerException:
        return False
