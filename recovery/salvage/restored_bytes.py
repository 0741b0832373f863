"""Restore damaged batches whose original bytes are known, before anything is removed.

    the length field     the CRC does not cover it. If the contents match their CRC with another length, that is the length.
    one inverted bit     only one bit can explain a checksum that does not match (`segment.scanning.flipped_bits`). More damage than one bit
                         is explained by one bit rarely, but not never: only on request.

1. Salvage reports what is restorable (`Repair.restorable`). The plan of that round is dropped.
2. The bytes are replaced in the image, each log keeps its size. Salvage plans for that image, as if it had found it.
3. The next batch of the same damage may be restorable, too: repeat until nothing is left.

What a later round says about positions and names is true of the files as found, since no byte has moved.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kseg.change.plan.content import Fresh, Piece, Span
from kseg.recovery.policy import Repair, Restorable
from kseg.recovery.salvage.working_image import WorkingImage
from kseg.segment import layout as L
from kseg.segment.counted import counted, offsets_words
from kseg.segment.findings import Finding
from kseg.segment.scanning.damage import end_by_length_field

RESTORED = "batch-restored"
_WHY = {False: "a length field is corrected", True: "inverted bits are corrected"}


def restored_round(
    working_image: WorkingImage, restorable: Sequence[Restorable], previous: Repair | None
) -> Repair:
    """A round that only restores bytes. working_image: as found. previous: the round before it, if that restored some as well. The offsets
    in its result are not those of a log, so another round must follow."""
    image = working_image.found.copy() if previous is None else previous.image.copy()
    findings = [] if previous is None else [*previous.findings]
    why: dict[str, str] = {} if previous is None else {**previous.why}
    for name in dict.fromkeys(each.file for each in restorable):
        of_file = [each for each in restorable if each.file == name]
        with working_image.reader.open(os.path.join(working_image.directory, name)) as file:
            patches: dict[int, bytes] = {}
            for each in of_file:
                patches |= _patches(each, file.view)
                findings += each.finding, _finding(each, file.view)
        image.write(name, _patched(image.content(name), patches), name)
        reasons = [_WHY[bool(each.damage.flipped)] for each in of_file]
        why[name] = "; ".join(dict.fromkeys([*filter(None, [why.get(name)]), *reasons]))
    return replace(Repair.without_log(image, tuple(findings)), why=why)


def is_wanted(restorable: Restorable, *, with_bits: bool) -> bool:
    """with_bits: whether inverted bits are corrected, too."""
    return with_bits or not restorable.damage.flipped


def _patches(restorable: Restorable, view: memoryview) -> Mapping[int, bytes]:
    """The new bytes, by position in the file as found."""
    damage = restorable.damage
    if damage.intact_length_bytes is not None:
        size = damage.intact_length_bytes - L.ENTRY_OVERHEAD
        return {restorable.position + L.LENGTH_POSITION: size.to_bytes(4, "big")}
    return {
        flipped.position: bytes([view[flipped.position] ^ 1 << flipped.bit]) for flipped in damage.flipped
    }


def _patched(content: Sequence[Piece], patches: Mapping[int, bytes]) -> Iterator[Piece]:
    """The content of a file with other bytes at these positions."""
    start, ordered = 0, sorted(patches.items())
    for piece in content:
        end = start + piece.length
        if isinstance(piece, Span):
            at = start
            for position, data in ordered:
                if at <= position < end:
                    yield Span(piece.name, piece.position + at - start, position - at)
                    yield Fresh(data)
                    at = position + len(data)
            yield Span(piece.name, piece.position + at - start, end - at)
        else:
            yield piece
        start = end


def _finding(restorable: Restorable, view: memoryview) -> Finding:
    damage, finding, position = restorable.damage, restorable.finding, restorable.position
    if damage.intact_length_bytes is not None:
        end = position + damage.intact_length_bytes
        how = f"its length field is set to {damage.intact_length_bytes - L.ENTRY_OVERHEAD}"
    else:
        end, first = position, damage.flipped[0]
        for flipped in damage.flipped:  # the batches in between are valid
            while end <= flipped.position:
                end = end_by_length_field(view, end, len(view)) or len(view)
        how = f"bit {first.bit} of the byte at position {first.position} is inverted"
        if len(damage.flipped) > 1:
            how = f"one bit is inverted in each of {len(damage.flipped)}, first {how}"
    first_offset, last_offset = finding.first_offset, finding.last_offset
    what = counted(end - position, "byte")
    if end - position == finding.length and first_offset is not None and last_offset is not None:
        what += f" with {offsets_words(first_offset, last_offset)}"
    else:
        first_offset = last_offset = None
    return Finding(
        RESTORED,
        finding.path,
        f"the {what} at position {position} are restored: {how}",
        position,
        end - position,
        first_offset,
        last_offset,
        {"restored_bytes": 4 if damage.intact_length_bytes is not None else len(damage.flipped)},
    )
