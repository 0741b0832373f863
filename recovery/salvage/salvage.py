"""Policy `salvage`: every valid batch stays, at its offset; what is not valid goes to the quarantine.

A broker keeps nothing behind the first byte it cannot read. Plan:

1. Leftovers of cleanings and splits are settled as a broker does, unless whole batches would be lost by it
   (`leftovers`). Files marked for deletion stay.
2. One pass judges everything as `verify` does, and notes what of each log is valid: stretches of batches, damage, header
   fields outside the checksum that neighbours prove wrong (`assessment`, `valid_runs`). Where nothing is wrong that is all.
3. What is held twice is held once, by stated rules; offsets rise strictly (`overlaps`). Batches whose base offset
   contradicts their neighbours are set right, put where they belong, or go (`misplaced_batches`).
4. What stays becomes segments: mostly the files as they are, cut or with holes closed; renamed, merged or split where
   their offsets say so (`segment_layout`). Contents are spans of the files as found. Only a header field that is set right
   is written anew: base offset, leader epoch and magic lie outside the checksum, so the batch stays valid.
5. Side files are rebuilt for logs that changed, and where they are wrong or missing, by one pass over the headers
   (`rebuilt_side_files`); entries that are true stay, also those that a rebuild would write otherwise. Snapshots behind a change
   are rebuilt, those behind the log end go.
6. Everything that goes is accounted for: bytes kept + bytes removed = bytes found (`losses`).
7. What would be left is judged in the same way, until nothing would change any more (`fixpoint`): what was set right or
   put elsewhere may be what tells of something else.

A batch under a right checksum stays even when it does harm: a data batch outside the open transaction of its producer
(its marker was lost) makes a broker's load die, a header that contradicts its records stops consumers. That is said,
with the position, and left to the operator. Transactions whose end may lie among the lost bytes are named.
"""

from kseg.change.plan.steps import FileIdentity
from kseg.recovery.policy import Circumstances, LoadSettings, Repair
from kseg.recovery.salvage.one_pass import look
from kseg.recovery.salvage.working_image import Draft


def salvage(
    directory: str,
    inputs: tuple[FileIdentity, ...],
    circumstances: Circumstances,
    settings: LoadSettings,
    *,
    rebuild: bool = False,
) -> Repair:
    """What salvage makes of the partition in `directory`, whose files are `inputs` (others are not looked at).

    rebuild: all side files anew. Raises UnreadableInput when a log cannot be read.
    """
    draft = Draft(directory, inputs)
    repair = look(draft, circumstances, settings, rebuild=rebuild)
    if repair.image == draft.found:
        return repair
    from kseg.recovery.salvage.fixpoint import settled  # most partitions need none

    return settled(repair, draft, circumstances, settings)
