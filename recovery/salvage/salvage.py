"""Policy `salvage`: keep every valid batch at its offset; move what is not valid to the quarantine.

A broker truncates a log at the first byte that it cannot read. Salvage does not:

0. Restore damaged batches whose original bytes are known (`restored_bytes`), and plan for the result.
1. Complete interrupted cleanings and splits as a broker does, unless that would lose complete batches
   (`leftovers`). Keep files that are marked for deletion.
2. One pass checks everything as `verify` does, and records the valid parts of each log: runs of batches, damage, header
   fields outside the CRC that adjacent batches prove wrong (`assessment`, `valid_runs`). If nothing is wrong, salvage ends here.
3. Of duplicate offsets keep one copy, by stated rules; offsets strictly increase (`overlaps`). Batches whose base offset
   contradicts adjacent batches are corrected, moved where they belong, or removed (`misplaced_batches`).
4. What is kept becomes segments: mostly the original files, truncated or with holes closed; renamed, merged or split where
   their offsets require it (`segment_layout`). Contents are spans of the original files. Only a corrected header field
   is rewritten: the CRC does not cover base offset, leader epoch and magic, so the batch stays valid.
5. Rebuild side files of logs that changed, and those that are wrong or missing, in one pass over the headers
   (`rebuilt_side_files`); correct entries are kept, even those that a rebuild would write differently. Snapshots after a change
   are rebuilt, those beyond the log end removed.
6. Account for everything that is removed: bytes kept + bytes removed = bytes found (`losses`).
7. Assess the planned result in the same way until nothing more changes (`fixpoint`): a corrected or moved batch
   may be evidence about another one.

A batch with a valid checksum is kept even when it does harm: a data batch outside the open transaction of its producer
(its marker was lost) makes a broker's load fail, a header that contradicts its records stops consumers. That is reported
with the position, and left to the operator. Transactions whose marker may be among the lost bytes are reported.
"""

from kseg.change.plan.steps import FileIdentity
from kseg.recovery.policy import BrokerState, LoadSettings, Repair
from kseg.recovery.salvage.one_pass import salvage_once
from kseg.recovery.salvage.restored_bytes import is_wanted
from kseg.recovery.salvage.working_image import WorkingImage
from kseg.segment.errors import Refused


def salvage(
    directory: str,
    inputs: tuple[FileIdentity, ...],
    broker_state: BrokerState,
    settings: LoadSettings,
    *,
    rebuild: bool = False,
    repair_bits: bool = False,
) -> Repair:
    """The result of salvage for the partition in `directory`, whose files are `inputs` (others are not checked).

    rebuild: all side files are rebuilt. repair_bits: a batch that is valid with one bit inverted is restored. Raises UnreadableInput when a
    log cannot be read, and with `repair_bits` Refused when there is no room to assemble a restored log.
    """
    working_image = WorkingImage(directory, inputs)
    repair = salvage_once(working_image, broker_state, settings, rebuild=rebuild)
    if any(is_wanted(each, with_bits=repair_bits) for each in repair.restorable):
        from kseg.recovery.salvage.fixpoint import salvaged_after_restoring

        try:
            return salvaged_after_restoring(
                repair.restorable,
                working_image,
                broker_state,
                settings,
                rebuild=rebuild,
                repair_bits=repair_bits,
            )
        except Refused:
            if repair_bits:
                raise
    if repair.image == working_image.found:
        return repair
    from kseg.recovery.salvage.fixpoint import salvaged_to_fixpoint  # most partitions do not need it

    return salvaged_to_fixpoint(repair, working_image, broker_state, settings)
